"""The kernel's log: which Xid is a hardware fault, what was killed for lack of memory, what hangs, and how long ago."""

from __future__ import annotations

import subprocess

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.targets.scripts import format_call
from training_monitor.why.kernel_log import parse_kernel_log
from training_monitor.why.ranks import Finding, Surroundings

FIRST = "pid:[4026531836]"


def read(*lines: str, up: float = 9000.0, namespace: str = FIRST, log: str = "read") -> Surroundings:
    said = "".join(f"{line}\n" for line in lines)
    return parse_kernel_log(f"up={up}\nnamespace={namespace}\nlog={log}\n{said}end\n")


def one(line: str) -> Finding:
    [found] = read(line).findings
    return found


def test_an_xid_is_a_fault_of_the_hardware_by_the_table() -> None:
    for said, is_hardware in [
        ("NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", True),
        ("NVRM: Xid (PCI:0000:05:00): 48, pid=1234, name=python3, DBE (double bit error)", True),
        ("NVRM: Xid (PCI:0000:05:00): 31, pid=1234, name=python3, Ch 00000008, MMU Fault", False),
        ("NVRM: Xid (PCI:0000:05:00): 43, pid=1234, name=python3, Ch 00000008", False),
        ("NVRM: Xid (PCI:0000:9b:00): 154, recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", True),
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", True),
        ("NVRM: fallen off the bus and is not responding to commands.", True),
        ("NVRM: GPU 0000:29:00.0: RmInitAdapter failed! (0x25:0x65:1459)", True),
        ("nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", True),
        ("nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 11004, Non-fatal, Link 4 egress crossbar error", False),
    ]:
        found = one(f"[ 8940.123456] {said}")
        assert (found.kind, found.is_hardware) == ("xid", is_hardware)
        assert found.text == f"kernel message, 59s ago: {said}"
        assert found.pids == ((1234,) if "pid=1234" in said else ())


def test_a_fault_of_any_device_is_one_of_the_hardware_and_a_name_is_none() -> None:
    for said, is_told in [
        ("nvidia 0000:19:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer", True),
        ("nvme 0000:81:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer", False),
        ("nvidia 0000:19:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer", False),
        ("amdgpu 0000:68:00.0: amdgpu: GPU reset begin!. Source:  3", True),
        ("amdgpu 0000:68:00.0: amdgpu: 2 new uncorrectable hardware errors detected in umc block", True),
        ("amdgpu 0000:68:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block", False),
    ]:
        script = format_call("kernel_log", "select_lines", most=9)
        selected = subprocess.run(["sh", "-c", script], input=f"[ 8940.1] {said}\n", text=True, capture_output=True)
        found = read(*selected.stdout.splitlines()).findings
        assert [(each.kind, each.is_hardware) for each in found] == [("gpu", True)] * is_told
    repeated = "".join(
        f"[ 89{at}.1] NVRM: GPU 0000:29:00.0: RmInitAdapter failed! (0x26:0x56:1474)\n" for at in range(9)
    )
    text = f"[ 88.1] Out of memory: Killed process 7 (x) total-vm:9kB\n{repeated}"
    selected = subprocess.run(["sh", "-c", script], input=text, text=True, capture_output=True)
    assert [line[:9] for line in selected.stdout.splitlines()] == ["[ 88.1] O", "[ 898.1] "]
    [killed] = read("[ 8940.1] Out of memory: Killed process 7 (amdgpu 0000:) total-vm:9kB").findings
    assert killed.kind == "oom_kill"


def test_dmesg_the_journal_and_kmsg_are_read() -> None:
    for line in [
        "[ 8940.123456] {}",
        "<3>[ 8940.123456] {}",
        "[ 8940.123456] gpu-7 kernel: {}",
        "3,1871,8940123456,-;{}",
        "3,1871,8940123456,-,caller=T1;{}",
    ]:
        said = "Memory cgroup out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:5kB"
        text = "the kernel killed process 77 (python) on this machine because its cgroup reached its memory limit"
        assert one(line.format(said)).text == f"{text}, 59s ago"


def test_a_kill_or_a_hung_process_is_said_once() -> None:
    chosen = "[ 8000.2] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/a/b,task=python,pid=77,uid=0"
    killed = "[ 8000.2] Out of memory: Killed process 77 (python) total-vm:9kB"
    old = "[ 8000.2] Out of memory: Kill process 77 (python) score 9 or sacrifice child"
    for lines in ((chosen, killed), (chosen,), (killed,), (old,)):
        [found] = read(*lines).findings
        assert (found.kind, found.pids) == ("oom_kill", (77,))
        assert found.text == "the kernel killed process 77 (python) on this machine because memory ran out, 16m39s ago"
    words = ((8000, 120), (8120, 241))
    lines = [f"[ {at}.0] INFO: task python:77 blocked for more than {said} seconds." for at, said in words]
    [found] = read(*lines).findings
    assert found == one(lines[1])
    assert (found.kind, found.pids) == ("blocked", (77,))
    assert found.text.endswith("process 77 (python) has been blocked for more than 241 seconds")


def test_what_is_older_than_two_hours_is_left_out_by_the_clock_of_the_machine() -> None:
    line = "[ {}.0] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
    assert read(line.format(1799), up=9000).findings == ()
    assert len(read(line.format(1800), up=9000).findings) == 1
    assert read(line.format(100), up=9000) == Surroundings()
    lines = [f"[ {at}.0] INFO: task a:{pid} blocked for more than 120 seconds." for at, pid in ((100, 1), (900_000, 2))]
    assert [each.pids for each in read(*lines, up=60).findings] == [(2,)]


def test_a_log_without_times_end_or_permission_is_unread() -> None:
    seen = read(log="denied")
    assert seen.findings == () and len(seen.unread) == 1
    assert "CAP_SYSLOG" in seen.unread[0] and "kernel.dmesg_restrict=0" in seen.unread[0]
    seen = read("NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.")
    assert seen.findings == () and "1 fault message" in seen.unread[0]
    for text in ["", "up=1\n", "end", "log=read\n"]:
        with pytest.raises(ParseError):
            parse_kernel_log(text)


def test_names_and_pids_of_a_stranger_are_plain_and_name_nothing_here() -> None:
    found = one("[ 8000.2] Out of memory: Killed process 77 (a\x1b[31m\x07) total-vm:9kB")
    assert found.text.isprintable()
    line = "[ 8000.2] Out of memory: Killed process 77 (python) total-vm:9kB"
    assert [each.pids for each in read(line, namespace="pid:[4026532999]").findings] == [()]
