"""What a notebook or a terminal shows of a value: a headline, facts, lists and tables. Pure.

Any value of this package and any dict that it returns becomes a `Panel` by the names of its parts: `verdict`, `state`
and `reason` are the headline, rows of a kind are a table. Fields that are left out of the `repr` are left out here.
What came from machines is cleaned, bounded, and without secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from training_monitor.core.masking import redact, redact_named
from training_monitor.core.regex import regex
from training_monitor.core.shown import shown, text_of
from training_monitor.core.units import format_bytes, format_duration, format_local, name_some, plural

MOST_ROWS, MOST_COLUMNS, MOST_FACTS, MOST_UNKNOWN = 50, 10, 60, 12
MOST_TEXT = 300  # characters
UNKNOWN = "?"
_LARGEST = 1e300
# By what a value says of itself.
LEVELS = {
    **dict.fromkeys(("ok", "healthy", "succeeded"), "ok"),
    **dict.fromkeys(("warning", "slow", "suspended", "stopped"), "warning"),
    **dict.fromkeys(("failed", "error", "stalled"), "failed"),
    **dict.fromkeys(("unknown", "timeout"), "unknown"),
}
_HEADLINE = ("schema", "verdict", "healthy", "success")  # never a fact of their own
_NO_NEWS = ("not_looked_at", "forgotten", "unlisted", "unlisted_checkpoints")  # of none of these
_JUDGED = ("verdict", "level", "health_status")  # columns
_COLUMNS = {  # of rows with the key
    "seconds_without_step": "name verdict state reason step total_steps loss steps_per_second eta_seconds",
    "start_step": "number job_id status start_step final_step steps_lost checkpoint reason",
    "actual_status": "id label actual_status gpu_name num_gpus gpu_util dph_total cur_state ssh_host ssh_port",
}
_FORMATS: tuple[tuple[Any, Callable[[float], str]], ...] = (
    (regex(r".*_seconds|seconds_.*|duration|runtime|grace_period_remaining|(.*_)?age"), format_duration),
    (regex(r"(.*_)?bytes"), format_bytes),
    (regex(r".*_mb"), lambda count: format_bytes(count * 2**20)),
    (regex(r"(.*_)?(util|utilization|percent|percentage)"), lambda percent: f"{percent:.0f} %"),
    (regex(r"progress|goodput|(.*_)?fraction"), lambda share: f"{share:.0%}"),
    (regex(r"(.*_)?dollars(_.*)?|cost_per_hour|total_cost|credit|spent|dph_total"), lambda dollars: f"${dollars:.3f}"),
)
_UNIT = regex(r"_(?:seconds|bytes|mb|percentage|percent)$")
_TIMES = regex(r"(.*_)?(timestamp|since|updated|first|last)|.*_at")
_FIRST_TIME = 1e8  # epoch seconds: a smaller number of that name is a count or an amount


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a kind; `left_out` counts those that are not shown. `judged`: whether a column has verdicts or levels."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0
    judged: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """What is shown of one value. All texts are cleaned; none is escaped for HTML.

    Attributes:
        title: what it is, or the state that it tells of. level: ok | warning | failed | unknown; None: it judges
            nothing.
        said: why, in a sentence.
        facts: names and values. unknown: the names of what is not known.
        lists: names, and sentences of each.
    """

    title: str
    level: str | None = None
    said: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tables: tuple[Table, ...] = ()
    unknown: tuple[str, ...] = ()


def panel_of(value: object, title: str = "") -> Panel:
    """Return what is shown of a value of this package, of a dict, or of a list of either."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _panel_of_rows(title, list(value))
    parts = parts_of(value)
    if parts is None:
        return Panel(title or type(value).__name__, said=clean(value))
    level, heading, said = _headline(value, parts)
    told = {heading, said}
    facts, lists, tables, unknown = list[tuple[str, str]](), [], list[Table](), []
    for name, part in _flat(parts):
        kind = _kind_of(part)
        if name in _NO_NEWS and not part:
            continue
        if part is None:
            unknown.append(label_of(name))
        elif kind == "rows":
            tables.append(table_of(label_of(name), list(part)))
        elif kind == "texts":
            lists.append((label_of(name), tuple(clean(each) for each in list(part)[:MOST_ROWS])))
        elif kind != "empty" and name not in _HEADLINE and (text := format_part(name, part)) not in told:
            facts.append((label_of(name), text))
    return Panel(title or heading, level, said, tuple(facts[:MOST_FACTS]), tuple(lists), tuple(tables), tuple(unknown))


def table_of(title: str, rows: Sequence[object]) -> Table:
    """Return a table of values or dicts of one kind."""
    read = [parts_of(row) or {"value": row} for row in rows[:MOST_ROWS]]
    names = _columns_of(rows[0], read) if rows else []
    cells = [[_cell(row, parts, name) for name in names] for row, parts in zip(rows, read)]
    head, left_out = tuple(map(label_of, names)), max(0, len(rows) - MOST_ROWS)
    return Table(title, head, tuple(map(tuple, cells)), left_out, tuple(name in _JUDGED for name in names))


