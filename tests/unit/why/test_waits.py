"""What processes wait for beside the ranks, and which of it explains why a training does not go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.why.some_processes import One, seen
from training_monitor.core.errors import ParseError
from training_monitor.why.ranks import TERMINAL, Frame, Rank, Stack, Surroundings
from training_monitor.why.waits import find_causes, parse_waits, with_awaited


def texts(text: str) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in parse_waits(f"{text}end\n").findings]


def test_each_wait_is_said_with_whom_it_is_for() -> None:
    for line, kind, said in [
        (
            "zombie 7 9 5 sh",
            "zombie",
            "pid 7 has ended (killed by SIGKILL) and is a zombie: its parent, pid 5 (sh), has not",
        ),
        ("zombie 7 256 5 ", "zombie", "pid 7 has ended (exit code 1) and is a zombie: its parent, pid 5, has not"),
        ("zombie 7 0 5 sh", "zombie", "pid 7 has ended and is a zombie"),  # the code may not be read
        ("traced 7 9 gdb", "debugger", "pid 7 is held by a debugger: pid 9 (gdb)"),
        ("traced 7 0 ", "debugger", "pid 7 is held by a debugger"),
        (
            "lock 7 FLOCK /w/a b\nend 9 python",
            "lock",
            "pid 7 waits for the lock (flock) of /w/a b, which pid 9 (python) holds",
        ),
        ("lock 7 POSIX \nend -1 ", "lock", "pid 7 waits for the lock (posix) of a file, whose holder is unknown"),
        ("pipe 7 reads pipe:[3]\nend 8 sh\nend 7 me", "pipe", "pid 7 reads a pipe, which pid 8 (sh) should write to"),
        ("pipe 7 writes /w/fifo\nend 8 cat", "pipe", "pid 7 writes to /w/fifo, which pid 8 (cat) should read"),
        (
            "pipe 7 reads pipe:[3]\nend 7 me",
            "pipe",
            "pid 7 reads a pipe, which no other visible process has open for writing",
        ),
    ]:
        [(found, text)] = texts(f"{line}\n")
        assert found == kind and text.startswith(said)


def test_nobody_waits_and_nonsense_says_nothing() -> None:
    assert parse_waits("end\n") == parse_waits("lock x\nend 5 a\nzombie 1\nend\n") == Surroundings()
    for text in ("", "end", "zombie 7 9 5 sh\n"):
        with pytest.raises(ParseError):
            parse_waits(text)


def causes(
    *processes: One, waits: str = "", ranks: tuple[Rank, ...] = (), named: str = ""
) -> list[tuple[str, tuple[int, ...]]]:
    training = seen(*processes, facts=f"named={named}\n")
    return [(each.kind, each.pids) for each in find_causes(training, parse_waits(f"{waits}end\n").findings, ranks)]


def test_a_pipe_explains_a_single_rank_and_a_lock_explains_all() -> None:
    both = "pipe 20 reads pipe:[1]\npipe 21 reads pipe:[2]\nlock 21 FLOCK /a\n"
    assert causes(One(20), One(21, 20), waits=both, ranks=(Rank("local", 20),)) == [("pipe", (20,)), ("lock", (21,))]
    ranks = tuple(Rank("local", pid) for pid in (20, 21))
    waits = "pipe 20 reads pipe:[1]\nlock 21 FLOCK /a\n"
    assert causes(One(20), One(21), waits=waits, ranks=ranks, named="20 21") == [("lock", (21,))]
    assert causes(waits=waits, named="20") == [("pipe", (20,)), ("lock", (21,))]  # there was no time to list them


def test_who_is_held_in_both_looks_is_stopped() -> None:
    stopped = [One(20, state="T"), One(21, state="T")]
    assert causes(*stopped, One(22)) == [("stopped", (20, 21))]
    [found] = find_causes(seen(*stopped), (), ())
    assert found.text == "pids 20, 21 are stopped by a signal; to continue them, run kill -CONT 20 21"
    assert causes(One(20, state="t"), waits="traced 20 9 gdb\n") == [("debugger", (20,))]
    assert causes(One(20), waits="traced 20 9 gdb\n") == []


def test_a_main_process_that_has_ended_while_others_run() -> None:
    for others in ([One(21)], [One(20, state="Z"), One(21)]):
        assert causes(*others, named="20") == [("ended", (20,))]
    assert causes(One(20), One(21), named="20") == causes(named="20") == causes(One(21), named="20 21") == []
    zombie = "zombie 20 0 1 init\nzombie 30 0 1 init\n"
    assert causes(One(20, state="Z"), waits=zombie, named="20") == [("zombie", (20,))]


def test_a_rank_that_waits_for_input() -> None:
    def at(function: str, file: str) -> Rank:
        loop = Frame("cmdloop", "/usr/lib/python3.11/cmd.py", 126)
        frames = (loop, Frame(function, file, 400), Frame("f", "/w/train.py", 7))
        return Rank("local", 20, stacks=(Stack("MainThread", frames, True),), waits_for=TERMINAL)

    assert causes(ranks=(at("_cmdloop", "/usr/lib/python3.11/pdb.py"),)) == [("debugger", (20,))]
    assert causes(ranks=(at("run", "/usr/lib/python3.11/bdb.py"),)) == [("terminal", (20,))]
    assert causes(ranks=(replace(at("run", "/w/pdb/train.py"), waits_for=None),)) == []


def test_a_wait_names_the_processes_that_can_end_it() -> None:
    waits = "pipe 20 reads pipe:[1]\nend 20 me\nend 21 worker\npipe 21 reads /w/fifo\nend 21 me\n"
    found = parse_waits(f"{waits}lock 22 FLOCK /w/a\nend -1 \nend\n").findings
    assert [(each.pids, each.awaits) for each in found] == [((20,), (21,)), ((21,), ()), ((22,), None)]
    training = with_awaited(seen(One(20), One(21, 20), One(22, 20)), found)
    assert {pid: each.awaits for pid, each in training.processes.items()} == {20: (21,), 21: (), 22: None}
