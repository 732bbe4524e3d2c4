"""What a command of the command line takes: for completion, the man page, and tools of the MCP server. Pure."""

from __future__ import annotations

from typing import NamedTuple

NO_VALUE, ONE, OPTIONAL, SEVERAL, REST = "", "1", "?", "*", "..."


class Argument(NamedTuple):
    """An option, or a positional argument, which has no names.

    Attributes:
        key: its name for programs, such as `stall_after`.
        values: NO_VALUE, ONE, OPTIONAL (none or one), SEVERAL (or none), or REST of the line.
        completes: what shells complete it with: FILES, FOLDERS, a kind of `known_names`, or "" for free text.
        default: of a positional argument that may be left out; None: it has none.
        type: of one value: string | integer | number, as JSON Schema calls it.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    values: str
    completes: str
    choices: tuple[str, ...]
    is_repeatable: bool
    key: str = ""
    default: str | None = None
    type: str = "string"

    @property
    def is_required(self) -> bool:
        return not self.names and self.values in (ONE, REST)
