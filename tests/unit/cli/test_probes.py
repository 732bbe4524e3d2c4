"""What `doctor` concludes: of clocks, of what it cannot look at, and of a screen that is too small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from training_monitor.cli.commands.doctor import screen
from training_monitor.cli.probes import BROKEN, MISSING, WORKS, Check, _clock_difference, run_probe
from training_monitor.core.errors import StateError
from training_monitor.ui.kit.text import ASCII, UNICODE, Glyphs


def test_a_clock_is_compared_with_the_time_that_the_answer_took() -> None:
    for clock, said in [
        ("1000", ""),
        ("1006", ""),
        ("995", ""),
        ("1400", ", its clock is 6m38s ahead"),
        ("400", ", its clock is 9m59s behind"),
        ("", ""),
        ("%s", ""),
        ("-5", ""),
        ("9" * 40, ""),
    ]:
        assert _clock_difference(clock, asked=1000.2, answered=1002.0) == said


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/x"), StateError("it is full")])
def test_what_cannot_be_looked_at_is_broken_and_what_was_seen_before_stays(error: Exception) -> None:
    def probe() -> Iterator[Check]:
        yield Check("first", WORKS, "seen")
        raise error

    first, second = run_probe("pods", probe)
    assert (first.name, first.group, first.state) == ("first", "pods", WORKS)
    assert (second.name, second.group, second.state) == ("pods", "pods", BROKEN) and str(error) in second.found


def test_only_what_works_is_cut_to_the_terminal_and_marks_may_be_ascii() -> None:
    long = "x" * 100
    lines = text_of([Check("a", WORKS, long, "", "g"), Check("b", MISSING, long, "mend", "g")], 60)
    assert lines[0] == "g" and len(lines[1]) == 60 and lines[1].endswith("…") and lines[2].endswith(long)
    assert lines[3].endswith("→ mend") and lines[4] == "1 missing (only a problem if you need them)"
    checks = [Check(state, state, "für\n" + "x" * 99, "mend", "g") for state in (WORKS, MISSING, BROKEN)]
    lines = text_of(checks, 60, ASCII)
    assert all(line.isascii() for line in lines)
    assert [lines[at][:11] for at in (1, 2, 4)] == ["  + ok     ", "  - missing", "  x broken "]
    assert lines[-1] == "1 broken, 1 missing (only a problem if you need them)"
    assert text_of(checks[:1], 60)[-1] == "all checks passed"


def text_of(checks: list[Check], width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    return ["".join(text for text, _ in line) for line in screen(checks, width, glyphs)]
