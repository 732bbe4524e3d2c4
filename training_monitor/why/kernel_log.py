"""What the kernel's log says of GPUs, and of processes that were killed for memory or wait too long. Pure.

The forms are those of dmesg and `journalctl -o short-monotonic` (`[ 123.456789] TEXT`) and of /dev/kmsg (microseconds).
Which Xid means that the hardware is at fault, `verdict/failure.py` knows. The log is that of the whole machine, and its
pids are those of the first pid namespace: in a container they name no process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from training_monitor.core.errors import ParseError
from training_monitor.core.regex import regex
from training_monitor.core.units import format_duration, plural
from training_monitor.targets.replies import each_line
from training_monitor.verdict.failure import classify_failure
from training_monitor.why.ranks import Finding, Surroundings, finding

SOURCE = "kernel log"
MOST_AGE = 7200.0  # seconds
_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
_STAMPED = regex(r"(?:<\d{1,3}>)?\[\s*(\d{1,12}\.\d{1,9})\]\s+(?:\S{1,100} kernel: )?(.*)", re.ASCII)
_RECORD = regex(r"\d{1,4},\d{1,18},(\d{1,18}),[^;]{0,40};(.*)", re.ASCII)
_FACT = regex(r"(up|namespace|log)=(.*)")
_DRIVER = regex(
    r"NVRM: Xid|SXid|NVRM: .{0,120}(?:fallen off|RmInitAdapter failed)"
    r"|^(?!.{0,200}soft recovered)((?:nvidia|amdgpu|pcieport) [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: )(?!NVRM)"
)
_PID = regex(r"\bpid='?(\d{1,10})\b", re.ASCII)
_KILLED = regex(r"[Oo]ut of memory: Kill(?:ed)? process (\d{1,10}) \((.{0,40}?)\)(?:,| \w|$)", re.ASCII)
_CHOSEN = regex(r"oom-kill:.{0,400}\btask=(.{0,40}?),pid=(\d{1,10})\b", re.ASCII)
_HUNG = regex(r"INFO: task (.{0,40}):(\d{1,10}) blocked for more than (\d{1,9}) seconds", re.ASCII)
_DENIED = (
    "GPU faults (Xid) and out-of-memory kills are unknown: reading the kernel log requires CAP_SYSLOG or "
    "kernel.dmesg_restrict=0"
)


def parse_kernel_log(text: str) -> Surroundings:
    """Parse the reply of `targets/sh/kernel_log.sh`. Raises ParseError when its end is missing."""
    if not text.endswith("end\n"):
        raise ParseError("the reply is truncated", source=SOURCE, text=text[-1000:])
    facts: dict[str, str] = {}
    lines: list[tuple[float | None, str]] = []
    for line in each_line(text.removesuffix("end\n")):
        if fact := _FACT.fullmatch(line):
            facts.setdefault(fact[1], fact[2])
        else:
            lines.append(_read_time(line))
    if facts.get("log") != "read":
        return Surroundings(unread=(_DENIED,))
    times = [time for time, _ in lines if time is not None]
    now = max([*times, _seconds(facts.get("up", ""))])  # a container may tell an uptime of its own
    are_ours = facts.get("namespace") == _FIRST_NAMESPACE
    found: dict[str, Finding] = {}
    for time, said in lines:
        if time is not None and now - time <= MOST_AGE:
            for key, each in _read(said, f"{format_duration(now - time)} ago", are_ours):
                found[key] = each
    return Surroundings(tuple(found.values()), unread=tuple(_say_timeless(len(lines) - len(times))))


def _read_time(line: str) -> tuple[float | None, str]:
    """Return when a line was written, in seconds since the boot, and its text."""
    if stamped := _STAMPED.fullmatch(line):
        return float(stamped[1]), stamped[2]
    if record := _RECORD.fullmatch(line):
        return int(record[1]) / 1e6, record[2]
    return None, line


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", text, re.ASCII) else 0.0


def _read(said: str, when: str, are_ours: bool) -> Iterator[tuple[str, Finding]]:
    """Yield what a line says, and a key: a later line about the same thing replaces it."""

    def pids(text: str) -> tuple[int, ...]:
        return (int(text),) if are_ours else ()

    if driver := _DRIVER.search(said):
        named, what = _PID.search(said), f"kernel message, {when}: {said}"
        is_hardware = classify_failure(said).action == "restart_elsewhere"
        if is_hardware or not driver[1]:
            kind = "gpu" if driver[1] else "xid"
            yield said, finding(kind, what, is_hardware=is_hardware, pids=pids(named[1]) if named else ())
    elif killed := _KILLED.search(said) or _CHOSEN.search(said):
        name, pid = (killed[2], killed[1]) if "rocess" in killed[0] else (killed[1], killed[2])
        is_limit = "emory cgroup" in said or "CONSTRAINT_MEMCG" in said
        why = "its cgroup reached its memory limit" if is_limit else "memory ran out"
        what = f"the kernel killed process {pid} ({name}) on this machine because {why}, {when}"
        yield f"killed {pid}", finding("oom_kill", what, pids=pids(pid))
    elif hung := _HUNG.search(said):
        what = f"kernel message, {when}: process {hung[2]} ({hung[1]}) has been blocked for more than {hung[3]} seconds"
        yield f"hung {hung[2]}", finding("blocked", what, pids=pids(hung[2]))


def _say_timeless(count: int) -> Iterator[str]:
    if count > 0:
        yield (
            f"the kernel log contains {plural(count, 'fault message')} without a timestamp: run dmesg to see how old "
            f"{'it is' if count == 1 else 'they are'}"
        )
