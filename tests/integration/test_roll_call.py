"""The roll call over trainings of real processes: which rank is not where the others are, and where it is instead.

All trainings of a sweep run at the same time and are asked side by side.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.forbid_ptrace import __file__ as FORBID_PTRACE
from tests.integration.conftest import MARK, SshServer, Surroundings
from tests.integration.roll_call_training import (
    ABSENT,
    FUNCTIONS,
    KINDS,
    PLACES,
    PYTHON,
    REPOSITORY,
    WAITING,
    Identity,
    Machine,
    Plan,
    Training,
    inside,
    running,
    separate_processes,
    wait_for,
)
from tests.loopback.kubernetes import KubernetesApi
from tests.requirements import miss, require
from training_monitor.core.results import CommandResult
from training_monitor.targets.target import parse_target
from training_monitor.targets.transport import LocalTransport, Stream, Transport
from training_monitor.why.explain import explain_training

EVERYTHING = bool(os.environ.get("TRAINING_MONITOR_FUZZ"))
AT_ONCE = 8  # roll calls side by side
SECONDS = 60.0  # for one of them, on a machine with much else to do
IS_NOT_THERE = re.compile(r"not there|missing|gone|ended|exited|dead|died|zombie|no process|not running|never started")
IS_DEAD = re.compile(r"\b(?:not there|gone|ended|exited|dead|died|zombie|crashed|never started)\b")
Report = Mapping[str, Any]  # an ExplanationReport


@dataclass(frozen=True)
class Asked:
    """A training, and how to ask for it."""

    training: Training
    target: str = "local"
    also: tuple[str, ...] = ()
    what: Callable[[Training], int | None] = lambda training: min(training.living.items())[1].pid
    py_spy: str | None = None
    transport: Callable[[Training], Transport | None] = lambda training: None
    machines: int | None = None  # how many of its machines are asked; all by default

    def __str__(self) -> str:
        return str(self.training.plan)

    @property
    def plan(self) -> Plan:
        return self.training.plan

    def explain(self) -> Report:
        report: Report = explain_training(
            self.target,
            self.what(self.training),
            also=self.also,
            timeout=SECONDS,
            py_spy=self.py_spy,
            transport=self.transport(self.training),
        )
        return report


@dataclass(frozen=True)
class Result:
    """What was said, and what the processes were before and after."""

    asked: Asked
    report: Report
    before: Mapping[int, Identity]
    after: Mapping[int, Identity]
    new_files: set[str]


Place = Callable[[Plan], Asked]
Answers = Callable[[Sequence[Asked]], Iterator[Result]]


# --- what makes an answer right


def check_ranks(result: Result) -> None:
    """All ranks that run are in the list, and no others."""
    listed = [each for each in result.report["ranks"] if each["rank"] is not None]
    training = result.asked.training
    asked = training.machines[: result.asked.machines]
    there = [each for _, each in sorted(training.living.items()) if each.machine in asked]
    keys = ("rank", "local_rank", "world_size", "local_world_size", "pid")
    assert [tuple(each[key] for key in keys) for each in sorted(listed, key=lambda each: each["rank"])] == [
        (each.rank, each.local_rank, training.plan.world, each.local_world, each.pid) for each in there
    ]
    assert {each["rank"]: each["host"] for each in listed} == {
        each.rank: str(parse_target(each.machine.address)) for each in there
    }
    assert result.report["silent"] == []


def check_untouched(result: Result) -> None:
    """The processes are the same, stopped only if they were before, and there is no new file."""
    assert result.after == result.before
    assert result.new_files == set()


def names_rank(text: str, rank: int) -> bool:
    """Whether a paragraph has `rank 3`, or `ranks 1 and 3`."""
    return bool(re.search(rf"\branks? (?:\d+(?:, (?:and )?| and ))*{rank}\b", text, re.IGNORECASE))


def culprit_ranks(report: Report) -> list[int | None]:
    return sorted(each["rank"] for each in report["culprits"])


def check_culprits(result: Result) -> None:
    """It names the odd ranks, nobody else, and says what is with each of them."""
    report, odd = result.report, result.asked.plan.odd
    said = report["explanation"]
    assert culprit_ranks(report) == sorted(odd), said
    assert report["confidence"] in ("low", "medium", "high"), said
    assert report["missing_ranks"] == [rank for rank, kind in sorted(odd.items()) if kind in ABSENT]
    for culprit in report["culprits"]:
        rank = culprit["rank"]
        assert names_rank(said, rank) and culprit["why"], said
        if odd[rank] in ABSENT:
            assert IS_NOT_THERE.search(said), said
        else:
            member = result.asked.training.members[rank]
            host = str(parse_target(member.machine.address))
            assert (culprit["pid"], culprit["host"]) == (member.pid, host)
            check_place(culprit, said, odd[rank])


def check_place(culprit: Report, said: str, kind: str) -> None:
    """A culprit's place is the line of the programs at which it is stuck, in a few words."""
    file, line = PLACES[kind]
    assert f"{file}:{line}" in culprit["where"] and FUNCTIONS[kind] in culprit["where"]
    assert f"{file}:{line}" in said, said
    if kind in ("pipe", "lock"):
        assert re.search(rf"\b{kind}\b", said), said


