"""External tools that fail: missing, hanging, killed, silent, talkative. No verdict healthy or failed follows."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.hostile.faults import ENDS, FAULTS, HARMLESS, WHOLE, Shims, children, hurry
from tests.hostile.tries import tried
from tests.hostile.world import (
    COUNT,
    INTERRUPTED,
    SEED,
    STATUSES,
    FastClock,
    Report,
    TooLong,
    World,
    judge,
    place_of,
    time_limit,
)
from tests.integration.commands import run_command
from tests.integration.conftest import MARK, SshServer, Surroundings, wait_until
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.loopback.vast import VastApi
from training_monitor.core.errors import CommandError, TrainingMonitorError
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.look import health_report, looks
from training_monitor.rent.sync import push_folder
from training_monitor.vast.instances import destroy_instance

OK, BAD, USAGE, UNKNOWN = 0, 1, 2, 3
MOST_SECONDS = 15.0
TIMES = max(1, COUNT // 4000)  # how often each fault meets each tool
RECORDED = Path(__file__).parents[1] / "recorded" / "ray" / "2.60.0"
RUNNING_RAY, FAILED_RAY = "raysubmit_6wjaEaW83r1C7JzP", "bad1"
RAY = f"""\
#!/bin/sh
case "$1 $2 $3 $*" in
  "status "*) cat {RECORDED}/cli_status_cluster.out ;;
  "job list"*) cat {RECORDED}/cli_list.out ;;
  "job status"*bad1*) cat {RECORDED}/cli_status_bad1.out; exit 1 ;;
  "job status"*) cat {RECORDED}/cli_status_{RUNNING_RAY}.out ;;
  "job logs"*) for n in 1 2 3 4 5; do echo "step $n/10 loss 0.$n"; done ;;
  *) exit 1 ;;
esac
"""
# What cannot ask keeps asking; `stop --notify` and `upload` say what they could not do.
GOES_ON = ("wait", "upload", "stop and notify", "run", "restart")
# It finds all trainings of this machine, also those of tests that run beside this one.
OF_OTHERS = {"check": (OK, BAD)}
NOT_HERE = {"doctor": (OK, BAD), "upload": (BAD, UNKNOWN), "stop and notify": (BAD, UNKNOWN)}
LOOKS = (
    "check", "check field", "check job", "check log", "check pid", "status", "status job", "logs", "fleet", "top",
    "health", "gpu", "health EFA", "health Ray alone", "checkpoints", "doctor", "watch", "watch job", "watch log",
    "wait",
    "status Ray job", "logs Ray job", "check Ray job", "upload",
)  # fmt: skip


class Bench:
    """A world with trainings, good and bad ones, whose tools can fail, and what commands answer about them."""

    def __init__(self, world: World, shims: Shims, report: Report, patches: pytest.MonkeyPatch) -> None:
        self.world, self.shims, self.report = world, shims, report
        self._patches, self._sound = patches, dict[tuple[str, ...], int]()
        self.dead, self.silent = "process:dead", 0
        self.last = OK  # the exit code of the last command
        self.rng = random.Random(f"{SEED} tools")

    def run(self, argv: Sequence[str], what: str, allowed: Collection[int], **more: object) -> str:
        """Run one command and report what it owes and does not do; return what it says."""
        name = " ".join(argv)[:70].replace(str(self.world.folder), "")
        self.report.runs += 1
        tried()
        shutil.rmtree(self.world.state, ignore_errors=True)
        before, began, clock = children(), time.monotonic(), FastClock(real=0.02)
        with pytest.MonkeyPatch.context() as patches:
            clock.install(patches)
            if "hangs" in what:
                hurry(patches)
            for module in (looks, health_report):
                patches.setattr(module, "SAMPLE_SECONDS", 0.1, raising=False)
            try:
                with time_limit(MOST_SECONDS):
                    done = run_command(*argv)
            except (Exception, KeyboardInterrupt, TooLong) as error:
                said = "".join(traceback.format_exception(error)[-5:])[-1500:]
                self.report.add(f"{type(error).__name__} escapes", place_of(error), name, f"{what}\n{said}")
                return ""
        took = time.monotonic() - began
        self.last = done.returncode
        self.report.statuses[str(done.returncode)] += 1
        judge(self.report, name, argv, what, done, tuple(allowed))
        if took > MOST_SECONDS / 2:
            self.report.add("slow", name, name, f"{what}: {took:.1f} s")
        if not wait_until(lambda: children() <= before, 3):
            self.report.add("a process is left", name, name, f"{what}: {children() - before}")
        return f"{done.stdout}\n{done.stderr}"

    def sound(self, argv: Sequence[str]) -> int:
        """The exit code with tools that work."""
        key = (os.environ.get("RAY_API_SERVER_ADDRESS", ""), *argv)
        if key not in self._sound:
            quiet, self.report = self.report, Report("sound")
            self.run(argv, "sound", (*STATUSES, INTERRUPTED))
            self._sound[key], self.report = int(next(iter(self.report.statuses), 0)), quiet
        return self._sound[key]

    def marked(self) -> list[str]:
        """The command lines of all that this world started."""
        mark, found = f"TM_HOSTILE_WORLD={self.world.folder}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        return found

    def processes_of(self, name: str) -> list[str]:
        """What runs of a job."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"/{name}/".encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
        return found

    def names_the_tool(self, said: str, tool: str, argv: Sequence[str], what: str) -> None:
        words = {"vastai": "vast", "ssh": "ssh"}.get(tool, tool)
        name = " ".join(argv)[:70]
        if words not in said:
            self.report.add("does not name the tool", argv[0], name, f"{what}: {said[:500]!r}")
        elif not re.search(r'Try: |"hint": "|-> |remed|install |check ', said):
            self.report.add("says nothing to try", argv[0], name, f"{what}: {said[:500]!r}")


