"""One instance for a label, by the real vastai CLI and a loopback REST API that loses, delays and refuses; real ssh."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.integration.conftest import SshServer, Surroundings, WatchedTransport, plain, wait_until
from tests.loopback.vast import VastApi, create_request
from tests.loopback.vast_rows import no_such_ask
from training_monitor.core.errors import (
    CommandError,
    TrainingMonitorError,
)
from training_monitor.targets.asking import ask
from training_monitor.vast import rent as rent_module
from training_monitor.vast.instances import wait_until_ready
from training_monitor.vast.offers import OfferQuery
from training_monitor.vast.rent import RentedInstance, find_rented, rent_instance

ROOT = Path(__file__).parents[2]
LABEL = "training_monitor/this-host/job-1/1"
ANY = OfferQuery(preferred_gpus=())
CREATE = create_request(1)
RENT = f"""
from training_monitor.vast.offers import OfferQuery
from training_monitor.vast.rent import rent_instance
rent_instance(OfferQuery(()), {LABEL!r}, image="pytorch/pytorch")
"""
CREATE_SOON = """
from training_monitor.targets.transport import LocalTransport
LocalTransport().run("vastai create instance 1 --image x --raw".split(), timeout=4.0)
"""


@pytest.fixture
def vast(vast: VastApi) -> VastApi:
    """With some offers."""
    for number in (1, 2, 3):
        vast.add_offer(number, price=number / 10, machine_id=500 + number)
    return vast


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a start of the CLI, which takes its time on a busy machine; so does a create."""
    monkeypatch.setattr(rent_module, "LOOK_EVERY", 10.0)


def rent(transport: WatchedTransport, clock: FakeClock | None = None, **words: Any) -> RentedInstance:
    query, label = words.pop("query", ANY), words.pop("label", LABEL)
    words = {"image": "pytorch/pytorch", "transport": transport, "clock": clock or FakeClock(), **words}
    return rent_instance(query, label, **words)


def ready(transport: WatchedTransport, clock: FakeClock | None = None, **words: Any) -> TrainingMonitorError:
    with pytest.raises(TrainingMonitorError) as caught:
        wait_until_ready("7", transport=transport, clock=clock or FakeClock(), **words)
    return caught.value


def creates(vast: VastApi) -> list[int]:
    """The offers that were asked for, once for each time."""
    return [int(each.split("/")[-2]) for each in vast.requests if each.startswith("PUT /api/v0/asks/")]


def kill_when_it_hangs(vast: VastApi, program: str) -> None:
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=os.environ) as process:
        assert wait_until(vast.hanging.is_set, 60)
        process.kill()


def test_an_offer_becomes_an_instance_that_boots_slowly_and_answers_over_ssh(
    vast: VastApi, transport: WatchedTransport, sshd: SshServer
) -> None:
    if sshd.user != "root":
        pytest.skip("an instance's user is root, and this server's is not: nothing here was tested")
    vast.details = {"ssh_host": "127.0.0.1", "ssh_port": sshd.port}
    vast.boot = [{"actual_status": each} for each in (None, "created", "loading", "running")]
    found = rent(transport, onstart="echo 'hello world' > /tmp/x\n")
    assert found == RentedInstance(70001, 1, 501, "RTX 4090", 0.113333, None)
    [asked] = vast.asked
    told = {name: asked[name] for name in ("image", "disk", "label", "onstart", "price", "cancel_unavail", "runtype")}
    assert told == {
        "image": "pytorch/pytorch",
        "disk": 64.0,
        "label": LABEL,
        "onstart": "echo 'hello world' > /tmp/x\n",
        "price": None,
        "cancel_unavail": True,
        "runtype": "ssh_direc ssh_proxy",
    }
    sshd.stop()
    clock, events = FakeClock(), list[str]()
    clock.at(21.0, sshd.start)
    target = wait_until_ready(str(found.id), transport=transport, clock=clock, on_event=events.append)
    assert str(target) == "vast://70001" and target.address == "127.0.0.1"
    assert [answer.get().output for answer in ask(target, plain("echo hello"), transport=transport)] == ["hello\n"]
    statuses = [event.removeprefix("instance 70001: ").partition(" ")[0] for event in events]
    assert statuses == ["no", "created", "loading", "running,", "ready"] and "refused" in events[3]


