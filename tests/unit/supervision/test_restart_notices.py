"""Who is told of the restarts of auto_restart, and of its end."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import Behaviour
from tests.unit.supervision.test_auto_restart import Bench
from training_monitor.core.store import Store
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.supervision.restart_notices import RestartNotices


def told(bench: Bench, tmp_path: Path, *behaviours: Behaviour) -> list[str]:
    """The kinds of the notices of one supervised run, oldest first."""
    bench.jobs.behaviours = list(behaviours)
    store = Store(str(tmp_path / "told"))
    outbox = Outbox(TrainingNotifier([], store=store), store)
    notices = RestartNotices(outbox, "local", "train")
    bench.restart(job_name="train", on_event=notices.show, store=store)
    outbox.close()
    found = [kept.notice for kept in reversed(store.recent_notices())]
    assert all(notice.job_id and notice.job_id.startswith("local process:train-attempt-") for notice in found)
    assert all((notice.training, notice.target) == ("train", "local") for notice in found)
    assert all(str(notice.command).startswith("training-monitor logs local process:train-attempt-") for notice in found)
    assert all(bool(notice.log) == (notice.kind in ("failed", "ended")) for notice in found)
    assert all("Runtime" in dict(notice.fields) for notice in found if notice.kind in ("finished", "failed", "ended"))
    return [f"{notice.kind}: {dict(notice.fields).get('Resumes from', '')}" for notice in found]


def test_a_crash_and_a_good_end_are_told(bench: Bench, tmp_path: Path) -> None:
    notices = told(bench, tmp_path, Behaviour(crash_after=120), Behaviour())
    assert notices == ["restarted: /checkpoints/step_100", "finished: "]
    [last, *_] = Store(str(tmp_path / "told")).recent_notices()
    assert last.notice.text == "Latest checkpoint: step 300"


def test_a_run_that_a_person_stopped_is_told_as_ended(bench: Bench, tmp_path: Path) -> None:
    bench.clock.at(100, bench.jobs.stop_by_person)
    assert told(bench, tmp_path, Behaviour(total=5000)) == ["ended: "]


def test_a_run_that_is_given_up_is_told_as_failed(bench: Bench, tmp_path: Path) -> None:
    crash = Behaviour(crash_after=5, last_words="RuntimeError: CUDA error: an illegal memory access was encountered")
    notices = told(bench, tmp_path, crash)
    assert notices[-1] == "failed: " and notices.count("failed: ") == 1
