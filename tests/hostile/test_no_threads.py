"""A machine that refuses new threads: important data is kept; the rest fails with an error and leaves no trace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Place, Surroundings, wait_until
from tests.loopback.messaging import Services
from training_monitor.cli.live import Waiting
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.rest import request
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.jobs.claims import Claiming
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.jobs.stopping import ExitWatch
from training_monitor.notify import Webhook
from training_monitor.notify.heartbeat import Heartbeat
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.rent.worker import run_worker
from training_monitor.supervision.watcher import TrainingWatcher
from training_monitor.targets.asking import Site


class Machine:
    """How many threads are left for the package's own work; what reads the output of programs has some."""

    left: float = float("inf")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Let `Thread.start` fail as it does at the limit of processes, see `man setrlimit`."""
    found, start = Machine(), threading.Thread.start

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name.startswith("training_monitor "):
            if found.left <= 0:
                raise RuntimeError("can't start new thread")
            found.left -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    return found


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as found:
        yield found


def notice(number: int) -> Notice:
    return Notice("stalled", "It stalls", text="at step 3", job_id="night", generation=number)


def test_notices_are_kept_and_sent_when_there_is_a_thread(machine: Machine, services: Services, tmp_path: Path) -> None:
    outbox = Outbox(TrainingNotifier([Webhook(services.webhook)], timeout=5.0), Store(str(tmp_path)))
    machine.left = 0
    assert outbox.post(notice(1)) and not outbox.post(notice(1))
    outbox.close()
    assert services.asked == []
    machine.left = float("inf")
    with Outbox(TrainingNotifier([Webhook(services.webhook)], timeout=5.0), Store(str(tmp_path))) as outbox:
        outbox.post(notice(2))
        assert wait_until(lambda: len(services.asked) == 2)


def test_a_heartbeat_beats_when_there_is_a_thread(machine: Machine, services: Services) -> None:
    heartbeat = Heartbeat(services.webhook)
    machine.left = 0
    heartbeat.beat()
    machine.left = float("inf")
    heartbeat.beat()
    heartbeat.close()
    assert len(services.asked) == 1


def test_a_request_and_a_stream_fail_in_words(machine: Machine, services: Services, local: Place) -> None:
    log = local.folder / "training.log"
    log.write_text("step 1/10 loss 0.5\n")
    before = threading.active_count()
    machine.left = 0
    with pytest.raises(TrainingMonitorError, match="cannot start a thread for"):
        request("GET", services.webhook)
    for machine.left in (0, 1):
        watcher = TrainingWatcher("local", {"log_file": str(log)}, {})
        with pytest.raises(TrainingMonitorError, match="thread"):
            watcher.start_streaming(lambda update: None)
        assert wait_until(lambda: threading.active_count() <= before)
    assert services.asked == []


def test_the_end_of_a_job_is_seen_by_looking_where_nothing_can_wait_for_it(machine: Machine, local: Place) -> None:
    job = start_process_job("local", "sleep 600", "night")
    assert wait_until(lambda: "sleep 600 " in local.surroundings.processes().values()), "the job has not begun"
    watch, known = ExitWatch(Site.of("local")), local.surroundings.processes()
    machine.left = 0
    watch.follow(job)
    assert not watch.ended.is_set()
    machine.left = float("inf")
    assert wait_until(lambda: set(local.surroundings.processes()) <= set(known)), "a waiting shell was left behind"
    watch.follow(job)
    assert wait_until(lambda: set(local.surroundings.processes()) > set(known))
    watch.close()


def test_a_claim_is_renewed_as_soon_as_there_is_a_thread(
    machine: Machine, local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_renewed() -> bool:
        return "training_monitor claim" in [each.name for each in threading.enumerate()]

    monkeypatch.setenv("TRAINING_MONITOR_LEASE", "3")
    claim = Claiming(Site.of("local"), "night", Store(str(local.folder / "state")), lambda *_: None)
    machine.left = 0
    claim.hold()
    assert not is_renewed()
    machine.left = float("inf")
    claim.hold()
    assert is_renewed()
    claim.close()
    assert wait_until(lambda: not is_renewed())


def test_a_worker_without_its_helpers_says_so_and_takes_no_job(machine: Machine, surroundings: Surroundings) -> None:
    machine.left = 1
    before = threading.active_count()
    with pytest.raises(TrainingMonitorError, match="cannot start a thread for: worker 3"):
        run_worker(jobs=3, until_empty=True)
    assert threading.active_count() <= before


def test_progress_lines_are_given_up(machine: Machine) -> None:
    machine.left = 0
    with Waiting() as waiting:
        waiting.on("market", "asking")
