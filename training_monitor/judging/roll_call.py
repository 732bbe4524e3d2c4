"""Explain a hang by a roll call: which ranks wait for the others, which are elsewhere, which are missing. Pure.

In a distributed training that hangs, almost all ranks wait in the same collective: the frame of the majority says where
that is, and the rank that is not there is where the cause is. A group of ranks that is known to wait for others (a
collective, by name) is never at fault, however small; without such names the majority decides, and without a majority
the kernel: a rank that waits for a socket waits for somebody, one that waits for a pipe, a timer or a disk does not.
Where nothing tells the ranks apart, the answer is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from training_monitor.core.frozen import replace
from training_monitor.judging.places import (
    COMPUTES,
    ENDED,
    STOPPED,
    collective_of,
    does,
    format_line,
    gpu_place,
    has_name_of_collective,
    is_busy,
    kernel_place,
    own_frames,
    place_of,
    same,
    waits_for_others,
    where_is,
)
from training_monitor.judging.ranks import Collective, Culprit, Explanation, Finding, Rank, RankGroup, RollCall
from training_monitor.judging.roll_call_words import write_paragraph

MOST_WORLD = 100_000
MOST_MISSING = 256  # that are culprits; `Explanation.missing` has all
_LEVELS = ("none", "low", "medium", "high")


def explain_roll_call(seen: RollCall, *, is_moving: bool | None = None) -> Explanation:
    """Explain why a training hangs.

    Args:
        seen: the roll call.
        is_moving: whether the training makes steps at its usual pace; None if unknown. Then nobody is at fault.
    """
    alive = tuple(each for each in seen.ranks if each.state not in ENDED)
    missing, unseen = find_missing(seen, alive)
    groups = group_ranks(alive)
    waiting = _choose_waiting(groups, len(alive) + len(missing))
    groups = tuple(replace(each, is_majority=each is waiting) for each in groups)
    if alive and not is_moving:
        culprits, confidence = _find_culprits(seen, alive, groups, missing)
    else:
        culprits, confidence = (), "medium" if is_moving else "none"
    found = Explanation("", confidence, culprits, groups, missing, unseen)
    return replace(found, text=write_paragraph(seen, alive, found, is_moving=is_moving))


# ---------------------------------------------------------------- who is missing


def find_missing(seen: RollCall, alive: Sequence[Rank]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks that are nowhere, and those that may be elsewhere.

    That is on hosts which were not asked or did not answer, or among the processes whose number is unknown.
    """
    world = max((each.world_size or 0 for each in seen.ranks), default=0)
    there = {each.rank for each in alive if each.rank is not None}
    if not there or not 0 < world <= MOST_WORLD:
        return (), ()
    lacking = [rank for rank in range(world) if rank not in there]
    if len(there) < sum(each.rank is None for each in alive) + len(there):
        return (), tuple(lacking)
    if seen.is_whole or any(each.local_world_size == world for each in alive):
        return tuple(lacking), ()
    here = _numbers_of_hosts(alive, world)
    return tuple(rank for rank in lacking if here[rank]), tuple(rank for rank in lacking if not here[rank])


def _numbers_of_hosts(alive: Sequence[Rank], world: int) -> bytearray:
    """Return whether each rank belongs to a host that was seen: launchers number the ranks of a host one by one."""
    here = bytearray(world)
    for each in alive:
        if each.rank is not None and each.local_rank is not None and each.local_world_size:
            first = each.rank - each.local_rank
            count = len(here[max(0, first) : max(0, min(world, first + each.local_world_size))])
            here[max(0, first) : max(0, first) + count] = b"\1" * count
    return here


def _absent(missing: Sequence[int]) -> tuple[Culprit, ...]:
    why = "is missing: its process has ended, or was never started"
    return tuple(Culprit(rank, why) for rank in missing[:MOST_MISSING])


def _ended(seen: RollCall, alive: Sequence[Rank]) -> tuple[Culprit, ...]:
    """Return the zombies among ranks without numbers: they may have been ranks, or data workers."""
    if len(alive) < 2 or any(each.rank is not None for each in alive):
        return ()
    return tuple(Culprit(None, "has ended (a zombie)", each) for each in seen.ranks if each.state in ENDED)


# ---------------------------------------------------------------- who waits


