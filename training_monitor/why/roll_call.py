"""Explain a hang by a roll call: which ranks wait for the others, which are elsewhere, which are missing. Pure.

In a distributed training that hangs, almost all ranks wait in the same collective: the frame of the majority says where
that is, and the rank that is not there is where the cause is. A group of ranks that is known to wait for others (a
collective, by name) is never at fault, however small; without such names the majority decides, and without a majority
the kernel: a rank that waits for a socket waits for somebody, one that waits for a pipe, a timer or a disk does not.
Where nothing tells the ranks apart, or where they cannot be one training, the answer is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from training_monitor.why.meetings import are_doubtful, find_contradiction
from training_monitor.why.outside import are_awake, find_child, find_outside
from training_monitor.why.places import (
    BUSY,
    COMPUTES,
    ENDED,
    STOPPED,
    does,
    format_line,
    gpu_place,
    has_name_of_collective,
    is_between_processes,
    is_busy,
    kernel_place,
    meeting_of,
    own_frames,
    place_of,
    same,
    wait_details,
    waits_for_others,
    where_is,
)
from training_monitor.why.ranks import Collective, Culprit, Explanation, Finding, Rank, RankGroup, RollCall
from training_monitor.why.roll_call_words import write_paragraph

MOST_WORLD = 100_000
MOST_MISSING = 256  # that are culprits; `Explanation.missing` has all
_LEVELS = ("none", "low", "medium", "high")
_HELD = ("stopped", "debugger")
_CAUSES = (*_HELD, "terminal", "zombie", "ended", "lock", "pipe")


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
    groups = tuple(each._replace(is_majority=each is waiting) for each in groups)
    contradiction = None if is_moving else find_contradiction(alive)
    culprits: tuple[Culprit, ...] = ()
    confidence = "medium" if is_moving else "none"
    if contradiction:
        missing, unseen = (), ()
    elif alive and not is_moving:
        culprits, confidence = _find_culprits(seen, alive, groups, missing)
    if not culprits and not contradiction and not is_moving:
        by_causes = _by_causes(seen, alive, has_all=not (missing or unseen or seen.silent))
        confidence = max(confidence, by_causes, key=_LEVELS.index)
    found = Explanation("", confidence, culprits, groups, missing, unseen)
    text = write_paragraph(seen, alive, found, is_moving=is_moving, contradiction=contradiction)
    return found._replace(text=text)


def _by_causes(seen: RollCall, alive: Sequence[Rank], *, has_all: bool) -> str:
    """Return how sure it is that a process is stuck for what the kernel says of it, where nobody waits for another."""
    causes = [each for each in seen.findings if each.kind in _CAUSES]
    if any(each.kind in ("ended", "zombie") for each in causes):
        return "high"
    named = {(each.host, pid): each.kind for each in causes for pid in each.pids}
    kinds = [named.get((each.host, each.pid)) for each in alive]
    if kinds and all(kind in _HELD for kind in kinds):
        return "high"
    if len(alive) != 1 or not causes:
        return "none"
    return "high" if kinds[0] and has_all else "medium"


# ---------------------------------------------------------------- who is missing


def find_missing(seen: RollCall, alive: Sequence[Rank]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks that are nowhere, and those that may be elsewhere.

    That is on hosts which were not asked or did not answer, or among processes which were not, or without numbers.
    """
    world = max((each.world_size or 0 for each in seen.ranks), default=0)
    there = {each.rank for each in alive if each.rank is not None}
    if not there or not 0 < world <= MOST_WORLD:
        return (), ()
    lacking = [rank for rank in range(world) if rank not in there]
    if any(each.rank is None for each in alive):
        return (), tuple(lacking)
    known = [each for each in alive if each.host not in seen.partial]
    if seen.is_whole or any(each.local_world_size == world for each in known):
        return tuple(lacking), ()
    here = _numbers_of_hosts(known, world)
    return tuple(rank for rank in lacking if here[rank]), tuple(rank for rank in lacking if not here[rank])


def _numbers_of_hosts(known: Sequence[Rank], world: int) -> bytearray:
    """Return whether each rank belongs to the host of these: launchers number the ranks of a host one by one."""
    here = bytearray(world)
    for each in known:
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
    """Group the ranks of which the stack is known by their place, the largest group first.

    Who does something of its own is told from those that wait at the same place.
    """
    places: dict[object, list[Rank]] = {}
    for each in alive:
        if each.main_stack:
            places.setdefault((place_of(each), waits_for_others(each) is False), []).append(each)
    groups = [
        RankGroup(tuple(found), where_is(found[0]) or "?", _agreed([waits_for_others(each) for each in found]))
        for found in places.values()
    ]
    return tuple(sorted(groups, key=lambda each: -len(each.ranks)))


def _agreed(answers: Sequence[bool | None]) -> bool | None:
    """Return what ranks at one place do; True if anybody waits: a collective is known by its name."""
    return True if True in answers else answers[0]


