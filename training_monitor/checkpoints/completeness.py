"""Group the files below a checkpoint directory into checkpoints, with their steps and their completeness. Pure.

A step is the number in a file or folder name, see `core/checkpoint_layouts.py`, or the epoch if a framework counts
epochs. The step in the header of a safetensors file takes precedence over its name, whose digits may belong to the
model: `portrait_2024`. Steps are never sorted as text, and times never determine the order (copying changes them).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from training_monitor.checkpoints.listing import (
    EXTENSION,
    LARGE,
    LOOKED_INTO,
    PARTIAL,
    UNFINISHED_FOLDER,
    WEIGHTS,
    Listing,
    file_step,
    step_of,
)
from training_monitor.core.checkpoint_layouts import LAYOUTS, MARKS, WORD, Layout, find_layout
from training_monitor.core.models import Checkpoint, CheckpointFile
from training_monitor.core.regex import regex
from training_monitor.core.units import seconds_since
from training_monitor.core.values import CheckpointListing

_DIGITS = regex(r"\d+")
_STEP_INSIDE = regex(rf"{WORD}[-_=]?\d+", re.IGNORECASE)
_NUMBER_AT_END = regex(r"[-_](?:step)?\d{3,12}(?=\.\w+$)")
_IN_PLACE = regex(r"(\w+[-_])?(last|latest|final)([-_](model|checkpoint|ckpt|rank\d+|v\d+))?|ckpt|checkpoint|snapshot")
_LAST = regex(r"(?:.*/)?(?:\d+|[^/]*(?:batch|epoch)[^/]*)/(last|latest)\.(pth?|ckpt|pth\.tar)")
_EARLIER = regex(r"(?:^|[-_])(?:best|recovery)[-_]")
# The state of everything but the model.
_STATE = (
    r"(?!.*model[-_](?:and[-_])?(?:opt|rng))(.*[-_./])?(optim(izer)?s?|scheduler|scaler|sampler|replay_buffer"
    r"|vecnormalize|training_args|rng|random_states?)[-_./\d].*"
)
_COMPANION = regex(
    rf"{_STATE}|D(UR)?_\d.*|(.*[-_.])?ema[-_.\d].*|opt[-_]?\d.*|(.*[-_.])?state_\d+_\d{{5}}\..*|.*\.pdopt"
)  # of the model of the same step
_TENSORFLOW = regex(r"((?:.*ckpt-|.*[-_.](?=\d+\.ckpt))(\d{1,12})(?:\.ckpt)?)(\.(?:index|meta|data-\d{5}-of-\d{5}))")
_RESULTS = regex(
    r"((val|test|train|eval)_)?(predictions?|preds?|metrics|logits)[-_]((step|ep|epoch|iter)[-_=]?)?\d.*(?<!\.safetensors)"
)
_TIME = regex(r"(.*[-_])?20[12]\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])[-_T]?\d{4,6}\.\w+")
_WITHOUT_WEIGHTS = regex(  # settings, results, and state
    rf"^{_STATE}|\.pdopt$|(^|/)context/|(?<!model)(?<!booster)(?<!xgboost)\.(json|txt)$"
    r"|\.(ya?ml|md|py|sh|toml|jinja|model|jsonl|csv|log|html|png|jpe?g|gif|mp4|wav)$"
    r"|(^|/)latest$|\.ply$|memory_snapshot\.pickle$|tfevents"
)
_LONE_NUMBER = regex(  # the resolution or the layers of a pretrained model: vit_large_224.pth
    r"(?:.*/)?(?:[^/]*[-_])?(?:vit|deit|swin|beit|dino|convnext|resnet|efficientnet|eva|clip)[^/]*[-_]\d{2,4}"
    r"(?:\.pth?|\.weights)?\.\w+",
    re.IGNORECASE,
)
_EPOCH_AND_STEP = regex(r"(?:^|[^a-z])epoch[-_]?(\d{1,6})[-_]+[a-z_]*(?:step|iter|batch)[-_]?\d[^/]*$", re.I)
_SHORT_NUMBER = regex(r"(.*[^-_/][-_])(\d{1,2})(\.(?:pth?|ckpt|safetensors|keras|(?:weights\.)?h5|hdf5))")
_PART = regex(r"(rank|part|shard|gpu|worker|node|fold|stage|layer|expert|version|v|rng_state|states)[-_]$", re.I)
_RANKED_FILE = regex(r"((?:-ba\d+|(?:^|/)latest)-rank|(?:^|/)mp_rank_)(\d{1,6})(?=[./])")
_SHARD = regex(r"^(.*\.data|.*(?=-\d{5}-of-\d{5}\.))-(\d{5})-of-(\d{5})(\.\w+|)$")
_UNFINISHED = regex(rf"(?<![a-z])(gs)?tmp(?![a-z])|\.({PARTIAL})$|-unfinished$|partial_save|^\..+\.\w+\.\w{{6}}$", re.I)
_HIDDEN = regex(r"(^|/)\.[^/.][^/]*/|(^|/)\._|\.lock$")  # trash, caches, what macOS keeps beside a file
_UNFINISHED_INSIDE = regex(r"orbax-checkpoint-tmp|partial_save")
_RANKS = (
    r"(zero_pp_rank_|expp_rank_|[dmtpe]p_rank_|ba\d+-rank|world_size_\d+_rank_|rng_state_|random_states_|rank[-_]?)"
)
_RANK = regex(rf"(?<![a-z])(?<![a-z]p-){_RANKS}(\d{{1,6}}(?:_\d{{3}})*)(?!\d)")  # not pp-rank-0 of nanotron
_SURE_RANK = regex(r"zero|expp|.p_rank|ba")  # others may be of one node of several, or a LoRA's rank
_SAME_SIZES = regex(r"^$|model|optim|adapter|weights|\.safetensors$|\.distcp$|\.ckpt$")
_NOT_LOOKED_AT = "not inspected: newer checkpoints are inspected first"
_TOO_LARGE = "not inspected: it has too many files"
_SHUT = "not inspected: something in it cannot be read, or is a symbolic link to another folder"


@dataclass(slots=True)
class _Group:
    """One checkpoint; its files by their names within it, "" for a single file."""

    root: str
    step: int
    files: dict[str, CheckpointFile] = field(default_factory=dict)
    is_final: bool = False
    lacks_model: bool = False

    @property
    def folder(self) -> str:
        return self.root.rpartition("/")[0]

    @property
    def order(self) -> tuple[int, int, list[int], str]:
        """Return the sort key: by step, then best or recovery file, numbered file, final file, folder."""
        earlier = _EARLIER.search(self.root.rpartition("/")[2])
        single = any(file.path == self.root for file in self.files.values())
        numbers = [int(number) for number in re.findall(r"\d{1,18}", self.root)]
        return self.step, 0 if earlier else 2 if self.is_final else 1 if single else 3, numbers, self.root


def group_checkpoints(
    listing: Listing, directory: str, *, quiet_seconds: float = 0.0, up_to: int | None = None
) -> CheckpointListing:
    """Group a listing into checkpoints, lowest step first, and judge each: complete, incomplete (why), or unknown.

    Files that are overwritten in place (`last.ckpt`) count only if nothing has a number, except one that may belong to
    a model's name (`vit_large_224.pth`), with the step in their header, or 0. A missing checkpoint that a tracker file
    names is incomplete. A checkpoint is judged only if all of its files are listed, and complete only if they were
    inspected. `up_to` is the highest inspected step.
    """
    files = [file for file in listing.files if not _HIDDEN.search(file.path)]
    names = {file.path for file in files}  # a file that cannot be read matters only in a checkpoint
    shut = [p for p in listing.shut if not _HIDDEN.search(f"{p}/") and (p not in names or _checkpoint_at(p))]
    closed = [place for path in shut if (place := _checkpoint_at(path))]
    others = bool(listing.rest or listing.too_large or closed) or up_to is not None
    groups = _numbered(files, listing.steps)
    if not others:
        sure = _without_lone_numbers(groups, listing)
        if all(_EARLIER.search(each.root.rpartition("/")[2]) for each in sure):
            groups = _short_numbered(files) or _in_place(files, listing) or sure or groups
        else:
            groups = sure
    checkpoints = list(_judge(groups, files, listing, quiet_seconds))
    roots = {group.root for group in groups}
    checkpoints += _unlisted(listing.too_large, _TOO_LARGE, roots)
    checkpoints += _unlisted(shut, _SHUT, roots)
    highest, lowest = 10**12 if up_to is None else up_to, -1 if listing.rest_step is None else listing.rest_step
    missing = _named_and_missing(listing, groups)
    checkpoints += (each for each in missing if not listing.cut or lowest < each.step <= highest)
    there = [replace(each, path=f"{directory.rstrip('/')}/{each.path}") for each in checkpoints]
    unlisted = listing.unnumbered + (listing.rest if listing.cut else 0) + len(shut) - len(closed)
    newest = sorted(files, key=lambda file: file.modified_at, reverse=True)[: 0 if there or unlisted else 3]
    there.sort(key=lambda each: each.step)
    return CheckpointListing(tuple(there), unlisted, listing.rest_step, tuple(file.path for file in newest))


def _judge(
    groups: Sequence[_Group], files: Sequence[CheckpointFile], listing: Listing, quiet_seconds: float
) -> Iterator[Checkpoint]:
    marked = {file.path.removesuffix("-unfinished") for file in files if file.path.endswith("-unfinished")}
    markers: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        markers[_kind(group.root)] |= {name for name in group.files if name.rpartition("/")[2] in MARKS}
    good: dict[str, _Group] = {}
    whole: dict[str, _Group] = {}
    for group in groups:
        modified_at = max(file.modified_at for file in group.files.values())
        age = seconds_since(modified_at, listing.now)
        is_shut = any(f"{path}/".startswith(f"{group.root}/") for path in listing.shut)
        if is_shut or not _is_listed(group, listing):
            why = _SHUT if is_shut else _NOT_LOOKED_AT
            yield Checkpoint(group.root, group.step, None, None, why, age, modified_at)
            continue
        kind = _kind(group.root)
        mark = min(markers[kind] - group.files.keys(), default=None)
        problem = (
            _unfinished(group, marked)
            or _damage(group)
            or _missing_shards(group, listing)
            or _missing_ranks(group)
            or (_tracker_problem(group, listing.trackers) if listing.trackers else None)
            or (f"{mark} is missing, but other checkpoints have it" if mark else None)
            or _lost_files(group, good.get(kind, group))
        )
        if problem is None:
            problem = _shrunk_file(group, whole.get(kind, group))
            whole[kind] = group
        if problem is None and age is not None and age < quiet_seconds:
            problem = f"written {age:.0f} s ago, so it may be unfinished"
        if problem is None:
            good[kind] = group
        is_known = problem is not None or _is_looked_into(group, listing)
        unknown = _TOO_LARGE if group.root in listing.too_large else _NOT_LOOKED_AT
        size = sum(file.size_bytes for file in group.files.values())
        complete = problem is None if is_known else None
        yield Checkpoint(group.root, group.step, size, complete, problem if is_known else unknown, age, modified_at)


def _is_listed(group: _Group, listing: Listing) -> bool:
    """Whether all files of a checkpoint are in the listing."""
    inside = f"{group.root}/"
    paths = {group.root if file.path.startswith(inside) else file.path for file in group.files.values()}
    return all(map(listing.is_listed, paths))


def _is_looked_into(group: _Group, listing: Listing) -> bool:
    files = (file for file in group.files.values() if file.size_bytes and file.path.endswith(LOOKED_INTO))
    return all(listing.is_looked_into(file.path) for file in files)


def _unlisted(paths: Iterable[str], why: str, roots: set[str]) -> Iterator[Checkpoint]:
    """Yield the checkpoints at paths without any file in the listing."""
    found = {place[0]: place[2] for path in paths if (place := _checkpoint_at(path)) and place[0] not in roots}
    return (Checkpoint(root, step, None, None, why) for root, step in found.items())


def _checkpoint_at(path: str) -> tuple[str, str, int] | None:
    """Return the place of a file, or of a folder without listed files."""
    return _place(path, {}) or _place(f"{path}/-", {})


def _numbered(files: Iterable[CheckpointFile], steps: Mapping[str, int]) -> list[_Group]:
    finals = _find_finals(files, steps)
    runs = _find_runs(files, steps)
    groups = dict[str, _Group]()
    for file in files:
        if file.path not in finals and (place := _place(file.path, steps, runs)):
            root, name, step = place
            groups.setdefault(root, _Group(root, step)).files[name] = file
    for path, (file, siblings) in finals.items():
        numbered = [groups[each] for each in siblings if each in groups]
        newest = max((each.modified_at for group in numbered for each in group.files.values()), default=0.0)
        if path in steps or file.modified_at >= newest:  # an older one without a header is a leftover
            step = steps.get(path) or max((group.step for group in numbered), default=0)
            groups[path] = _Group(path, step, {"": file}, is_final=True)
    _count_epochs(groups)
    ordered = sorted(groups.values(), key=lambda group: group.order)
    single = [group for group in ordered if "" in group.files]
    companions = [group for group in single if _COMPANION.fullmatch(group.root, group.root.rfind("/") + 1)]
    theirs = {group.root for group in companions}
    models = {(each.folder, each.step): each for each in single if theirs and each.root not in theirs}
    beside = set[str]()
    for group in companions:
        if model := models.get((group.folder, group.step)):
            model.files[group.root.rpartition("/")[2]] = groups.pop(group.root).files[""]
            beside.add(_kind(group.root))
    for group in groups.values() if beside else ():
        group.lacks_model = _kind(group.root) in beside
    return [group for group in ordered if group.root in groups]


def _without_lone_numbers(groups: Sequence[_Group], listing: Listing) -> list[_Group]:
    """Leave out the only file of its name whose number is a part of the name of a pretrained model."""
    lone = {each.root for each in groups if _LONE_NUMBER.fullmatch(each.root)}
    kinds = Counter(_kind(file.path) for file in listing.files if lone)
    return [each for each in groups if each.root not in lone or kinds[_kind(each.root)] > 1]


def _count_epochs(groups: Mapping[str, _Group]) -> None:
    """Use the epochs as steps if the steps in the names begin again with each epoch."""
    named = ((each, _EPOCH_AND_STEP.search(each.root)) for each in groups.values())
    series = sorted((each.folder, int(found[1]), each.step, each.root) for each, found in named if found)
    again = {a[0] for a, b in zip(series, series[1:]) if a[0] == b[0] and a[1] < b[1] and a[2] > b[2]}
    for folder, epoch, _, root in series:
        groups[root].step = epoch if folder in again else groups[root].step


def _short_numbered(files: Iterable[CheckpointFile]) -> list[_Group]:
    """Return files such as `NAME-1.pth` and `NAME-2.pth`: a series, where one alone may have a number in its name."""
    series: dict[tuple[str, str], list[_Group]] = defaultdict(list)
    for file in files:
        if (found := _SHORT_NUMBER.fullmatch(file.path)) and not _PART.search(found[1]):
            series[found[1], found[3]].append(_Group(file.path, int(found[2]), {"": file}))
    groups = [group for each in series.values() if len(each) > 1 for group in each]
    return sorted(groups, key=lambda group: group.order)


def _find_finals(
    files: Iterable[CheckpointFile], steps: Mapping[str, int]
) -> dict[str, tuple[CheckpointFile, list[str]]]:
    """Return the final files with their numbered siblings: `NAME.safetensors` beside `NAME_000000250.safetensors`.

    NAME may end in anything. In other formats, a file counts as final only if digits at the end of its name would be
    taken for its step.
    """
    siblings: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.path.endswith(WEIGHTS) and (name := _NUMBER_AT_END.sub("", file.path)) != file.path:
            siblings[name].append(file.path)
    return {
        file.path: (file, siblings[file.path])
        for file in files
        if file.path in siblings and (file.path.endswith(".safetensors") or _place(file.path, steps))
    }


def _find_runs(files: Iterable[CheckpointFile], steps: Mapping[str, int]) -> set[str]:
    """Return the folders with a number that hold a run: only checkpoints, or one that is overwritten in place."""
    above, own, overwritten = set[str](), set[str](), set[str]()
    for path in (file.path for file in files):
        if folders := _numbered_folders(path, steps):
            own |= {folders[-1][0]} if path.endswith(WEIGHTS) or path.rpartition("/")[2] in MARKS else set()
            above |= {folder for folder, step in folders if step != folders[-1][1]}
            overwritten |= {folder for folder, _ in folders if _LAST.fullmatch(path)}
    return above - own | overwritten


def _numbered_folders(path: str, steps: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the folders of a file that have a step; those whose name is only a number may be dates above them."""
    parts = path.split("/")
    above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    numbered = [(path, step) for path in above if (step := _folder_step(path, steps)) is not None]
    return [each for each in numbered if not each[0].rpartition("/")[2].isdigit()] or numbered[:1]


