"""How long a session lasts, and what ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import FakeClock
from training_monitor.core.store import Store
from training_monitor.web.access import CLOCK_SECONDS, LOOPBACK, SESSION_SECONDS, Refused
from training_monitor.web.door import Door, SignedOut, load_key

TOKEN, HOUR = "a-token-of-some-length", 3600.0


def door_at(clock: FakeClock, store: Store, *, token: str | None = TOKEN, port: int = 1) -> Door:
    options = {"names": LOOPBACK, "on_link": lambda _: None, "store": store, "clock": clock}
    return Door(load_key(store), token=token, port=port, **options)


def pair_of(header: str) -> str:
    return header.partition(";")[0]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "state"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def door(clock: FakeClock, store: Store) -> Door:
    return door_at(clock, store)


def test_a_session_lasts_twelve_hours_from_the_last_act(door: Door, clock: FakeClock) -> None:
    first = pair_of(door.open_by_token(TOKEN))
    clock.sleep(11 * HOUR)
    session = door.session(first, None)
    [(_, header)] = door.renew(session)
    clock.sleep(HOUR)
    assert not door.is_signed_in(first, None)  # a copy from before the act
    assert door.session(pair_of(header), None) == session and not door.is_over(session)
    clock.sleep(11 * HOUR - 1)
    assert door.is_signed_in(pair_of(header), None) and not door.is_over(session)
    clock.sleep(1)
    assert not door.is_signed_in(pair_of(header), None) and door.is_over(session)


def test_asking_alone_keeps_no_session_open(door: Door, clock: FakeClock) -> None:
    cookie = pair_of(door.open_by_token(TOKEN))
    session = door.session(cookie, None)
    for _ in range(12):
        assert door.session(cookie, None) == session and not door.is_over(session)
        clock.sleep(HOUR)
    assert door.is_over(session)
    with pytest.raises(Refused):
        door.session(cookie, None)


def test_a_clock_that_is_set_back_far_ends_the_session(door: Door, clock: FakeClock) -> None:
    cookie = pair_of(door.open_by_token(TOKEN))
    clock.elapsed -= CLOCK_SECONDS
    assert door.is_signed_in(cookie, None)
    clock.elapsed -= 1
    assert not door.is_signed_in(cookie, None)


def test_a_restart_keeps_sessions_and_sign_outs(door: Door, clock: FakeClock, store: Store) -> None:
    ended, other = (pair_of(door.open_by_token(TOKEN)) for _ in range(2))
    session = door.session(ended, None)
    assert "Max-Age=0" in door.sign_out(session) and door.is_over(session)
    renewed = pair_of(dict(door.renew(session))["Set-Cookie"])  # a request beside the sign-out
    third = pair_of(door.open_by_token(TOKEN))
    door.sign_out(door.session(third, None))
    again = door_at(clock, store)
    for each in (door, again):
        assert [each.is_signed_in(cookie, None) for cookie in (ended, renewed, third, other)] == [*[False] * 3, True]


def test_old_sign_outs_are_forgotten_once_their_cookies_are_over(door: Door, clock: FakeClock, store: Store) -> None:
    for _ in range(3):
        door.sign_out(door.session(pair_of(door.open_by_token(TOKEN)), None))
        clock.sleep(SESSION_SECONDS + CLOCK_SECONDS)
    kept = store.load_run("web sign-outs at port 1", SignedOut, finished=True)
    assert kept and len(kept.until) == 1


def test_only_a_cookie_of_its_token_and_port_is_taken_and_none_given_to_programs(store: Store, door: Door) -> None:
    clock = FakeClock()
    value = pair_of(door_at(clock, store).open_by_token(TOKEN)).partition("=")[2]
    for token, port in ((f"{TOKEN}x", 1), (None, 1), (TOKEN, 2)):
        door = door_at(clock, store, token=token, port=port)
        assert not door.is_signed_in(f"{door.cookie}={value}", None)
    session = door.session(None, f"Bearer {TOKEN}")
    assert door.renew(session) == () and not door.is_over(session)