def check_stacks(result: Result, source: str) -> None:
    """Each rank has the stack of its main thread, by this way; the majority is where it waits."""
    odd, report = result.asked.plan.odd, result.report
    for each in report["ranks"]:
        if each["rank"] is None:
            continue
        assert (each["stacks_from"], each["no_stacks"]) == (source, None)
        [stack] = [stack for stack in each["stacks"] if stack["is_main"]]
        frames = [(Path(frame["file"]).name, frame["line"]) for frame in stack["frames"]]
        if each["rank"] in odd:
            assert frames[0] == PLACES[odd[each["rank"]]]
            assert stack["frames"][0]["function"] == FUNCTIONS[odd[each["rank"]]]
        else:
            assert frames[:2] == WAITING
    others = [rank for rank in result.asked.training.living if rank not in odd]
    [majority] = [group for group in report["groups"] if group["is_majority"]]
    assert sorted(majority["ranks"]) == sorted(others)
    assert any(f"{file}:{line}" in majority["where"] for file, line in WAITING)


def check_named(result: Result, source: str) -> None:
    check_ranks(result)
    check_culprits(result)
    check_stacks(result, source)
    check_untouched(result)


def check_without_stacks(result: Result) -> None:
    """Nobody who waits at the barrier is named. An absent rank is; what the kernel tells apart may be."""
    report, odd = result.report, result.asked.plan.odd
    said = report["explanation"]
    check_ranks(result)
    check_untouched(result)
    for each in report["ranks"]:
        if each["rank"] is not None:
            assert each["no_stacks"] and each["stacks"] == [] and each["stacks_from"] is None
    if set(odd.values()) <= set(ABSENT):
        check_culprits(result)
        return
    assert set(culprit_ranks(report)) <= set(odd), said
    assert bool(report["culprits"]) == (report["confidence"] != "none"), said
    assert report["missing_ranks"] == []
    assert report["culprits"] or "unknown" in said.lower(), said


def check_nobody(result: Result) -> None:
    """No rank is named or missing."""
    check_ranks(result)
    check_untouched(result)
    said = result.report["explanation"]
    assert (result.report["culprits"], result.report["missing_ranks"]) == ([], []), said
    assert not re.search(r"\brank \d", said, re.IGNORECASE), said


# --- the places, and asking


def without_py_spy(path: str) -> str:
    return os.pathsep.join(each for each in path.split(os.pathsep) if not (Path(each) / "py-spy").exists())