def _place(path: str, steps: Mapping[str, int], runs: Container[str] = ()) -> tuple[str, str, int] | None:
    """Return the checkpoint (the topmost folder with a number, or a file), the file's name in it, and the step."""
    for folder, number in _numbered_folders(path, steps):
        if folder not in runs:
            return folder, path[len(folder) + 1 :], number
    if found := _TENSORFLOW.fullmatch(path):
        return found[1], found[3], int(found[2])
    name = re.sub(rf"(?:\.(?:{PARTIAL})){{1,3}}$", "", path.rpartition("/")[2])
    is_plain = not name.endswith(WEIGHTS) or name.endswith((".pkl", ".h5", ".hdf5"))  # its last digits may be anything
    step = (step_of if is_plain else file_step)(EXTENSION.sub("", name))
    is_named = name.endswith(WEIGHTS) or "." not in name and not name.isdigit()
    if step is None or not is_named or any(each.match(name) for each in (_SHARD, _RESULTS, _TIME)):
        return None
    return *_first_rank(path), steps.get(path, step)


def _first_rank(path: str) -> tuple[str, str]:
    """Return the path of rank 0's file, and the name in the checkpoint of another file."""
    found = _RANKED_FILE.search(path)
    if not found:
        return path, ""
    first = "00" if found[1].endswith("mp_rank_") else "0"
    return f"{path[: found.start(2)]}{first}{path[found.end(2) :]}", f"rank{int(found[2])}.pt" if int(found[2]) else ""


