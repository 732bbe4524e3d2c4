"""When a run stalls, of what kind, and above all when it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import pytest

from tests.sweeps import cases_of
from training_monitor.core.errors import SettingsError
from training_monitor.core.values import Observation, StallAnalysis
from training_monitor.verdict.stall import StallDetector, StallPolicy, analyze_stall, stall_policy
from training_monitor.verdict.stall_history import thin_looks

START = 1_750_000_000.0
Reading = dict[str, object]
BUSY: Reading = {"gpu_utilization": 97.0, "gpu_power_fraction": 0.8}
IDLE: Reading = {"gpu_utilization": 0.0, "gpu_power_fraction": 0.1}
HUNG: Reading = {**IDLE, "cpu_cores": 0.02, "write_rate": 0.0}
SPINNING: Reading = {"gpu_utilization": 100.0, "gpu_power_fraction": 0.2}


class Run:
    """A run as a watcher sees it, one sample every `poll` seconds."""

    def __init__(self, poll: float = 30.0, **always: object) -> None:
        self.poll, self.always = poll, always
        self.now, self.step = START, 0.0
        self.samples: list[Observation] = []
        self.verdicts: list[StallAnalysis] = []

    def see(self, step: int | None, **more: object) -> StallAnalysis:
        self.samples.append(Observation(self.now, step, **{**self.always, **more}))  # type: ignore[arg-type]
        self.verdicts.append(analyze_stall(self.samples, now=self.now))
        return self.verdicts[-1]

    def train(self, seconds: float, pace: float = 1.0, **more: object) -> Run:
        """`pace` steps per second."""
        for _ in range(round(seconds / self.poll)):
            self.now += self.poll
            self.step += pace * self.poll
            self.see(int(self.step), **{**BUSY, **more})
        return self

    def pause(self, seconds: float, **more: object) -> Run:
        for _ in range(round(seconds / self.poll)):
            self.now += self.poll
            self.see(int(self.step), **more)
        return self

    def skip(self, seconds: float) -> Run:
        """Nobody looks."""
        self.now += seconds
        return self

    @property
    def kinds(self) -> set[str | None]:
        return {each.kind for each in self.verdicts if each.is_stalling}

    def delay_after(self, moment: float) -> float | None:
        """Seconds from a moment to the first stall."""
        hit = (at.timestamp for at, each in zip(self.samples, self.verdicts) if each.is_stalling)
        first = next(hit, None)
        return None if first is None else first - moment


# ---------------------------------------------------------------- what the earlier detector got wrong


def test_an_evaluation_of_five_minutes_is_no_stall() -> None:
    run = Run(60.0, gpu_utilization=None, gpu_power_fraction=None)
    for _ in range(3):
        run.train(240, gpu_utilization=None, gpu_power_fraction=None).pause(300)
    assert run.train(600, gpu_utilization=None, gpu_power_fraction=None).kinds == set()


def test_a_warm_up_spike_of_the_printed_speed_is_no_measure() -> None:
    run = Run(60.0)
    run.see(10, steps_per_second=10.0, eta_seconds=400.0)
    run.step = 10
    assert run.train(1800, steps_per_second=1.0, eta_seconds=3600.0).kinds == set()


def test_steady_but_slow_and_a_third_slower_are_no_stall() -> None:
    assert Run(60.0).train(7200, pace=1 / 50).kinds == set()
    assert Run().train(3600).train(3600, pace=0.7).kinds == set()


# ---------------------------------------------------------------- hangs


@pytest.mark.parametrize(
    ("poll", "trained", "reading", "kind", "confidence", "within"),
    [
        (60, 600, HUNG, "hang_idle", "high", 240),
        (60, 600, IDLE, "hang_idle", "medium", 660),
        (60, 600, {}, "hang_idle", "medium", 540),
        (30, 1800, HUNG, "hang_idle", "high", 200),
        (30, 1800, IDLE, "hang_idle", "medium", 600),
        (30, 1800, SPINNING, "hang_spinning", "high", 200),
        (30, 1800, {}, "hang_idle", "medium", 700),
    ],
)
def test_a_hang_is_told_within_minutes_and_named_for_what_the_gpus_do(
    poll: float, trained: float, reading: Reading, kind: str, confidence: str, within: float
) -> None:
    run = Run(poll).train(trained)
    hung_at = run.now
    run.pause(1500, **reading)
    assert run.kinds == {kind} and run.verdicts[-1].confidence == confidence
    assert (run.delay_after(hung_at) or 1e9) <= within


def test_busy_gpus_or_a_growing_log_give_a_pause_far_more_time() -> None:
    assert Run().train(1800).pause(1500, **BUSY).kinds == set()
    run = Run().train(1800)
    for size in range(45):
        run.pause(30, log_size=1000 + 80 * size)
    assert run.kinds == set()
    assert Run().train(1800).pause(3600, **BUSY).kinds == {"hang_idle"}


@pytest.mark.parametrize("phase", ["evaluation", "checkpoint", "compile", "Validating", "saving"])
def test_a_phase_that_pauses_is_no_hang(phase: str) -> None:
    assert Run().train(1800).pause(900, phase=phase, **IDLE).train(300).kinds == set()


def test_a_run_is_measured_by_its_own_cadence_and_its_longest_healthy_pause() -> None:
    run = Run()
    for _ in range(3):
        run.train(600).pause(120, **IDLE)
    assert run.train(600).pause(240, **IDLE).train(60).kinds == set()
    run = Run(30.0)
    for _ in range(20):
        run.step += 500
        run.now += 30
        run.see(int(run.step))
        run.pause(690)
    assert not any(each.is_stalling for each in run.verdicts[24 * 6 :])


def test_the_first_pause_of_a_run_of_which_only_the_log_is_seen_gets_more_time() -> None:
    """A save takes minutes without a word; a pause that was seen shows how long they are."""
    blind: Reading = {"gpu_utilization": None, "gpu_power_fraction": None}
    assert Run(**blind).train(1800, **blind).pause(450).train(600, **blind).kinds == set()
    run = Run(**blind).train(1800, **blind)
    hung_at = run.now
    assert run.pause(1200).kinds == {"hang_idle"} and (run.delay_after(hung_at) or 1e9) <= 510
    run = Run(**blind).train(1800, **blind).pause(120).train(600, **blind)
    hung_at = run.now
    assert run.pause(1200).kinds == {"hang_idle"} and (run.delay_after(hung_at) or 1e9) <= 360


@pytest.mark.parametrize("threshold", [120.0, 300.0])
def test_a_threshold_of_the_caller_replaces_the_limit_of_a_first_pause(threshold: float) -> None:
    policy = stall_policy(threshold)
    assert policy.first_pause == threshold <= policy.unknown_pause


def test_a_watcher_that_slept_begins_anew_and_a_restart_is_given_its_start_up_again() -> None:
    assert Run().train(1800).skip(4 * 3600).pause(90, **IDLE).train(600).kinds == set()
    run = Run().train(1800)
    run.step = 1500.0
    assert run.pause(600, **IDLE).train(1200).kinds == set()


def test_a_finished_run_is_no_stall() -> None:
    run = Run(total_steps=1800).train(1800)
    assert run.pause(3600, **IDLE).kinds == set() and run.verdicts[-1].reason.startswith("finished")


@pytest.mark.parametrize(
    ("step", "reading", "looks", "kinds"),
    [
        (None, IDLE, 59, set()),
        (None, IDLE, 64, {"not_started"}),
        (None, {"gpu_utilization": 97.0}, 200, set()),  # busy GPUs extend the start-up
        (0, {"gpu_utilization": 97.0}, 200, {"not_started"}),
    ],
)
def test_a_run_that_never_begins_has_not_started(
    step: int | None, reading: Reading, looks: int, kinds: set[str]
) -> None:
    run = Run()
    for _ in range(looks):
        run.now += 30
        run.see(step, **reading)
    assert run.kinds == kinds


# ---------------------------------------------------------------- slowness


@pytest.mark.parametrize("factor", [3.0, 5.0])
def test_a_multiple_of_its_own_step_time_is_slow_and_never_to_be_ended(factor: float) -> None:
    run = Run().train(3600)
    slow_at = run.now
    run.train(7200, pace=1.0 / factor)
    assert "slow" in run.kinds and 0 < (run.delay_after(slow_at) or 1e9) < 1200
    found = next(each for each in run.verdicts if each.is_stalling)
    assert found.signals["speed_ratio"] == pytest.approx(1 / factor, rel=0.15)
    assert {each.recommendation for each in run.verdicts} == {"continue", "alert"}


def test_steps_that_take_ever_longer_never_arrive() -> None:
    run = Run(total_steps=100_000).train(3600)
    for hour in range(1, 60):
        run.train(120, pace=1.0 / (1.0 + 0.15 * hour), eta_seconds=36_000.0 + 3000 * hour)
    assert "slow" in run.kinds


def test_jitter_alone_is_no_stall(subtests: pytest.Subtests) -> None:
    for seed in cases_of(range(5), 2):
        with subtests.test(seed=seed):
            chance, run = Random(seed), Run()
            for _ in range(400):
                run.train(30, pace=chance.lognormvariate(0, 0.4))
            assert run.kinds == set()


def test_pauses_between_steps_do_not_make_a_run_slow() -> None:
    run = Run()
    for _ in range(8):
        run.train(300).pause(300, **BUSY)
    assert run.kinds == set()


@pytest.mark.parametrize(("noise", "seed"), [(100.0, 1), (300.0, 3), (600.0, 0)])
def test_single_readings_do_not_end_a_slow_eta(noise: float, seed: int) -> None:
    random, run = Random(seed), Run(poll=60.0)
    for look in range(120):
        late = max(0, look - 40)
        eta = 5000.0 - 60.0 * min(look, 40) - 20.0 * late + noise * random.gauss(0.0, 1.0)
        run.train(60.0, pace=1.0 / min(1.5, 1.0 + late / 60.0), eta_seconds=eta)
    stalls = [each.is_stalling for each in run.verdicts]
    assert True in stalls and False not in stalls[stalls.index(True) :]


def test_a_new_step_or_its_usual_speed_clears_a_stall() -> None:
    for poll, kind, stalled in (
        (30, "hang_idle", lambda run: run.pause(400, **HUNG)),
        (60, "slow", lambda run: run.train(1800, pace=0.3)),
    ):
        run = stalled(Run(poll).train(2400))
        assert run.verdicts[-1].kind == kind
        assert not run.train(720 if kind == "slow" else 60).verdicts[-1].is_stalling


# ---------------------------------------------------------------- verdict, grace, detector


def test_a_stall_alerts_first_and_is_to_be_ended_after_the_grace_period() -> None:
    run = Run().train(1800).pause(1500, **IDLE)
    told = [each.recommendation for each in run.verdicts]
    levels = ["continue", "alert", "terminate"]
    assert told == sorted(told, key=levels.index) and {*told} == {*levels}
    stalls = [each for each in run.verdicts if each.is_stalling]
    assert len({each.stall_detected_at for each in stalls}) == 1
    assert stalls[0].grace_period_remaining == pytest.approx(900, abs=60)
    assert stalls[-1].grace_period_remaining == 0


def test_few_samples_the_future_and_an_eta_of_no_span_are_no_ground_for_anything() -> None:
    run = Run()
    found = [run.see(5, **IDLE) for _ in range(3)]
    assert found[-1].reason == "Insufficient samples (3/4)" and found[-1].recommendation == "continue"
    assert analyze_stall([], now=START).reason == "Insufficient samples (0/4)"
    run = Run().train(1800).pause(600, **IDLE)
    assert not analyze_stall(run.samples, now=START + 1800).is_stalling
    samples = Run(poll=60.0, total_steps=10_000).train(1800).samples
    assert not analyze_stall(samples, now=samples[-1].timestamp, policy=StallPolicy(eta_seconds=0.0)).is_stalling


def test_the_detector_says_what_the_whole_history_says() -> None:
    run, detector = Run().train(1800).pause(600, **IDLE), StallDetector()
    for sample, verdict in zip(run.samples, run.verdicts):
        detector.record_sample(sample)
        detector.record_sample(replace(sample, step=None))  # the same moment twice counts once
        assert detector.analyze() == verdict
    assert not detector.has_notified()
    detector.mark_notified(run.now)
    state = detector.get_state()
    assert detector.has_notified() and state["stall_notified_at"] == run.now and state["stall_detected_at"] < run.now
    assert state["sample_count"] == len(run.samples) and state["current_step"] == int(run.step)
    detector.record_sample(Observation(run.now + 30, int(run.step) + 30))
    assert not detector.analyze().is_stalling and not detector.has_notified()
    detector.reset()
    assert detector.get_state()["sample_count"] == 0


@pytest.mark.parametrize(
    "wrong", [{"min_samples": 1}, {"speed_drop_threshold": 0}, {"speed_drop_threshold": 1.5}, {"grace_period": -1}]
)
def test_a_wrong_policy_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        StallPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda samples: [replace(each, timestamp=START) for each in samples],
        lambda samples: list(reversed(samples)),
        lambda samples: [replace(each, gpu_utilization=float("nan")) for each in samples],
        lambda samples: [replace(each, step=-5) for each in samples],
    ],
)
def test_odd_samples_raise_nothing(spoil: Callable[[Iterable[Observation]], list[Observation]]) -> None:
    samples = spoil(Run().train(600).samples)
    assert analyze_stall(samples, now=START + 1e6).recommendation in ("continue", "alert", "terminate")


def test_thinning_keeps_the_first_and_newest_looks_and_the_last_step() -> None:
    looks = [Observation(START + number, min(number, 500)) for number in range(2000)]
    kept: list[Observation] = []
    for look in looks:
        kept = thin_looks([*kept, look], 240)
    assert len(kept) <= 240 and kept[-100:] == looks[-100:] and kept[:20] == looks[:20]
    assert looks[500] in kept