@pytest.fixture(autouse=True)
def own_path(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No py-spy on PATH, whatever environment the tests run in."""
    monkeypatch.setenv("PATH", without_py_spy(os.environ["PATH"]))
    assert not shutil.which("py-spy") and not (Path(PYTHON).parent / "py-spy").exists()


@pytest.fixture
def py_spy(surroundings: Surroundings) -> Path:
    """The real py-spy on PATH; its folder has nothing else."""
    folder = surroundings.folder / "with py-spy"
    folder.mkdir()
    (folder / "py-spy").symlink_to(require("py-spy", os.defpath))
    return folder


@pytest.fixture
def with_py_spy(py_spy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on this machine and in pods."""
    monkeypatch.setenv("PATH", f"{py_spy}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def target_tmp(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A TMPDIR that is as empty at the end as it was."""
    folder = surroundings.folder / "tmp of the target"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def here(surroundings: Surroundings, target_tmp: Path) -> Place:
    """Trainings on this machine."""
    return lambda plan: Asked(Training(plan, new_folder(surroundings)))


@pytest.fixture
def over_ssh(surroundings: Surroundings, sshd: SshServer, py_spy: Path, target_tmp: Path) -> Place:
    """Trainings on this machine, asked for over ssh."""
    path = f"{py_spy}{os.pathsep}{os.defpath}"
    sshd.set_environment({"PATH": path, "TMPDIR": str(target_tmp)})

    def place(plan: Plan) -> Asked:
        return Asked(Training(plan, new_folder(surroundings), [Machine(sshd.address)]), sshd.address)

    return place


@pytest.fixture
def in_pods(kube: KubernetesApi, surroundings: Surroundings, target_tmp: Path) -> Iterator[Place]:
    """Each training in two pods of its own, which cannot see each other's processes."""
    with ExitStack() as stack:

        def pod(name: str, training: str, node: str) -> Machine:
            enter, proc = separate(stack, name)
            pod = kube.add_pod(name, labels={"job-name": training}, node=node, env={MARK: surroundings.mark})
            pod.env["TMPDIR"] = str(target_tmp)
            pod.enter = inside(enter, pod.root)
            return Machine(f"k8s://default/{name}", enter, proc, pod.environment())

        def place(plan: Plan) -> Asked:
            folder = new_folder(surroundings)
            name = folder.name.replace(" ", "-")
            machines = [pod(f"{name}-{number}", name, f"node-{number}") for number in range(2)]
            return Asked(Training(plan, folder, machines), machines[0].address, what=lambda training: None)

        yield place


def separate(stack: ExitStack, name: str, *, with_own_tmp: bool = False) -> tuple[tuple[str, ...], Path]:
    """Make a machine within this one, where this user may."""
    require("unshare")
    try:
        return stack.enter_context(separate_processes(name, with_own_tmp=with_own_tmp))
    except OSError as error:
        miss("unshare", str(error))


@contextmanager
def ssh_hosts(surroundings: Surroundings, *names: str, folder: Path | None = None) -> Iterator[list[Machine]]:
    """ssh servers on machines of their own, with one key for all; in `folder`, they have a /tmp of their own too."""
    require("sshd")
    folder = folder or surroundings.folder
    with ExitStack() as stack:
        machines, first = [], None
        for name in names:
            enter, proc = separate(stack, name, with_own_tmp=folder != surroundings.folder)
            server = SshServer(folder / name, inside(enter, folder))
            first = first or server
            for key in ("user_key", "user_key.pub"):
                (server.folder / key).write_bytes((first.folder / key).read_bytes())
            (folder / "home").mkdir(exist_ok=True)
            server.set_environment({MARK: surroundings.mark, "SHLVL": "2", "HOME": str(folder / "home")})
            server.start()
            stack.callback(server.stop)
            machines.append(Machine(server.address, enter, proc, {"HOME": str(folder / "home")}))
        assert first
        first.write_client(surroundings.tools)
        stack.callback(surroundings.disconnect)
        yield machines


def new_folder(surroundings: Surroundings) -> Path:
    """A folder for one more training; Training makes it."""
    return surroundings.folder / f"case {len(list(surroundings.folder.glob('case *')))}"


def is_quiet(training: Training) -> bool:
    """Whether its ranks have begun nothing for half a second, which is many steps."""
    written = [path.stat().st_mtime for each in ("rank-*", "*.log") for path in training.folder.glob(each)]
    return time.time() - max(written) > 0.5


def ask_all(asked: Sequence[Asked], before_asking: Callable[[], None] = lambda: None) -> list[Result]:
    """Run the trainings, and when each is where it stays, take all the roll calls."""
    with running(*(each.training for each in asked)):
        for each in asked:
            each.training.wait_until_ready()
        before_asking()
        for each in asked:
            if each.plan.is_stuck:
                wait_for(lambda training=each.training: is_quiet(training), lambda: "it goes on")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(ask, asked))


def ask(asked: Asked) -> Result:
    training = asked.training
    before, files = training.identities(), training.files()
    report = asked.explain()
    json.dumps(report)  # plain
    with suppress(TimeoutError):  # a training may write files for a moment
        wait_for(lambda: training.files() <= files, lambda: "more files", 10)
    return Result(asked, report, before, training.identities(), training.files() - files)


def sweep(subtests: pytest.Subtests, place: Place, plans: Sequence[Plan], check: Callable[[Result], None]) -> None:
    """Check the roll call over each of these trainings, up to 14 of which run at the same time.

    Those that take a processor run last, for as short a time as they can.
    """
    busy = [plan for plan in plans if "busy" in plan.odd.values()]
    for some in ([plan for plan in plans if plan not in busy], busy):
        for at in range(0, len(some), 14):
            for result in ask_all([place(plan) for plan in some[at : at + 14]]):
                with subtests.test(str(result.asked)):
                    check(result)


def odd(world: int, rank: int, kind: str, **more: Any) -> Plan:
    return Plan(world, {rank: kind}, **more)


def each_kind(world: int, ranks: Sequence[int], kinds: Sequence[str] = KINDS, **more: Any) -> list[Plan]:
    """One training for each kind, whose odd rank is one of these, in turn.

    With TRAINING_MONITOR_FUZZ, one for each kind at each position (minutes).
    """
    if EVERYTHING:
        return [odd(world, rank, kind, **more) for rank in range(world) for kind in kinds]
    return [odd(world, ranks[number % len(ranks)], kind, **more) for number, kind in enumerate(kinds)]


# --- by py-spy, by the script itself, and by nothing


def is_named(result: Result) -> None:
    check_named(result, "in-script" if result.asked.plan.with_monitor else "py-spy")


@pytest.mark.usefixtures("with_py_spy")
def test_every_kind_among_four_and_sixteen(subtests: pytest.Subtests, here: Place) -> None:
    in_rank_0 = [replace(plan, is_barrier_in_rank_0=True) for plan in each_kind(4, (2,), ("busy",))]
    four = each_kind(4, (3, 1), ("sleep", "reaped"))  # others below: over ssh, and over two pods
    sweep(subtests, here, in_rank_0 + four + each_kind(16, (0,), ("missing",)), is_named)


def test_over_ssh(subtests: pytest.Subtests, over_ssh: Place) -> None:
    sweep(subtests, over_ssh, each_kind(4, (3, 0), ("dead", "lock")), is_named)


@pytest.mark.usefixtures("with_py_spy")
def test_over_two_pods(subtests: pytest.Subtests, in_pods: Place) -> None:
    def check(result: Result) -> None:
        is_named(result)
        nodes = {each["rank"]: each["node"] for each in result.report["ranks"] if each["rank"] is not None}
        assert nodes == {rank: f"node-{rank // result.asked.training.count}" for rank in nodes}

    plans = each_kind(4, (3, 2), ("missing", "pipe"))
    sweep(subtests, in_pods, plans + each_kind(4, (0,), ("sleep",), with_monitor=True), check)


def test_without_py_spy(subtests: pytest.Subtests, here: Place) -> None:
    """A script with a monitor shows its own stacks. Of others there are none."""

    def check(result: Result) -> None:
        (is_named if result.asked.plan.with_monitor else check_without_stacks)(result)

    plans = each_kind(4, (0, 3), ("busy", "missing"), with_monitor=True)
    plans += each_kind(4, (2, 1), ("lock", "dead"))
    sweep(subtests, here, plans, check)


# --- where looking into processes is forbidden


class ForbidPtrace(LocalTransport):
    """A transport whose programs may not look into the ranks of a training."""

    def __init__(self, training: Training) -> None:
        pids = ",".join(str(member.pid) for member in training.living.values())
        self._words = [PYTHON, str(FORBID_PTRACE), pids]

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None, **more: Any) -> CommandResult:
        return super().run([*self._words, *argv], timeout=timeout, input=input, **more)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return super().stream([*self._words, *argv], input=input)


