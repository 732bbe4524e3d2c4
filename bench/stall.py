"""How well and how soon analyze_stall tells stalled jobs from healthy ones, on about 440 simulated polling traces.

    python3 bench/stall.py [--seed 0] [--families hang] [--verbose]

Each trace of stall_traces.py is replayed as a watcher lives it: after each poll the detector is asked about all samples
so far. A faulty trace is detected if any poll after its fault says stalling; the delay, in seconds, runs from the fault
to the first such poll. A false alarm is a trace of which any poll says stalling while the job is healthy: at any time,
or before the fault. One faulty trace can be both, and then counts as both.

Printed per family, then in one line for each detector: precision = detected / (detected + false alarms), recall, F1,
and the median delay of hangs. The baselines are a fixed timeout and the rules of the earlier detector.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from stall_traces import Trace, generate  # noqa: E402

from training_monitor import Observation  # noqa: E402
from training_monitor.policy.judge import judge  # noqa: E402
from training_monitor.policy.stall import WINDOW  # noqa: E402
from training_monitor.policy.stall_history import thin_looks  # noqa: E402

Detector = Callable[[list[Observation], float], "str | None"]


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


def current(samples: list[Observation], now: float) -> str | None:
    """The judge: why the job stalls or is slow, None if it does not."""
    found = judge(samples, now=now)
    return f"{found.state} ({found.confidence}): {found.reason}" if found.state in ("stalled", "slow") else None


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


def print_families(outcomes: list[Outcome]) -> None:
    families: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        families[outcome.trace.family].append(outcome)
    print(f"{'family':<22}{'traces':>8}{'polls':>8}{'detected':>10}{'false':>8}{'median':>9}{'max delay, s':>14}")
    for family, group in families.items():
        faulty = group[0].trace.fault_at is not None
        delays = [outcome.delay for outcome in group if outcome.delay is not None]
        found = sum(bool(outcome.hit) for outcome in group) if faulty else "-"
        false, polls = sum(bool(outcome.early) for outcome in group), sum(len(one.trace.samples) for one in group)
        most = f"{max(delays):.0f}" if delays else "-"
        print(f"{family:<22}{len(group):>8}{polls:>8}{found:>10}{false:>8}{median(delays):>9}{most:>14}")


def print_wrong(outcomes: list[Outcome]) -> None:
    """Each trace judged wrongly; minutes count from the first poll."""
    for outcome in outcomes:
        trace = outcome.trace
        begin = trace.samples[0].timestamp
        fault = f", fault at {(trace.fault_at - begin) / 60:.0f} min" if trace.fault_at is not None else ""
        where = f"{trace.family} {trace.seed} (polls {trace.poll_interval:.0f} s apart{fault})"
        if outcome.recovered:
            minutes = (outcome.recovered[0] - begin) / 60
            print(
                f"recovered     {where} at {minutes:.1f} min, found at {(outcome.hit[0] - begin) / 60:.1f}: {outcome.hit[1]}"
            )
        if outcome.early:
            print(f"false alarm   {where} at {(outcome.early[0] - begin) / 60:.1f} min: {outcome.early[1]}")
        if fault and not outcome.hit:
            print(f"missed        {where}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", default="", help="only families whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="print each trace that analyze_stall judges wrongly")
    arguments = parser.parse_args()
    started = time.perf_counter()
    traces = list(generate(arguments.seed, arguments.families))
    simulated = time.perf_counter() - started
    outcomes = [replay(trace, current) for trace in traces]
    asked = time.perf_counter() - started - simulated
    print_families(outcomes)
    if arguments.verbose:
        print_wrong(outcomes)
    print(totals("analyze_stall", outcomes))
    print(totals("fixed 300 s timeout", [replay(trace, fixed_timeout()) for trace in traces]))
    print(totals("earlier detector", [replay(trace, earlier) for trace in traces]))
    print(f"{len(traces)} traces simulated in {simulated:.1f} s, analyze_stall took {asked:.1f} s")