def _folder_step(path: str, steps: Mapping[str, int]) -> int | None:
    if path.endswith("-state"):  # kohya: the step is in the file, and a number in the name may be the epoch
        return steps.get(f"{path}/train_state.json", file_step(path.rpartition("/")[2].removesuffix("-state")))
    found = find_layout(_finished_name(path))
    return found[1] if found and found[0].of == "." else None


def _finished_name(path: str) -> str:
    """Return the name that a folder has once it is complete."""
    name = path.rpartition("/")[2]
    return UNFINISHED_FOLDER.sub("", name) or name


def _in_place(files: Iterable[CheckpointFile], listing: Listing) -> list[_Group]:
    """Return checkpoints without a number: named as the last one or in a tracker file, or with a step in the header."""
    named = {path[: path.rfind("/") + 1] + content for path, content in listing.trackers.items()}
    groups: dict[str, _Group] = {}
    for file in files:
        parts = file.path.split("/")
        root, name = _first_rank(file.path)
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        if whole := [path for path in above if path in named or _is_in_place(path, ".ckpt")]:
            root, name = whole[0], file.path[len(whole[0]) + 1 :]
        elif not _is_in_place(file.path, WEIGHTS):
            if not file.path.endswith(".safetensors") or not listing.steps.get(file.path):
                continue
        groups.setdefault(root, _Group(root, listing.steps.get(root, 0))).files[name] = file
    return sorted(groups.values(), key=lambda group: group.order)