@pytest.fixture
def forbidden(here: Place) -> Place:
    """Trainings on this machine, whose processes may not be looked into."""
    with ExitStack() as stack:
        separate(stack, "tried")  # the same right is needed to cover a file of /proc
    return lambda plan: Asked(here(plan).training, transport=ForbidPtrace)


@pytest.mark.usefixtures("with_py_spy")
def test_where_ptrace_is_forbidden_it_says_by_what_or_the_script_itself_answers(
    subtests: pytest.Subtests, forbidden: Place
) -> None:
    def check(result: Result) -> None:
        if result.asked.plan.with_monitor:
            return is_named(result)
        check_without_stacks(result)
        assert any("despite CAP_SYS_PTRACE. Possible causes: a seccomp" in each for each in result.report["remedies"])
        if "socket" in result.asked.plan.odd.values():
            assert (result.report["confidence"], result.report["culprits"]) == ("none", [])
            assert "unknown" in result.report["explanation"].lower()

    plans = each_kind(4, (0, 2), ("missing", "socket"))
    sweep(subtests, forbidden, plans + each_kind(4, (1,), ("pipe",), with_monitor=True), check)


def test_python_3_14_tells_its_stacks_by_itself(subtests: pytest.Subtests, here: Place) -> None:
    """By a script that it runs, where its main thread runs Python; else they are read from its memory."""
    python = require("python3.14")

    def check(result: Result) -> None:
        check_ranks(result)
        check_culprits(result)
        odd = result.asked.plan.odd
        for each in result.report["ranks"]:
            is_busy = odd.get(each["rank"]) == "busy"
            assert each["stacks_from"] == ("remote_exec" if is_busy else "remote_debugging"), each
        check_untouched(result)
        assert not result.new_files

    sweep(subtests, here, [replace(plan, python=python) for plan in each_kind(4, (3, 1), ("lock", "busy"))], check)


