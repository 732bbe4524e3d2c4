"""Logs and NCCL lines in the formats of many frameworks, launchers and versions, each read as labelled.

The rows of `more_logs.jsonl` and `more_transports.jsonl` are written after the format strings in the sources and
documentation of what `source` names, with numbers of their own: lines, and the fields that they must give.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training_monitor.logs.training_log import parse_progress
from training_monitor.look.nccl import parse_nccl_transport


def rows(name: str) -> list[dict[str, Any]]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def misread(found: object, expect: dict[str, Any]) -> dict[str, Any]:
    """What was read of the fields that are not as labelled; numbers may be off by 1 %, as they are rounded in logs."""
    wrong = {}
    for name, want in expect.items():
        got = getattr(found, name)
        number = isinstance(want, (int, float)) and not isinstance(want, bool) and got is not None
        if got != (pytest.approx(want, rel=0.01, abs=1e-9) if number else want):
            wrong[name] = got
    return wrong


def test_progress_is_read_in_the_format_of_every_framework() -> None:
    read = {
        row["source"]: misread(parse_progress("\n".join(row["lines"])), row["expect"])
        for row in rows("more_logs.jsonl")
    }
    assert {source: wrong for source, wrong in read.items() if wrong} == {}


def test_transports_are_read_in_the_wording_of_every_version() -> None:
    table = rows("more_transports.jsonl")
    read = {row["source"]: misread(parse_nccl_transport("\n".join(row["lines"])), row["expect"]) for row in table}
    assert {source: wrong for source, wrong in read.items() if wrong} == {}
