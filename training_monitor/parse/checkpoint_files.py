"""From the files below a checkpoint directory to checkpoints: which steps there are, and which are complete.

Names and completeness rules: Hugging Face Trainer, Lightning, DeepSpeed, Megatron-LM, verl, torch DCP,
ai-toolkit, kohya and Orbax write their steps into a file or folder name; the number is parsed, never sorted
as text, and times are never used for order (copying changes them).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from training_monitor.errors import ParseError
from training_monitor.models import Checkpoint, CheckpointFile

_WORD = r"(?:global[_-]?step|step|checkpoint|ckpt|iteration|iter|batch|epoch)"
_STEP_NAME = re.compile(rf"(?:^|.*[^A-Za-z]){_WORD}[-_=]?(\d{{1,12}})$|^(\d{{1,12}})$", re.IGNORECASE)
_STEP_SAID = re.compile(r"(?:^|[^A-Za-z])step=(\d{1,12})(?!\d)")  # Lightning: epoch=1-step=500-val_loss=0.25-v1
_STEP_INSIDE = re.compile(rf"{_WORD}[-_=]?\d+", re.IGNORECASE)
_NUMBERED_FILE = re.compile(r".*[-_](\d{3,12})$")
_WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".distcp", ".tar", ".zip", ".npz")
_UNFINISHED = re.compile(r"tmp|\.part$|\.incomplete$|-unfinished$|partial_save", re.IGNORECASE)
_UNFINISHED_FOLDER = re.compile(r"[._-](?:orbax-checkpoint-)?tmp.*|-unfinished$|\.part$|\.incomplete$", re.IGNORECASE)
_SHARD = re.compile(r"^(.*)-(\d{5})-of-(\d{5})(\.\w+)$")


@dataclass(slots=True)
class Listing:
    """What one look below a checkpoint directory found; `files` have paths relative to it."""

    files: list[CheckpointFile] = field(default_factory=list)
    shards: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    trackers: dict[str, str] = field(default_factory=dict)
    now: float | None = None


def parse_listing(text: str, directory: str = "") -> Listing | None:
    """Read the listing script's output; None when the directory does not exist. Raises ParseError."""
    lines = text.split("\n")
    if not lines or not lines[0].startswith("state="):
        raise ParseError("no listing", source="checkpoint directory", text=text)
    if lines[0] == "state=missing":
        return None
    if lines[0] != "state=there":
        raise ParseError(lines[0].removeprefix("state="), source=f"checkpoint directory {directory}".rstrip())
    listing, problems = Listing(), dict[str, str]()
    for line in lines[1:]:
        kind, _, rest = line.partition(" ")
        if kind == "now":
            listing.now = float(rest) if re.fullmatch(r"\d{1,15}", rest) else None
        elif kind == "file" and (found := re.fullmatch(r"(\d{1,18}) (\d{1,18}) \./(.*)", rest)):
            listing.files.append(CheckpointFile(found.group(3), int(found.group(1)), float(found.group(2))))
        elif kind == "bad":
            problem, _, path = rest.partition(" ./")
            problems[path] = problem.replace("_", " ")
        elif kind == "shard":
            index, _, shard = rest.removeprefix("./").partition("\t")
            listing.shards[index].add(shard)
        elif kind == "tracker":
            path, _, content = rest.removeprefix("./").partition("\t")
            listing.trackers[path] = content.strip()
    listing.files = [replace(file, problem=problems.get(file.path)) for file in listing.files]
    return listing


def group_checkpoints(listing: Listing, directory: str, *, quiet_seconds: float = 0.0) -> list[Checkpoint]:
    """All checkpoints of a listing, lowest step first, each judged complete or not with the reason."""
    groups: dict[str, list[CheckpointFile]] = defaultdict(list)
    steps: dict[str, int] = {}
    for file in listing.files:
        if place := _place(file.path):
            steps[place[0]] = place[1]
            groups[place[0]].append(file)
    checkpoints: list[Checkpoint] = []
    previous: dict[str, str] = {}
    for root in sorted(groups, key=lambda name: (steps[name], name)):
        files = groups[root]
        names = {name: _without_step(name, steps[root]) for name in (file.path[len(root) :] for file in files)}
        problem = (
            _unfinished(root, files)
            or _damage(files)
            or _missing_shards(root, files, listing.shards)
            or _tracker_problem(root, listing.trackers, steps)
            or _lost_files(names, previous)
            or _still_written(files, listing.now, quiet_seconds)
        )
        size = sum(file.size_bytes for file in files)
        age = None if listing.now is None else max(0.0, listing.now - max(file.modified_at for file in files))
        path = f"{directory.rstrip('/')}/{root}"
        checkpoints.append(Checkpoint(path, steps[root], size, problem is None, problem, age))
        previous = names if problem is None else previous
    return checkpoints


