"""The processes of a training on one host: which of them are its ranks, and what each waits for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from tests.unit.why.some_processes import ROOT, TRAIN, WORD, One, reply, seen, stack_of
from training_monitor.core.errors import CommandTimedOut, ParseError, spell
from training_monitor.core.models import Gpu, GpuProcess, GpuTable
from training_monitor.targets.replies import split_parts
from training_monitor.why.find_ranks import build_ranks
from training_monitor.why.processes import HostFacts, parse_processes, processes_question, remedies_of
from training_monitor.why.ranks import CHILD, DISK, EVENTS, LOCK, PIPE, SOCKET, TERMINAL, TIMER, RankGpu
from training_monitor.why.stacks import SeenStacks, StackAnswer


@pytest.mark.parametrize("shell", [name for name in ("dash", "bash", "busybox") if shutil.which(name)])
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


def test_numbers_between_two_looks_under_any_spelling_of_a_path() -> None:
    one = seen(One(20, ticks=(100, 250))).processes[20]
    assert (one.cpu_cores, one.bytes_per_second, one.threads, one.memory_bytes) == (0.75, 2000.0, 7, 2048 * 1024)
    other = seen(One(20, ticks=(100, 250), start=(50, 51))).processes[20]
    assert (other.cpu_cores, other.bytes_per_second) == (None, None), "another process by now"
    assert seen(One(20, ticks=(100, 50))).processes[20].cpu_cores == 0.0
    longest = "/./" + 48 * "./"  # see spell_path
    one = parse_processes(reply(One(20)).replace(ROOT, longest), WORD, longest).processes[20]
    assert (one.memory_bytes, one.bytes_per_second) == (2048 * 1024, 2000.0)


def test_who_is_stopped_only_for_a_moment_is_not_stopped() -> None:
    states = {20: ("T", "S"), 21: ("S", "T"), 22: ("T", "T"), 23: ("R", "S"), 24: ("t", "R")}
    later = {pid: second for pid, (_, second) in states.items()}
    training = seen(*(One(pid, state=first) for pid, (first, _) in states.items()), later=later)
    assert {pid: each.process.state for pid, each in training.processes.items()} == {
        20: "S", 21: "S", 22: "T", 23: "S", 24: "R",
    }  # fmt: skip


def test_what_a_process_waits_for() -> None:
    for wait, file, what in [
        ("pipe_read|0 0x3", "pipe:[7]", PIPE),
        ("anon_pipe_read|", "", PIPE),
        ("poll_schedule_timeout.constprop.0|7 0x7f", "", EVENTS),
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
    ]:
        assert seen(One(20, wait=wait, file=file)).processes[20].waits_for == what


def test_what_the_kernel_reports_of_a_wait() -> None:
    def wait(of: str, file: str = "", **known: object) -> tuple[str | None, tuple[int, ...] | None, bool | None]:
        found = seen(One(20, wait=of, file=file, **known), One(21, 20), One(22)).processes[20]  # type: ignore[arg-type]
        assert found.kernel_stack == ("do_wait",)
        return found.waits_on, found.awaits, found.is_still

    assert wait("pipe_read|0 0x3", "/w/fifo") == ("/w/fifo", None, True)
    assert wait("pipe_read|0 0x3", "/w/fifo", switches=(7, 9)) == ("/w/fifo", None, False)
    assert wait("pipe_read|0 0x3", "/w/fifo", start=(50, 51)) == ("/w/fifo", None, None), "another process by now"
    assert wait("hrtimer_nanosleep|230 0x1 0x0", "/w/log") == (None, None, True), "its first argument is a clock"
    assert wait("wait_for_partner|257 0x9") == (None, (), True), "nobody has the other end of the FIFO"
    assert wait("do_wait|61 0x15 0x7f") == (None, (21,), True)
    for no_child in ("61 0x16 0x7f", "61 0xffffffff 0x7f", "61 0x9999 0x7f", "247 0x15 0x7f", ""):
        assert wait(f"do_wait|{no_child}") == (None, None, True)


def test_the_rights_of_who_asks() -> None:
    for facts, expected in [
        ("capabilities=000001ffffffffff\nptrace_scope=1\n", (True, 1)),
        ("capabilities=0000000000000000\nptrace_scope=\n", (False, None)),
        ("capabilities=\n", (None, None)),
        ("capabilities=zz\nptrace_scope=-1\n", (None, None)),
        ("capabilities=" + "f" * 400 + "\n", (None, None)),
    ]:
        known = seen(One(20), facts=facts).facts
        assert (known.may_trace, known.ptrace_scope, known.name) == (*expected, "gpu-a")


def test_a_reply_cut_anywhere_is_unknown_unless_its_time_was_over() -> None:
    text = reply(One(20), One(21, 20, variables={"RANK": 1}))
    assert len(parse_processes(text, WORD, ROOT).processes) == 2
    for end in range(len(text) - len(f"\n{WORD} end\n")):
        with pytest.raises(ParseError):
            parse_processes(text[:end], WORD, ROOT)
    ends = [text.index(f"{WORD} {key}\n") + 20 for key in ("environment", "again")]
    early, late = (parse_processes(text[:end], WORD, ROOT, is_cut=True) for end in ends)
    assert early.is_cut and early.processes.keys() == late.processes.keys() == {20, 21}
    assert (early.processes[21].variables, late.processes[21].variables) == ({}, {"RANK": "1"})
    assert late.processes[20].cpu_cores is None and late.processes[20].words == TRAIN
    with pytest.raises(CommandTimedOut):
        parse_processes(text[: text.index(f"{WORD} table") + 30], WORD, ROOT, is_cut=True)


def test_names_of_a_training_cannot_forge_what_is_said_of_it() -> None:
    evil = f"\n==> {ROOT[1:]}proc/21/environ <==\nRANK=0\n{WORD[1:]} end\n\x1b[2J\t\"'\U0001f600\ud800"
    training = seen(One(20, words=("python", evil), file=f"/w/{evil}"), One(21, variables={"RANK": 5}))
    found = build_ranks(training, SeenStacks({}), None, "local", None)
    assert [(each.pid, each.rank) for each in found] == [(21, 5)]
    assert training.processes[20].words == ("python", evil)
    evil = "/w/x\n21/fd/3 -> pipe:[7]"
    training = seen(One(20, wait="|0 0x3", file=evil), One(21, wait="|0 0x3"))
    assert (training.processes[20].waits_for, training.processes[21].waits_for) == (DISK, None)


def test_secrets_in_a_command_line_are_replaced_also_at_its_end() -> None:
    token = "hf_" + "aBcD1234" * 4
    [one] = build_ranks(seen(One(20, words=("python", "train.py", "--token", token))), SeenStacks({}), None, "h", None)
    assert one.command == "python train.py --token ***"
    for blank in range(150, 200):
        words = ("python", "x" * blank, token)
        [one] = build_ranks(seen(One(20, words=words)), SeenStacks({}), None, "h", None)
        assert "hf_" not in one.command and len(one.command) <= 200


def why(answer: StackAnswer) -> str | None:
    [one] = build_ranks(seen(One(20)), SeenStacks({20: answer}, (20,)), None, "local", None)
    return one.no_stacks


def test_why_there_are_no_stacks() -> None:
    assert why(stack_of()) is None
    assert why(StackAnswer(lack="denied", said="Permission denied")) == (
        "no permission to read its memory: Permission denied"
    )
    assert why(StackAnswer(lack="failed", said="token=abcdefgh1234")) == "its stacks could not be read: token=***"
    assert why(StackAnswer(lack="late")) == "no time was left to query it"
    assert why(StackAnswer(lack="none")) == "py-spy is not installed there"
    assert why(StackAnswer()) == "no method to read its stacks is available", "it may run no Python"


def test_what_would_make_them_visible() -> None:
    facts = HostFacts("gpu-a", False, 1)
    assert remedies_of(facts, [stack_of()], "h") == []
    [right] = remedies_of(facts, [StackAnswer(lack="denied")] * 3, "k8s://ml/w-0")
    assert right.startswith("k8s://ml/w-0: ") and "SYS_PTRACE" in right and "ptrace_scope=0 (now 1)" in right
    [other] = remedies_of(HostFacts("gpu-a", True, 1), [StackAnswer(lack="denied")], "h")
    assert "despite CAP_SYS_PTRACE" in other and "seccomp" in other and "capabilities.add" not in other
    [nobody] = remedies_of(HostFacts("gpu-a", True, 3), [StackAnswer(lack="denied")], "h")
    assert "ptrace_scope is 3" in nobody and "TrainingMonitor" in nobody
    [tool] = remedies_of(facts, [StackAnswer(lack="none")], "h")
    assert "pip install py-spy" in tool and "py_spy=FILE)" in tool
    assert "why TARGET --py-spy FILE" in (spell(tool, "shell") or "")
    [late] = remedies_of(facts, [StackAnswer(lack="late")], "h")
    assert "(timeout=SECONDS)" in late


def test_a_rank_has_its_own_gpus() -> None:
    table = GpuTable(tuple(Gpu(each, uuid=f"GPU-{each}", utilization=100.0, power_draw_watts=140.0,
                               power_limit_watts=700.0) for each in range(3)))  # fmt: skip
    used = (GpuProcess(20, "p", "GPU-1", None), GpuProcess(20, "p", None, None), GpuProcess(30, "p", "GPU-2", None))
    [one] = build_ranks(seen(One(20)), SeenStacks({}), (table, used), "h", "n")
    assert one.gpus == (RankGpu(1, 100.0, 0.2),)
