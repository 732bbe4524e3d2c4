"""Processes of a training as their host tells of them, for the tests of what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from training_monitor.why.find_ranks import build_ranks
from training_monitor.why.processes import SeenTraining, parse_processes
from training_monitor.why.ranks import Frame, Stack
from training_monitor.why.stacks import SeenStacks, StackAnswer

WORD, ROOT = "0a1b", "/.//./"
TRAIN = ("python", "train.py")


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
    switches: tuple[int, int] = (7, 7)


def row(each: One, at: int, state: str) -> str:
    return f"proc {each.pid} {state} {each.parent} 10 10 {each.ticks[at]} 0 30 20 {each.start[at]} {each.words[0]}\n"


def head(name: str, bodies: Mapping[int, str]) -> str:
    return "".join(f"==> {ROOT}proc/{pid}/{name} <==\n{body}\n" for pid, body in bodies.items())


def switches(pids: Mapping[int, One], at: int) -> str:
    lines = (f"{ROOT}proc/{pid}/status:voluntary_ctxt_switches:\t{each.switches[at]}\n" for pid, each in pids.items())
    return "".join(lines)


def reply(*processes: One, facts: str = "", later: Mapping[int, str] | None = None) -> str:
    """What `call_roll` prints."""
    pids = {each.pid: each for each in processes}
    parts = {
        "facts": f"boot=b\nself=900\nup=1000.00\nhz=100\nmachine=x86_64\nhost=gpu-a\n{facts}",
        "table": "".join(row(each, 0, each.state) for each in processes),
        "status": "".join(
            f"{ROOT}proc/{pid}/status:Threads:\t7\n{ROOT}proc/{pid}/status:VmRSS:\t 2048 kB\n" for pid in pids
        )
        + switches(pids, 0),
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
        "kernel": "".join(f"{ROOT}proc/{pid}/stack:[<0>] do_wait+0x5/0x9\n" for pid in pids),
        "again": "up=1002.00\n"
        + "".join(row(each, 1, (later or {}).get(each.pid, each.state)) for each in processes)
        + "".join(f"{ROOT}proc/{pid}/io:rchar: 5000\n" for pid in pids)
        + switches(pids, 1),
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