def _place(path: str) -> tuple[str, int] | None:
    """The checkpoint a file belongs to, and its step: the topmost folder or the file that carries a number."""
    parts = path.split("/")
    folders = [(depth, _step_of(_UNFINISHED_FOLDER.sub("", part) or part)) for depth, part in enumerate(parts[:-1], 1)]
    numbered = [(depth, step) for depth, step in folders if step is not None]
    named = [(depth, step) for depth, step in numbered if not parts[depth - 1].isdigit()]
    if numbered:  # a folder that is only a number may be a date above the real one
        depth, number = (named or numbered)[0]
        return "/".join(parts[:depth]), number
    name = re.sub(r"(\.(tmp|part|incomplete))+$", "", parts[-1])
    stem, dot, extension = name.rpartition(".")
    if f".{extension}" in _WEIGHTS and dot and not _SHARD.match(name):
        step = _step_of(stem)
        if step is None and (found := _NUMBERED_FILE.match(stem)):
            step = int(found.group(1))
        return (path, step) if step is not None else None
    return None


def _step_of(name: str) -> int | None:
    found = _STEP_SAID.search(name) or _STEP_NAME.match(re.sub(r"-v\d{1,3}$", "", name))
    return int(next(group for group in found.groups() if group)) if found else None


def _unfinished(root: str, files: Iterable[CheckpointFile]) -> str | None:
    for name in (root, *(file.path for file in files)):
        if _UNFINISHED.search(name.rsplit("/", 1)[-1]):
            return f"unfinished: {name}"
    return None


def _damage(files: list[CheckpointFile]) -> str | None:
    for file in files:
        if file.problem:
            return f"{file.path}: {file.problem}"
        if file.size_bytes == 0 and file.path.endswith(_WEIGHTS):
            return f"{file.path}: empty file"
    if not any(file.size_bytes for file in files):
        return "only empty files"
    distributed = {file.path.rpartition("/")[0] for file in files if file.path.endswith(".distcp")}
    if distributed - {file.path.removesuffix("/.metadata") for file in files}:
        return "no .metadata: torch writes it last"
    return None


def _missing_shards(root: str, files: list[CheckpointFile], shards: Mapping[str, set[str]]) -> str | None:
    names = {file.path for file in files}
    for file in files:
        folder = file.path.rpartition("/")[0]
        for shard in shards.get(file.path, ()):
            if f"{folder}/{shard}" not in names:
                return f"{shard} is named in {file.path} and missing"
        if found := _SHARD.match(file.path):
            stem, _, count, extension = found.groups()
            for number in range(1, int(count) + 1):
                if f"{stem}-{number:05d}-of-{count}{extension}" not in names:
                    return f"shard {number} of {int(count)} is missing"
    return None


def _tracker_problem(root: str, trackers: Mapping[str, str], steps: Mapping[str, int]) -> str | None:
    """Megatron-LM and verl write latest_checkpointed_iteration.txt last: what is newer was not finished."""
    folder = root.rpartition("/")[0]
    content = trackers.get(f"{folder}/latest_checkpointed_iteration.txt".lstrip("/"))
    if content and re.fullmatch(r"[0-9]{1,18}", content) and steps[root] > int(content):
        return f"newer than latest_checkpointed_iteration.txt, which says {content}"
    return None


def _without_step(name: str, step: int) -> str:
    """A file's name as it is in every checkpoint: what may be the step is cut out."""
    return re.sub(rf"(?<!\d)0*{step}(?!\d)", "N", _STEP_INSIDE.sub("step", name))


def _lost_files(names: Mapping[str, str], previous: Mapping[str, str]) -> str | None:
    """A number in a name may be the step or a rank: a file is there when its name is, with or without the step."""
    there = set(names.values())
    lost = sorted(name for name in previous if name not in names and previous[name] not in there)
    weights = [name.lstrip("/") for name in lost if name.endswith(_WEIGHTS)]
    return f"{weights[0]} is missing, which the one before has" if weights else None


def _still_written(files: Iterable[CheckpointFile], now: float | None, quiet_seconds: float) -> str | None:
    if now is None or not quiet_seconds:
        return None
    age = now - max(file.modified_at for file in files)
    return f"written {age:.0f} s ago: may not be finished" if age < quiet_seconds else None