# --- not one odd rank


@pytest.mark.usefixtures("with_py_spy")
def test_what_is_not_one_odd_rank_of_many(subtests: pytest.Subtests, here: Place) -> None:
    """All of these at the same time, each with an expectation of its own."""

    def check_pair(result: Result) -> None:
        check_ranks(result)
        check_untouched(result)
        assert set(culprit_ranks(result.report)) <= {1}, result.report["explanation"]

    def check_progress(result: Result) -> None:
        check_ranks(result)
        assert (result.report["culprits"], result.report["missing_ranks"]) == ([], [])
        assert "progress" in result.report["explanation"]
        check_untouched(result)

    def check_stopped(result: Result) -> None:
        check_ranks(result)
        check_untouched(result)
        [stopped] = [each for each in result.report["ranks"] if each["rank"] == 2]
        assert stopped["state"] == "T"
        assert culprit_ranks(result.report) == [2] and result.report["confidence"] != "none"
        said = result.report["explanation"]
        assert names_rank(said, 2) and re.search(r"\bstopped\b|SIGSTOP", said), said

    expected = [
        (Plan(5, {1: "pipe", 3: "lock"}), is_named),
        (Plan(5, {0: "dead", 4: "missing"}), is_named),
        (Plan(4, mute_at=3), check_nobody),
        (Plan(2, {1: "pipe"}), check_pair),
        (Plan(4, step_seconds=0.1), check_progress),
        (Plan(4, step_seconds=0.1), check_stopped),
    ]
    asked = [here(plan) for plan, _ in expected]
    stopping = asked[-1].training

    def stop() -> None:
        os.kill(stopping.members[2].pid, signal.SIGSTOP)
        wait_for(lambda: stopping.members[2].state == "T" and is_quiet(stopping), lambda: "it goes on")

    for result, (plan, check) in zip(ask_all(asked, stop), expected):
        with subtests.test(f"{plan}: {check.__name__}"):
            check(result)


# --- hosts


def test_of_half_the_world_the_other_half_is_not_called_dead(
    subtests: pytest.Subtests, surroundings: Surroundings
) -> None:
    py_spy = require("py-spy", os.defpath)
    with ssh_hosts(surroundings, "gpu-a", "gpu-b") as hosts:

        def half(rank: int) -> Asked:
            training = Training(odd(4, rank, "pipe"), new_folder(surroundings), hosts)
            return Asked(training, hosts[0].address, py_spy=py_spy, machines=1)

        seen, unseen = ask_all([half(1), half(3)])
    for name, result in {"seen": seen, "unseen": unseen}.items():
        with subtests.test(f"the odd rank is {name}"):
            check_ranks(result)
            check_untouched(result)
            said = result.report["explanation"]
            assert culprit_ranks(result.report) == ([1] if name == "seen" else []), said
            assert re.search(r"not (?:been )?(?:seen|queried)|elsewhere|other (?:hosts|machines)", said), said
            assert not IS_DEAD.search(said), said


