"""Explain a hang by a roll call: which ranks wait for the others, which are elsewhere, which are missing. Pure.

In a distributed training that hangs, almost all ranks wait in the same collective: the frame of the majority says where
that is, and the rank that is not there is where the cause is. What counts is the training's own code: the innermost of
its frames, and the function of a library that it called there. A group of ranks that is known to wait for others (a
collective, by name) is never at fault, however small; without such names the majority decides, and without a majority
the kernel: a rank that waits for a socket waits for somebody, one that waits for a pipe, a lock, a timer or a disk does
not. Where nothing tells the ranks apart, the answer is unknown.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.regex import regex
from training_monitor.core.units import name_some, plural
from training_monitor.judging.ranks import (
    CHILD,
    DISK,
    EVENTS,
    LOCK,
    PIPE,
    SOCKET,
    TIMER,
    Collective,
    Finding,
    Frame,
    Rank,
    RollCall,
)

ENDED, STOPPED, BLOCKED, RUNS = "ZXx", "T", "D", "R"
BUSY_CORES, RUNNING_CORES = 0.5, 0.05  # CPU seconds per second, from which on a rank computes; where it has to queue
MOST_WORLD = 100_000
_MOST_NAMED = 4
_OF_OTHERS = (SOCKET, EVENTS)
_OF_ITS_OWN = (PIPE, LOCK, TIMER, CHILD, DISK)
_LIBRARY = regex(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/training_monitor/|^<|^[^/]*\.so\b|/ray/python/")
_WRAPPERS = regex(r"(?:.*\.)?(?:_?wrapp(?:er|ed)\w*|_fn|inner|__call__|_?call_impl|decorate_context)")
_COLLECTIVE = regex(
    r"(?:.*[._])?(?:i?all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|barrier|i?send|i?recv|gather|scatter"
    r"|reduce|wait_for_everyone|synchronize|sync_grads|rendezvous|init_process_group|wait)\w*",
    0,
)
_COMMUNICATES = regex(
    r"/torch/(?:distributed|cuda|nn/parallel|_tensor|autograd)|/deepspeed/|/accelerate/|/horovod/|/mpi4py/|/lightning"
    r"|/ray/(?:util/collective|train)|/megatron/|/fairscale/|/cupy/|/jax/"
)
_DATA_WORKER = regex(r"/torch/utils/data/_utils/worker|/multiprocessing/(?:queues|connection)")


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that the others wait for. `seen` is its process, None if it is missing; `why` a part of a sentence."""

    rank: int | None
    why: str
    seen: Rank | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks at the same place, `where` as `all_reduce, called at train.py:88`; `waits`: they wait for others."""

    ranks: tuple[Rank, ...]
    where: str
    waits: bool | None = None
    is_majority: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a roll call says: one paragraph, and how sure it is (none | low | medium | high)."""

    text: str
    confidence: str = "none"
    culprits: tuple[Culprit, ...] = ()
    groups: tuple[RankGroup, ...] = ()
    missing: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()

    def nodes(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """Return the nodes that are suspect: those of the culprits, and those with a fault of their hardware."""
        of_ranks = [each.seen.node for each in self.culprits if each.seen and each.seen.node]
        return tuple(dict.fromkeys([*of_ranks, *(each.node for each in findings if each.is_hardware and each.node)]))


def explain_roll_call(seen: RollCall, *, is_moving: bool | None = None) -> Explanation:
    """Explain why a training hangs.

    Args:
        seen: the roll call.
        is_moving: whether the training makes steps at its usual pace; None if unknown. Then nobody is at fault.
    """
    alive = [each for each in seen.ranks if each.state not in ENDED]
    ended = [each for each in seen.ranks if each.state in ENDED]
    missing, unseen = find_missing(seen, alive)
    groups = group_ranks(alive)
    waiting = _choose_waiting(groups, alive)
    groups = tuple(replace(each, is_majority=each is waiting) for each in groups)
    if not alive and not missing:
        return Explanation(_sum_up([_nothing(seen, ended)], seen), missing=missing, unseen=unseen)
    if is_moving:
        said = ["The training makes progress, so that no rank is at fault", *_stragglers(alive)]
        said.append(_standing(groups, alive, len(alive)))
        return Explanation(_sum_up(said, seen), "medium", groups=groups, missing=missing, unseen=unseen)
    absent = [Culprit(rank, _why_missing(ended)) for rank in missing]
    odd, confidence = _find_odd(groups, alive, seen.collectives)
    culprits = (*absent, *odd)
    if absent and confidence == "none":
        confidence = "high" if len(missing) < len(alive) + len(missing) else "medium"
    if seen.silent and confidence == "high":
        confidence = "medium"
    said = list(_story(groups, alive, culprits, missing, seen))
    return Explanation(
        _sum_up(said, seen, unseen), confidence if culprits else "none", culprits, groups, missing, unseen
    )


# ---------------------------------------------------------------- who is missing


def find_missing(seen: RollCall, alive: Sequence[Rank]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks that are nowhere, and those that may be on hosts which were not asked or did not answer."""
    world = max((each.world_size or 0 for each in seen.ranks), default=0)
    if not 0 < world <= MOST_WORLD:
        return (), ()
    there = {each.rank for each in alive if each.rank is not None}
    if not there:
        return (), ()
    lacking = [rank for rank in range(world) if rank not in there]
    if seen.is_whole or any(each.local_world_size == world for each in alive):
        return tuple(lacking), ()
    here: set[int] = set()
    for each in alive:
        if each.rank is not None and each.local_rank is not None and each.local_world_size:
            first = each.rank - each.local_rank  # launchers number the ranks of one host one after the other
            here |= set(range(first, first + min(each.local_world_size, MOST_WORLD)))
    return tuple(rank for rank in lacking if rank in here), tuple(rank for rank in lacking if rank not in here)


def _why_missing(ended: Sequence[Rank]) -> str:
    if ended:
        left = name_some([str(each.pid) for each in ended], _MOST_NAMED)
        return f"is not there: its process has ended (zombie: pid {left})"
    return "is not there: no process of it is left, or it never started"


# ---------------------------------------------------------------- where they are


def is_library(frame: Frame) -> bool:
    """Return whether a frame is not the training's own: the standard library, installed packages, generated code."""
    return bool(_LIBRARY.search(frame.file))


def own_frames(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames of the training's own code, innermost first; all frames if none is."""
    return tuple(each for each in stack if not is_library(each)) or tuple(stack)


def called_by_own(stack: Sequence[Frame]) -> Frame | None:
    """Return the function of a library that the innermost own frame has called; None if it is in its own code."""
    own = own_frames(stack)
    inner = list(stack[: stack.index(own[0])]) if own else []
    while len(inner) > 1 and _WRAPPERS.fullmatch(inner[-1].function):
        inner.pop()
    return inner[-1] if inner else None


def format_line(frame: Frame) -> str:
    """Return `train.py:88`."""
    name = posixpath.basename(frame.file) or frame.file
    return f"{name}:{frame.line}" if frame.line is not None else name


def where_is(rank: Rank) -> str | None:
    """Return where a rank is, as `all_reduce, called at train.py:88` or `data.py:41 load_batch`; None if unknown."""
    stack = rank.main_stack
    if not stack:
        return None
    own, called = own_frames(stack)[0], called_by_own(stack)
    if called is None:
        return f"{format_line(own)} {own.function}"
    return f"{called.function}, called at {format_line(own)}"


def does(rank: Rank) -> str:
    """Return what the kernel says that a rank does, as a part of a sentence; "" if unknown."""
    if rank.state in STOPPED:
        return "is stopped by a signal"
    if is_busy(rank):
        return f"computes ({rank.cpu_cores:.1f} CPUs)"
    if rank.waits_for == DISK or rank.state in BLOCKED:
        return "waits for a disk" + (f" ({rank.wait_channel})" if rank.wait_channel else "")
    return f"waits for {rank.waits_for}" if rank.waits_for else ""


def is_busy(rank: Rank) -> bool:
    """Return whether a rank computes; on a crowded machine it may get little of the CPU that it wants."""
    least = RUNNING_CORES if rank.state in RUNS else BUSY_CORES
    return rank.cpu_cores is not None and rank.cpu_cores >= least


def waits_for_others(rank: Rank) -> bool | None:
    """Return whether a rank waits for other ranks: True by a collective in its stack, None where that is open."""
    if rank.state in STOPPED:
        return False
    stack = rank.main_stack
    own = own_frames(stack)
    inner = stack[: stack.index(own[0])] if own else ()
    if any(_COLLECTIVE.fullmatch(each.function) and _COMMUNICATES.search(each.file) for each in inner):
        return True
    if rank.waits_for in _OF_ITS_OWN or rank.state in BLOCKED or is_busy(rank):
        return False
    return None


def group_ranks(alive: Sequence[Rank]) -> tuple[RankGroup, ...]:
    """Group the ranks of which the stack is known by their place, the largest group first."""
    places: dict[object, list[Rank]] = {}
    for each in alive:
        if each.main_stack:
            places.setdefault(_place(each), []).append(each)
    groups = [
        RankGroup(tuple(found), where_is(found[0]) or "?", _agreed([waits_for_others(each) for each in found]))
        for found in places.values()
    ]
    return tuple(sorted(groups, key=lambda each: -len(each.ranks)))


def _place(rank: Rank) -> object:
    own, called = own_frames(rank.main_stack)[0], called_by_own(rank.main_stack)
    return _same(own), called.function if called else None


def _same(frame: Frame) -> tuple[str, str, int | None]:
    return frame.function, posixpath.basename(frame.file), frame.line


def _agreed(answers: Sequence[bool | None]) -> bool | None:
    """Return what most say; True if anybody does: a collective is known by its name."""
    if True in answers:
        return True
    return False if answers.count(False) * 2 > len(answers) else None


def _choose_waiting(groups: Sequence[RankGroup], alive: Sequence[Rank]) -> RankGroup | None:
    """Return the group that waits for the others; None if that is open."""
    if len(alive) < 2 or not groups:
        return None
    if known := [each for each in groups if each.waits]:
        return known[0]
    first = groups[0]
    if _is_majority(first, groups) and len(first.ranks) > 1:
        return first
    open_ones = [each for each in groups if each.waits is None]
    return open_ones[0] if len(open_ones) == 1 and len(groups) > 1 else None


# ---------------------------------------------------------------- who is elsewhere


def _find_odd(
    groups: Sequence[RankGroup], alive: Sequence[Rank], collectives: Sequence[Collective]
) -> tuple[tuple[Culprit, ...], str]:
    """Return the ranks that the others wait for, by collectives, stacks and the kernel, and how sure that is."""
    behind = find_behind(collectives)
    if behind:
        by_number = {each.rank: each for each in alive}
        return tuple(_behind(rank, record, by_number.get(rank)) for rank, record in behind.items()), "high"
    stopped = [each for each in alive if each.state in STOPPED]
    if stopped and len(stopped) < len(alive):
        return tuple(map(_culprit, stopped)), "high"
    waiting = next((each for each in groups if each.is_majority), None)
    if waiting is not None:
        others = [each for each in groups if not each.is_majority]
        if not _is_majority(waiting, groups):
            others = [each for each in others if not each.waits]
        odd = _furthest([each for group in others for each in group.ranks], waiting)
        blind = _differ_in_kernel([each for each in alive if not each.main_stack], waiting.ranks)
        if odd or blind:
            return tuple(map(_culprit, [*odd, *blind])), _confidence(odd, waiting, groups)
        return (), "none"
    if groups:
        return (), "none"
    odd = _differ_in_kernel(alive, alive)
    return tuple(map(_culprit, odd)), "low" if odd else "none"


def _is_majority(group: RankGroup, groups: Sequence[RankGroup]) -> bool:
    return 2 * len(group.ranks) > sum(len(each.ranks) for each in groups)


def _confidence(odd: Sequence[Rank], waiting: RankGroup, groups: Sequence[RankGroup]) -> str:
    if not odd or all(map(waits_for_others, odd)):  # seen by the kernel only, or in another collective
        return "low"
    differ = all(_kernel_place(each) != _kernel_place(waiting.ranks[0]) for each in odd)
    return "high" if waiting.waits or (_is_majority(waiting, groups) and differ) else "medium"


def _furthest(odd: Sequence[Rank], waiting: RankGroup) -> list[Rank]:
    """Return those that left the way of the waiting ranks first; the others are in the same call.

    A barrier of one's own may have different lines for those who wait and for the one who counts them: a rank that
    waits within a function of such a name, in which the others wait too, is not known to be late.
    """
    own = own_frames(waiting.ranks[0].main_stack)
    path = [_same(each) for each in reversed(own)]
    meeting = {(each.function, each.file) for each in own if _COLLECTIVE.fullmatch(each.function)}
    apart = [each for each in odd if waits_for_others(each) is False or not meeting & _functions(each)]
    depth = {each.pid: _depth(each, path) for each in apart}
    first = min(depth.values(), default=0)
    return [each for each in apart if depth[each.pid] == first]


def _functions(rank: Rank) -> set[tuple[str, str]]:
    return {(each.function, each.file) for each in own_frames(rank.main_stack)}


def _depth(rank: Rank, path: Sequence[object]) -> int:
    """Return how far a rank is on the way of the waiting ones: the index of the innermost shared frame; -1: none."""
    own = {_same(each) for each in own_frames(rank.main_stack)}
    return max((at for at, each in enumerate(path) if each in own), default=-1)


def _kernel_place(rank: Rank) -> str | None:
    """Return what tells ranks apart by the kernel; None if it says nothing."""
    if rank.state in STOPPED or rank.state in BLOCKED:
        return rank.state
    if is_busy(rank):
        return "busy"
    return rank.waits_for


def _differ_in_kernel(ranks: Sequence[Rank], others: Sequence[Rank]) -> list[Rank]:
    """Return those that do something else than at least two thirds of the others, where both is known."""
    known = Counter(place for each in others if (place := _kernel_place(each)))
    if not known or len(others) < 3:
        return []
    usual, count = known.most_common(1)[0]
    if 3 * count < 2 * len(others):
        return []
    return [each for each in ranks if (place := _kernel_place(each)) and place != usual]


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


def _behind(rank: int, record: Collective, seen: Rank | None) -> Culprit:
    at = f", called at {format_line(record.called_at)}" if record.called_at else ""
    why = f"has only come to collective {record.sequence} ({record.name}{at})"
    where = where_is(seen) if seen else None
    return Culprit(rank, f"{why} and is in {where}" if where else why, seen, where)


def _culprit(rank: Rank) -> Culprit:
    where, what = where_is(rank), does(rank)
    if where:
        return Culprit(rank.rank, f"is in {where}" + (f", which {what}" if what else ""), rank, where)
    return Culprit(rank.rank, what or "differs from the others", rank)


# ---------------------------------------------------------------- in words


def _story(
    groups: Sequence[RankGroup],
    alive: Sequence[Rank],
    culprits: Sequence[Culprit],
    missing: Sequence[int],
    seen: RollCall,
) -> Iterator[str]:
    """Yield the parts of the paragraph."""
    waiting = next((each for each in groups if each.is_majority), None)
    total = len(alive) + len(missing)
    named_ones = [each.seen for each in culprits if each.seen]
    others = [each for each in alive if each not in named_ones]
    begin = _waiting(waiting, total) if waiting else _standing(groups, others, total)
    if culprits:
        named = [f"{_name(each.rank, each.seen)} {each.why}" for each in culprits[:_MOST_NAMED]]
        more = f"; and {len(culprits) - _MOST_NAMED} more" if len(culprits) > _MOST_NAMED else ""
        yield f"{begin}; {'; '.join(named)}{more}: look there"
        for each in culprits[:_MOST_NAMED]:
            yield from _children(each)
        return
    yield begin
    if len(alive) == 1:
        yield from _children(Culprit(alive[0].rank, "", alive[0]))
    elif not any(each.main_stack for each in alive):
        yield "The stacks of the ranks could not be had, and nothing else tells the ranks apart: who is late is unknown"
    else:
        yield "Nothing tells the ranks apart: who is late is unknown"


def _waiting(group: RankGroup, total: int) -> str:
    count = len(group.ranks)
    who = f"All {count} ranks" if count == total else f"{count} of {total} ranks"
    verb = "wait" if count > 1 else "waits"
    return f"{who} {verb} in {group.where}"


def _standing(groups: Sequence[RankGroup], ranks: Sequence[Rank], total: int) -> str:
    """Say where these ranks are."""
    if len(ranks) == 1 and total == 1:
        one = ranks[0]
        where, what = where_is(one), does(one)
        told = f"is in {where}" + (f", which {what}" if what else "") if where else what or "does what nobody knows"
        return f"{_name(one.rank, one).capitalize()}, the only one, {told}"
    if len(groups) == 1 and len(groups[0].ranks) == total:
        return f"All {total} ranks are at the same place, {groups[0].where}"
    told_of = [f"{_names(each.ranks)} in {each.where}" for each in groups[:_MOST_NAMED]]
    blind = Counter(does(each) or "does what nobody knows" for each in ranks if not each.main_stack)
    for what, count in blind.most_common(_MOST_NAMED):
        who = f"all {total} ranks" if count == total else f"{count} of {total} ranks"
        told_of.append(f"{who} {_for_many(what) if count > 1 else what}")
    return "; ".join(told_of).capitalize() if not groups else f"{plural(total, 'rank')}: {'; '.join(told_of)}"


def _for_many(what: str) -> str:
    """Return `wait for a lock` for `waits for a lock`."""
    verb, _, rest = what.partition(" ")
    return f"{'are' if verb == 'is' else 'do' if verb == 'does' else verb.removesuffix('s')} {rest}"


def _children(culprit: Culprit) -> Iterator[str]:
    """Say what the children of a rank do that are not idle: a data worker may be what it waits for."""
    told = []
    for each in culprit.seen.children if culprit.seen else ():
        own = [frame for frame in each.main_stack if not is_library(frame)]
        is_idle = bool(each.main_stack) and bool(_DATA_WORKER.search(each.main_stack[0].file))
        if (own and not is_idle and is_library(each.main_stack[-1]) is False) or each.state in BLOCKED:
            at = f" is in {where_is(each)}" if each.main_stack else ""
            told.append(f"{each.pid}{at}{' and' if at and does(each) else ''} {does(each)}".rstrip())
    if told:
        yield f"Of its children, pid {name_some(told, 2, '; pid ')}"


def _stragglers(alive: Sequence[Rank]) -> Iterator[str]:
    """Say which ranks have begun fewer batches, or use several times the CPU of the others."""
    begun = sorted(each.batches for each in alive if each.batches is not None)
    usual = begun[len(begun) // 2] if len(begun) > 2 else 0
    late = [each for each in alive if each.batches is not None and each.batches < usual - 1]
    if late:
        told = [f"{_name(each.rank, each)} {each.batches}" for each in late]
        yield f"Most ranks have begun {usual} batches, {name_some(told, _MOST_NAMED, '; ')}"
    cores = sorted(each.cpu_cores for each in alive if each.cpu_cores is not None)
    middle = cores[len(cores) // 2] if len(cores) > 2 else 0.0
    if middle > 0.1:
        hard = [(each, each.cpu_cores / middle) for each in alive if each.cpu_cores and each.cpu_cores > 2 * middle]
        told = [f"{_name(each.rank, each)} uses {factor:.1f} times the CPU of the others" for each, factor in hard]
        if told:
            yield name_some(told, _MOST_NAMED, "; ").capitalize()


def _nothing(seen: RollCall, ended: Sequence[Rank]) -> str:
    if ended:
        return f"No process of the training runs: {plural(len(ended), 'zombie is', 'zombies are')} left"
    if seen.silent:
        return "No rank could be looked at"
    return "No process of the training was seen"


def _sum_up(said: Iterable[str], seen: RollCall, unseen: Sequence[int] = ()) -> str:
    """Join the parts to a paragraph, with what was seen beside the ranks and what was not seen at all."""
    parts = [each for each in said if each]
    hard = sorted(seen.findings, key=lambda each: not each.is_hardware)
    parts += [each.text for each in hard[:3]]
    if len(hard) > 3:
        parts.append(f"{len(hard) - 3} more findings are listed")
    if seen.silent:
        named = [f"{host}: {why}" for host, why in seen.silent.items()]
        parts.append(f"Not asked: {name_some(named, _MOST_NAMED, '; ')}; the ranks there may be the ones that are late")
    if unseen:
        parts.append(f"Not seen from here: {_numbers(unseen)}, on hosts that were not asked or did not answer")
    return " ".join(f"{each.rstrip('.')}." for each in parts)


def _name(rank: int | None, seen: Rank | None) -> str:
    place = [f"pid {seen.pid}"] if seen else []
    if seen and seen.host != "local":
        place.insert(0, _host(seen.host))
    if rank is None:
        return f"the process {', '.join(place)}"
    return f"rank {rank}" + (f" ({', '.join(place)})" if place else "")


def _host(host: str) -> str:
    """Return a host as people call it: pod worker-2."""
    kind, mark, rest = host.partition("://")
    if not mark or kind == "k8s":
        return f"pod {rest.partition('?')[0].split('/')[1] if '/' in rest else host}"
    return rest


def _names(ranks: Sequence[Rank]) -> str:
    numbers = sorted(each.rank for each in ranks if each.rank is not None)
    if len(numbers) == len(ranks):
        return _numbers(numbers)
    return "pid " + name_some([str(each.pid) for each in ranks], _MOST_NAMED)


def _numbers(ranks: Sequence[int]) -> str:
    """Return `rank 3` or `ranks 0, 2 to 7`."""
    runs: list[list[int]] = []
    for each in ranks:
        if runs and runs[-1][-1] + 1 == each:
            runs[-1].append(each)
        else:
            runs.append([each])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {name_some(told, 8)}"