def as_json(argv: Sequence[str]) -> tuple[str, ...]:
    words = argv[:2] if argv[0] == "rent" else argv[:1]
    return (*words, "--json", *argv[len(words) :])


@pytest.fixture
def bench(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """To be asked for behind the fixtures that put tools on PATH."""
    before = dict(os.environ)
    world = World(surroundings.folder / "w", monkeypatch)
    try:
        world.begin()
        of_vastai = ("VAST_", "XDG_", "HOME") if "VAST_URL" in before else ("XDG_",)
        for name in (MARK, *(name for name in before if name.startswith(of_vastai))):
            monkeypatch.setenv(name, before[name])
        (world.folder / "tools" / "ray").write_text(RAY)
        shims = Shims(surroundings.folder / "faults", os.environ["PATH"])
        monkeypatch.setenv("PATH", shims.path)
        yield Bench(world, shims, Report("tools"), monkeypatch)
    finally:
        world.end()


def give_surroundings(*givers: Callable[[dict[str, str]], None]) -> None:
    """Let targets have the trainings, tools and jobs of this process."""
    names = ("PATH", "TRAINING_MONITOR_JOBS_DIR", "RAY_API_SERVER_ADDRESS", "TM_HOSTILE_WORLD")
    for give in givers:
        give({name: os.environ[name] for name in names})


# ---------------------------------------------------------------- tools of this machine


def dealt(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Each name about as often."""
    while True:
        yield from rng.sample(names, len(names))


def test_ssh_and_kubectl_that_fail_leave_it_unknown(
    kube: KubernetesApi, pod: Pod, sshd: SshServer, bench: Bench
) -> None:
    give_surroundings(pod.env.update, sshd.set_environment)
    names = dealt(LOOKS, bench.rng)
    for turn, (tool, target) in enumerate((("ssh", sshd.address), ("kubectl", "k8s://default/head"))):
        commands = bench.world.commands(target)
        for at, fault in enumerate(FAULTS):
            if TIMES == 1 and (at // 2 + turn) % 2:
                continue  # each fault is met by one of the two
            for number in range(TIMES):
                name = next(names)
                argv = as_json(commands[name]) if (at + number) % 2 else commands[name]
                what = f"{tool} {fault}"
                told = {*NOT_HERE.get(name, (UNKNOWN,)), *([INTERRUPTED] if name in GOES_ON else [])}
                if fault in HARMLESS or fault in WHOLE:
                    told |= {bench.sound(commands[name]), *OF_OTHERS.get(name, ())}
                with bench.shims.broken(tool, fault):
                    said = bench.run(argv, what, told)
                if fault in ENDS and fault not in WHOLE:
                    bench.names_the_tool(said, tool, argv, what)
    bench.report.check()


# ---------------------------------------------------------------- tools of the target

OF_TOOL = {
    "tail": ("logs", "status job", "check field", "check job", "check log", "watch log", "checkpoints"),
    "stat": ("check log", "status job", "checkpoints", "top", "watch log", "check job", "health Ray"),
    "md5sum": ("check log", "watch log", "check job"),
    "nvidia-smi": ("gpu", "health", "check", "doctor", "fleet"),
    "ray": ("health Ray alone", "status Ray job", "logs Ray job", "check Ray job", "health Ray"),
}
# What `tail` itself puts into a log, and says it is well, is the log.
IN_THE_LOG = {("tail", "a banner first"), ("tail", "says an error, status 0")}
ASKED_OF_ONE = ("gpu", "health Ray alone")  # all that these show is from one tool


def add_bad_trainings(bench: Bench) -> None:
    """A job that failed, and a process that has been silent for two hours."""
    start_process_job("local", ["sh", "-c", "echo step 3/9 loss=1; exit 3"], "dead")
    log = bench.world.home / "silent.log"
    words = ["sh", "-c", f"echo 'step 5/100 loss: 0.5' >>{log}; exec sleep 1000"]
    with log.open("a") as out:
        process = subprocess.Popen(words, stdout=out, start_new_session=True, stdin=subprocess.DEVNULL)
    bench.world._processes.append(process)
    wait_until(lambda: log.stat().st_size > 0)
    os.utime(log, (time.time() - 7200,) * 2)


def bad_commands(bench: Bench, tool: str) -> dict[str, tuple[str, ...]]:
    if tool == "ray":
        return {"failed": ("status", "local", FAILED_RAY), "failed, checked": ("check", "local", FAILED_RAY)}
    return {
        "dead": ("status", "local", "process:dead"),
        "dead, checked": ("check", "local", "process:dead"),
        "dead, waited for": ("wait", "local", "process:dead", "--timeout", "30"),
        "silent": ("check", "local", str(bench.world.home / "silent.log")),
    }


def test_tools_of_the_target_that_fail_make_nothing_failed_or_healthy(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_bad_trainings(bench)
    commands = bench.world.commands("local")
    for name, argv in commands.items():
        commands[name] = tuple(RUNNING_RAY if word == "raysubmit_1" else word for word in argv)
    for turn, (tool, names) in enumerate(OF_TOOL.items()):
        if tool == "ray":
            monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
        bad = bad_commands(bench, tool)
        good_names, bad_names = dealt(names, bench.rng), dealt([*bad], bench.rng)
        for at, fault in enumerate(FAULTS):
            if TIMES == 1 and (at + turn) % 4:
                continue  # each tool meets every fourth fault
            for number in range(TIMES):
                name = next(good_names)
                argv = as_json(commands[name]) if (at + number) % 2 else commands[name]
                told = {bench.sound(commands[name]), UNKNOWN, *OF_OTHERS.get(name, ()), *([BAD] * (name == "doctor"))}
                if name in ASKED_OF_ONE and fault in ENDS and fault not in WHOLE:
                    told = {UNKNOWN} | ({OK} if fault == "stderr only" else set())  # both are read there
                with bench.shims.broken(tool, fault):
                    said = bench.run(argv, f"{tool} {fault}", told)
                check_claims(bench, name, said, f"{tool} {fault}")
            for name in (next(bad_names) for _ in range(TIMES - (at % 4 < 2))):
                assert bench.sound(bad[name]) in (BAD, UNKNOWN), name
                told = {BAD, UNKNOWN} | ({OK} if (tool, fault) in IN_THE_LOG and name == "silent" else set())
                with bench.shims.broken(tool, fault):
                    bench.run(bad[name], f"{tool} {fault}", told)
    bench.report.check()


def check_claims(bench: Bench, name: str, said: str, what: str) -> None:
    """What is empty because a tool failed is not shown as empty."""
    # what a tool says with status 0 in the place of a log is the log
    if bench.last == OK and name.startswith("logs") and "step" not in said and "says an error" not in what:
        bench.report.add("an empty log", name, name, f"{what}: {said[:300]!r}")
    if bench.last == OK and name == "checkpoints" and not ("checkpoint-10" in said and "checkpoint-20" in said):
        bench.report.add("checkpoints are missing", name, name, f"{what}: {said[:300]!r}")


def test_an_answer_without_its_words_is_no_answer(kube: KubernetesApi, pod: Pod, bench: Bench) -> None:
    """What these were answered was taken for a missing pod, no checkpoint, an empty log, fewer GPUs, a failed job."""
    give_surroundings(pod.env.update)
    add_bad_trainings(bench)
    here, there = bench.world.commands("local"), bench.world.commands("k8s://default/head")
    for tool, fault, argv in (
        ("kubectl", "silent, status 0", (*there["health"], "--pods", "head")),
        ("stat", "missing", here["checkpoints"]),
        ("stat", "says an error, status 0", here["checkpoints"]),
        ("find", "missing", here["checkpoints"]),
        ("tail", "missing", here["logs"]),
        ("tail", "silent, status 0", here["check field"]),
        ("tail", "missing", ("check", "local", str(bench.world.home / "silent.log"))),
        ("stat", "dies half-way", ("check", "local", str(bench.world.home / "silent.log"))),
        ("stat", "dies half-way", here["watch log"]),
        ("nvidia-smi", "dies half-way", here["gpu"]),
    ):
        with bench.shims.broken(tool, fault):
            bench.run(argv, f"{tool} {fault}", (UNKNOWN,))
    bench.report.check()


def test_what_nvidia_smi_says_of_a_broken_nvml_is_told(bench: Bench) -> None:
    """Its status 255 is its own and no signal."""
    tool = bench.world.folder / "tools" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Unknown Error'\nexit 255\n")
    assert "Failed to initialize NVML: Unknown Error" in bench.run(("gpu", "local"), "NVML is broken", (BAD, UNKNOWN))
    bench.report.check()


# ---------------------------------------------------------------- what acts

LOST = ("dies half-way", "dies after its answer", "stderr only", "another program")


def test_what_is_started_and_stopped_while_tools_fail_is_so_once(
    kube: KubernetesApi, pod: Pod, sshd: SshServer, bench: Bench
) -> None:
    """The first two calls fail, with or without doing what they were to do."""
    give_surroundings(pod.env.update, sshd.set_environment)
    cases = [("ssh", sshd.address, fault) for fault in LOST[:2]]
    cases += [("kubectl", "k8s://default/head", fault) for fault in LOST[2:]]
    cases += [("tail", "local", "dies half-way"), ("stat", "local", "status 1, silent")]
    cases += [("setsid", "local", "a function around it"), ("setsid", "local", "missing")]
    for number, (tool, target, fault) in enumerate(cases):
        name, started = f"once-{number}", bench.world.folder / f"started {number}"
        words = ("run", "--target", target, "--name", name, "--max-retries", "1", "--retry-delay", "0.1s")
        with bench.shims.broken(tool, fault, first=None if tool == "setsid" else 2):
            bench.run((*words, "--", "sh", "-c", f'echo x >>"{started}"'), f"{tool} {fault}", (OK, UNKNOWN))
        starts = started.read_text().split() if started.exists() else []
        if len(starts) != 1 and (bench.last == OK or starts):
            bench.report.add("not started once", tool, name, f"{fault}: {len(starts)}")
        job = start_process_job("local", ["sleep", "1000"], f"stopped-{number}")
        with bench.shims.broken(tool, fault, first=2):
            said = bench.run(("stop", target, job, "--stop-grace", "1"), f"{tool} {fault}", (OK, UNKNOWN))
        if bench.last == OK and (left := bench.processes_of(f"stopped-{number}")):
            bench.report.add("stopped, and runs", tool, name, f"{fault}: {left}: {said[-300:]}")
    bench.report.check()


# ---------------------------------------------------------------- vastai

OF_VAST: dict[str, tuple[str, ...]] = {
    "instances": ("rent", "instances"),
    "instance": ("rent", "instances", "7"),
    "offers": ("rent", "offers", "--max-price", "9"),
    "credits": ("rent", "credits"),
    "keys": ("rent", "keys"),
    "sweep": ("rent", "sweep"),
    "vast": ("vast", "--once"),
    "fleet": ("fleet", "vast://7", "--once"),
    "check": ("check", "vast://7"),
    "gpu": ("gpu", "vast://7"),
    "doctor": ("doctor",),
}


def test_a_vastai_that_fails_leaves_it_unknown_and_every_instance_where_it_is(vast: VastApi, bench: Bench) -> None:
    for number in (7, 8):
        vast.add_instance(number, ssh_host="127.0.0.1", ssh_port=1)
    names = dealt([*OF_VAST], bench.rng)
    for at, fault in enumerate(FAULTS):
        for number in range(TIMES):
            name, what = next(names), f"vastai {fault}"
            argv = as_json(OF_VAST[name]) if (at + number) % 2 else OF_VAST[name]
            told = {"doctor": {OK, BAD}, "keys": {BAD, UNKNOWN}}.get(name, {UNKNOWN})
            if fault in HARMLESS or fault in WHOLE:
                told = told | {bench.sound(OF_VAST[name])}
            with bench.shims.broken("vastai", fault):
                said = bench.run(argv, what, told)
            if fault in ENDS and fault not in WHOLE and name != "keys":
                bench.names_the_tool(said, "vastai", argv, what)
    assert sorted(vast.instances) == [7, 8] and not vast.destroyed()
    bench.report.check()


def test_one_instance_is_destroyed_for_certain_or_it_is_unknown(vast: VastApi, bench: Bench) -> None:
    destroyed = 0
    for number, fault in enumerate(name for name in ENDS if name not in ("missing", "hangs")):
        rented = 100 + number
        for each in (rented, 8):
            vast.add_instance(each, ssh_host="127.0.0.1", ssh_port=1)
        first = None if fault == "not executable" else 1
        with pytest.MonkeyPatch.context() as patches, bench.shims.broken("vastai", fault, first=first):
            hurry(patches)
            try:
                destroy_instance(str(rented), clock=FakeClock())
            except CommandError as error:
                said = str(error)
            else:
                said = "destroyed"
        if said == "destroyed" and rented in vast.instances:
            bench.report.add("destroyed, and there", "destroy", fault, said)
        if said == "destroyed":
            destroyed += 1
        if 8 not in vast.instances:
            bench.report.add("another one is destroyed", "destroy", fault, said[-600:])
    assert destroyed > 1
    bench.report.check()


# ---------------------------------------------------------------- rsync


def test_files_that_a_failing_rsync_brings_are_whole_or_the_copy_fails(
    sshd: SshServer, bench: Bench, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    files = {"a": b"one", "b": os.urandom(100_000), "c": b""}
    for name, data in files.items():
        (here / name).write_bytes(data)
    for fault in FAULTS:
        there = tmp_path / f"there {fault}"
        with pytest.MonkeyPatch.context() as patches, bench.shims.broken("rsync", fault):
            hurry(patches)
            try:
                push_folder(str(here), sshd.address, str(there), clock=FakeClock())
            except TrainingMonitorError as error:
                if fault in HARMLESS or "rsync" not in str(error):
                    bench.report.add("fails", "rsync", fault, str(error)[:600])
                continue
        found = {path.name: path.read_bytes() for path in there.iterdir() if not path.name.startswith(".")}
        if found != files:
            bench.report.add("not whole", "rsync", fault, str({name: len(data) for name, data in found.items()}))
    assert wait_until(lambda: not [line for line in bench.marked() if "rsync" in line], 5)
    bench.report.check()
