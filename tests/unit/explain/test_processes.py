"""The processes of a training on one host: which of them are its ranks, and what each waits for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.models import Gpu, GpuProcess, GpuTable
from training_monitor.explain.find_ranks import build_ranks, choose_ranks
from training_monitor.explain.processes import (
    HostFacts,
    SeenTraining,
    parse_processes,
    processes_question,
    remedies_of,
)
from training_monitor.explain.stacks import SeenStacks, StackAnswer
from training_monitor.judging.ranks import (
    CHILD,
    DISK,
    EVENTS,
    LOCK,
    PIPE,
    SOCKET,
    TERMINAL,
    TIMER,
    Frame,
    RankGpu,
    Stack,
)
from training_monitor.targets.replies import split_parts

WORD, ROOT = "0a1b", "/.//./"
TRAIN = ("python", "train.py")
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]


@dataclass
class One:
    """A process as its host tells of it."""

    pid: int
    parent: int = 1
    words: Sequence[str] = TRAIN
    variables: Mapping[str, object] = field(default_factory=dict)
    state: str = "S"
    wait: str = "|"
    file: str = ""
    ticks: tuple[int, int] = (100, 100)
    start: tuple[int, int] = (50, 50)


def row(each: One, at: int, state: str) -> str:
    return f"proc {each.pid} {state} {each.parent} 10 10 {each.ticks[at]} 0 30 20 {each.start[at]} {each.words[0]}\n"


def head(name: str, bodies: Mapping[int, str]) -> str:
    return "".join(f"==> {ROOT}proc/{pid}/{name} <==\n{body}\n" for pid, body in bodies.items())


def reply(*processes: One, facts: str = "", later: Mapping[int, str] | None = None) -> str:
    """What `call_roll` prints."""
    pids = {each.pid: each for each in processes}
    parts = {
        "facts": f"boot=b\nself=900\nup=1000.00\nhz=100\nmachine=x86_64\nhost=gpu-a\n{facts}",
        "table": "".join(row(each, 0, each.state) for each in processes),
        "status": "".join(
            f"{ROOT}proc/{pid}/status:Threads:\t7\n{ROOT}proc/{pid}/status:VmRSS:\t 2048 kB\n" for pid in pids
        ),
        "bytes": "".join(f"{ROOT}proc/{pid}/io:rchar: 1000\n{ROOT}proc/{pid}/io:read_bytes: 5\n" for pid in pids),
        "command": head("cmdline", {pid: "\x1f".join((*each.words, "")) for pid, each in pids.items()}),
        "environment": head(
            "environ", {pid: "".join(f"{k}={v}\n" for k, v in each.variables.items()) for pid, each in pids.items()}
        ),
        "waiting": "".join(f"wait {pid} {each.wait}\n" for pid, each in pids.items()),
        "descriptors": "".join(
            f"lr-x------ 1 0 0 64 Nov 22 10:28 {ROOT}proc/{pid}/fd/3 -> {each.file}\n"
            for pid, each in pids.items()
            if each.file
        ),
        "again": "up=1002.00\n"
        + "".join(row(each, 1, (later or {}).get(each.pid, each.state)) for each in processes)
        + "".join(f"{ROOT}proc/{pid}/io:rchar: 5000\n" for pid in pids),
        "end": "",
    }
    return "".join(f"\n{WORD} {key}\n{body}" for key, body in parts.items())


def seen(*processes: One, **known: object) -> SeenTraining:
    return parse_processes(reply(*processes, **known), WORD, ROOT)  # type: ignore[arg-type]


def ranks(*processes: One, stacks: SeenStacks | None = None) -> list[tuple[int, int | None]]:
    """The ranks among these as (pid, rank); by default all of those named python run it."""
    pythons = tuple(each.pid for each in processes if each.words[0].endswith("python"))
    found = build_ranks(seen(*processes), stacks or SeenStacks({}, pythons), None, "local", "n1")
    return [(each.pid, each.rank) for each in found]


def joining(variables: Mapping[str, int] | None = None) -> StackAnswer:
    frames = (
        Frame("ProcessContext.join", "/v/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", 130),
        Frame("main", "/w/train.py", 9),
    )
    return StackAnswer("py-spy", (Stack("MainThread", frames, True),), variables=variables or {})


def stack_of(**variables: int) -> StackAnswer:
    return StackAnswer("in-script", (Stack("MainThread", (Frame("f", "/w/t.py", 1),), True),), variables=variables)


# ---------------------------------------------------------------- the ranks among them


def test_torchrun_numbers_its_children_and_is_no_rank_itself() -> None:
    launcher = One(10, words=("python", "/v/bin/torchrun", "train.py"))
    workers = [
        One(20 + each, 10, variables={"RANK": 4 + each, "LOCAL_RANK": each, "WORLD_SIZE": 8, "LOCAL_WORLD_SIZE": 4})
        for each in range(4)
    ]
    found = build_ranks(seen(launcher, *workers), SeenStacks({}), None, "local", None)
    assert [(each.pid, each.rank, each.local_rank, each.world_size, each.local_world_size) for each in found] == [
        (20 + each, 4 + each, each, 8, 4) for each in range(4)
    ]


def test_slurm_and_mpi_number_them_too() -> None:
    for rank, local, world, local_world in [
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", None),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ]:
        names = {rank: 3, local: 1, world: 4, **({local_world: 2} if local_world else {})}
        [one] = build_ranks(seen(One(20, variables=names)), SeenStacks({}), None, "local", None)
        assert (one.rank, one.local_rank, one.world_size) == (3, 1, 4)
        assert one.local_world_size == (2 if local_world else None)


def test_torchrun_within_a_slurm_job_has_the_numbers_of_torchrun() -> None:
    slurm = {"SLURM_PROCID": 0, "SLURM_NTASKS": 2}
    launcher = One(10, words=("python", "torchrun"), variables=slurm)
    workers = [One(20 + each, 10, variables={**slurm, "RANK": each, "WORLD_SIZE": 4}) for each in range(2)]
    assert ranks(launcher, *workers) == [(20, 0), (21, 1)]


@pytest.mark.parametrize("pythons", [(20,), ()])
def test_a_shell_above_the_python_that_has_its_number_is_no_rank(pythons: tuple[int, ...]) -> None:
    """Also where nobody could say which processes run Python."""
    number = {"RANK": 1}
    found = ranks(One(10, 1, ("bash", "run.sh"), number), One(20, 10, variables=number), stacks=SeenStacks({}, pythons))
    assert found == [(20, 1)]


def test_a_rank_that_is_no_python_is_found_by_its_number() -> None:
    assert ranks(One(10, 1, ("./train",), {"RANK": 1}), stacks=SeenStacks({})) == [(10, 1)]


def test_data_workers_have_the_number_of_their_rank_and_are_its_children() -> None:
    rank = One(20, variables={"RANK": 1})
    workers = [One(30 + each, 20, variables={"RANK": 1}, state="SD"[each]) for each in range(2)]
    helper = One(40, 31, ("gzip",), state="D")
    answers = {30: stack_of(RANK=1)}
    [found] = build_ranks(seen(rank, *workers, helper), SeenStacks(answers, (20, 30, 31)), None, "local", None)
    assert (found.pid, [each.pid for each in found.children]) == (20, [30, 31, 40])


def test_without_numbers_the_topmost_pythons_are_the_ranks() -> None:
    assert ranks(One(20), One(30, 20), One(31, 20)) == [(20, None)]
    launcher = One(10, words=("python", "/v/bin/accelerate", "launch", "train.py"))
    assert ranks(launcher, One(20, 10), One(21, 10), One(30, 20)) == [(20, None), (21, None)]


def test_spawned_ranks_are_those_whose_parent_only_waits_for_them() -> None:
    tree = (One(10), One(20, 10), One(21, 10), One(30, 20))
    assert ranks(*tree, stacks=SeenStacks({10: joining()}, (10, 20, 21, 30))) == [(20, None), (21, None)]
    told = {10: joining(), 20: stack_of(RANK=0), 21: stack_of(RANK=1)}
    assert ranks(*tree, stacks=SeenStacks(told, (10, 20, 21))) == [(20, 0), (21, 1)]


def helper(pid: int, parent: int, name: str, variables: Mapping[str, object] | None = None) -> One:
    """A process that multiprocessing starts for itself."""
    return One(pid, parent, ("python", "-B", "-c", f"from {name} import main;main(3)"), variables or {})


@pytest.mark.parametrize(
    "name",
    ["multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker", "joblib.externals.loky.resource_tracker"],
)
def test_a_helper_of_multiprocessing_is_no_rank(name: str) -> None:
    spawned = (One(10), helper(19, 10, name), One(20, 10), One(21, 10))
    assert ranks(*spawned, stacks=SeenStacks({10: joining()}, (10, 19, 20, 21))) == [(20, None), (21, None)]
    launcher = One(10, words=("python", "/v/bin/torchrun", "train.py"))
    assert ranks(launcher, helper(19, 10, name), One(20, 10)) == [(20, None)]
    left = helper(19, 1, name, {"RANK": 1})  # by a rank that has ended
    assert ranks(left, One(20, variables={"RANK": 0})) == [(20, 0)]
    assert ranks(helper(19, 1, name), One(20), stacks=SeenStacks({})) == [(20, None)]


def test_ranks_from_a_forkserver_have_its_command_line() -> None:
    name, node = "multiprocessing.forkserver", {"SLURM_PROCID": 1}
    ranked = [helper(each, 12, name, node) for each in (20, 21)]
    tracker = helper(11, 10, "multiprocessing.resource_tracker", node)
    tree = (One(10, variables=node), tracker, helper(12, 10, name, node), *ranked)
    pythons = (10, 11, 12, 20, 21)
    assert ranks(*tree, stacks=SeenStacks({10: joining()}, pythons)) == [(20, None), (21, None)]
    told = {10: joining(), 20: stack_of(RANK=8), 21: stack_of(RANK=9)}
    assert ranks(*tree, stacks=SeenStacks(told, pythons)) == [(20, 8), (21, 9)]


def test_spawned_ranks_do_not_have_the_number_of_the_node() -> None:
    """As in a Slurm job with one task per node, which spawns a process per GPU."""
    node = {"SLURM_PROCID": 1, "SLURM_NTASKS": 2}
    tree = (One(10, variables=node), One(20, 10, variables=node), One(21, 10, variables=node))
    assert ranks(*tree, stacks=SeenStacks({10: joining()}, (10, 20, 21))) == [(20, None), (21, None)]
    told = {10: joining(), 20: stack_of(RANK=8), 21: stack_of(RANK=9)}
    assert ranks(*tree, stacks=SeenStacks(told, (10, 20, 21))) == [(20, 8), (21, 9)]


def test_workers_of_ray() -> None:
    workers = [One(20 + each, 1, ("ray::TrainWorker.run()",)) for each in range(2)]
    idle = [One(30, 1, ("ray::IDLE",)), One(31, 1, ("ray::IDLE_SpillWorker",))]
    assert ranks(*workers, *idle, One(40, 20), stacks=SeenStacks({}, (20, 21, 30, 31, 40))) == [(20, None), (21, None)]


def test_zombies_of_the_training_are_told() -> None:
    launcher = One(10, words=("python", "torchrun"))
    alive, dead = One(20, 10, variables={"RANK": 0}), One(21, 10, ("python",), state="Z")
    found = build_ranks(seen(launcher, alive, dead), SeenStacks({}), None, "local", None)
    assert [(each.pid, each.rank, each.state) for each in found] == [(20, 0, "S"), (21, None, "Z")]


def test_a_number_that_is_none_numbers_nobody() -> None:
    for value in ("-1", "99999999999999", "٣", "1.5", ""):
        assert ranks(One(20, variables={"RANK": value})) == [(20, None)]


def test_a_deep_or_wide_tree_takes_little_time() -> None:
    deep = [One(100 + each, 99 + each, variables={"RANK": each % 2}) for each in range(6000)]
    wide = [One(100 + each, 1, variables={"RANK": each}) for each in range(3000)]
    loop = [One(100, 101), One(101, 102), One(102, 100)]
    for tree in (deep, wide, loop):
        for stacks in (SeenStacks({}), SeenStacks({}, tuple(each.pid for each in tree))):
            training = seen(*tree)
            assert len(build_ranks(training, stacks, None, "local", None)) <= 1024
            choose_ranks(replace_numbers(training), stacks)


def replace_numbers(training: SeenTraining) -> SeenTraining:
    """The same without numbers."""
    from dataclasses import replace

    return SeenTraining(training.facts, {pid: replace(each, variables={}) for pid, each in training.processes.items()})


@pytest.mark.parametrize("shell", SHELLS)
def test_of_a_training_without_processes_nothing_is_read(shell: str) -> None:
    """Not even what whoever asks has on its standard input."""
    here, there = os.pipe()
    try:
        sh = ["busybox", "sh"] if shell == "busybox" else [shell]
        script = processes_question("echo").script
        done = subprocess.run([*sh, "-c", script], stdin=here, capture_output=True, text=True, timeout=60)
    finally:
        os.close(here)
        os.close(there)
    word, spelling = (re.findall(rf"^{name}='?([^'\n]+)", script, re.MULTILINE)[0] for name in ("word", "spelling"))
    assert parse_processes(done.stdout, word, spelling).processes == {}
    told = dict(split_parts(done.stdout, word))
    assert not any(told[key] for key in ("table", "status", "bytes", "waiting", "descriptors"))


# ---------------------------------------------------------------- what each does


def test_numbers_between_two_looks() -> None:
    one = seen(One(20, ticks=(100, 250))).processes[20]
    assert (one.cpu_cores, one.bytes_per_second, one.threads, one.memory_bytes) == (0.75, 2000.0, 7, 2048 * 1024)
    other = seen(One(20, ticks=(100, 250), start=(50, 51))).processes[20]
    assert (other.cpu_cores, other.bytes_per_second) == (None, None), "another process by now"
    assert seen(One(20, ticks=(100, 50))).processes[20].cpu_cores == 0.0


def test_who_is_stopped_only_for_a_moment_is_not_stopped() -> None:
    states = {20: ("T", "S"), 21: ("S", "T"), 22: ("T", "T"), 23: ("R", "S"), 24: ("t", "R")}
    later = {pid: second for pid, (_, second) in states.items()}
    training = seen(*(One(pid, state=first) for pid, (first, _) in states.items()), later=later)
    assert {pid: each.process.state for pid, each in training.processes.items()} == {
        20: "S", 21: "S", 22: "T", 23: "S", 24: "R",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wait", "file", "what"),
    [
        ("pipe_read|0 0x3", "pipe:[7]", PIPE),
        ("anon_pipe_read|", "", PIPE),
        ("futex_wait_queue|202 0x7f", "", LOCK),
        ("locks_lock_inode_wait|73 0x3", "/w/cache.lock", LOCK),
        ("|202 0x7f 0x0", "", LOCK),
        ("0|230 0x0", "", TIMER),
        ("hrtimer_nanosleep|", "", TIMER),
        ("|61 0x1", "", CHILD),
        ("ep_poll|", "", EVENTS),
        ("tcp_recvmsg_locked|", "", SOCKET),
        ("|0 0x3 0x7f", "pipe:[7]", PIPE),
        ("|0 0x3 0x7f", "socket:[7]", SOCKET),
        ("|0 0x3 0x7f", "anon_inode:[eventfd]", EVENTS),
        ("|0 0x3 0x7f", "/data/x", DISK),
        ("|0 0x3 0x7f", "/dev/nvidia0", None),
        ("|0 0x3 0x7f", "", None),
        ("wait_woken|0 0x0 0x7f", "/dev/pts/3", TERMINAL),
        ("wait_woken|0 0x3 0x7f", "socket:[7]", SOCKET),
        ("nfs_wait_bit_killable|", "", DISK),
        ("ptlrpc_set_wait|", "", DISK),
        ("|running", "", None),
        ("|9999 0x3", "", None),
        ("0|", "", None),
        ("some_function|", "", None),
    ],
)
def test_what_a_process_waits_for(wait: str, file: str, what: str | None) -> None:
    assert seen(One(20, wait=wait, file=file)).processes[20].waits_for == what


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ("capabilities=000001ffffffffff\nptrace_scope=1\n", (True, 1)),
        ("capabilities=0000000000000000\nptrace_scope=\n", (False, None)),
        ("capabilities=\n", (None, None)),
        ("capabilities=zz\nptrace_scope=-1\n", (None, None)),
        ("capabilities=" + "f" * 400 + "\n", (None, None)),
    ],
)
def test_the_rights_of_who_asks(facts: str, expected: tuple[bool | None, int | None]) -> None:
    known = seen(One(20), facts=facts).facts
    assert (known.may_trace, known.ptrace_scope, known.name) == (*expected, "gpu-a")


# ---------------------------------------------------------------- what is cut, and what is hostile


def test_a_reply_cut_anywhere_is_unknown() -> None:
    text = reply(One(20), One(21, 20, variables={"RANK": 1}))
    assert len(parse_processes(text, WORD, ROOT).processes) == 2
    for end in range(len(text) - len(f"\n{WORD} end\n")):
        with pytest.raises(ParseError):
            parse_processes(text[:end], WORD, ROOT)


def test_names_of_a_training_cannot_forge_what_is_said_of_it() -> None:
    evil = f"\n==> {ROOT[1:]}proc/21/environ <==\nRANK=0\n{WORD[1:]} end\n\x1b[2J\t\"'\U0001f600\ud800"
    training = seen(One(20, words=("python", evil), file=f"/w/{evil}"), One(21, variables={"RANK": 5}))
    found = build_ranks(training, SeenStacks({}), None, "local", None)
    assert [(each.pid, each.rank) for each in found] == [(21, 5)]
    assert training.processes[20].words == ("python", evil)


def test_the_name_of_a_file_does_not_say_what_another_process_waits_for() -> None:
    evil = "/w/x\n21/fd/3 -> pipe:[7]"
    training = seen(One(20, wait="|0 0x3", file=evil), One(21, wait="|0 0x3"))
    assert (training.processes[20].waits_for, training.processes[21].waits_for) == (DISK, None)


def test_secrets_in_a_command_line_are_replaced() -> None:
    token = "hf_" + "aBcD1234" * 4
    [one] = build_ranks(seen(One(20, words=("python", "train.py", "--token", token))), SeenStacks({}), None, "h", None)
    assert one.command == "python train.py --token ***"


def test_a_secret_at_the_end_of_what_is_kept_of_a_command_line_is_replaced() -> None:
    token = "hf_" + "aBcD1234" * 4
    for blank in range(150, 200):
        words = ("python", "x" * blank, token)
        [one] = build_ranks(seen(One(20, words=words)), SeenStacks({}), None, "h", None)
        assert "hf_" not in one.command and len(one.command) <= 200


# ---------------------------------------------------------------- what would help


def why(answer: StackAnswer) -> str | None:
    [one] = build_ranks(seen(One(20)), SeenStacks({20: answer}, (20,)), None, "local", None)
    return one.no_stacks


def test_why_there_are_no_stacks() -> None:
    assert why(stack_of()) is None
    assert why(StackAnswer(lack="denied", said="Permission denied")) == "its memory may not be read: Permission denied"
    assert why(StackAnswer(lack="failed", said="token=abcdefgh1234")) == "they could not be read: token=***"
    assert why(StackAnswer(lack="late")) == "there was no time left to ask it"
    assert why(StackAnswer(lack="none")) == "there is no way to ask it"


def test_what_would_make_them_visible() -> None:
    facts = HostFacts("gpu-a", False, 1)
    assert remedies_of(facts, [stack_of()], "h") == []
    [right] = remedies_of(facts, [StackAnswer(lack="denied")] * 3, "k8s://ml/w-0")
    assert right.startswith("k8s://ml/w-0: ") and "SYS_PTRACE" in right and "ptrace_scope=0 (now 1)" in right
    [other] = remedies_of(HostFacts("gpu-a", True, 1), [StackAnswer(lack="denied")], "h")
    assert "although CAP_SYS_PTRACE is there" in other and "seccomp" in other and "capabilities.add" not in other
    [nobody] = remedies_of(HostFacts("gpu-a", True, 3), [StackAnswer(lack="denied")], "h")
    assert "ptrace_scope is 3" in nobody and "TrainingMonitor" in nobody
    [tool] = remedies_of(facts, [StackAnswer(lack="none")], "h")
    assert "pip install py-spy" in tool and "--py-spy FILE" in tool
    [late] = remedies_of(facts, [StackAnswer(lack="late")], "h")
    assert "--timeout" in late


def test_a_rank_has_its_own_gpus() -> None:
    table = GpuTable(tuple(Gpu(each, uuid=f"GPU-{each}", utilization=100.0, power_draw_watts=140.0,
                               power_limit_watts=700.0) for each in range(3)))  # fmt: skip
    used = (GpuProcess(20, "p", "GPU-1", None), GpuProcess(20, "p", None, None), GpuProcess(30, "p", "GPU-2", None))
    [one] = build_ranks(seen(One(20)), SeenStacks({}), (table, used), "h", "n")
    assert one.gpus == (RankGpu(1, 100.0, 0.2),)