def _choose_waiting(groups: Sequence[RankGroup], total: int) -> RankGroup | None:
    """Return the group that waits for the others; None if that is open."""
    if total < 2 or not groups:
        return None
    has_majority = _is_majority(groups[0], groups) and len(groups[0].ranks) > 1
    if has_majority and groups[0].waits is not False:
        return groups[0]
    if known := [each for each in groups if each.waits]:
        return known[0]
    if has_majority:
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
    odd, confidence = _find_odd(groups, alive, seen, missing)
    if missing and _LEVELS.index(confidence) < 2:  # whoever is missing explains the little that the others differ in
        odd, confidence = (), "high" if len(missing) <= len(alive) else "medium"
    if are_doubtful(alive):
        confidence = min(confidence, "low", key=_LEVELS.index)
    elif seen.silent and confidence == "high":
        confidence = "medium"
    if len(alive) == 1 and not (missing or odd or seen.silent):
        children, confidence = find_child(alive[0])
        odd = tuple(map(_culprit, children))
    culprits = (*_absent(missing), *(odd or _ended(seen, alive)))
    return culprits, ("low" if confidence == "none" else confidence) if culprits else "none"


def _find_odd(
    groups: Sequence[RankGroup], alive: Sequence[Rank], seen: RollCall, missing: Sequence[int]
) -> tuple[tuple[Culprit, ...], str]:
    """Return the ranks that the others wait for: by collectives, signals, stacks, hardware, the kernel and the GPUs."""
    if found := _by_collectives(seen.collectives, alive, missing):
        return found
    stopped = [each for each in alive if each.state in STOPPED]
    if stopped:
        return (tuple(map(_culprit, stopped)), "high") if len(stopped) < len(alive) else ((), "none")
    waiting = next((each for each in groups if each.is_majority), None)
    if waiting and are_awake(waiting.ranks) and all(map(is_between_processes, waiting.ranks)):
        waiting = None
    if waiting and (apart := _apart(waiting, groups)):
        return tuple(map(_culprit, apart)), _confidence(apart, waiting, groups)
    if faulty := _with_fault(seen.findings, alive):
        return faulty, "medium"
    blind = [each for each in alive if not each.main_stack]
    if waiting:
        odd = _differ(kernel_place, blind, waiting.ranks, least=1 if waiting.waits else 3)
    else:
        odd = _differ(kernel_place, alive, alive) or find_outside(alive) if not groups else []
        others = [each for each in alive if each not in odd]
        if are_awake(others) or all(each.waits_outside for each in others):  # they wait for no rank
            odd = []
    if odd:
        return tuple(map(_culprit, odd)), "low"
    by_gpu = [Culprit(each.rank, _GPU_WORDS[gpu_place(each) or ""], each) for each in _differ(gpu_place, alive, alive)]
    return tuple(by_gpu), "low" if by_gpu else "none"


def _by_collectives(
    collectives: Sequence[Collective], alive: Sequence[Rank], missing: Sequence[int]
) -> tuple[tuple[Culprit, ...], str] | None:
    """Return the ranks that are late, or in the wrong collective, by what was recorded of collectives."""
    by_number = {each.rank: each for each in alive if each.rank is not None}
    behind = {rank: each for rank, each in find_behind(collectives).items() if rank not in missing}
    if behind:
        is_sure = all(
            each.state != "launched" or (rank in by_number and waits_for_others(by_number[rank]) is False)
            for rank, each in behind.items()
        )
        late = tuple(_behind(rank, each, by_number.get(rank)) for rank, each in behind.items())
        return late, "high" if is_sure else "low"
    odd = find_mismatched(collectives)
    wrong = tuple(_mismatched(each, name, by_number.get(rank)) for rank, (each, name) in odd.items())
    return (wrong, "high") if wrong else None


def _apart(waiting: RankGroup, groups: Sequence[RankGroup]) -> list[Rank]:
    """Return those of other groups that the waiting one may wait for, by their stacks."""
    others = [each for each in groups if each is not waiting]
    if not _is_majority(waiting, groups):
        others = [each for each in others if each.waits is False or (waiting.waits and _may_be_late(each, waiting))]
    sure = [each for each in others if each.waits is False]
    maybe = [each for each in others if each.waits is None and not (sure and is_busy(each.ranks[0]))]
    return _furthest([each for group in sure + maybe or others for each in group.ranks], waiting)


def _may_be_late(group: RankGroup, waiting: RankGroup) -> bool:
    """Return whether a group of which it is open what it waits for may be late; not if it may spin for its GPUs."""
    return group.waits is None and len(group.ranks) <= len(waiting.ranks) and not is_busy(group.ranks[0])


