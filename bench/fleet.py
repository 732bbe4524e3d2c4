"""What a fleet costs: one refresh of many instances, the processor at the default interval, a member's look and memory.

    python3 bench/fleet.py [--parts LPM] [--listed 500] [--running 50] [--rounds 5] [--seconds 60]
                           [--members 100 1000 10000] [--hours 2] [--old 100]

L. Real vastai CLI, loopback REST API: one refresh of LISTED instances (which are loading, so that none is asked over
   ssh), and one bare `vastai show instances --raw`, in turn; printed are medians and their ratio.
P. The screen's loop over RUNNING instances at the default interval for SECONDS: real vastai CLI, real ssh to a real
   sshd, a growing log. Printed is the share of one core of this process and of the children it waits for (ssh, vastai),
   and the longest time that a snapshot and the drawing of it took, which is what a key waits for.
M. MEMBERS instances, their answers made up in memory, a clock that is set: the CPU time of a look at one of them, which
   is all that a look does but for starting a program, and resident memory (which is what users see) of each after the
   first looks; the same of OLD members after HOURS, with the observations and samples of that time. Each number of
   members has a process of its own. References: one regular expression over the same answers, and their text kept.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.soak_samples import resident  # noqa: E402
from bench.table import Row  # noqa: E402
from tests.integration.conftest import SshServer  # noqa: E402
from tests.loopback.vast import VastApi  # noqa: E402
from tests.unit.fleet.fleet_world import World  # noqa: E402
from training_monitor.core.long_running import prepare_for_long
from training_monitor.core.results import CommandResult
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.member import JUDGE_SECONDS, RENEW_SECONDS
from training_monitor.ui.fleet.app import APP
from training_monitor.ui.fleet.view import FleetView
from training_monitor.ui.kit.page import render_screen

MB = 2**20
CYCLE = round(RENEW_SECONDS / 10.0)  # looks ten seconds apart, of which one judges by all observations


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure_listing(listed: int, rounds: int, api: VastApi) -> tuple[float, float]:
    """Return the seconds of one bare listing, and of one refresh."""
    for number in range(1, listed + 1):
        api.add_instance(number, actual_status="loading")
    fleet = FleetMonitor(whole_account=True)
    fleet.update_all_metrics()  # the credit is asked for, too
    bare, refresh = [], []
    argv = ["vastai", "show", "instances", "--raw"]
    for _ in range(rounds):
        bare.append(seconds(lambda: subprocess.run(argv, check=True, stdout=subprocess.PIPE)))
        refresh.append(seconds(fleet.update_all_metrics))
    assert len(fleet.snapshot().rows) == listed
    one, ours = statistics.median(bare), statistics.median(refresh)
    fleet.close()
    return one, ours


def measure_processor(running: int, length: float, api: VastApi, sshd: SshServer, folder: Path) -> None:
    log = folder / "training.log"
    log.write_text("step 1/100000 loss 2.0\n")
    for number in range(1, running + 1):
        api.add_instance(number, ssh_host="127.0.0.1", ssh_port=sshd.port)
    fleet = FleetMonitor(whole_account=True, config=fleet_config(str(log)))
    fleet.update_all_metrics()
    fleet.start()
    own, children = used(resource.RUSAGE_SELF), used(resource.RUSAGE_CHILDREN)
    end, step, longest = time.monotonic() + length, 1, 0.0
    while time.monotonic() < end:
        step += 1
        with log.open("a") as file:
            file.write(f"step {step}/100000 loss {2 / step:.4f}\n")
        longest = max(
            longest, seconds(lambda: render_screen(APP, fleet.snapshot(), FleetView(recent=fleet.recent), 200, 60))
        )
        time.sleep(1.0)
    own, children = used(resource.RUSAGE_SELF) - own, used(resource.RUSAGE_CHILDREN) - children
    answered = sum(row.step is not None for row in fleet.snapshot().rows)
    fleet.close()
    print(f"{running} running instances ({answered} answered) every {fleet.config.interval:g} s, of one core:")
    print(f"this process {own / length:6.1%}   its children (ssh, vastai) {children / length:6.1%}")
    print(f"snapshot and drawing, the longest of all  {longest * 1000:.1f} ms")


def fleet_config(log: str) -> FleetConfig:
    return FleetConfig(log_paths=(log,))


def used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


# ---------------------------------------------------------------- for python3 -m bench


class SlowWorld(World):
    """Machines in memory that answer after a pause. `seconds` is the CPU time of making up the answers."""

    def __init__(self, *numbers: int, pause: float) -> None:
        super().__init__(*numbers)
        self.pause, self.seconds = pause, 0.0
        for machine in self.machines.values():
            machine.scripts = deque(maxlen=0)  # type: ignore[assignment]

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        if self.pause:
            time.sleep(self.pause)
        started = time.thread_time()
        try:
            self.answer = super().run(argv, timeout=timeout, input=input)
            return self.answer
        finally:
            taken = time.thread_time() - started
            self.seconds += taken  # in one step: other threads add to it, too

    def train(self, step: int, seconds: float) -> None:
        """Let time pass, and each training make a step; forget what was asked: that is not the fleet's."""
        self.clock.sleep(seconds)
        self.said.clear()
        for machine in self.machines.values():
            machine.log += f"step {step}/100000 loss {2 / step:.4f}\n"


