"""A GPU that only other processes use says nothing about a training."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_monitor.core.models import Answer
from training_monitor.look.host import gpu_question
from training_monitor.look.looks import gpus_behind
from training_monitor.targets.asking import Site

GPUS = "".join(f"{n}, GPU-{n}, H100, 97, 0, 100, 80000, 500, 700, 40, Disabled\\n" for n in range(2))
ABSENT = 2**22 + 1  # more than any pid


@pytest.mark.parametrize(
    ("users", "mine", "expected"),
    [
        ({0: "self"}, (ABSENT,), ["GPU-1"]),  # known here, and not its own: what GPU 0 does is another's
        ({0: "self", 1: "self"}, (ABSENT,), []),
        ({0: "self"}, ("self",), ["GPU-0"]),
        ({0: ABSENT}, (1,), ["GPU-0", "GPU-1"]),  # a number of the host: anybody's
        ({0: "self"}, (), ["GPU-0", "GPU-1"]),  # its processes are not seen
        ({}, (1,), ["GPU-0", "GPU-1"]),
    ],
)
def test_gpus_count_where_they_are_its_own_or_may_be(
    users: dict[int, object],
    mine: tuple[object, ...],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = "".join(f"{pid}, python a,b, GPU-{gpu}, 40\\n" for gpu, pid in users.items())
    rows = rows.replace("self", str(os.getpid()))
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncase $1 in *compute-apps*) printf '{rows}' ;; *) printf '{GPUS}' ;; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = Answer("gpu", Site.of("local").ask_one(gpu_question()))
    pids = [os.getpid() if each == "self" else int(str(each)) for each in mine]
    assert [gpu.uuid for gpu in gpus_behind(answer, pids)] == expected