def test_of_two_hosts_of_three_the_ranks_of_the_third_are_not_called_dead(surroundings: Surroundings) -> None:
    py_spy = require("py-spy", os.defpath)
    with ssh_hosts(surroundings, "gpu-a", "gpu-b", "gpu-c") as hosts:
        training = Training(odd(6, 4, "pipe"), new_folder(surroundings), hosts)
        also = (hosts[1].address,)
        [result] = ask_all([Asked(training, hosts[0].address, also, what=lambda training: None, py_spy=py_spy)])
    report, said = result.report, result.report["explanation"]
    assert sorted(each["rank"] for each in report["ranks"] if each["rank"] is not None) == [0, 1, 2, 3]
    assert (report["culprits"], report["missing_ranks"], report["unseen_ranks"]) == ([], [], [4, 5]), said
    assert not IS_DEAD.search(said), said


def test_ranks_of_another_training_on_another_host_do_not_count(surroundings: Surroundings) -> None:
    with ssh_hosts(surroundings, "gpu-a", "gpu-b") as hosts:
        training = Training(odd(4, 1, "pipe", with_monitor=True), new_folder(surroundings), hosts[:1])
        theirs = training.folder / "train_theirs.py"
        theirs.write_text("import time\n\nprint('ready', flush=True)\ntime.sleep(600)\n")
        environment = {**os.environ, "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", MARK: surroundings.mark}
        command = [*inside(hosts[1].enter, training.folder), PYTHON, str(theirs)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as other:
            assert other.stdout and other.stdout.readline() == b"ready\n"
            asked = Asked(training, hosts[0].address, (hosts[1].address,), what=lambda training: None)
            [result] = ask_all([asked])
            other.kill()
    is_named(result)
    assert [each for each in result.report["unknown"] if "train_theirs.py" in each], result.report["unknown"]


def test_further_hosts_of_the_same_training(subtests: pytest.Subtests, surroundings: Surroundings) -> None:
    py_spy = require("py-spy", os.defpath)
    with ssh_hosts(surroundings, "gpu-a", "gpu-b") as hosts:
        also = (hosts[1].address,)

        def whole(rank: int, kind: str) -> Asked:
            training = Training(odd(4, rank, kind), new_folder(surroundings), hosts)
            return Asked(training, hosts[0].address, also, py_spy=py_spy, what=lambda training: None)

        # One after the other: without a name, a host's only training is meant.
        for rank, kind in ((0, "lock"), (3, "reaped")):
            [result] = ask_all([whole(rank, kind)])
            with subtests.test(str(result.asked)):
                is_named(result)


def test_nothing_is_left_on_a_host_to_which_py_spy_was_sent(
    subtests: pytest.Subtests, surroundings: Surroundings, memory_path: Path
) -> None:
    """It has a /tmp, a /var/tmp and a home that nobody else uses."""
    shutil.copytree(REPOSITORY / "training_monitor", memory_path / "training_monitor")
    with ssh_hosts(surroundings, "gpu-a", folder=memory_path) as [host]:
        host = replace(host, environment={**host.environment, "PYTHONPATH": str(memory_path)})
        folders = [host.proc.parent / "tmp", host.proc.parent / "var/tmp", memory_path / "home"]

        def is_own(path: Path) -> bool:
            """Whether a file is of a script with a TrainingMonitor, which shows that it answers."""
            return path.name.startswith("training_monitor-stacks-") or path.suffix == ".here"

        def listing() -> list[list[Path]]:
            return [sorted(each for each in folder.rglob("*") if not is_own(each)) for folder in folders]

        before = listing()
        for number, plan in enumerate([odd(4, 1, "pipe"), odd(4, 2, "lock", with_monitor=True)]):
            training = Training(plan, memory_path / f"case {number}", [host])
            [result] = ask_all([Asked(training, host.address, py_spy=require("py-spy", os.defpath))])
            with subtests.test(str(plan)):
                is_named(result)
                wait_for(lambda: listing() == before, lambda: f"{before} became {listing()}", 10)