class Cost(NamedTuple):
    """What a member costs: CPU milliseconds of a look, and resident kB; of all members, where there are several.

    `bare` is the milliseconds of one regular expression over its answer, `text` the kB of its answers.
    """

    cpu: float
    memory: float
    bare: float
    text: float


def measure_members(members: int, cycles: int, pause: float = 0.0, hours: float = 0.0) -> Cost:
    """Measure whole cycles of looks at members that were watched for some hours before, in a process of its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure_members, (members, cycles, pause, hours))


def _measure_members(members: int, cycles: int, pause: float, hours: float) -> Cost:
    prepare_for_long()  # as `training-monitor fleet` does
    small = SlowWorld(*range(1, 31), pause=0.0)
    warm = FleetMonitor(whole_account=True, transport=small, clock=small.clock)
    warm.update_all_metrics()  # imports, patterns, and the scripts that the machines in memory keep, are not a member's
    world = SlowWorld(*range(1, members + 1), pause=pause)
    gc.collect()
    before = resident(os.getpid()) * MB
    fleet = FleetMonitor(whole_account=True, transport=world, clock=world.clock)
    taken, looks = [], max(2, round(hours * 3600 / JUDGE_SECONDS))
    for number in range(1, looks + CYCLE * cycles + 1):
        world.train(number, JUDGE_SECONDS if number <= looks and hours else 10.0)
        begun = time.process_time() - world.seconds
        fleet.update_all_metrics()
        taken.append(time.process_time() - world.seconds - begun)
    gc.collect()
    logs = sum(len(machine.log) for machine in world.machines.values())
    memory = (resident(os.getpid()) * MB - before - logs) / members
    answer = world.answer.stdout
    bare = statistics.median(seconds(lambda: re.findall(r"(?m)^(\w+)=(.*)$", answer)) for _ in range(100))
    fleet.close()
    looked = [sum(taken[at : at + CYCLE]) / CYCLE for at in range(looks, len(taken), CYCLE)]
    text = len(answer) * (looks + CYCLE * cycles)
    return Cost(1e3 * statistics.median(looked) / members, memory / 1e3, 1e3 * bare, text / 1e3)


def measure_share(listed: int, seconds: float, api: VastApi) -> tuple[float, float]:
    """Return how much of a core this process and its children take for LISTED instances, at the default interval."""
    fleet = FleetMonitor(whole_account=True)
    fleet.update_all_metrics()
    fleet.start()
    own, children = used(resource.RUSAGE_SELF), used(resource.RUSAGE_CHILDREN)
    time.sleep(seconds)
    own, children = used(resource.RUSAGE_SELF) - own, used(resource.RUSAGE_CHILDREN) - children
    assert len(fleet.snapshot().rows) == listed
    fleet.close()
    return own / seconds, children / seconds


def rows() -> list[Row]:
    young, old = measure_members(100, 2, 0.05), measure_members(100, 2, 0.0, 2.0)
    at_once, bare = measure_members(100, 2), "one regular expression on the reply"
    kept = "the text of all replies"
    found = [
        Row(
            "fleet: CPU time per query, excluding subprocesses; 100 members that reply after 50 ms",
            young.cpu,
            "ms",
            young.bare,
            bare,
            "0.6 ms",
        ),
        Row(
            "fleet: CPU time per query, excluding subprocesses; 100 members that reply immediately",
            at_once.cpu,
            "ms",
            at_once.bare,
            bare,
            "0.6 ms",
        ),
        Row("fleet: the same after two hours", old.cpu, "ms", old.bare, bare, ""),
        Row("fleet: memory per member after two hours", old.memory, "kB", old.text, kept, "70 kB"),
    ]
    if shutil.which("vastai"):
        with tempfile.TemporaryDirectory() as folder, VastApi() as served:
            os.environ.update(served.environ, XDG_RUNTIME_DIR=folder, TRAINING_MONITOR_STATE_DIR=f"{folder}/state")
            one, ours = measure_listing(500, 3, served)
            share, others = measure_share(500, 60.0, served)
        what = "fleet: CPU time for 500 instances, as a share of one core"
        found.append(Row(what, 100 * share, "%", 100 * others, "the `vastai` processes that `fleet` starts", "2 %"))
        bare = "`vastai show instances --raw`"
        found.append(Row("fleet: refresh of 500 instances", ours, "s", one, bare, "one process per refresh"))
    return found


def growth(members: Sequence[int] = (10, 100, 1000, 10_000)) -> list[str]:
    """Return a table of what a member costs in fleets of ever more members."""
    rows = [
        "| members | CPU time per query, excluding subprocesses | memory per member after the first queries |",
        "| ---: | ---: | ---: |",
    ]
    for count in members:
        cost = measure_members(count, 1 if count > 1000 else 2)
        rows.append(f"| {count} | {cost.cpu:.2f} ms | {cost.memory:.0f} kB |")
    return rows


def print_members(members: Sequence[int], old: int, hours: float) -> None:
    costs = {count: measure_members(count, 1 if count > 1000 else 2) for count in members}
    for count, cost in costs.items():
        print(
            f"{count:6} members  {cost.cpu:6.2f} ms of CPU time per query  "
            f"{cost.memory:6.1f} kB per member after the first queries"
        )
    fewest, most = costs[min(members)], costs[max(members)]
    ratios = f"{most.cpu / fewest.cpu:.2f} times the time, {most.memory / fewest.memory:.2f} times the memory"
    print(f"a member among {max(members)}, of one among {min(members)}: {ratios}")
    cost = measure_members(old, 2, 0.0, hours)
    print(
        f"{old:6} members, after {hours:g} hours  {cost.cpu:6.2f} ms of CPU time per query  "
        f"{cost.memory:6.1f} kB per member"
    )
    print(f"one regular expression over an answer {cost.bare:6.3f} ms; the text of all answers {cost.text:6.1f} kB")


def print_accounts(arguments: argparse.Namespace, folder: Path) -> None:
    """Print what L and P measure."""
    if "L" in arguments.parts:
        with VastApi() as served:
            os.environ.update(served.environ)
            one, ours = measure_listing(arguments.listed, arguments.rounds, served)
        print(f"vastai show instances --raw, {arguments.listed} instances  {one:6.2f} s")
        print(f"one refresh of {arguments.listed} instances                {ours:6.2f} s   ratio {ours / one:.2f}")
    if "P" not in arguments.parts:
        return
    server = SshServer(folder / "sshd")
    server.set_environment({"SHLVL": "2"})
    server.write_client(folder / "tools")
    server.start()
    try:
        with VastApi() as served:
            os.environ.update(served.environ)
            measure_processor(arguments.running, arguments.seconds, served, server, folder)
    finally:
        server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="LPM", help="what to measure (default: LPM)")
    parser.add_argument("--listed", type=int, default=500)
    parser.add_argument("--running", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--members", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--old", type=int, default=100, help="members that are watched for HOURS")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as name:
        (Path(name) / "tools").mkdir()
        os.environ.update(
            PATH=f"{name}/tools{os.pathsep}{os.environ['PATH']}",
            XDG_RUNTIME_DIR=name,
            TRAINING_MONITOR_STATE_DIR=f"{name}/state",
        )
        print_accounts(arguments, Path(name))
        if "M" in arguments.parts:
            print_members(arguments.members, arguments.old, arguments.hours)
