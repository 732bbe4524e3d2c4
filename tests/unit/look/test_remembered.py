"""Trainings that were seen before they ended. Pure."""

import pytest

from training_monitor.core.values import WatchedJob
from training_monitor.look.meant import MeantTraining
from training_monitor.look.remembered import KeptTraining, ended_since


def seen(pid: int, log: str, folder: str | None) -> MeantTraining:
    job = WatchedJob(log_file=log, pid=pid, process=f"{pid} 1 boot")
    return MeantTraining(job, f"train.py (pid {pid})", script="train.py", folder=folder)


@pytest.mark.parametrize(
    ("log", "folder", "is_replaced"),
    [
        ("/a/one.log", "/a", True),
        ("/a/two.log", "/a", True),
        ("/b/one.log", "/b", False),
        ("/a/one.log", "/b", True),
        ("/b/one.log", None, True),
    ],
)
def test_a_later_training_replaces_one_of_its_log_or_of_its_script_and_folder(
    log: str, folder: str | None, is_replaced: bool
) -> None:
    ended = seen(7, "/a/one.log", "/a")
    kept = KeptTraining(ended.job, ended.name, 0.0, script=ended.script, folder=ended.folder)
    assert ended_since([kept], [seen(8, log, folder)]) == ([] if is_replaced else [kept])