def _is_in_place(path: str, extensions: str | tuple[str, ...]) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(extensions) and bool(_IN_PLACE.fullmatch(EXTENSION.sub("", name)) or _TIME.fullmatch(name))


def _kind(name: str) -> str:
    return _DIGITS.sub("N", name)


def _unfinished(group: _Group, marked: set[str]) -> str | None:
    """Return how a temporary name, or the marker file of NeMo beside it, shows that a checkpoint is unfinished."""
    for name in dict.fromkeys((group.root, *(file.path for file in group.files.values()))):
        if _UNFINISHED.search(name.rsplit("/", 1)[-1]) or _UNFINISHED_INSIDE.search(name[len(group.folder) :]):
            return f"unfinished: {name}"
    stem = re.sub(r"\.(ckpt|nemo)$", "", group.root)
    return f"unfinished: the file {stem}-unfinished exists" if stem in marked else None


def _damage(group: _Group) -> str | None:
    files = group.files.values()
    for file in files:
        if file.problem:
            return f"{file.path}: {file.problem}"
        if file.size_bytes == 0 and file.path.endswith((*WEIGHTS, ".index.json")):
            return f"{file.path}: empty file"
    if not any(file.size_bytes for file in files):
        return "only empty files"
    for layout in LAYOUTS:
        if layout.last and _lacks_last(group, layout):
            return f"unfinished: {layout.last}, which {layout.made_by} writes last, is missing"
    if group.lacks_model or all(map(_WITHOUT_WEIGHTS.search, group.files)):
        return "it contains no weights"
    for part in (".index", ".data-") if any(_TENSORFLOW.fullmatch(file.path) for file in files) else ():
        if not any(name.startswith(part) for name in group.files):
            return f"{group.root}{part}{'*' * part.endswith('-')} is missing"
    return None


