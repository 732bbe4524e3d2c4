"""The loop of looks itself: what ends it, what does not, and when it looks again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.fakes import FakeClock, FakeTransport
from training_monitor.core.errors import JobNotFound, LeaseLost, TargetNotFound, TargetUnreachable, TrainingMonitorError
from training_monitor.supervision.looking import Looker, look_until_over
from training_monitor.targets.asking import Site

GONE, SILENT, NO_POD = JobNotFound("no job"), TargetUnreachable("refused"), TargetNotFound("no pod")
Looked = TrainingMonitorError | str


class Script(Looker[str, str]):
    """Looks every ten seconds, at what a list says; a look that begins with `over` ends it."""

    interrupted = "no longer looking"

    def __init__(self, *looks: Looked, then: Looked = "running") -> None:
        self.clock = FakeClock()
        self.site = Site.of("local", transport=FakeTransport(lambda script: ("", 0)), clock=self.clock)
        self.looks, self.then, self.begun = list(looks), then, False
        self.at: list[float] = []
        self.failures: list[str] = []

    @property
    def has_begun(self) -> bool:
        return self.begun

    def ask(self) -> str:
        self.at.append(self.clock.elapsed)
        found = self.looks.pop(0) if self.looks else self.then
        if isinstance(found, TrainingMonitorError):
            raise found
        self.begun = True
        return found

    def decide(self, seen: str, *, is_last: bool) -> str | None:
        return seen if seen.startswith("over") else None

    def not_seen(self, error: TrainingMonitorError, *, is_lost: bool) -> str | None:
        self.failures.append(error.what)
        return "lost" if is_lost else None

    def run_out(self) -> str | None:
        return "time is over"

    def followed(self) -> tuple[Site, str] | None:
        return None

    def pause(self) -> float:
        return 10.0

    def run(self, **options: object) -> str | None:
        return look_until_over(self, **options)  # type: ignore[arg-type]


def test_it_looks_until_a_look_ends_it_and_only_the_first_one_may_fail() -> None:
    script = Script("running", "running", *[SILENT] * 50, "over: finished")
    assert script.run() == "over: finished" and script.failures == ["refused"] * 50
    assert script.at == [10 * number for number in range(53)]
    for error in (GONE, SILENT):
        with pytest.raises(type(error)):
            Script(error).run()


@pytest.mark.parametrize(
    ("looks", "ended_at"),
    [
        ((GONE, GONE), 20),
        ((GONE, "running", GONE, "running", GONE, GONE), 60),
        ((GONE, SILENT, GONE), 30),
        ((NO_POD, NO_POD, NO_POD, GONE, GONE), 50),
    ],
    ids=["two in a row", "it was there again between them", "an outage between them", "a pod that is being replaced"],
)
def test_a_training_is_lost_when_two_answers_agree(looks: tuple[Looked, ...], ended_at: float) -> None:
    script = Script("running", *looks)
    assert script.run() == "lost" and script.clock.elapsed == ended_at


def test_a_looker_may_ask_for_longer_absence_and_count_a_missing_target() -> None:
    script = Script("running", then=NO_POD)
    script.lost_by, script.lost_after = (JobNotFound, TargetNotFound), 45.0
    assert script.run() == "lost" and script.clock.elapsed == 60


def test_an_outage_after_two_answers_is_no_third_one() -> None:
    script = Script("running", NO_POD, NO_POD, *[SILENT] * 10, "over")
    script.lost_by, script.lost_after = (TargetNotFound,), 45.0
    assert script.run() == "over"


def test_another_supervisor_ends_it_at_once() -> None:
    with pytest.raises(LeaseLost):
        Script("running", LeaseLost("taken over")).run()


@pytest.mark.parametrize(
    ("looks", "then", "seconds", "ended", "at"),
    [
        ((), "running", 25, "time is over", [0, 10, 20, 25]),
        (["running"] * 3, "over", 25, "over", [0, 10, 20, 25]),
        (["running"], SILENT, 25, "time is over", [0, 10, 20, 25]),
        ((), "running", 0, "time is over", [0]),
    ],
)
def test_time_ends_it_after_one_last_look_whatever_that_shows(
    looks: list[Looked], then: Looked, seconds: float, ended: str, at: list[float]
) -> None:
    script = Script(*looks, then=then)
    assert script.run(seconds=seconds) == ended and script.at == at


def test_the_events_of_the_caller_are_noticed_within_a_second() -> None:
    stopping, refresh = threading.Event(), threading.Event()
    script = Script()
    script.clock.at(12.3, refresh.set)
    script.clock.at(25.0, stopping.set)
    assert script.run(stopping=stopping, refresh=refresh) is None
    assert script.at[:2] == [0, 10] and 12.3 <= script.at[2] <= 13.3 and len(script.at) == 4
    assert script.clock.elapsed <= 26 and not refresh.is_set()


def test_a_pause_may_become_shorter() -> None:
    script = Script("running", "over")
    hurry: Callable[[float], float] = lambda left: min(left, 3.0)  # noqa: E731
    script.shorten = hurry  # type: ignore[method-assign]
    script.run()
    assert script.at == [0, 3]


@pytest.mark.parametrize(("given", "said"), [((), "no longer looking"), ((15,), 15)])
def test_an_interrupt_says_what_it_ended_and_a_signal_keeps_its_number(given: tuple[int, ...], said: object) -> None:
    def press_ctrl_c() -> None:
        raise KeyboardInterrupt(*given)

    script = Script()
    script.clock.at(15, press_ctrl_c)
    with pytest.raises(KeyboardInterrupt) as caught:
        script.run()
    assert caught.value.args == (said,)
