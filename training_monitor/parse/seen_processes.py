"""What a target prints of the processes that could be trainings, see `probes/find_trainings.py`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from training_monitor.parse.process_table import Process, ancestors_of, read_processes

COMMAND_BYTES = 16_384  # of a command line that are read
_GPU_DEVICE = re.compile(r"/dev/(?:nvidia\d+|kfd|accel\w*\d+)$")
_LINK = re.compile(r"^l([r-][w-])[x-]\S* .*? (\d{1,9}) -> (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that a process has open for writing (or a pipe that it reads, as descriptor 0)."""

    pid: int
    descriptor: int
    path: str
    writes: bool


@dataclass(frozen=True, slots=True)
class SeenProcesses:
    """All that the target printed; the maps are by pid. Of `cut_commands` only the beginning was read."""

    facts: Mapping[str, str]
    table: Mapping[int, Process]
    words: Mapping[int, tuple[str, ...]]
    cwds: Mapping[int, str]
    namespaces: Mapping[int, str]
    namespace: str | None
    variables: Mapping[int, Mapping[str, str]]
    files: Mapping[int, tuple[OpenFile, ...]]
    with_driver: frozenset[int]
    workers: Mapping[int, str]
    cut_commands: frozenset[int]

    @property
    def own(self) -> frozenset[int]:
        """Whoever asks, and what it was started by."""
        asker = read_whole(self.facts.get("self"))
        return frozenset(() if asker is None else (asker, *ancestors_of(asker, self.table)))

    def is_on_gpu(self, pid: int) -> bool:
        return pid in self.with_driver or any(_GPU_DEVICE.match(file.path) for file in self.files.get(pid, ()))


def read_seen(parts: Mapping[str, str], spelling: str) -> SeenProcesses:
    """Take the parts of the reply to pieces; `spelling` stands in its paths instead of the first slash."""
    facts = dict(line.partition("=")[::2] for line in parts["facts"].splitlines())
    links = dict(_links(parts.get("links", ""), spelling))
    workers = re.findall(r"^(\d{1,10}) ([0-9a-f]{8})$", parts.get("workers", ""), re.MULTILINE)
    commands = _heads(parts.get("command", ""), spelling, "cmdline")
    return SeenProcesses(
        facts,
        read_processes(parts.get("table", "").splitlines()),
        {pid: _split_words(body) for pid, body in commands},
        _of_processes(links, "/cwd"),
        _of_processes(links, "/ns/mnt"),
        links.get("self/ns/mnt"),
        {pid: _variables(body) for pid, body in _heads(parts.get("environment", ""), spelling, "environ")},
        dict(_open_files(parts.get("files", ""), spelling)),
        frozenset(pid for line in parts.get("driver", "").splitlines() if (pid := read_whole(line)) is not None),
        {int(pid): job for pid, job in workers},
        frozenset(pid for pid, body in commands if len(body.encode(errors="replace")) >= COMMAND_BYTES),
    )


def _heads(text: str, spelling: str, name: str) -> list[tuple[int, str]]:
    """What `head` printed of /proc/PID/NAME, by pid."""
    mark = re.compile(rf"^==> (?:/dev/null|{re.escape(spelling)}proc/(\d{{1,10}})/{name}) <==\n?", re.MULTILINE)
    pieces = mark.split(text)[1:]
    return [(int(pid), body.removesuffix("\n")) for pid, body in zip(pieces[::2], pieces[1::2]) if pid]


def _split_words(text: str) -> tuple[str, ...]:
    """The words of a command line; a process that wrote a title over it leaves empty ones at its end."""
    return tuple(text.rstrip("\x1f\n").split("\x1f"))


def _variables(text: str) -> dict[str, str]:
    return {key: value for key, equals, value in (line.partition("=") for line in text.splitlines()) if equals}


def _links(text: str, spelling: str) -> list[tuple[str, str]]:
    """(what it is below /proc, where it leads) of the lines of `ls -ldn`."""
    pieces = re.split(rf"^l\S+ [^\n]*? {re.escape(spelling)}proc/([\w/]{{1,40}}) -> ", text, flags=re.MULTILINE)[1:]
    return [(name, target.rstrip("\n")) for name, target in zip(pieces[::2], pieces[1::2])]


def _of_processes(links: Mapping[str, str], end: str) -> dict[int, str]:
    """Where the links /proc/PID/END lead, by pid."""
    pids = {name: read_whole(name.removesuffix(end)) for name in links if name.endswith(end)}
    return {pid: links[name] for name, pid in pids.items() if pid is not None}


def _open_files(text: str, spelling: str) -> list[tuple[int, tuple[OpenFile, ...]]]:
    pieces = re.split(rf"^{re.escape(spelling)}proc/(\w{{1,10}})/(?:fd|ns):\n?", text, flags=re.MULTILINE)[1:]
    folders = [(read_whole(name), body) for name, body in zip(pieces[::2], pieces[1::2])]
    return [(pid, tuple(_files_of(pid, body))) for pid, body in folders if pid is not None]


def _files_of(pid: int, text: str) -> Iterable[OpenFile]:
    """Its open files out of the lines of `ls -ln`; a name may go on in the next line."""
    for entry in re.split(r"\n(?=l[r-][w-][x-]|total \d|$)", text):
        found = _LINK.match(entry)
        if found and (found[1][1] == "w" or found[2] == "0"):
            yield OpenFile(pid, int(found[2]), found[3].rstrip("\n"), found[1][1] == "w")


def read_whole(text: str | None) -> int | None:
    """A number that stands for itself alone; None where there is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 11 else None