def parts_of(value: object) -> Mapping[str, Any] | None:
    """Return the parts of a value by name, without those that its `repr` leaves out; None for a plain value."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
    return value if isinstance(value, Mapping) else None


def clean(value: object) -> str:
    """Return what is shown of a foreign text: one line, bounded, without secrets."""
    text = " ".join(redact(shown(text_of(value)[: 4 * MOST_TEXT])).split())
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def label_of(name: str) -> str:
    """Return the name of a part in words; its value has the unit."""
    return _UNIT.sub("", clean(name).replace("seconds_", "time_", 1)).replace("_", " ")


def format_part(name: str, value: object) -> str:
    """Format one part of a value, with the unit that its name tells."""
    if value is None:
        return UNKNOWN
    if (parts := parts_of(value)) is not None:
        return _inline(parts)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return clean(", ".join(_format_plain(name, each) for each in list(value)[:MOST_ROWS]))
    return _format_plain(name, value)


def _inline(parts: Mapping[str, Any]) -> str:
    """Return a value inside another one: what it says, or what is known of it."""
    if (reason := parts.get("reason")) and isinstance(reason, str):
        state = parts.get("state") or parts.get("kind")
        return clean(f"{state}: {reason}" if state else reason)
    known = [
        f"{label_of(str(name))} {_format_plain(str(name), part)}"
        for name, part in parts.items()
        if part is not None and _kind_of(part) == "one" and parts_of(part) is None
    ]
    return clean(", ".join(known)) or UNKNOWN


def _format_plain(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return clean(redact_named(name, value))
    if _TIMES.fullmatch(name) and _FIRST_TIME <= value:
        return format_local(value, "%m-%d %H:%M:%S")
    for pattern, show in _FORMATS:
        if pattern.fullmatch(name) and abs(value) <= _LARGEST:
            return show(value)
    return f"{value:.5g}" if isinstance(value, float) else clean(value)


def _flat(parts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parts; those of a dict that has rows itself one by one, such as the GPUs of a health report."""
    for name, part in list(parts.items())[: 2 * MOST_FACTS]:
        if isinstance(part, Mapping) and any(_kind_of(each) == "rows" for each in part.values()):
            yield from ((f"{name}_{inner}", each) for inner, each in part.items())
        else:
            yield str(name), part


def _kind_of(part: object) -> str:
    """Return how a part is shown: one | rows | texts | empty."""
    if isinstance(part, Mapping):
        return "one" if part else "empty"
    if not isinstance(part, Sequence) or isinstance(part, str | bytes):
        return "empty" if part == "" else "one"
    if not part:
        return "empty"
    if all(parts_of(each) is not None for each in part):
        return "rows"
    return "texts" if all(isinstance(each, str) and " " in each for each in part) else "one"


def _panel_of_rows(title: str, rows: Sequence[object]) -> Panel:
    kinds = {type(row).__name__ for row in rows}
    one = "entry" if kinds in (set(), {"dict"}) or len(kinds) > 1 else kinds.pop()
    counted = plural(len(rows), one, None if one != "entry" else "entries")
    table = table_of("", rows)
    return Panel(title or counted, said=counted if title else "", tables=(table,) if rows else ())


def _columns_of(row: object, read: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of a table: those that its class or its kind names, or else what is known of any row."""
    named: tuple[str, ...] | None = getattr(type(row), "COLUMNS", None)
    if named:
        return list(named)
    chosen = next((names.split() for key, names in _COLUMNS.items() if key in read[0]), None)
    names = chosen or list(dict.fromkeys(str(name) for parts in read for name in parts))
    return [name for name in names if any(_is_known(parts.get(name)) for parts in read)][:MOST_COLUMNS]


def _is_known(part: object) -> bool:
    return part is not None and _kind_of(part) == "one"


def _cell(row: object, parts: Mapping[str, Any], name: str) -> str:
    value = parts[name] if name in parts else getattr(row, name, None)
    value = value() if callable(value) else value
    return "" if _kind_of(value) == "empty" else format_part(name, value)


def _headline(value: object, parts: Mapping[str, Any]) -> tuple[str | None, str, str]:
    """Return the level, the title and the sentence of a value."""
    is_dict, told = isinstance(value, Mapping), parts.get("verdict")
    if callable(health := getattr(value, "health", None)):  # a row of a fleet
        found = health()
        return LEVELS[found.level], clean(parts["name"] or parts["instance_id"]), clean(found.reason)
    if (inner := parts_of(told)) is not None:
        return _headline(told, inner)
    said = parts.get("reason") or parts.get("error") or ""
    word = told or parts.get("level") or (parts.get("status") if is_dict else None)
    level = LEVELS.get(str(word).lower()) if word else None
    for name in ("success", "healthy"):
        if level is None and isinstance(parts.get(name), bool):
            level = "ok" if parts[name] else "unknown" if parts.get("error") else "failed"
    title = parts.get("state") or (_name_of(parts) if is_dict else type(value).__name__)
    return level, clean(title), clean(said) if isinstance(said, str) else ""


def _name_of(parts: Mapping[str, Any]) -> str:
    """Return what a dict is about."""
    for name in ("target", "job_id", "name"):
        if isinstance(parts.get(name), str):
            return clean(parts[name])
    return "report"


# ---------------------------------------------------------------- as text


def format_text(panel: Panel) -> str:
    """Return a panel as lines of plain text."""
    judged = f" ({panel.level})" if panel.level and panel.level != panel.title else ""
    lines = [f"{panel.title}{judged}{f': {panel.said}' if panel.said else ''}"]
    width = max((len(name) for name, _ in panel.facts), default=0)
    lines += [f"  {name:<{width}}  {text}" for name, text in panel.facts]
    for name, texts in panel.lists:
        lines += [f"{name}:", *(f"  - {text}" for text in texts)]
    for table in panel.tables:
        lines += _lines_of(table)
    if panel.unknown:
        lines.append(f"not known: {name_some(panel.unknown, MOST_UNKNOWN)}")
    return "\n".join(lines)


def _lines_of(table: Table) -> Iterator[str]:
    if table.title:
        yield f"{table.title}:"
    rows = [tuple(cell if len(cell) <= 60 else f"{cell[:59]}…" for cell in row) for row in (table.head, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    yield from ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
    if table.left_out:
        yield f"  and {table.left_out} more"
