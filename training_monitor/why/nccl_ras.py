"""What NCCL's RAS service says of the communicators of a job (`ncclras -f json`, NCCL 2.28.7 and later). Pure.

NCCL's user guide describes the document (troubleshooting/ras), src/ras/client_support.cc writes it. Collectives are
counted as they are launched, by kind, and outpace the query: counts that differ mean something only if they stand
still, so that two looks are compared, and each kind is a group of its own. A rank is one of its communicator: it is the
rank of the training only in a communicator that has all processes of the job.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from training_monitor.core.records import table_in, tables_in
from training_monitor.core.units import name_some, plural
from training_monitor.why.ranks import Collective, Finding, Surroundings, finding, in_brief

_SEPARATOR = "\n--\n"
_MOST_COMMUNICATORS, _MOST_RANKS, _MOST_KINDS, _MOST_NAMED, _MOST_NAME = 200, 20_000, 20, 8, 60
_SUCCESS, _IN_PROGRESS = 0, 7  # ncclResult_t
_ERRORS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process error",
}


@dataclass(frozen=True, slots=True)
class _Member:
    """A rank of a communicator, and whether it could be reached: `reached` False, or `is_dead`."""

    rank: int
    host: str
    pid: int
    gpu: int
    result: int = _SUCCESS
    is_starting: bool = False
    reached: bool = True
    is_dead: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def process(self) -> tuple[str, int]:
        return self.host, self.pid

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (GPU {self.gpu})"


class _Communicator(NamedTuple):
    name: str
    size: int
    members: tuple[_Member, ...]

    def ranks(self, members: list[_Member]) -> str:
        some = name_some([str(each.rank) for each in members], _MOST_NAMED)
        return f"{'rank' if len(members) == 1 else 'ranks'} {some}"


def parse_ras(text: str) -> Surroundings:
    """Parse one or two answers of `ncclras -f json` with `--` between them; any other text says nothing."""
    first, _, second = text.partition(_SEPARATOR)
    before, after = _read(first), _read(second)
    latest = after or before
    processes = {each.process for one in latest.values() for each in one.members}
    is_one_host = len({host for host, _ in processes}) == 1
    found: dict[str, Finding] = {}
    collectives: list[Collective] = []
    # a process that does not answer is missing in all its communicators: the largest one comes first
    for key, one in sorted(latest.items(), key=lambda item: -item[1].size):
        is_whole = one.size == len(one.members) == len(processes)
        for said, members in _troubles(one, before.get(key) if after else None):
            found.setdefault(
                said,
                finding(
                    "nccl_ras",
                    f"NCCL's RAS: {said}",
                    ranks=tuple(each.rank for each in members) if is_whole else (),
                    pids=tuple(each.pid for each in members) if is_one_host else (),
                ),
            )
        if is_whole and after:
            collectives += [
                Collective(each.rank, f"{one.name} {kind}", kind, each.counts[kind], "launched")
                for kind in _standing_apart(one, before.get(key))
                for each in one.members
                if kind in each.counts
            ]
    return Surroundings(tuple(found.values()), tuple(collectives))


def _troubles(one: _Communicator, before: _Communicator | None) -> Iterator[tuple[str, list[_Member]]]:
    """Yield what is wrong in a communicator, in words, with the ranks that it is about."""
    for each in one.members:
        if each.is_dead:
            yield f"{each} is considered dead, because it cannot be reached", [each]
        elif not each.reached:
            yield f"{each} does not respond", [each]
        elif each.result not in (_SUCCESS, _IN_PROGRESS):
            yield f"{each} has an error ({_ERRORS.get(each.result, f'ncclResult {each.result}')})", [each]
    starting = [each for each in one.members if each.is_starting]
    if before and starting and any(each.is_starting for each in before.members):
        what = f"communicator {one.name} is not initialized in {len(starting)} of its {plural(one.size, 'rank')}"
        yield f"{what}: {one.ranks(starting)}", starting
    for kind in _standing_apart(one, before):
        counted = Counter(each.counts[kind] for each in one.members if kind in each.counts)
        least = [each for each in one.members if each.counts.get(kind) == min(counted)]
        what = f"in communicator {one.name} of {plural(one.size, 'rank')}, {kind} was launched {max(counted)} times"
        ahead = f"{what} by the most advanced ranks"
        yield f"{ahead}, but only {min(counted)} times by {one.ranks(least)}, and the counts do not change", least


def _standing_apart(one: _Communicator, before: _Communicator | None) -> list[str]:
    """Return the kinds of collectives that ranks have launched unequally often, and no rank once more since."""
    if before is None:
        return []
    then, now = ({each.rank: each.counts for each in seen.members if each.counts} for seen in (before, one))
    kinds = dict.fromkeys(kind for counts in now.values() for kind in counts)
    return [
        kind
        for kind in kinds
        if len({counts.get(kind) for counts in now.values()} - {None}) > 1
        and all(then.get(rank, {}).get(kind) == counts.get(kind) for rank, counts in now.items())
    ]


def _read(text: str) -> dict[str, _Communicator]:
    """Return the communicators of a document by both of their hashes."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    listed = document.get("communicators") if isinstance(document, dict) else None
    found: dict[str, _Communicator] = {}
    left = _MOST_RANKS
    for each in tables_in(listed)[:_MOST_COMMUNICATORS]:
        there, missing = (tables_in(each.get(key))[:left] for key in ("ranks", "missing_ranks"))
        members = (*map(_member, there), *map(_missing, missing))
        left = max(0, left - len(members))
        name = _word(each.get("hash"))
        found[f"{name} {_word(each.get('secondary_hash'))}"] = _Communicator(name, _whole(each.get("size")), members)
    return found


def _member(entry: Mapping[str, Any]) -> _Member:
    status, counts = table_in(entry, "status"), table_in(entry, "collective_counts")
    states = [_whole(status.get(key, _SUCCESS)) for key in ("init_state", "async_error")]
    return _Member(
        *_place(entry),
        result=next((state for state in states if state not in (_SUCCESS, _IN_PROGRESS)), _SUCCESS),
        is_starting=states[0] == _IN_PROGRESS,
        counts={_word(kind): _whole(count) for kind, count in list(counts.items())[:_MOST_KINDS]},
    )


def _missing(entry: Mapping[str, Any]) -> _Member:
    """Return a rank without data; one that can be reached may not have begun with the communicator, or have left it."""
    status = table_in(entry, "status")
    reached, is_dead = status.get("unresponsive") is not True, status.get("considered_dead") is True
    return _Member(*_place(entry), reached=reached, is_dead=is_dead)


def _place(entry: Mapping[str, Any]) -> tuple[int, str, int, int]:
    return _whole(entry.get("rank")), _word(entry.get("host")), _whole(entry.get("pid")), _whole(entry.get("cuda_dev"))


def _whole(value: Any) -> int:
    """Return a number of NCCL's, -1 for anything else: that is how it says that it does not know a process."""
    return value if type(value) is int and 0 <= value < 1 << 63 else -1


def _word(value: Any) -> str:
    return in_brief(value, _MOST_NAME) if isinstance(value, str) else "?"