def test_a_second_call_takes_what_the_first_one_rented(vast: VastApi, transport: WatchedTransport) -> None:
    first = rent(transport)
    assert rent(transport).id == first.id and rent(transport, label=LABEL[:-1] + "2").id != first.id
    assert [row["id"] for row in find_rented(LABEL, transport=transport)] == vast.rented(LABEL) == [first.id]


def test_a_refused_offer_is_followed_by_the_next_one(vast: VastApi, transport: WatchedTransport) -> None:
    vast.answers[CREATE] = (404, no_such_ask(1))
    assert rent(transport, create_timeout=20.0).offer_id == 2
    assert creates(vast) == [1, 2] and len(vast.created) == 1


def test_an_answer_that_is_lost_rents_nothing_more(vast: VastApi, transport: WatchedTransport) -> None:
    vast.lost, vast.late = {CREATE}, 4
    found = rent(transport)
    assert (found.id, found.offer_id) == (70001, None)
    assert creates(vast) == [1] and vast.left(LABEL) == [70001]


def test_a_create_that_hangs_is_ended_and_looked_after(vast: VastApi, transport: WatchedTransport) -> None:
    vast.hang_after = CREATE
    assert rent(transport, create_timeout=5.0).id == 70001
    assert creates(vast) == [1] and len(vast.created) == 1


def rent_again_and_again(transport: WatchedTransport, label: str) -> RentedInstance:
    """As a worker does: it writes down when it asked, and after an error calls again with that."""
    clock, asked = FakeClock(), list[float]()
    for _ in range(10):
        try:
            return rent(
                transport,
                clock,
                label=label,
                create_timeout=20.0,
                asked_at=asked[-1] if asked else None,
                on_asking=lambda offer: asked.append(clock.time()),
            )
        except CommandError:
            continue
    pytest.fail("ten calls rented nothing")


def test_however_much_fails_there_is_one_instance_for_each_label(vast: VastApi, transport: WatchedTransport) -> None:
    for number in range(4, 40):
        vast.add_offer(number, price=number / 20)
    vast.fail_share = 0.3
    for label in ("a/1", "a/2"):
        found = rent_again_and_again(transport, label)
        assert vast.left(label) == vast.rented(label) == [found.id]


# ---------------------------------------------------------------- killed in between


def test_one_that_was_killed_after_its_create_arrived_is_taken_up_by_the_next(
    vast: VastApi, transport: WatchedTransport
) -> None:
    vast.hang_after = CREATE
    kill_when_it_hangs(vast, RENT)
    clock = FakeClock()
    assert rent(transport, clock, asked_at=clock.time()).id == 70001
    assert creates(vast) == [1] and vast.rented(LABEL) == [70001]


def test_one_that_was_killed_before_its_create_arrived_is_waited_for(
    vast: VastApi, transport: WatchedTransport
) -> None:
    vast.hang = CREATE
    kill_when_it_hangs(vast, RENT)
    clock = FakeClock()

    def arrive() -> None:
        vast.released.set()
        assert wait_until(lambda: vast.created)

    clock.at(5.0, arrive)
    assert rent(transport, clock, asked_at=clock.time()).id == 70001
    assert creates(vast) == [1] and vast.rented(LABEL) == [70001]


def test_a_create_ends_soon_after_its_caller_is_killed(
    vast: VastApi, surroundings: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))  # for it the CLI asks first, without a time limit
    vast.hang = "GET /api/v0/gpu_names/unique/"
    kill_when_it_hangs(vast, CREATE_SOON)
    assert wait_until(lambda: not surroundings.processes(), 30)
    vast.released.set()
    assert creates(vast) == []
