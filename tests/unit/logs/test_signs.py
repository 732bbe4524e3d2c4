"""A line that contains none of the signs tells nothing: shown by the names and patterns that are looked for."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from training_monitor.logs import events, fields, job_progress, parts, text
from training_monitor.logs.shapes import shape_of

try:
    from re import _constants as constants, _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as constants
    import sre_parse as parser

FIELD_PATTERNS = ("_RATE", "_EPOCH", "_TIMM_EPOCH", "_ETA", "_TIME_LEFT", "_SPENT_AND_LEFT", "_STEPS_TOOK")
NAME_PATTERNS = ("_FIRST_RATE", "_STEP_TIME", "_STEP_RATE")
LINE_PATTERNS = ("_NEW_ATTEMPT", "_OTHER_WORK_BEGINS", "_FINISHED", "_TOOK", "_SPELLED_BAR", "_SAVE")
SIGNS = (*fields.FIELD_SIGNS, *parts._SIGNS)
EVENT_PATTERNS = ("_SAVE", "_SAMPLE", "_HINT", "_UTILIZATION", "_GPU_MEMORY")

REPEATS = tuple(
    getattr(constants, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(constants, name)
)
Way = tuple[frozenset[str], str]  # texts that are in every match that takes this way, and the one that may go on


def ways(tree: Any, text: str = "") -> list[Way]:
    """The ways through a parsed pattern that begins after a text."""
    found: list[Way] = [(frozenset(), text)]
    for kind, argument in tree:
        found = [
            (have | more, rest) for have, begun in found for more, rest in ways_of_part(kind, argument, begun)
        ]  # fmt: skip
    return found


def ways_of_part(kind: Any, argument: Any, text: str) -> list[Way]:
    if kind is constants.LITERAL:
        return [(frozenset(), text + chr(argument).lower())]
    if kind is constants.SUBPATTERN:
        return ways(argument[3], text)
    if kind is constants.BRANCH:
        return [way for branch in argument[1] for way in ways(branch, text)]
    if kind in REPEATS and argument[0]:
        return [(have | {rest}, "") for have, rest in ways(argument[2], text)]
    if kind is constants.ASSERT:
        return [(have | {rest}, text) for have, rest in ways(argument[1])]
    if kind is constants.ASSERT_NOT or kind is constants.AT:
        return [(frozenset(), text)]
    return [(frozenset({text}), "")]


def without_sign(pattern: str, signs: tuple[str, ...]) -> list[set[str]]:
    """What the matches of a pattern certainly contain that may contain no sign."""
    found = ({*have, rest} for have, rest in ways(parser.parse(pattern)))
    return [said for said in found if not any(sign in each for sign, each in product(signs, said))]


def test_each_pattern_and_name_of_a_field_contains_a_sign() -> None:
    for name in [*FIELD_PATTERNS, *NAME_PATTERNS]:
        assert without_sign(getattr(fields, name).pattern, (*fields.FIELD_SIGNS, "lr")) == []
    subjects = {subject for subject, _ in fields._SPELLED_FIELDS.values()}
    names = fields._KNOWN_NAMES | fields._STEP_TIMES | fields._COUNTED_STEP_TIMES | subjects | {"batch_cost"}
    assert [name for name in names if not fields.may_have_fields(name)] == []
    brings = [pattern.pattern for _, pattern, wording in text._WORDINGS if re.sub(r"\\\d", "", wording).strip("_ ")]
    assert len(brings) > 20
    assert {pattern: said for pattern in brings if (said := without_sign(pattern, fields.FIELD_SIGNS))} == {}


def test_each_pattern_of_a_line_or_an_event_contains_a_sign() -> None:
    found: dict[str, Any] = {name: getattr(parts, name).pattern for name in LINE_PATTERNS}
    found |= {f"announced {name}": each.pattern for name, each in parts.ANNOUNCED}
    found["end of an epoch"] = job_progress._KERAS_BAR.pattern
    assert {name: said for name, each in found.items() if (said := without_sign(each, SIGNS))} == {}
    for name in EVENT_PATTERNS:
        assert without_sign(getattr(events, name).pattern, events._SIGNS) == []


def test_each_row_of_a_table_and_begin_of_an_attempt_shows_progress() -> None:
    for row in ["| 1 | 0.5 | nan |", "10,1e-05,-inf,45%", "3 no log 1:02:03 2.5h -", " 12  1,234 5s"]:
        cells = [cell.strip() for cell in re.split(r"\||,(?!\d{3})|\s(?!log)", row)]
        assert all(parts._CELL.fullmatch(cell) for cell in cells if cell)
        assert parts._ROW.fullmatch(row)
    for piece in ["Resuming from step 5", "Traceback (most recent call last):", "Running training"]:
        assert parts.told_by(piece.lower()).restart
        assert parts.shows_progress(piece, shape_of(piece))
