"""What is known of the processes of a target that could be trainings, out of what it prints of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from training_monitor.core.regex import regex
from training_monitor.look.kept_output import read_kept
from training_monitor.targets.proc_stat import Meeting, Process, ancestors_of, read_meeting, read_processes
from training_monitor.targets.replies import read_whole

COMMAND_BYTES = 16_384  # how much of a command line is read
NAMED_PIPE = "pipe:/"  # with its device and inode; any other is `pipe:[INODE]`
ENVIRONMENT_BYTES = 6 * 2**20  # the kernel's limit for one process
_GPU_DEVICE = regex(r"/dev/(?:nvidia\d+|kfd|accel\w*\d+)$")
_Pipes = Mapping[tuple[int, int], str]  # the devices and inodes of those that have a name, by PID and descriptor
_LINK = regex(r"^l([r-][w-])[x-]\S* .*? (\d{1,9}) -> (.*)", re.DOTALL)


class OpenFile(NamedTuple):
    """A file that a process has open for writing, or a pipe that it reads as descriptor 0."""

    pid: int
    descriptor: int
    path: str
    writes: bool


@dataclass(frozen=True, slots=True)
class SeenProcesses:
    """The parsed reply of the target; the maps are by pid.

    `cut_commands` are pids whose command line was cut off, `panes` the terminals in tmux, `kept` what trackers keep,
    `containers` the schemes and ids of containers.
    """

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
    panes: frozenset[str] = frozenset()
    kept: Mapping[str, float] = field(default_factory=dict)
    networks: Mapping[int, str] = field(default_factory=dict)
    containers: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def own(self) -> frozenset[int]:
        """The asking process and its ancestors."""
        asker = read_whole(self.facts.get("self"))
        return frozenset(() if asker is None else (asker, *ancestors_of(asker, self.table)))

    def meeting_of(self, pid: int) -> Meeting | None:
        """Return where a rank meets the others; None if that is unknown."""
        network = self.networks.get(pid)
        return read_meeting(self.variables.get(pid, {}), network and f"{self.facts.get('boot')} {network}")

    def is_on_gpu(self, pid: int) -> bool:
        return pid in self.with_driver or any(_GPU_DEVICE.match(file.path) for file in self.files.get(pid, ()))


def read_seen(parts: Mapping[str, str], spelling: str) -> SeenProcesses:
    """Parse the parts of the reply; in its paths, `spelling` stands for the first slash."""
    facts = dict(line.partition("=")[::2] for line in parts["facts"].splitlines())
    links = dict(_links(parts.get("links", ""), spelling))
    workers = re.findall(r"^(\d{1,10}) ([0-9a-f]{8})$", parts.get("workers", ""), re.MULTILINE)
    commands = _heads(parts.get("command", ""), spelling, "cmdline")
    cwds = _of_processes(links, "/cwd")
    return SeenProcesses(
        facts,
        read_processes(parts.get("table", "").splitlines()),
        # a process that overwrote its command line with a title leaves empty words at its end
        {pid: tuple(body.rstrip("\x1f\n").split("\x1f")) for pid, body in commands},
        cwds,
        _of_processes(links, "/ns/mnt"),
        links.get("self/ns/mnt"),
        {pid: _variables(body) for pid, body in _heads(parts.get("environment", ""), spelling, "environ")},
        dict(_open_files(parts.get("files", ""), spelling, dict(_pipes(parts.get("pipes", ""))))),
        frozenset(pid for line in parts.get("driver", "").splitlines() if (pid := read_whole(line)) is not None),
        {int(pid): job for pid, job in workers},
        frozenset(pid for pid, body in commands if len(body.encode(errors="replace")) >= COMMAND_BYTES),
        frozenset(line.split(" ")[0] for line in parts.get("panes", "").splitlines()),
        read_kept(parts.get("kept", ""), spelling, cwds),
        _of_processes(links, "/ns/net"),
        dict(_containers(parts.get("containers", ""), spelling)),
    )


def _heads(text: str, spelling: str, name: str) -> list[tuple[int, str]]:
    """Return what `head` printed of /proc/PID/NAME, by pid."""
    mark = re.compile(rf"^==> (?:/dev/null|{re.escape(spelling)}proc/(\d{{1,10}})/{name}) <==\n?", re.MULTILINE)
    pieces = mark.split(text)[1:]
    return [(int(pid), body.removesuffix("\n")) for pid, body in zip(pieces[::2], pieces[1::2]) if pid]


def _variables(text: str) -> dict[str, str]:
    return {key: value for key, equals, value in (line.partition("=") for line in text.splitlines()) if equals}


def _links(text: str, spelling: str) -> list[tuple[str, str]]:
    """Return (path below /proc, link target) from the lines of `ls -ldn`; of an unreadable link it prints no target."""
    line = rf"^l\S+ [^\n]*? {re.escape(spelling)}proc/([\w/]{{1,40}})(?: -> |$)"
    pieces = re.split(line, text, flags=re.MULTILINE)[1:]
    return [(name, target.rstrip("\n")) for name, target in zip(pieces[::2], pieces[1::2]) if target.strip("\n")]


def _containers(text: str, spelling: str) -> list[tuple[int, tuple[str, str]]]:
    """Return the containers in which processes run, by pid: the scheme of its targets, and the beginning of its id."""
    line = rf"^{re.escape(spelling)}proc/(\d{{1,10}})/cgroup:(docker|libpod)[-/]([0-9a-f]{{64}})$"
    found = re.findall(line, text, re.MULTILINE)
    return [(int(pid), (program.replace("libpod", "podman"), name[:12])) for pid, program, name in found]


def _of_processes(links: Mapping[str, str], end: str) -> dict[int, str]:
    """Return the targets of the links /proc/PID/END, by pid."""
    pids = {name: read_whole(name.removesuffix(end)) for name in links if name.endswith(end)}
    return {pid: links[name] for name, pid in pids.items() if pid is not None}


def _pipes(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield (pid, descriptor), and the device and inode of the pipes, from the lines of `stat`."""
    for inode, pid, descriptor in re.findall(r"^([\d:]{1,40}) /proc/(\d{1,10})/fd/([012])$", text, re.MULTILINE):
        yield (int(pid), int(descriptor)), inode


def _open_files(text: str, spelling: str, pipes: _Pipes) -> list[tuple[int, tuple[OpenFile, ...]]]:
    pieces = re.split(rf"^{re.escape(spelling)}proc/(\w{{1,10}})/(?:fd|ns):\n?", text, flags=re.MULTILINE)[1:]
    folders = [(read_whole(name), body) for name, body in zip(pieces[::2], pieces[1::2])]
    return [(pid, tuple(_files_of(pid, body, pipes))) for pid, body in folders if pid is not None]


def _files_of(pid: int, text: str, pipes: _Pipes) -> Iterable[OpenFile]:
    """Yield the open files from the lines of `ls -ln`; a name may contain newlines.

    A pipe with a name (mkfifo) is `pipe:/DEVICE:INODE`.
    """
    for entry in re.split(r"\n(?=l[r-][w-][x-]|total \d|$)", text):
        found = _LINK.match(entry)
        if found and (found[1][1] == "w" or found[2] == "0"):
            path = found[3].rstrip("\n")
            if path.startswith("/") and (inode := pipes.get((pid, int(found[2])))):
                path = f"{NAMED_PIPE}{inode}"
            yield OpenFile(pid, int(found[2]), path, found[1][1] == "w")
