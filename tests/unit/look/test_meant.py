"""What an error suggests for a name that no training has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import FakeClock, FakeJobs, FakeTransport
from training_monitor.core.errors import JobNotFound
from training_monitor.look.meant import find_process_job


def test_a_name_that_is_a_file_here_suggests_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "{x}").touch()
    transport = FakeTransport(FakeJobs(FakeClock()).answer)
    for name, hint in (("{x}", "write ./{x} to select the log"), ("log", "list the trainings with ")):
        with pytest.raises(JobNotFound) as caught:
            find_process_job("local", name, transport=transport)
        assert (caught.value.hint or "").startswith(hint)
