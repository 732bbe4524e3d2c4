"""How long the credit lasts, by the real vastai CLI and a loopback REST API."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Surroundings, WatchedTransport
from tests.loopback.vast import VastApi
from training_monitor.core.store import Store
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.rent.worker import warn_of_burn


@pytest.fixture
def store(surroundings: Surroundings) -> Store:
    return Store()


def told(store: Store) -> list[str]:
    return [kept.notice.kind for kept in store.recent_notices()]


def test_a_credit_that_will_not_last_is_told_once_a_day(
    vast: VastApi, transport: WatchedTransport, store: Store
) -> None:
    vast.add_instance(7, dph_total=0.5)
    vast.user["credit"] = 2.0
    outbox = Outbox(TrainingNotifier([], store=store), store)
    for _ in range(2):
        burn = warn_of_burn(12.0, outbox, transport=transport)
        assert burn and (burn.hours_left, burn.dollars_per_hour) == (4.0, 0.5)
    assert told(store) == ["credit_low"]


def test_a_credit_that_lasts_or_that_nobody_knows_is_not_told(
    vast: VastApi, transport: WatchedTransport, store: Store
) -> None:
    vast.add_instance(7, dph_total=0.5)
    outbox = Outbox(TrainingNotifier([], store=store), store)
    vast.user["credit"] = 100.0
    assert warn_of_burn(12.0, outbox, transport=transport)
    vast.fail_with = 500
    assert warn_of_burn(12.0, outbox, transport=transport) is None
    assert told(store) == []
