"""What processes wait for beside the ranks, and which of them have ended or are held, as the kernel says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from training_monitor.core.errors import ParseError
from training_monitor.core.regex import regex
from training_monitor.core.units import name_some, plural
from training_monitor.targets.proc_stat import signal_name
from training_monitor.targets.replies import each_line
from training_monitor.why.places import prompt_of
from training_monitor.why.processes import SeenTraining
from training_monitor.why.ranks import TERMINAL, Finding, Rank, Surroundings, finding

WAITS = ("lock", "pipe", "zombie", "debugger")  # the kinds of what is found
_MOST_NAMED = 3
_ZOMBIE = regex(r"zombie (\d{1,10}) (\d{1,10}) (\d{1,10}) (.{0,100})")
_TRACED = regex(r"traced (\d{1,10}) (\d{1,10}) (.{0,100})")
_WAIT = regex(r"(lock|pipe) (\d{1,10}) (\w{1,10}) (.{0,500})")
_END = regex(r"end (-?\d{1,10}) (.{0,100})")


@dataclass
class _Wait:
    """A wait for a lock or a pipe. `ends` are those that hold the lock, or have the other end of the pipe."""

    kind: str
    pid: int
    how: str
    path: str
    ends: dict[int, str] = field(default_factory=dict)


def parse_waits(text: str) -> Surroundings:
    """Parse the reply of `targets/sh/waits.sh`. Raises ParseError when its end is missing."""
    if not text.endswith("end\n"):
        raise ParseError("the reply is truncated", source="waits", text=text[-1000:])
    found: list[Finding] = []
    waits: list[_Wait] = []
    for line in each_line(text):
        if zombie := _ZOMBIE.fullmatch(line):
            found.append(_say_zombie(int(zombie[1]), int(zombie[2]), int(zombie[3]), zombie[4]))
        elif traced := _TRACED.fullmatch(line):
            by = f": {_name(int(traced[2]), traced[3])}" if int(traced[2]) else ""
            found.append(finding("debugger", f"pid {traced[1]} is held by a debugger{by}", pids=(int(traced[1]),)))
        elif wait := _WAIT.fullmatch(line):
            waits.append(_Wait(wait[1], int(wait[2]), wait[3], wait[4].strip()))
        elif waits and (end := _END.fullmatch(line)):
            waits[-1].ends[int(end[1])] = end[2]
    return Surroundings((*found, *map(_say_wait, waits)))


def _name(pid: int, name: str) -> str:
    return f"pid {pid} ({name})" if name else f"pid {pid}"


def _say_zombie(pid: int, code: int, parent: int, name: str) -> Finding:
    """Say that a process is a zombie; the code is that of wait(2), 0 where it may not be read."""
    how = f"killed by {signal_name(code & 127)}" if code & 127 else f"exit code {code >> 8}" if code else ""
    ended = f"pid {pid} has ended" + (f" ({how})" if how else "")
    text = f"{ended} and is a zombie: its parent, {_name(parent, name)}, has not waited for it"
    return finding("zombie", text, pids=(pid,))


def _say_wait(wait: _Wait) -> Finding:
    ends = {pid: name for pid, name in wait.ends.items() if pid > 0 and pid != wait.pid}
    others, awaits = [_name(pid, name) for pid, name in ends.items()], tuple(ends)
    named = name_some(others, _MOST_NAMED)
    if wait.kind == "lock":
        lock = f"the lock ({wait.how.lower()}) of {wait.path or 'a file'}"
        held = f"which {named} holds" if others else "whose holder is unknown"
        return finding("lock", f"pid {wait.pid} waits for {lock}, {held}", pids=(wait.pid,), awaits=awaits or None)
    pipe = wait.path if wait.path.startswith("/") else "a pipe"
    does = f"pid {wait.pid} {'reads' if wait.how == 'reads' else 'writes to'} {pipe}"
    opposite = "write to" if wait.how == "reads" else "read"
    nobody = f"which no other visible process has open for {'writing' if wait.how == 'reads' else 'reading'}"
    said = f"which {named} should {opposite}" if others else nobody
    return finding("pipe", f"{does}, {said}", pids=(wait.pid,), awaits=awaits)


def with_awaited(training: SeenTraining, waits: Sequence[Finding]) -> SeenTraining:
    """Return the same training, with the processes that its processes wait for by a lock or a pipe."""
    known = {pid: each.awaits for each in waits if each.awaits is not None for pid in each.pids}
    processes = {pid: replace(each, awaits=known.get(pid, each.awaits)) for pid, each in training.processes.items()}
    return training._replace(processes=processes)


# ---------------------------------------------------------------- what explains a hang


def find_causes(training: SeenTraining, waits: Sequence[Finding], ranks: Sequence[Rank]) -> Iterator[Finding]:
    """Yield what explains why a training does not go on, as the kernel says: see `Finding`.

    Of several ranks, the roll call says what each waits for; a pipe or a terminal explains one process alone.

    Args:
        training: its processes on one host.
        waits: what `parse_waits` found there.
        ranks: those of its processes that are ranks.
    """
    own, states = {each.pid for each in ranks}, {pid: each.process.state for pid, each in training.processes.items()}
    main = own or set(training.named)
    for each in waits:
        [pid] = each.pids
        counts = {
            "lock": True,
            "pipe": main == {pid},
            "zombie": pid in own or pid in training.named,
            "debugger": states.get(pid) == "t",
        }
        if counts[each.kind]:
            yield each
    if stopped := sorted(pid for pid, state in states.items() if state == "T"):
        one, listed = len(stopped) == 1, " ".join(map(str, stopped))
        text = f"pid {listed} is" if one else f"pids {', '.join(map(str, stopped))} are"
        text += f" stopped by a signal; to continue {'it' if one else 'them'}, run kill -CONT {listed}"
        yield finding("stopped", text, pids=tuple(stopped))
    running = [str(pid) for pid, each in training.processes.items() if each.process.is_running]
    for pid in training.named[:1] if len(training.named) == 1 else ():
        if running and str(pid) not in running:
            left, pids = (
                plural(len(running), "child process is", "child processes are"),
                name_some(running, _MOST_NAMED),
            )
            text = f"pid {pid}, the main process, has ended, but {left} still running (pid {pids})"
            yield finding("ended", text, pids=(pid,))
    for rank in ranks:
        if prompt := prompt_of(rank.main_stack):
            yield finding("debugger", f"pid {rank.pid} is waiting for debugger input ({prompt})", pids=(rank.pid,))
        elif rank.waits_for == TERMINAL and len(own) == 1:
            yield finding("terminal", f"pid {rank.pid} is waiting for input from its terminal", pids=(rank.pid,))