def group_ranks(alive: Sequence[Rank]) -> tuple[RankGroup, ...]:
    """Group the ranks of which the stack is known by their place, the largest group first."""
    places: dict[object, list[Rank]] = {}
    for each in alive:
        if each.main_stack:
            places.setdefault(place_of(each), []).append(each)
    groups = [
        RankGroup(tuple(found), where_is(found[0]) or "?", _agreed([waits_for_others(each) for each in found]))
        for found in places.values()
    ]
    return tuple(sorted(groups, key=lambda each: -len(each.ranks)))


def _agreed(answers: Sequence[bool | None]) -> bool | None:
    """Return what most say; True if anybody does: a collective is known by its name."""
    if True in answers:
        return True
    return False if answers.count(False) * 2 > len(answers) else None


def _choose_waiting(groups: Sequence[RankGroup], total: int) -> RankGroup | None:
    """Return the group that waits for the others; None if that is open."""
    if total < 2 or not groups:
        return None
    if known := [each for each in groups if each.waits]:
        return known[0]
    if _is_majority(groups[0], groups) and len(groups[0].ranks) > 1:
        return groups[0]
    open_ones = [each for each in groups if each.waits is None]
    return open_ones[0] if open_ones and len(open_ones) < len(groups) else None


def _is_majority(group: RankGroup, groups: Sequence[RankGroup]) -> bool:
    return 2 * len(group.ranks) > sum(len(each.ranks) for each in groups)


# ---------------------------------------------------------------- who is elsewhere


def _find_culprits(
    seen: RollCall, alive: Sequence[Rank], groups: Sequence[RankGroup], missing: Sequence[int]
) -> tuple[tuple[Culprit, ...], str]:
    """Return the ranks that the others wait for, and how sure that is."""
    odd, confidence = _find_odd(groups, alive, seen)
    if missing and _LEVELS.index(confidence) < 2:  # whoever is missing explains the little that the others differ in
        odd, confidence = (), "high" if len(missing) <= len(alive) else "medium"
    if seen.silent and confidence == "high":
        confidence = "medium"
    culprits = (*_absent(missing), *(odd or _ended(seen, alive)))
    return culprits, ("low" if confidence == "none" else confidence) if culprits else "none"


def _find_odd(groups: Sequence[RankGroup], alive: Sequence[Rank], seen: RollCall) -> tuple[tuple[Culprit, ...], str]:
    """Return the ranks that the others wait for: by collectives, signals, stacks, hardware, the kernel and the GPUs."""
    if behind := find_behind(seen.collectives):
        by_number = {each.rank: each for each in alive}
        return tuple(_behind(rank, record, by_number.get(rank)) for rank, record in behind.items()), "high"
    stopped = [each for each in alive if each.state in STOPPED]
    if stopped:
        return (tuple(map(_culprit, stopped)), "high") if len(stopped) < len(alive) else ((), "none")
    waiting = next((each for each in groups if each.is_majority), None)
    if waiting and (apart := _apart(waiting, groups)):
        return tuple(map(_culprit, apart)), _confidence(apart, waiting, groups)
    if faulty := _with_fault(seen.findings, alive):
        return faulty, "medium"
    blind = [each for each in alive if not each.main_stack]
    if waiting:
        odd = _differ(kernel_place, blind, waiting.ranks, least=1 if waiting.waits else 3)
    else:
        odd = _differ(kernel_place, alive, alive) if not groups else []
    if odd:
        return tuple(map(_culprit, odd)), "low"
    by_gpu = [Culprit(each.rank, _GPU_WORDS[gpu_place(each) or ""], each) for each in _differ(gpu_place, alive, alive)]
    return tuple(by_gpu), "low" if by_gpu else "none"


def _apart(waiting: RankGroup, groups: Sequence[RankGroup]) -> list[Rank]:
    """Return those of other groups that the waiting one may wait for, by their stacks."""
    others = [each for each in groups if each is not waiting]
    if not _is_majority(waiting, groups):
        others = [each for each in others if (not each.waits if waiting.waits else each.waits is False)]
    odd = [each for group in others for each in group.ranks]
    return _furthest([each for each in odd if not collective_of(each.main_stack)] or odd, waiting)


def _confidence(odd: Sequence[Rank], waiting: RankGroup, groups: Sequence[RankGroup]) -> str:
    if all(collective_of(each.main_stack) for each in odd):
        return "low"
    if waiting.waits:
        return "high"
    first = waiting.ranks[0]
    if waiting.waits is False and not is_busy(first) and any(waits_for_others(each) is None for each in odd):
        return "low"
    differ = all(kernel_place(each) != kernel_place(first) for each in odd)
    return "high" if _is_majority(waiting, groups) and differ and waiting.waits is None else "medium"


