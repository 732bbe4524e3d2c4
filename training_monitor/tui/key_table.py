"""A key of a screen: what it is called, what it does, and what is said of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

ViewT = TypeVar("ViewT")
SnapshotT = TypeVar("SnapshotT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Key(Generic[ViewT, SnapshotT, ResultT]):
    """`names` are what the terminal calls the keys, `shown` what people do; `word` is for the line of keys.

    `changes` says that it changes what is looked at: a screen that is read-only refuses it.
    """

    names: tuple[str, ...]
    shown: str
    help: str
    act: Callable[[ViewT, SnapshotT], ResultT]
    word: str = ""
    changes: bool = False


KeyT = TypeVar("KeyT", bound=Key[Any, Any, Any])


def by_name(tables: Mapping[str, Sequence[KeyT]]) -> dict[str, dict[str, KeyT]]:
    """The keys of each screen by what the terminal calls them."""
    return {screen: {name: key for key in table for name in key.names} for screen, table in tables.items()}