def _lacks_last(group: _Group, layout: Layout) -> bool:
    """Whether a checkpoint is of a layout, and a folder of it is without the file that is written last."""
    if layout.beside:
        signs = [file.path for name, file in group.files.items() if layout.beside.fullmatch(name or file.path)]
        folders = {path.rpartition("/")[0] for path in signs}
    else:
        found = None if "" in group.files else find_layout(_finished_name(group.root))
        folders = {group.root} if found and found[0] is layout else set()
    there = {file.path for file in group.files.values() if file.size_bytes}
    return any(f"{folder}/{layout.last}".lstrip("/") not in there for folder in folders)


def _missing_shards(group: _Group, listing: Listing) -> str | None:
    sizes = {file.path: file.size_bytes for file in group.files.values()}
    for path in sizes:
        folder = path.rpartition("/")[0]
        shards = sorted(listing.shards.get(path, ()))
        if path.endswith(".metadata") and _are_elsewhere(shards, [each for each in sizes if f"{folder}/__" in each]):
            continue
        for shard in shards:
            if f"{folder}/{shard}" not in sizes:
                return f"{shard} is missing, but {path} lists it"
        total, there = listing.totals.get(path, 0), sum(sizes[f"{folder}/{shard}"] for shard in shards)
        if shards and there < total:
            return f"the shards have {there} bytes, but {path} says {total}"
    numbered = {(found[1], found[3], found[4]) for found in map(_SHARD.match, sizes) if found}
    for stem, count, extension in sorted(numbered):
        for number in range(bool(extension), int(count) + bool(extension)):  # TensorFlow counts from 0
            if (shard := f"{stem}-{number:05d}-of-{count}{extension}") not in sizes:
                return f"{shard} is missing"
    return None


