"""What the listing script prints of the files below a checkpoint directory."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

from training_monitor.errors import ParseError
from training_monitor.models import CheckpointFile
from training_monitor.parse.checkpoint_names import WEIGHTS

LARGE = 65536
_LOCAL_FILE_SYSTEMS = ("ext2/ext3", "xfs", "tmpfs")  # others compress, or count blocks in their own way


@dataclass(slots=True)
class Listing:
    """What one look below a checkpoint directory found, by paths relative to it.

    Index files say `shards` and `totals`, a file its step; `trackers` and `dangling` links name a checkpoint.

    The files of `looked_into` (files, and folders with all in them) were looked into; those of a folder that is `cut`
    are only the ones of `listed`, and `too_large` has too many. `rest` steps from `rest_step` down were not looked
    at, and so many files without a number were not as `unnumbered` says. Nobody let us into the folders of `shut`.
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


def parse_listing(text: str, directory: str = "") -> Listing | None:
    """Read the listing script's output; None when the directory does not exist. Raises ParseError."""
    lines = text.split("\n")
    if not lines or not lines[0].startswith("state="):
        raise ParseError("no listing", source="checkpoint directory", text=text)
    if lines[0] == "state=missing":
        return None
    if lines[0] != "state=there":
        raise ParseError(lines[0].removeprefix("state="), source=f"checkpoint directory {directory}".rstrip())
    listing, problems, local = Listing(), dict[str, str](), False
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
                problems[path] = f"has a hole: {on_disk} of {size} bytes are on the disk"
        elif kind == "bad":
            problem, _, path = rest.partition(" ./")
            problems[path] = problem.replace("_", " ")
        elif kind == "shard":
            listing.shards[path].add(content)
        elif kind == "total" and re.fullmatch(r"\d{1,18}", content):
            listing.totals[path] = int(content)
        elif kind == "step" and re.fullmatch(r"\d{1,12}", content):
            listing.steps[path] = int(content)
        elif kind == "tracker":
            listing.trackers[path] = content.strip()
        elif kind == "cut":
            listing.cut = True
        elif kind == "listed":
            listing.listed.add(whole)
        elif kind == "looked":
            listing.looked_into.add(whole)
        elif kind == "over":
            listing.too_large.append(whole)
        elif kind == "shut":
            listing.shut.append(whole)
        elif kind == "rest" and (found := re.fullmatch(r"(\d{1,12}) (\d{1,12})", rest)):
            listing.rest, listing.rest_step = int(found[1]), int(found[2])
        elif kind == "unnumbered" and re.fullmatch(r"\d{1,12}", rest):
            listing.unnumbered = int(rest)
        elif kind == "link" and " -> " in rest:
            link, _, aim = rest.partition(" ./")[2].partition(" -> ")
            listing.dangling[link] = aim.strip()
    listing.files = [replace(file, problem=problems.get(file.path)) for file in listing.files]
    return listing
