"""What is kept of a roll call: bounded in size and number, private, whole as soon as it is there."""

from __future__ import annotations

import gzip
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.store import Store
from training_monitor.core.values import KeptRollCall, WatchedJob
from training_monitor.look.kept_looks import last_roll_call
from training_monitor.look.meant import MeantTraining
from training_monitor.targets.target import parse_target
from training_monitor.why.before_end import MOST_BYTES, MOST_KEPT, keep, write_bundle
from training_monitor.why.ranks import Culprit, Explanation, Frame, Rank, RollCall, Stack
from training_monitor.why.report import Explained, format_explanation
from training_monitor.why.roll_call import explain_roll_call


def report_of(*ranks: Rank, at: float = 1.75e9) -> Any:
    seen = RollCall(ranks)
    meant = MeantTraining(WatchedJob(job_id="process:lora-attempt-1"), "lora")
    return format_explanation(Explained("local", meant, seen, explain_roll_call(seen), at, 2.0))


def rank(number: int, threads: int = 1, frames: int = 2) -> Rank:
    chance = random.Random(number)
    names = [f"f{chance.getrandbits(10_000):x}" for _ in range(frames * threads)]
    stacks = tuple(
        Stack(f"t{each}", tuple(Frame(name, "/train.py", 7) for name in names[each::threads]), not each)
        for each in range(threads)
    )
    return Rank("local", 100 + number, rank=number, world_size=2, stacks=stacks)


def read(folder: str) -> Any:
    return json.loads(gzip.decompress((Path(folder) / "report.json.gz").read_bytes()))


def test_a_report_is_kept_whole_in_a_private_folder(tmp_path: Path) -> None:
    report = report_of(rank(0), rank(1))
    folder = write_bundle(str(tmp_path), "process:lora-attempt-1", report)
    assert read(folder) == report and os.listdir(tmp_path) == ["process_lora"]
    assert {os.stat(path).st_mode & 0o777 for path in (folder, os.path.dirname(folder))} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in Path(folder).iterdir()} == {0o600}


def test_a_report_that_is_too_large_loses_the_threads_that_matter_least(tmp_path: Path) -> None:
    large = report_of(*(rank(number, threads=64, frames=4) for number in range(18)))
    folder = write_bundle(str(tmp_path), "process:lora-attempt-1", large)
    assert sum(path.stat().st_size for path in Path(folder).iterdir()) < MOST_BYTES
    assert all(len(each["stacks"]) == 1 and each["stacks"][0]["is_main"] for each in read(folder)["ranks"])
    huge = report_of(*(rank(number, threads=1, frames=400) for number in range(12)), at=1.76e9)
    folder = write_bundle(str(tmp_path), "process:lora-attempt-2", huge)
    assert sum(path.stat().st_size for path in Path(folder).iterdir()) < MOST_BYTES
    assert [each["stacks"] for each in read(folder)["ranks"]] == [[]] * 12 and read(folder)["explanation"]


def test_the_last_ten_of_a_training_are_kept_whatever_its_attempts_are_called(tmp_path: Path) -> None:
    folders = [
        write_bundle(str(tmp_path), f"process:lora-attempt-{number}", report_of(rank(0), at=1.75e9 + number))
        for number in range(1, 14)
    ]
    assert [os.path.exists(folder) for folder in folders] == [False] * 3 + [True] * MOST_KEPT


def test_a_name_from_outside_stays_below_the_state_folder(tmp_path: Path) -> None:
    for name in ("../../etc/x", "..", "/abs", "", "a\0b", "é" * 300):
        folder = write_bundle(str(tmp_path / "state"), name, report_of(rank(0), at=random.random() * 1e9))
        assert Path(folder).resolve().is_relative_to((tmp_path / "state").resolve())
    assert os.listdir(tmp_path) == ["state"]


def test_the_last_roll_call_is_found_by_every_attempt_of_the_training(tmp_path: Path) -> None:
    store, target = Store(str(tmp_path)), parse_target("local")
    assert last_roll_call(store, target, WatchedJob(job_id="process:lora-attempt-2")) is None
    kept = KeptRollCall(1.75e9, "rank 1 is late", "high", "process:lora-attempt-1", faulty_nodes=("gpu-1",))
    store.save_run("roll call local lora", kept, finished=True)
    assert last_roll_call(store, target, WatchedJob(job_id="process:lora-attempt-2")) == kept
    assert last_roll_call(store, target, WatchedJob(job_id="process:other")) is None


@pytest.mark.parametrize(
    ("confidence", "node", "suspects"),
    [("none", "a", ()), ("low", "a", ()), ("medium", "a", ("b",)), ("high", "a", ("b",)), ("high", None, ())],
)
def test_a_guess_or_the_only_known_node_makes_no_node_suspect(
    tmp_path: Path, confidence: str, node: str | None, suspects: tuple[str, ...]
) -> None:
    ranks = (replace(rank(0), node=node), replace(rank(1), node="b"))
    said = Explanation("rank 1 is late", confidence, (Culprit(1, "is late", ranks[1]),))
    job = WatchedJob(job_id="process:lora-attempt-1")
    told = Explained("local", MeantTraining(job, "lora"), RollCall(ranks), said, 1.75e9, 2.0)
    kept = keep(told, 1.75e9, job, Store(str(tmp_path)))
    assert (kept.suspect_nodes, kept.confidence) == (suspects, confidence)
