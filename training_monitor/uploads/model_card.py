"""The README of a model whose training ended before its time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

INCOMPLETE_TAG = "incomplete"
_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./:-]*[A-Za-z0-9_])?")
_NOT_TEXT_IN_YAML = frozenset("true false yes no on off null y n".split())
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class IncompleteInfo:
    """Why and how far from its end a training was terminated; None is not known.

    `model_name` is the heading (default: the repository's name). `tags` and `base_model` go into the front matter;
    the tag `incomplete` is added to them.
    """

    model_name: str | None = None
    target_steps: int | None = None
    completed_steps: int | None = None
    reason: str = "ETA not converging"
    tags: tuple[str, ...] = ()
    base_model: str | None = None


def format_incomplete_card(info: IncompleteInfo, *, model_name: str = "Model") -> str:
    """The README.md of an unfinished model: front matter with its tags, a warning, how far it came and why it ended.

    Args:
        model_name: the heading where `info` names none.

    Returns:
        Markdown. Names and tags may hold anything: each stays one line, quoted where YAML would misread it.
    """
    lines = ["---", "tags:", *(f"  - {_yaml(tag)}" for tag in _tags(info.tags))]
    if info.base_model:
        lines.append(f"base_model: {_yaml(info.base_model)}")
    lines += [
        "---",
        "",
        f"# {_one_line(info.model_name or '') or _one_line(model_name)}",
        "",
        "⚠️ **This model was terminated early due to training stall.**",
        "",
        f"- Target steps: {_number(info.target_steps)}",
        f"- Completed steps: {_number(info.completed_steps)} ({_percent(info)})",
        f"- Reason: {_one_line(info.reason) or '?'}",
        "",
        "The model may still be usable but was not fully trained.",
        "",
    ]
    return "\n".join(lines)


def _tags(given: Sequence[str]) -> list[str]:
    """Each tag once, `incomplete` among them."""
    return list(dict.fromkeys([text for tag in given if (text := _CONTROL.sub(" ", tag).strip())] + [INCOMPLETE_TAG]))


def _yaml(text: str) -> str:
    """The text as a YAML scalar that is read back as this text."""
    line = _CONTROL.sub(" ", text).strip()
    if _PLAIN.fullmatch(line) and line.lower() not in _NOT_TEXT_IN_YAML:
        return line
    return json.dumps(line, ensure_ascii=False)


def _one_line(text: str) -> str:
    return _CONTROL.sub(" ", text).strip().replace("<", "&lt;")


def _number(steps: int | None) -> str:
    return "?" if steps is None else str(steps)


def _percent(info: IncompleteInfo) -> str:
    if info.completed_steps is None or not info.target_steps:
        return "?%"
    return f"{100 * info.completed_steps / info.target_steps:.1f}%"