def _are_elsewhere(missing: Iterable[str], there: Iterable[str]) -> bool:
    """Whether the files of all missing ranks may be on the disks of other nodes, each with an equal share."""
    gone, here = (
        {int(n) for each in paths for n in re.findall(r"__(\d+)_\d+\.distcp$", each)} for paths in (missing, there)
    )
    return bool(gone and here) and max(here) < min(gone) and len(gone) % len(here) == 0


def _missing_ranks(group: _Group) -> str | None:
    """Check that ranks count from 0 without a gap, alike for model and optimizer, and that DeepSpeed's parts match."""
    families: dict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
    labels: dict[str, list[str]] = {}
    counts: dict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
    for file in group.files.values():
        name = file.path[len(group.folder) :].lstrip("/")
        found = [(f"{each[1]}{at}", int(n)) for each in _RANK.finditer(name) for at, n in enumerate(each[2].split("_"))]
        if found:
            family = _RANK.sub(r"\1*", name)
            labels[family] = [label for label, _ in found]
            families[family][tuple(number for _, number in found)] = file.size_bytes
    for family, sizes in sorted(families.items()):
        if not any(map(_SURE_RANK.match, labels[family])) and not any(0 in numbers for numbers in sizes):
            continue
        lengths = [max(numbers) + 1 for numbers in zip(*sizes)]
        if (world := re.match(r"world_size_(\d+)", labels[family][0])) and int(world[1]) % len(sizes):
            lengths = [int(world[1])]  # the disk of one node of several may have an equal share of them
        if len(sizes) < prod(lengths):
            return f"{len(sizes)} of {prod(lengths)} files {family} exist"
        small, large = min(sizes.values()), max(sizes.values())
        if re.search("zero_pp_rank.*optim", family) and large >= LARGE and small < 0.9 * large:
            return f"the sizes of {family} differ: {small} and {large} bytes"
        for label, length in zip(labels[family], lengths):
            if re.search("model|optim", family):
                counts[family.rpartition("/")[0], label].add((length, family))
    for few, many in ((min(each), max(each)) for each in counts.values()):
        if few[0] < many[0]:
            return f"{few[0]} ranks of {few[1]}, but {many[0]} of {many[1]}"
    return None