def _confidence(odd: Sequence[Rank], waiting: RankGroup, groups: Sequence[RankGroup]) -> str:
    if all(meeting_of(each) for each in odd):
        return "low"
    open_ones = [each for each in odd if waits_for_others(each) is None]
    if all(map(is_between_processes, waiting.ranks)):  # any process may be the one that they wait for
        return "medium" if waiting.waits and not open_ones else "low"
    if open_ones and not _is_majority(waiting, groups):
        return "low"
    if waiting.waits:
        return "medium" if any(map(is_busy, open_ones)) else "high"
    first = waiting.ranks[0]
    differ = all(kernel_place(each) != kernel_place(first) for each in odd)
    if open_ones and (waiting.waits is False or (is_busy(first) and not differ)):
        return "low"
    return "high" if _is_majority(waiting, groups) and differ and waiting.waits is None else "medium"


def _furthest(odd: Sequence[Rank], waiting: RankGroup) -> list[Rank]:
    """Return those that left the way of the waiting ranks first, and those that wait for nobody.

    A barrier in the training's own code may have different lines for those who wait and for the one who counts them: a
    rank that waits within a function of such a name, in which the others wait too, is not known to be late.
    """
    own = own_frames(waiting.ranks[0].main_stack)
    path = [same(each) for each in reversed(own)]
    meeting = set() if waiting.waits else {same(each)[:2] for each in own if has_name_of_collective(each)}
    apart = [each for each in odd if waits_for_others(each) is False or not meeting & _functions(each)]
    depths = [_depth(each, path) for each in apart]
    return [each for each, depth in zip(apart, depths) if depth == min(depths) or waits_for_others(each) is False]


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
    return tuple(Culprit(each.rank, "has a hardware fault", each, where_is(each)) for each in named)


def find_behind(collectives: Sequence[Collective]) -> dict[int, Collective]:
    """Return, by rank, the collective of those that have not begun the one that most ranks of their group wait in."""
    behind: dict[int, Collective] = {}
    for at in _by_group(collectives):
        front = max(each.sequence for each in at.values())
        late = {rank: each for rank, each in at.items() if (each.newest or each.sequence) < front}
        if len(at) > 1 and 2 * len(late) < len(at) + (len(at) == 2):
            behind |= late
    return behind


def find_mismatched(collectives: Sequence[Collective]) -> dict[int, tuple[Collective, str]]:
    """Return, by rank, those in another collective than most of their group at the same number, and the usual name."""
    odd: dict[int, tuple[Collective, str]] = {}
    for at in _by_group(collectives):
        waiting = [each for each in at.values() if each.state in ("scheduled", "started")]
        front = max((each.sequence for each in waiting), default=0)
        names = Counter(each.name for each in waiting if each.sequence == front)
        for name, count in names.most_common(1):
            if 2 * count > names.total():
                odd |= {each.rank: (each, name) for each in waiting if each.sequence == front and each.name != name}
    return odd


def _by_group(collectives: Sequence[Collective]) -> Iterable[dict[int, Collective]]:
    """Return the collectives of each process group by rank: those that are furthest, where a rank has several dumps."""
    groups: dict[str, dict[int, Collective]] = {}
    for each in collectives:
        at = groups.setdefault(each.group, {})
        if each.rank not in at or at[each.rank].sequence < each.sequence:
            at[each.rank] = each
    return groups.values()


# ---------------------------------------------------------------- what is said of them

_GPU_WORDS = {
    "idle": "has an idle GPU, unlike the others",
    "spinning": "has a GPU waiting in a collective, unlike the others",
    "busy": "has a busy GPU, unlike the others",
}


def _behind(rank: int, record: Collective, seen: Rank | None) -> Culprit:
    why = f"has only reached collective {record.newest or record.sequence} ({_describe(record)})"
    where = where_is(seen) if seen else None
    return Culprit(rank, f"{why} and is in {where}" if where else why, seen, where)


def _mismatched(record: Collective, usual: str, seen: Rank | None) -> Culprit:
    why = f"runs {_describe(record)} as collective {record.sequence}, but the others run {usual}"
    return Culprit(record.rank, why, seen, where_is(seen) if seen else None)


def _describe(record: Collective) -> str:
    return record.name + (f", called at {format_line(record.called_at)}" if record.called_at else "")


def _culprit(rank: Rank) -> Culprit:
    where, what = where_is(rank), does(rank)
    if what in (COMPUTES, BUSY):
        what += f" ({rank.cpu_cores:.1f} CPUs)"
    if not where:
        details = wait_details(rank)
        return Culprit(rank.rank, (what or "differs from the others") + (f" ({details})" if details else ""), rank)
    if rank.state in STOPPED:
        return Culprit(rank.rank, f"{what}, in {where}", rank, where)
    if meeting_of(rank):
        return Culprit(rank.rank, f"is in another collective ({where})", rank, where)
    return Culprit(rank.rank, f"is in {where}" + (f", which {what}" if what else ""), rank, where)
