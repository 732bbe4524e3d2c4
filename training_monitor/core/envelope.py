"""The envelope of every JSON document: which schema it follows, what it is about, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NUMBERS = {"check": 2, "health": 2}  # of the schemas that have changed; all others have number 1

_HEAD = ("schema", "target", "verdict")


def schema_name(command: str) -> str:
    """Return the name of a schema. Its number rises when a key goes, or changes its name, type or meaning."""
    return f"training_monitor.{command}/{_NUMBERS.get(command, 1)}"


def wrap(
    command: str, keys: Mapping[str, Any], *, target: str | None = None, verdict: str | None = None
) -> dict[str, Any]:
    """Return a document: its `schema`, its `target` and `verdict` where it has them, and then its own keys.

    Args:
        command: the command whose schema the document follows, or `error`.
        keys: its own keys; a target or verdict among them is the document's.
        target: what was asked, as text.
        verdict: ok | warning | failed | unknown.
    """
    head = {"target": keys.get("target", target), "verdict": keys.get("verdict", verdict)}
    told = {name: value for name, value in head.items() if value is not None}
    return {"schema": schema_name(command), **told, **{name: keys[name] for name in keys if name not in _HEAD}}
