"""What a fleet costs: one refresh of many instances, the processor at the default interval, memory over an hour.

    python3 bench/fleet.py [--listed 500] [--running 50] [--rounds 5] [--seconds 60]

1. Real vastai CLI, loopback REST API: one refresh of LISTED instances (which are loading, so that none is asked over
   ssh), and one bare `vastai show instances --raw`, in turn; printed are medians and their ratio.
2. The screen's loop over RUNNING instances at the default interval for SECONDS: real vastai CLI, real ssh to a real
   sshd, a growing log. Printed is the share of one core of this process and of the children it waits for (ssh, vastai),
   and the longest time that a snapshot and the drawing of it took, which is what a key waits for.
3. RUNNING instances, their answers made up in memory, 360 refreshes ten seconds apart by a clock that is set: memory
   after 60, 120, ... of them.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row  # noqa: E402
from tests.integration.conftest import SshServer  # noqa: E402
from tests.loopback.vast import VastApi  # noqa: E402
from tests.unit.fleet.fleet_world import World  # noqa: E402
from training_monitor.core.results import CommandResult
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.ui.fleet.app import APP
from training_monitor.ui.fleet.view import FleetView
from training_monitor.ui.kit.page import render_screen

MB = 2**20


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
    for _ in range(rounds):
        argv = ["vastai", "show", "instances", "--raw"]
        bare.append(seconds(lambda argv=argv: subprocess.run(argv, check=True, stdout=subprocess.PIPE)))
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


def measure_memory(running: int) -> None:
    world = World(*range(1, running + 1))
    fleet = FleetMonitor(whole_account=True, transport=world, clock=world.clock)
    tracemalloc.start()
    for number in range(1, 361):
        world.clock.sleep(10.0)
        for machine in world.machines.values():
            machine.log += f"step {number + 1}/100000 loss {2 / number:.4f}\n"
            machine.scripts.clear()  # what the made-up machines keep is not ours
        world.said.clear()
        fleet.update_all_metrics()
        if number % 60 == 0:
            gc.collect()
            logs = sum(len(machine.log) for machine in world.machines.values())
            ours = tracemalloc.get_traced_memory()[0] - logs
            print(f"after {number:3} refreshes of {running} instances  {ours / MB:6.1f} MB")


# ---------------------------------------------------------------- for python3 -m bench


class SlowWorld(World):
    """Machines in memory that answer after a pause. `seconds` is the CPU time of making up the answers."""

    def __init__(self, *numbers: int, pause: float) -> None:
        super().__init__(*numbers)
        self.pause, self.seconds = pause, 0.0

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        time.sleep(self.pause)
        started = time.thread_time()
        try:
            return super().run(argv, timeout=timeout, input=input)
        finally:
            self.seconds += time.thread_time() - started  # approximately: threads add to it side by side


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


def measure_looks(members: int, rounds: int = 5, pause: float = 0.05) -> float:
    """Return the CPU seconds of a look at one member, in rounds of all, without those of making up the answers."""
    world = SlowWorld(*range(1, members + 1), pause=pause)
    fleet = FleetMonitor(whole_account=True, transport=world, clock=world.clock)
    taken = []
    for number in range(rounds + 2):
        world.clock.sleep(10.0)
        for machine in world.machines.values():
            machine.log += f"step {number + 1}/100000 loss {2 / (number + 1):.4f}\n"
        before = time.process_time() - world.seconds
        fleet.update_all_metrics()
        taken.append(time.process_time() - world.seconds - before)
    fleet.close()
    return statistics.median(taken[2:]) / members


def measure_member(members: int = 10, looks: int = 720) -> float:
    """Return the bytes of a member after so many looks, all that the made-up machines keep left out."""
    measure_looks(2, 1)  # imports and patterns are not a member's
    world = World(*range(1, members + 1))
    tracemalloc.start()
    fleet = FleetMonitor(whole_account=True, transport=world, clock=world.clock)
    for number in range(looks):
        world.clock.sleep(10.0)
        for machine in world.machines.values():
            machine.log += f"step {number + 1}/100000 loss {2 / (number + 1):.4f}\n"
        fleet.update_all_metrics()
        world.said.clear()
        for machine in world.machines.values():
            machine.scripts.clear()
    gc.collect()
    made_up = [tracemalloc.Filter(False, f"*/{folder}/*") for folder in ("tests", "bench")]
    ours = sum(each.size for each in tracemalloc.take_snapshot().filter_traces(made_up).statistics("filename"))
    tracemalloc.stop()
    fleet.close()
    return ours / members


def rows() -> list[Row]:
    found = [
        Row(
            "fleet: own CPU of a look, 100 members",
            1e3 * measure_looks(100),
            "ms",
            None,
            "answers after 50 ms",
            "0.5 ms",
        ),
        Row("fleet: the same, answers at once", 1e3 * measure_looks(100, 20, 0.0), "ms", None, "", "0.5 ms"),
        Row("fleet: memory of a member after 720 looks, two hours", measure_member() / 1e3, "kB", None, "", "40 kB"),
    ]
    if shutil.which("vastai"):
        with tempfile.TemporaryDirectory() as folder, VastApi() as served:
            os.environ.update(served.environ, XDG_RUNTIME_DIR=folder, TRAINING_MONITOR_STATE_DIR=f"{folder}/state")
            one, ours = measure_listing(500, 3, served)
            share, others = measure_share(500, 60.0, served)
        what = "fleet: 500 instances, share of a core"
        found.append(Row(what, 100 * share, "%", 100 * others, "its `vastai`", "2 %"))
        bare = "`vastai show instances --raw`"
        found.append(Row("fleet: refresh of 500 instances", ours, "s", one, bare, "one process"))
    return found


def growth() -> list[str]:
    taken = {members: measure_looks(members, 3) for members in (10, 100, 1000, 10_000)}
    head = ["| members | own CPU of a look |", "| ---: | ---: |"]
    return [*head, *(f"| {members} | {1e3 * taken[members]:.2f} ms |" for members in taken)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listed", type=int, default=500)
    parser.add_argument("--running", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as name:
        tools = Path(name) / "tools"
        tools.mkdir()
        os.environ.update(
            PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",
            XDG_RUNTIME_DIR=name,
            TRAINING_MONITOR_STATE_DIR=f"{name}/state",
        )
        with VastApi() as served:
            os.environ.update(served.environ)
            one, ours = measure_listing(arguments.listed, arguments.rounds, served)
        print(f"vastai show instances --raw, {arguments.listed} instances  {one:6.2f} s")
        print(f"one refresh of {arguments.listed} instances                {ours:6.2f} s   ratio {ours / one:.2f}")
        server = SshServer(Path(name) / "sshd")
        server.set_environment({"SHLVL": "2"})
        server.write_client(tools)
        server.start()
        try:
            with VastApi() as served:
                os.environ.update(served.environ)
                measure_processor(arguments.running, arguments.seconds, served, server, Path(name))
        finally:
            server.stop()
    measure_memory(arguments.running)
