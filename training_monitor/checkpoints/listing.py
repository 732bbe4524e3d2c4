"""Make the script that lists checkpoints out of the layouts, and parse its output. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from training_monitor.core.checkpoint_layouts import LAYOUTS, STEP, TRACKERS, find_layout
from training_monitor.core.errors import ParseError
from training_monitor.core.models import CheckpointFile
from training_monitor.core.regex import regex

_ZIPPED = (".keras", ".zip", ".npz", ".th")
_OTHERS = (".tar", ".pkl", ".h5", ".hdf5", ".msgpack", ".pdparams", ".pdopt")
WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".distcp", *_ZIPPED, *_OTHERS)
LOOKED_INTO = tuple(ending for ending in WEIGHTS if ending != ".distcp")
EXTENSION = regex(r"(?:\.pth?|\.weights)?\.\w+$")
PARTIAL = "tmp|part|partial|incomplete|filepart|crdownload|aria2"  # endings while a file is copied or downloaded
UNFINISHED_FOLDER = regex(rf"(\.partial_save)?([._-](orbax-checkpoint-)?tmp.*|-unfinished|\.({PARTIAL}|pth?))$")
_FILE_NAME = ("([^/]*[-_]|[a-z]+0)", "([0-9]{3,12})", "(-v[0-9]{1,3})?")  # of a file whose name is of no layout
LARGE = 65536
_LOCAL_FILE_SYSTEMS = ("ext2/ext3", "xfs", "tmpfs")  # others compress, or count blocks differently
_NUMBERED_FILE = regex("".join(_FILE_NAME), re.IGNORECASE)


def step_of(name: str) -> int | None:
    """Return the step in the name of a folder, or of a file without its extension."""
    found = find_layout(name)
    return found[1] if found else None


def file_step(stem: str) -> int | None:
    """Return the step in the name of a file without its extension, which may also be just a number at the end."""
    step, found = step_of(stem), _NUMBERED_FILE.fullmatch(stem)
    return int(found[2]) if found and step is None else step


def format_ranking() -> str:
    """Return a program for `sed -nE` that puts the step before each line `d ./FOLDER` or `f ./FILE`.

    It prints `STEP/./PATH`; `tracker/./PATH` and `-/./PATH` for files that are a tracker or have no step; and
    `open/./PATH` for folders that may contain checkpoints: those without a step, and those whose name is only a number,
    which may be a date.
    """
    rules = [(each.of, each.before, STEP, each.after) for each in LAYOUTS if each.before is not None]
    rules.append(("f", *_FILE_NAME))
    lines = [
        r"/\/[.][^/]/d",  # hidden
        r"s#^(.) (.*/)([^/]*)$#\1 \3/\2\3#",  # f NAME/./FOLDER/NAME
        rf"/^f ({'|'.join(TRACKERS).replace('.', '[.]')})\//{{",
        "s#^f [^/]*/#tracker/#p",
        "d",
        "}",
        r"s#^d ([^/]*)[._-]orbax-checkpoint-tmp[^/]*/#d \1/#",
        rf"s#^d ([^/]*)([._-]tmp[^/]*|[.]({PARTIAL}|pth?))/#d \1/#",
        r"s#^d ([^/]*)[.]partial_save/#d \1/#",
        r"s#^(.) ([^/]*)-unfinished/#\1 \2/#",
        r"s#^d ([^/]*)-state/#f \1/#",  # kohya
        rf"s#^f ([^/]*)([.]({PARTIAL})){{1,3}}/#f \1/#",
        r"s#^f ([^/]*)[.][A-Za-z0-9_]+/[.]/#f \1/./#",
        r"s#^f ([^/]*)[.](pth?|weights)/[.]/#f \1/./#",
        r"/^d [0-9]{1,12}\//{",
        "h",
        "s#^d [^/]*/#open/#p",
        "g",
        "}",
        "t rules",
        ":rules",
        *(
            rf"s#^{kind} {before}{step}{after}/#\{before.count('(') + 1}/#I"
            "\nt number"
            for kind, before, step, after in rules
        ),
        "s#^f [^/]*/#-/#p",
        "s#^d [^/]*/#open/#p",
        "b",
        ":number",
        r"s#^0+([0-9])#\1#",
        "p",
    ]
    return "\n".join(lines)


@dataclass(slots=True)
class Listing:
    """The result of one look below a checkpoint directory; paths are relative to it.

    Index files give `shards` and `totals`, other files their step; `trackers` and `dangling` links name a checkpoint.

    `looked_into` has the inspected files, and folders whose files were all inspected. If `cut`, `files` covers only the
    paths in `listed`; those in `too_large` have too many files. `rest` steps from `rest_step` down, and `unnumbered`
    files without a number, were not inspected. What is in `shut` could not be read, or was not since it is a link.
    """

    files: list[CheckpointFile] = field(default_factory=list)
    shards: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    totals: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    trackers: dict[str, str] = field(default_factory=dict)
    dangling: dict[str, str] = field(default_factory=dict)
    now: float | None = None
    cut: bool = False
    listed: set[str] = field(default_factory=set)
    looked_into: set[str] = field(default_factory=set)
    too_large: list[str] = field(default_factory=list)
    rest: int = 0
    rest_step: int | None = None
    unnumbered: int = 0
    shut: list[str] = field(default_factory=list)

    def is_listed(self, path: str) -> bool:
        """Whether all of a file or folder is in `files`."""
        return not self.cut or _is_below(path, self.listed)

    def is_looked_into(self, path: str) -> bool:
        return _is_below(path, self.looked_into)


def _is_below(path: str, folders: set[str]) -> bool:
    parts = path.split("/")
    return "." in folders or any("/".join(parts[:depth]) in folders for depth in range(1, len(parts) + 1))


def _is_of_checkpoint(link: str) -> bool:
    """Return whether a link has the name of a checkpoint, or is one of its files with weights."""
    *folders, name = link.split("/")
    is_weights = name.endswith(WEIGHTS)
    return bool(find_layout(EXTENSION.sub("", name) if is_weights else name)) or (
        is_weights and any(map(find_layout, folders))
    )


def parse_listing(text: str, directory: str = "") -> Listing | None:
    """Parse the listing script's output; None if the directory does not exist. Raises ParseError."""
    lines = text.split("\n")
    if not lines or not lines[0].startswith("state="):
        raise ParseError("no listing", source="checkpoint directory", text=text)
    if lines[0] == "state=missing":
        return None
    if lines[0] != "state=there":
        raise ParseError(lines[0].removeprefix("state="), source=f"checkpoint directory {directory}".rstrip())
    listing, problems, local = Listing(), dict[str, str](), False
    kept: dict[str, Callable[[str], None]] = {
        "listed": listing.listed.add,
        "looked": listing.looked_into.add,
        "over": listing.too_large.append,
        "shut": listing.shut.append,
    }
    for line in lines[1:]:
        kind, _, rest = line.partition(" ")
        whole = rest.removeprefix("./")
        path, _, content = whole.partition("\t")
        if kind == "now":
            listing.now = float(rest) if re.fullmatch(r"\d{1,15}", rest) else None
        elif kind == "disk":
            local = rest in _LOCAL_FILE_SYSTEMS
        elif kind == "file" and (found := re.fullmatch(r"(\d{1,18}) (\d{1,18}) (?:(\d{1,18}) )?\./(.*)", rest)):
            size, on_disk, path = int(found[1]), 512 * int(found[3] or 0), found[4][:4096]
            listing.files.append(CheckpointFile(path, size, float(found[2])))
            if local and found[3] and size >= LARGE and on_disk < 0.9 * size and path.endswith(WEIGHTS):
                problems[path] = f"only {on_disk} of its {size} bytes are on disk"
        elif kind == "bad":
            problem, _, path = rest.partition(" ./")
            problems[path] = problem.replace("_", " ")
        elif kind == "shard":
            listing.shards[path].add(content)
        elif kind == "total" and re.fullmatch(r"\d{1,18}", content):
            listing.totals[path] = int(content)
        elif kind == "step" and re.fullmatch(r"\d{1,12}", content):
            listing.steps[path] = int(content)
        elif kind == "linked" and _is_of_checkpoint(path):
            listing.shut.append(path)
        elif kind == "tracker":
            listing.trackers[path] = content.strip()
        elif kind == "cut":
            listing.cut = True
        elif keep := kept.get(kind):
            keep(whole)
        elif kind == "rest" and (found := re.fullmatch(r"(\d{1,12}) (\d{1,12})", rest)):
            listing.rest, listing.rest_step = int(found[1]), int(found[2])
        elif kind == "unnumbered" and re.fullmatch(r"\d{1,12}", rest):
            listing.unnumbered = int(rest)
        elif kind == "link" and " -> " in rest:
            link, _, aim = rest.partition(" ./")[2].partition(" -> ")
            listing.dangling[link] = aim.strip()
    listing.files = [file._replace(problem=problems.get(file.path)) for file in listing.files]
    return listing
