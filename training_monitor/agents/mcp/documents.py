"""The documents of tools, with their most important keys. Pure.

What a command prints with `--json` may have more keys, and lack some: an unknown reading is null, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
TABLE, ROWS, TEXTS = dict[str, Any], list[dict[str, Any]], list[str]


def tells(**keys: Any) -> Callable[[Function], Function]:
    """Say which keys the document of a tool has that runs a command, with their types: it returns them."""

    def note(function: Function) -> Function:
        told = {"exit_status": int, "said": str, **keys}
        function.__annotations__["return"] = cast(Any, TypedDict)("Document", told, total=False)
        return function

    return note


def functions_in(names: Mapping[str, Any]) -> tuple[Callable[..., Any], ...]:
    """Return the public functions that a module defines, in their order there, given all of its names."""
    own = [each for name, each in names.items() if not name.startswith("_") and callable(each)]
    return tuple(each for each in own if each.__module__ == names["__name__"])


class ActDocument(TypedDict, total=False):
    """What an act did, as its command says it; or, without `confirm`, what it would do: then `done` is false.

    `exit_status`: 0 ok, 1 bad or failed, 3 unknown (then `said` tells why).
    """

    exit_status: int
    said: str
    done: bool
    would: str
    command: str
    confirm: str


class WorkDocument(TypedDict):
    """Work that goes on without this server: `handle` names it for `work_status` and `stop_work`.

    status: PENDING | RUNNING | SUCCEEDED | FAILED | STOPPED | UNKNOWN. `result` is the last JSON document that it
    printed, `output` the end of what it printed; `exit_code` as for the command, None while it runs.
    """

    handle: str
    status: str
    message: str | None
    exit_code: int | None
    seconds: float | None
    result: dict[str, Any] | None
    output: str


class WorkListDocument(TypedDict):
    work: list[dict[str, Any]]


class StartedDocument(TypedDict, total=False):
    handle: str
    status: str
    command: str
    done: bool
    would: str
    confirm: str


class LogReading(TypedDict):
    """What a log text says: its newest progress, and the metrics of the user's own patterns."""

    progress: dict[str, Any]
    metrics: dict[str, Any]
