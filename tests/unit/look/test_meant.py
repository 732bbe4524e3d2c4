"""What counts as a training, and what an error suggests for a name that no training has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock, FakeJobs, FakeTransport
from training_monitor.core.errors import JobNotFound
from training_monitor.look.find_trainings import FoundFile, FoundTraining, FoundTrainings
from training_monitor.look.meant import find_process_job, read_all
from training_monitor.targets.asking import Answer, Site


def test_a_name_that_is_a_file_here_suggests_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("{x}", "train.py"):  # ./train.py would select a training that runs it
        (tmp_path / name).touch()
    transport = FakeTransport(FakeJobs(FakeClock()).answer)
    listed = "list the trainings with "
    for name, hint in (("{x}", "write ./{x} to select the log"), ("log", listed), ("train.py", listed)):
        with pytest.raises(JobNotFound) as caught:
            find_process_job("local", name, transport=transport)
        assert (caught.value.hint or "").startswith(hint)


UPLOAD = "upload-0123456789abcdef-2"


def found(names: list[str], *running: FoundTraining) -> list[str]:
    values: dict[str, Any] = {"running": FoundTrainings(running), "names": names, "signs": False, "files": ()}
    answers = [Answer(name, value) for name, value in values.items()]
    return [each.name for each in read_all(Site.of("local"), answers).trainings]


def test_an_upload_is_not_a_training_that_runs_or_has_ended() -> None:
    sending = FoundTraining(7, 1, "boot", 1, "sh command", process_job=f"process:{UPLOAD}")
    running = FoundTraining(8, 1, "boot", 1, "python train.py")
    assert found([UPLOAD, "lora-attempt-1"], sending, running) == ["pid 8"]
    assert found([UPLOAD, "samples-0123456789abcdef-1", "lora-attempt-1"], sending) == ["process:lora-attempt-1"]
    assert found(["upload-data"]) == ["process:upload-data"]
    assert found([UPLOAD]) == []


def test_nothing_is_found_for_sure_where_processes_of_others_are_hidden() -> None:
    for hides_others, logs, names in [(True, (), 1), (False, (), 0), (True, (FoundFile("/r/train.log", 5.0, 9),), 0)]:
        found = FoundTrainings((), hides_others=hides_others)
        values: dict[str, Any] = {"running": found, "names": [], "signs": False, "files": logs}
        meant = read_all(Site.of("local"), [Answer(name, value) for name, value in values.items()])
        assert [each.why for each in meant.hidden] == ["they are hidden on this machine (hidepid)"] * names
        assert not meant.not_seen  # what was seen earlier, its own, has ended