def _furthest(odd: Sequence[Rank], waiting: RankGroup) -> list[Rank]:
    """Return those that left the way of the waiting ranks first; the others are in the same call.

    A barrier of one's own may have different lines for those who wait and for the one who counts them: a rank that
    waits within a function of such a name, in which the others wait too, is not known to be late.
    """
    own = own_frames(waiting.ranks[0].main_stack)
    path = [same(each) for each in reversed(own)]
    meeting = {same(each)[:2] for each in own if has_name_of_collective(each)}
    apart = [each for each in odd if waits_for_others(each) is False or not meeting & _functions(each)]
    depths = [_depth(each, path) for each in apart]
    return [each for each, depth in zip(apart, depths) if depth == min(depths)]


def _functions(rank: Rank) -> set[tuple[str, str]]:
    return {same(each)[:2] for each in own_frames(rank.main_stack)}


def _depth(rank: Rank, path: Sequence[object]) -> int:
    """Return how far a rank is on the way of the waiting ones: the index of the innermost shared frame; -1: none."""
    own = {same(each) for each in own_frames(rank.main_stack)}
    return max((at for at, each in enumerate(path) if each in own), default=-1)


def _differ(
    place: Callable[[Rank], str | None], ranks: Sequence[Rank], others: Sequence[Rank], least: int = 3
) -> list[Rank]:
    """Return those that are elsewhere than at least two thirds of the others, of which there are at least `least`."""
    known = Counter(found for each in others if (found := place(each)))
    if not known or len(others) < least:
        return []
    usual, count = known.most_common(1)[0]
    if 3 * count < 2 * len(others):
        return []
    return [each for each in ranks if (found := place(each)) and found != usual]


def _with_fault(findings: Sequence[Finding], alive: Sequence[Rank]) -> tuple[Culprit, ...]:
    """Return the ranks, if not all, that a fault of the hardware names by their number or process."""
    faults = [each for each in findings if each.is_hardware]
    numbers = {rank for each in faults for rank in each.ranks}
    pids = {(each.host, pid) for each in faults for pid in each.pids}
    named = [each for each in alive if each.rank in numbers or (each.host, each.pid) in pids]
    if len(named) == len(alive):
        return ()
    return tuple(Culprit(each.rank, "has a fault of its hardware", each, where_is(each)) for each in named)


def find_behind(collectives: Sequence[Collective]) -> dict[int, Collective]:
    """Return, by rank, the newest collective of those that have begun fewer than most ranks of their group."""
    groups: dict[str, dict[int, Collective]] = {}
    for each in collectives:
        newest = groups.setdefault(each.group, {})
        if each.rank not in newest or newest[each.rank].sequence < each.sequence:
            newest[each.rank] = each
    behind: dict[int, Collective] = {}
    for newest in groups.values():
        front = max(each.sequence for each in newest.values())
        late = {rank: each for rank, each in newest.items() if each.sequence < front}
        if len(newest) > 1 and 2 * len(late) < len(newest) + (len(newest) == 2):
            behind |= late
    return behind


# ---------------------------------------------------------------- what is said of them

_GPU_WORDS = {
    "idle": "leaves its GPU idle, unlike the others",
    "spinning": "has its GPU wait, unlike the others",
    "busy": "keeps its GPU busy, unlike the others",
}


def _behind(rank: int, record: Collective, seen: Rank | None) -> Culprit:
    at = f", called at {format_line(record.called_at)}" if record.called_at else ""
    why = f"has only come to collective {record.sequence} ({record.name}{at})"
    where = where_is(seen) if seen else None
    return Culprit(rank, f"{why} and is in {where}" if where else why, seen, where)


def _culprit(rank: Rank) -> Culprit:
    where, what = where_is(rank), does(rank)
    if what == COMPUTES:
        what += f" ({rank.cpu_cores:.1f} CPUs)"
    if not where:
        return Culprit(rank.rank, what or "differs from the others", rank)
    if rank.state in STOPPED:
        return Culprit(rank.rank, f"{what}, in {where}", rank, where)
    if collective_of(rank.main_stack):
        return Culprit(rank.rank, f"is in another collective ({where})", rank, where)
    return Culprit(rank.rank, f"is in {where}" + (f", which {what}" if what else ""), rank, where)