def _tracker_problem(group: _Group, trackers: Mapping[str, str]) -> str | None:
    """Check against trackers, which are written last: newer is unfinished. DeepSpeed's may be in a checkpoint."""
    own = group.root.rpartition("/")[2]
    for name in ("latest_checkpointed_iteration.txt", "latest.txt")[: 2 if own.isdigit() else 1]:
        content = trackers.get(f"{group.folder}/{name}".lstrip("/"), "")
        if re.fullmatch(r"[0-9]{1,18}", content) and group.step > int(content):
            return f"newer than the step in {name}: {content}"
    tag = trackers.get(f"{group.folder}/latest".lstrip("/"), "")
    said = step_of(tag)
    numbers = [[*map(int, _DIGITS.findall(each))] for each in (own, tag)]
    if said is not None and _kind(tag) == _kind(own) and numbers[0] > numbers[1]:
        return f"newer than the one named in the file `latest`: {tag}"
    paths = [file.path for file in group.files.values()]
    for path, tag in trackers.items():
        if tag and path.endswith("/latest") and path.startswith(f"{group.root}/"):
            if not any(other.startswith(f"{path.removesuffix('latest')}{tag}/") for other in paths):
                return f"{path} names {tag}, which does not exist"
    return None


def _without_step(name: str, step: int) -> str:
    """Return a file's name without what may be the step, so that it is equal in every checkpoint."""
    text = _STEP_INSIDE.sub("step", name)
    return re.sub(r"\d+", lambda found: "N" if found[0].lstrip("0") == str(step or "") else found[0], text)


def _lost_files(group: _Group, before: _Group) -> str | None:
    """Return which file of the previous checkpoint is missing, unless others of its size replace it."""
    if group.files.keys() == before.files.keys():
        return None
    there, had = ({_without_step(name, each.step): name for name in each.files} for each in (group, before))
    new = [there[each] for each in there.keys() - had if each.endswith(WEIGHTS) and not _COMPANION.fullmatch(each)]
    added = sum(group.files[name].size_bytes for name in new)
    lost = sorted(had[each] for each in had.keys() - there)
    kept, gone = _weighs_the_same(group, before), [name for name in lost if name.endswith(WEIGHTS)]
    if added and abs(added - sum(before.files[name].size_bytes for name in gone)) <= 0.1 * added:
        gone = []  # another format, or other names
    if any(map(_SHARD.match, group.files)):
        gone += [name for name in lost if name.endswith(".index.json")]
    for name in gone:
        if not kept or not (_RANK.search(name) or _SHARD.match(name) or name.endswith(".distcp")):
            return f"{name} is missing, but the previous checkpoint has it"
    return None


def _shrunk_file(group: _Group, before: _Group) -> str | None:
    if _weighs_the_same(group, before):
        return None
    sizes = {_without_step(name, before.step): file.size_bytes for name, file in before.files.items()}
    for name, file in group.files.items():
        had = sizes.get(_without_step(name, group.step), 0)
        if had >= LARGE and file.size_bytes < 0.9 * had and _SAME_SIZES.search(name) and file.path.endswith(WEIGHTS):
            return f"{file.path} has {file.size_bytes} bytes, but {had} in the previous checkpoint"
    return None


def _weighs_the_same(group: _Group, before: _Group) -> bool:
    """Whether the total size did not shrink, as after a change of the number of ranks: other files, as many bytes."""
    new, old = (sum(f.size_bytes for f in each.files.values() if f.path.endswith(WEIGHTS)) for each in (group, before))
    return new >= 0.99 * old


def _named_and_missing(listing: Listing, groups: Iterable[_Group]) -> Iterator[Checkpoint]:
    """Yield what a tracker file or dangling link names and does not exist."""
    there = {(group.folder, group.step) for group in groups}
    roots = tuple(f"{group.root}/" for group in groups)
    has_numbers = any(group.root.rpartition("/")[2].isdigit() for group in groups)
    for path, content in (listing.trackers | listing.dangling).items():
        folder, _, tracker = path.rpartition("/")
        name = content.rstrip("/").rpartition("/")[2]
        if tracker.endswith(".txt"):
            is_step = re.fullmatch(r"[0-9]{1,12}", content) and (tracker != "latest.txt" or has_numbers)
            name, step = tracker, int(content) if is_step else None
        else:
            read = file_step if name.endswith(WEIGHTS) else step_of
            step = None if content.isdigit() else read(EXTENSION.sub("", name))
        is_there = (folder, step) in there or f"{folder}/{name}/".lstrip("/") in roots or path.startswith(roots)
        if step is not None and not is_there:
            problem = f"{tracker} names {content}, which does not exist"
            yield Checkpoint(f"{folder}/{name}".lstrip("/"), step, 0, False, problem)
