"""The account's instances by the real vastai CLI and a loopback REST API: listed whole, and destroyed for certain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import EPOCH, FakeClock
from tests.integration.conftest import WRONG_KEY, WatchedTransport, failures_of, wait_until
from tests.loopback.vast import LIST, VastApi, destroy_request, failure, reboot_request, stop_request
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    CommandTimedOut,
    InstanceNotFound,
    TargetUnreachable,
)
from training_monitor.core.store import Store
from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast import instances
from training_monitor.vast.instances import (
    Destruction,
    destroy_instance,
    list_instances,
    reboot_instance,
    show_instance,
    start_instance,
    stop_instance,
)
from training_monitor.vast.rentals import record_rental
from training_monitor.vast.training_request import Rental, TrainingRequest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def vast(vast: VastApi) -> VastApi:
    """With some instances."""
    for number in (6, 7, 8):
        vast.add_instance(number)
    return vast


def listed(transport: WatchedTransport) -> list[int]:
    return [row["id"] for row in list_instances(transport=transport)]


def destroy(transport: WatchedTransport, clock: FakeClock | None = None, number: int = 7) -> Destruction:
    return destroy_instance(str(number), transport=transport, clock=clock or FakeClock())


def failures(transport: WatchedTransport) -> list[CommandError]:
    """What list and destroy raise."""
    return failures_of(lambda: listed(transport), lambda: destroy(transport))


# ---------------------------------------------------------------- the list


def test_all_pages_are_listed(vast: VastApi, transport: WatchedTransport) -> None:
    for number in range(1, 61):
        vast.add_instance(number)
    assert listed(transport) == list(range(1, 61))
    assert vast.about_instances() == [LIST, f"{LIST} after 25", f"{LIST} after 50"]


def test_a_row_is_as_the_service_describes_it(vast: VastApi, transport: WatchedTransport) -> None:
    row = vast.add_instance(6, label="a run", start_date=None, extra_env=None)
    assert list_instances(transport=transport)[0] == row


def test_an_invalid_key_is_access_denied_not_an_empty_account(
    vast: VastApi, transport: WatchedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", WRONG_KEY)
    for error in failures(transport):
        assert type(error) is AccessDenied and "vastai set api-key" in str(error)
    assert sorted(vast.instances) == [6, 7, 8]


@pytest.mark.parametrize(("status", "kind"), [(403, AccessDenied), (500, TargetUnreachable)])
def test_a_service_that_fails_is_an_error_not_an_empty_account(
    vast: VastApi, transport: WatchedTransport, status: int, kind: type[CommandError]
) -> None:
    vast.fail_with = status
    for error in failures(transport):
        assert type(error) is kind and "something broke" in str(error)


def test_a_service_that_is_down_is_unreachable(vast: VastApi, transport: WatchedTransport) -> None:
    vast.stop()
    for error in failures(transport):
        assert type(error) is TargetUnreachable and "refused" in str(error)


def test_a_service_that_hangs_as_the_cli_starts_is_left_after_the_time_limit(
    vast: VastApi, transport: WatchedTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    vast.hang = "GET /api/v0/gpu_names/unique/"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))  # the CLI asks once for what it keeps here
    monkeypatch.setattr(instances, "VAST_TIMEOUT", 0.3)
    with pytest.raises(CommandTimedOut):
        destroy(transport)
    assert sorted(vast.instances) == [6, 7, 8]


@pytest.mark.usefixtures("ended_2fa_session")
def test_a_2fa_session_that_ended_leaves_the_list_of_the_saved_key(transport: WatchedTransport) -> None:
    assert listed(transport) == [6, 7, 8]


# ---------------------------------------------------------------- destroy


def test_an_instance_is_destroyed_and_seen_gone_and_no_other_is_touched(
    vast: VastApi, transport: WatchedTransport
) -> None:
    assert destroy(transport) == Destruction(7, acknowledged=True)
    assert vast.about_instances() == [destroy_request(7), "GET /api/v0/instances/7/", LIST]
    assert sorted(vast.instances) == [6, 8]


def test_destroying_a_missing_instance_sends_the_request(vast: VastApi, transport: WatchedTransport) -> None:
    for number in (7, 99):
        vast.instances.pop(number, None)
        assert destroy(transport, number=number) == Destruction(number, acknowledged=False)
    assert vast.destroyed() == [destroy_request(7), destroy_request(99)]


def test_a_lost_reply_does_not_move_the_end_of_what_is_paid_to_the_last_look(
    vast: VastApi, transport: WatchedTransport, tmp_path: Path
) -> None:
    store, clock = Store(str(tmp_path / "state")), FakeClock()
    job = TrainingQueue(store, clock=clock).submit(TrainingRequest("lora", command="train"))
    record_rental(store, job.id, Rental(7, 1, 1.0, EPOCH, seen_at=EPOCH + 60.0))
    clock.sleep(600.0)
    vast.lost, vast.lost_once = {destroy_request(7)}, {destroy_request(7)}
    destroy_instance("7", store=store, transport=transport, clock=clock)
    [rental] = TrainingQueue(store, clock=clock).get(job.id).work.rentals
    assert rental.ended_at == EPOCH + 600.0 and 7 not in vast.instances


def refused_destroy(vast: VastApi, code: int, answer: dict[str, object]) -> None:
    vast.answers[destroy_request(7)] = (code, answer)


@pytest.mark.parametrize(
    ("code", "answer", "said"),
    [
        (200, {"success": True}, "destroying instance 7."),
        (500, failure("server_error", "something broke"), "Failed with error 500: something broke"),
    ],
)
def test_an_instance_that_stays_is_an_error_with_vastais_words(
    vast: VastApi,
    transport: WatchedTransport,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    answer: dict[str, object],
    said: str,
) -> None:
    monkeypatch.setattr(instances, "GONE_SECONDS", 2.0)
    refused_destroy(vast, code, answer)
    with pytest.raises(CommandFailed) as caught:
        destroy(transport)
    assert "instance 7 still exists" in str(caught.value) and f"(vastai printed: {said})" in str(caught.value)
    assert "vastai destroy instance 7 -y" in str(caught.value)
    assert sorted(vast.instances) == [6, 7, 8]


def test_one_that_was_killed_while_it_destroyed_is_taken_up_by_the_next(
    vast: VastApi, transport: WatchedTransport
) -> None:
    vast.hang = destroy_request(7)
    program = "from training_monitor.vast.instances import destroy_instance; destroy_instance('7')"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=os.environ) as process:
        assert wait_until(vast.hanging.is_set)
        process.kill()
    vast.hang = None
    destroy(transport)
    assert sorted(vast.instances) == [6, 8]
    assert set(vast.destroyed()) == {destroy_request(7)}


# ---------------------------------------------------------------- show


def test_one_instance_is_shown_even_where_the_cli_fails_over_it(vast: VastApi, transport: WatchedTransport) -> None:
    vast.add_instance(7, label="a run", extra_env=[["A", "1"]])
    row = show_instance("7", transport=transport)
    assert (row["id"], row["label"], row["extra_env"]) == (7, "a run", {"A": "1"})
    vast.add_instance(7, label="booting", start_date=None)
    assert show_instance("7", transport=transport)["label"] == "booting"


def test_only_the_service_says_that_there_is_no_instance(vast: VastApi, transport: WatchedTransport) -> None:
    with pytest.raises(InstanceNotFound):
        show_instance("99", transport=transport)
    vast.fail_with = 500
    with pytest.raises(TargetUnreachable, match="500"):
        show_instance("99", transport=transport)
    vast.fail_with, vast.answers["GET /api/v0/instances/7/"] = 0, (200, failure("busy", "try later"))
    assert show_instance("7", transport=transport)["id"] == 7
    vast.stop()
    with pytest.raises(TargetUnreachable, match="refused"):
        show_instance("99", transport=transport)


# ---------------------------------------------------------------- stop


def stop(transport: WatchedTransport, number: int = 7) -> None:
    stop_instance(str(number), transport=transport, clock=FakeClock())


def test_an_instance_is_stopped_and_seen_stopped(vast: VastApi, transport: WatchedTransport) -> None:
    stop(transport)
    shown = "GET /api/v0/instances/7/"
    assert vast.about_instances() == [shown, stop_request(7), shown]
    assert [vast.instances[number]["actual_status"] for number in (6, 7, 8)] == ["running", "exited", "running"]


def test_an_instance_that_exited_by_itself_is_stopped_nevertheless(vast: VastApi, transport: WatchedTransport) -> None:
    vast.add_instance(7, actual_status="exited")
    stop(transport)
    assert vast.instances[7]["intended_status"] == "stopped"


def test_an_instance_that_runs_on_is_named_with_what_vastai_said(
    vast: VastApi, transport: WatchedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "GONE_SECONDS", 2.0)
    vast.keeps_running = True
    with pytest.raises(CommandFailed, match=r"instance 7 is not stopped.*\(vastai printed: stopping instance 7\.\)"):
        stop(transport)


# ---------------------------------------------------------------- start and reboot


def test_a_stopped_instance_is_started_and_seen_to_run(vast: VastApi, transport: WatchedTransport) -> None:
    stop(transport)
    start_instance("7", transport=transport, clock=FakeClock())
    assert vast.instances[7]["intended_status"] == vast.instances[7]["actual_status"] == "running"
    vast.requests.clear()
    start_instance("7", transport=transport, clock=FakeClock())
    assert vast.about_instances() == ["GET /api/v0/instances/7/"]  # it runs


def test_an_instance_that_stays_stopped_is_a_failure(
    vast: VastApi, transport: WatchedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(transport)
    monkeypatch.setattr(instances, "GONE_SECONDS", 2.0)
    vast.keeps_running = True
    with pytest.raises(CommandFailed, match=r"instance 7 is still stopped.*\(vastai printed: starting instance 7\.\)"):
        start_instance("7", transport=transport, clock=FakeClock())


def test_an_instance_is_rebooted_once_and_seen_to_go_down(
    vast: VastApi, transport: WatchedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "GONE_SECONDS", 2.0)
    reboot_instance("7", transport=transport, clock=FakeClock())
    shown = "GET /api/v0/instances/7/"
    assert vast.about_instances() == [shown, reboot_request(7), shown]
    with pytest.raises(CommandFailed, match=r"instance 7 is not running \(status: rebooting\)"):
        reboot_instance("7", transport=transport, clock=FakeClock())
    vast.keeps_running = True
    with pytest.raises(CommandFailed, match="instance 8 did not shut down"):
        reboot_instance("8", transport=transport, clock=FakeClock())
    assert vast.requests.count(reboot_request(8)) == 1
    vast.answers[reboot_request(6)] = (403, failure("auth_error", "the key lacks instance_write"))
    with pytest.raises(AccessDenied, match="instance_write"):
        reboot_instance("6", transport=transport, clock=FakeClock())
    with pytest.raises(InstanceNotFound):
        reboot_instance("99", transport=transport, clock=FakeClock())


def test_stopping_a_missing_instance_or_without_a_list_fails(vast: VastApi, transport: WatchedTransport) -> None:
    with pytest.raises(InstanceNotFound):
        stop(transport, 99)
    vast.answers[stop_request(7)] = (403, failure("auth_error", "the key lacks instance_write"))
    with pytest.raises(AccessDenied, match="instance_write"):
        stop(transport)
    vast.fail_with = 500
    with pytest.raises(TargetUnreachable):
        stop(transport)
