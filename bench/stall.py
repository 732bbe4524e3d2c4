"""How well and how soon the judge tells stalled and slow jobs from healthy ones, on simulated polling traces.

    python3 bench/stall.py [--seed 0] [--count 15] [--families hang] [--verbose] [--renew-for 0]

Each trace of stall_traces.py is replayed as a watcher lives it: after each poll the judge is asked about all looks so
far. A faulty trace is detected if any poll after its fault says stalled or slow; the delay, in seconds, runs from the
fault to the first such poll. A false alarm is a trace of which any poll says so while the job is healthy: at any time,
or before the fault. One faulty trace can be both, and then counts as both. A faulty job that is said to be well again
after it was detected has recovered falsely.

Printed per family as the table of docs/verdicts.md, then in one line for each detector: precision = detected /
(detected + false alarms), recall, F1, and the median delay of hangs; then the delays by what could be seen of the jobs.
The baselines are a fixed timeout and the rules of the earlier detector. With --renew-for, the judge does as in a fleet:
it judges a training that only makes further steps by all looks at most once in that many seconds (there: 120).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from stall_traces import Trace, generate  # noqa: E402

from training_monitor import Observation  # noqa: E402
from training_monitor.core.values import LossAnalysis, Verdict
from training_monitor.verdict.judge import judge, renew
from training_monitor.verdict.loss import analyze_loss
from training_monitor.verdict.stall import WINDOW
from training_monitor.verdict.stall_history import thin_looks

Detector = Callable[[list[Observation], float], "str | None"]
NO_LOSS = LossAnalysis(None, "not analyzed", None, None)


@dataclass
class Outcome:
    """What one detector made of one trace: times of the first alarm while healthy and after the fault, with reasons.

    `recovered` is the first time after that at which a faulty job was said to be well.
    """

    trace: Trace
    early: tuple[float, str] | None = None
    hit: tuple[float, str] | None = None
    recovered: tuple[float, str] | None = None

    @property
    def delay(self) -> float | None:
        return self.hit[0] - self.trace.fault_at if self.hit else None


def current(renew_for: float = 0.0) -> Detector:
    """The judge: why the job stalls or is slow, None if it does not."""
    known: list[tuple[Verdict, LossAnalysis, float]] = []  # the last verdict, and when it was made from all looks

    def ask(samples: list[Observation], now: float) -> str | None:
        found, (before, loss, judged_at) = None, known[0] if known else (None, None, 0.0)
        if before and loss and now - judged_at < renew_for:
            found = renew(before, loss, samples[-2], samples[-1])
        if found is None or loss is None:
            found, loss, judged_at = judge(samples, now=now), analyze_loss(samples) if renew_for else NO_LOSS, now
        known[:] = [(found, loss, judged_at)]
        return f"{found.state} ({found.confidence}): {found.reason}" if found.state in ("stalled", "slow") else None

    return ask


def fixed_timeout(seconds: float = 300.0) -> Detector:
    """Stalling when the step was not seen to change for `seconds`."""
    seen: list[tuple[int | None, float]] = []  # the newest step and when it was first seen

    def ask(samples: list[Observation], now: float) -> str | None:
        if not seen or samples[-1].step != seen[0][0]:
            seen[:] = [(samples[-1].step, samples[-1].timestamp)]
        silent = now - seen[0][1]
        return f"no step for {silent:.0f} s" if silent > seconds else None

    return ask


def earlier(samples: list[Observation], now: float) -> str | None:
    """The earlier detector: of the last 20 samples (4 at least), the printed ETA falls by less than half the time.

    Its other signal, a speed below half of the best one ever printed, never decides alone and so is left out here.
    """
    window = samples[-20:]
    told = [sample for sample in window if sample.eta_seconds is not None]
    if len(window) < 4 or len(told) < 3 or told[-1].timestamp <= told[0].timestamp:
        return None
    ratio = (told[0].eta_seconds - told[-1].eta_seconds) / (told[-1].timestamp - told[0].timestamp)
    return f"ETA does not converge ({ratio:.2f})" if ratio < 0.5 else None


def replay_judge(trace: Trace, renew_for: float) -> Outcome:
    return replay(trace, current(renew_for))


def replay(trace: Trace, ask: Detector) -> Outcome:
    """Ask after each poll; after the fault was found, now and then, whether it still is."""
    outcome, samples = Outcome(trace), []
    for number, sample in enumerate(trace.samples):
        samples = thin_looks([*samples, sample], WINDOW)
        if outcome.hit and number % 7:
            continue
        stalls = ask(samples, sample.timestamp)
        if outcome.hit:
            if not stalls:
                outcome.recovered = (sample.timestamp, "well again")
                break
        elif not stalls:
            continue
        elif trace.fault_at is not None and sample.timestamp >= trace.fault_at:
            outcome.hit = (sample.timestamp, stalls)
        else:
            outcome.early = outcome.early or (sample.timestamp, stalls)
            if trace.fault_at is None:
                break
    return outcome


def median(values: list[float]) -> str:
    return f"{statistics.median(values):.0f}" if values else "-"


def totals(name: str, outcomes: list[Outcome]) -> str:
    faulty = sum(outcome.trace.fault_at is not None for outcome in outcomes)
    found, false = sum(bool(outcome.hit) for outcome in outcomes), sum(bool(outcome.early) for outcome in outcomes)
    precision, recall = found / max(1, found + false), found / max(1, faulty)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    hangs = [outcome.delay for outcome in outcomes if outcome.delay is not None and "hang" in outcome.trace.family]
    return (
        f"{name:<22}{found:4} of {faulty} found, {false:3} false alarms   precision {precision:.3f}   "
        f"recall {recall:.3f}   F1 {f1:.3f}   hangs after {median(hangs)} s"
    )


def healthy_days(outcomes: list[Outcome]) -> float:
    """Days of healthy training that were watched."""
    spans = [
        max(0.0, min(one.trace.fault_at or 1e18, one.trace.samples[-1].timestamp) - one.trace.samples[0].timestamp)
        for one in outcomes
    ]
    return sum(spans) / 86400


def print_families(outcomes: list[Outcome]) -> None:
    families: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        families[outcome.trace.family].append(outcome)
    print("| family | traces | days | found | false alarms | per day | median delay, s | longest | falsely recovered |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for family, group in families.items():
        faulty = group[0].trace.fault_at is not None
        delays = [outcome.delay for outcome in group if outcome.delay is not None]
        found = sum(bool(outcome.hit) for outcome in group) if faulty else "-"
        false, days = sum(bool(outcome.early) for outcome in group), healthy_days(group)
        most = f"{max(delays):.0f}" if delays else "-"
        again = sum(bool(outcome.recovered) for outcome in group) if faulty else "-"
        rate = f"{false / days:.2f}" if days else "-"
        cells = (family, len(group), f"{days:.1f}", found, false, rate, median(delays), most, again)
        print(f"| {' | '.join(map(str, cells))} |")


def print_goals(outcomes: list[Outcome]) -> None:
    """Delays of hangs by what could be seen, of slowdowns to half, and what recovered falsely."""
    delays: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.delay is None or not outcome.trace.family.startswith(("hang,", "slowdown 2x")):
            continue
        samples = outcome.trace.samples
        sees_gpu = any(each.gpu_utilization is not None for each in samples)
        seen = "the processes were" if samples[-1].process else "only GPUs were" if sees_gpu else "only the log was"
        hang, half = f"a hang was reported, if {seen} visible", "a slowdown to half speed was reported"
        kind = hang if outcome.trace.family.startswith("hang") else half
        delays[kind].append(outcome.delay)
    for kind, group in sorted(delays.items()):
        print(f"median delay until {kind}: {median(group)} s, {len(group)} traces")
    slow = [one for one in outcomes if one.trace.family.startswith("slow") and one.trace.fault_at is not None]
    again = sum(bool(one.recovered) for one in outcomes)
    print(f"falsely recovered: {again} of all, {sum(bool(one.recovered) for one in slow)} of {len(slow)} slow ones")
    alarms, days = sum(bool(one.early) for one in outcomes), healthy_days(outcomes)
    print(f"false alarms per day of healthy training: {alarms / max(days, 1e-9):.3f} ({alarms} in {days:.0f} days)")


def print_wrong(outcomes: list[Outcome]) -> None:
    """Each trace judged wrongly; minutes count from the first poll."""
    for outcome in outcomes:
        trace = outcome.trace
        begin = trace.samples[0].timestamp
        fault = f", fault at {(trace.fault_at - begin) / 60:.0f} min" if trace.fault_at is not None else ""
        where = f"{trace.family} {trace.seed} (polls {trace.poll_interval:.0f} s apart{fault})"
        if outcome.recovered:
            told, again = ((moment[0] - begin) / 60 for moment in (outcome.hit, outcome.recovered))
            print(f"well again    {where} at {again:.1f} min, found at {told:.1f}: {outcome.hit[1]}")
        if outcome.early:
            print(f"false alarm   {where} at {(outcome.early[0] - begin) / 60:.1f} min: {outcome.early[1]}")
        if fault and not outcome.hit:
            print(f"missed        {where}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=15, help="traces of each family")
    parser.add_argument("--families", default="", help="only families whose name matches this")
    parser.add_argument("--renew-for", type=float, default=0.0, help="seconds for which renewed verdicts suffice")
    parser.add_argument("--verbose", action="store_true", help="print each trace that is judged wrongly")
    arguments = parser.parse_args()
    started = time.perf_counter()
    traces = list(generate(arguments.seed, arguments.families, arguments.count))
    simulated = time.perf_counter() - started
    with Pool() as pool:
        outcomes = pool.map(partial(replay_judge, renew_for=arguments.renew_for), traces, chunksize=4)
    asked = time.perf_counter() - started - simulated
    print_families(outcomes)
    if arguments.verbose:
        print_wrong(outcomes)
    print(totals("judge", outcomes))
    print(totals("fixed timeout of 300 s", [replay(trace, fixed_timeout()) for trace in traces]))
    print(totals("earlier detector", [replay(trace, earlier) for trace in traces]))
    print_goals(outcomes)
    print(f"{len(traces)} traces simulated in {simulated:.1f} s, the judge took {asked:.1f} s")
