"""The paragraph that says what a roll call has found. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training_monitor.core.regex import regex
from training_monitor.core.units import name_some, plural
from training_monitor.targets.target import call_host
from training_monitor.why.outside import are_awake
from training_monitor.why.places import BLOCKED, ENDED, STOPPED, as_main, brief, does, is_library, own_frames, where_is
from training_monitor.why.ranks import LOCK, Culprit, Explanation, Finding, Rank, RankGroup, RollCall

_MOST_NAMED, _MOST_FINDINGS, _MOST_REASON = 4, 3, 200
_DATA_WORKER = regex(r"/torch/utils/data/_utils/worker|/multiprocessing/(?:queues|connection)")
_UNKNOWN = "is at an unknown location"


def write_paragraph(
    seen: RollCall,
    alive: Sequence[Rank],
    found: Explanation,
    *,
    is_moving: bool | None,
    contradiction: str | None = None,
) -> str:
    """Return what was found in words, at most some 4,000 characters.

    Args:
        seen: the roll call.
        alive: the ranks of it that have not ended.
        found: what it says, without a text yet.
        is_moving: as for `explain_roll_call`.
        contradiction: why these cannot be the ranks of one training.
    """
    story = [_doubt(contradiction)] if contradiction else _story(seen, alive, found, is_moving)
    said = [*story, *_beside(seen), *_not_seen(seen, alive, found, is_moving)]
    return " ".join(f"{each[:1].upper()}{each[1:].rstrip('.')}." for each in said)


def _doubt(contradiction: str) -> str:
    return f"these processes cannot belong to one training: {contradiction}. Name one rank of your training by its PID"


def _story(seen: RollCall, alive: Sequence[Rank], found: Explanation, is_moving: bool | None) -> Iterator[str]:
    ended = [each for each in seen.ranks if each.state in ENDED]
    if not alive:
        yield from _nothing(seen, ended, found)
        return
    if is_moving:
        yield "The training is making progress, so no rank is at fault"
        yield from _stragglers(alive)
        yield _standing(seen, alive, found)
    elif found.culprits:
        yield "; ".join([_waiting(seen, alive, found), *_accused(found, alive)]) + _advice(found, alive)
        for each in found.culprits[:_MOST_NAMED]:
            yield from _children(each.seen)
        if _waiting_group(alive, found):
            yield from _elsewhere(found)
    else:
        yield _waiting(seen, alive, found)
        yield from _why_unknown(alive, found)
    shown = _hardware_first(seen)[:_MOST_FINDINGS]
    is_found = {(each.host, pid) for each in shown if each.kind == "zombie" for pid in each.pids}.issuperset
    if not is_found((each.host, each.pid) for each in ended) and all(each.seen not in ended for each in found.culprits):
        yield f"{_pids(ended)} {_many('has', ended)} ended ({'a zombie' if len(ended) == 1 else 'zombies'})"


def _nothing(seen: RollCall, ended: Sequence[Rank], found: Explanation) -> Iterator[str]:
    if ended:
        yield f"No process of the training is running: {plural(len(ended), 'zombie is', 'zombies are')} left"
    elif found.confidence == "none":
        yield "No rank could be inspected" if seen.silent else "No process of the training was found"


# ---------------------------------------------------------------- where all are


def _waiting(seen: RollCall, alive: Sequence[Rank], found: Explanation) -> str:
    """Say who waits for the others, and where; or else where all are."""
    group = _waiting_group(alive, found)
    if group is None:
        return _standing(seen, alive, found)
    ranks = _without_accused(group.ranks, found)
    return f"{_who(ranks, seen, alive, found)} {_many('waits', ranks)} in {group.where}"


def _waiting_group(alive: Sequence[Rank], found: Explanation) -> RankGroup | None:
    """Return the group of which it is told that it waits for the others."""
    group = next((each for each in found.groups if each.is_majority), None)
    if group is None or not _without_accused(group.ranks, found) or _are_stopped(alive):
        return None
    return group if found.culprits or (group.waits and len(found.groups) == 1) else None


def _standing(seen: RollCall, alive: Sequence[Rank], found: Explanation) -> str:
    """Say where the ranks are that are not accused."""
    ranks = _without_accused(alive, found)
    if _are_stopped(ranks):
        return f"{_who(ranks, seen, alive, found)} {_for(ranks, does(ranks[0]))}"
    told = []
    for group in found.groups[:_MOST_NAMED]:
        if members := _without_accused(group.ranks, found):
            what = _what_all_do(members) if len(members) == len(ranks) else ""
            who = _who(members, seen, alive, found) if len(members) == len(ranks) else _names(members)
            told.append(f"{who} {_many('is', members)} in {group.where}{what}")
    blind: dict[str, list[Rank]] = {}
    for each in ranks:
        if not each.main_stack:
            blind.setdefault(does(each) or _UNKNOWN, []).append(each)
    for what, members in list(blind.items())[:_MOST_NAMED]:
        told.append(f"{_who(members, seen, alive, found)} {_for(members, what)}")
    if (left := len(found.groups) - _MOST_NAMED) > 0:
        told.append(f"the other ranks are at {plural(left, 'more place')}")
    return "; ".join(told)


def _are_stopped(ranks: Sequence[Rank]) -> bool:
    return bool(ranks) and all(each.state in STOPPED for each in ranks)


def _what_all_do(ranks: Sequence[Rank]) -> str:
    what = {does(each) for each in ranks}
    said = what.pop() if len(what) == 1 else ""
    if not said:
        return ""
    return f" and {_for(ranks, said)}" if len(ranks) > 1 else f", which {said}"


def _without_accused(ranks: Sequence[Rank], found: Explanation) -> list[Rank]:
    accused = {(each.seen.host, each.seen.pid) for each in found.culprits if each.seen}
    return [each for each in ranks if (each.host, each.pid) not in accused]


def _who(ranks: Sequence[Rank], seen: RollCall, alive: Sequence[Rank], found: Explanation) -> str:
    """Return `all 4 ranks`, `3 of 4 ranks` or `rank 1 (pid 7)`; where some may be elsewhere, only of those seen."""
    is_part = bool(found.unseen or seen.silent)
    total = len(alive) if is_part else len(alive) + len(found.missing)
    if total == 1:
        return f"{_name(ranks[0].rank, ranks[0])}, the only {'one seen' if is_part else 'rank'},"
    if len(ranks) == 1 and (ranks[0].main_stack or total == 2):
        return _name(ranks[0].rank, ranks[0])
    if len(ranks) == total:
        return f"{'both' if total == 2 else f'all {total}'} ranks{' seen' if is_part else ''}"
    return f"{len(ranks)} of the {total} ranks seen" if is_part else f"{len(ranks)} of {total} ranks"


def _elsewhere(found: Explanation) -> Iterator[str]:
    """Say where those are that neither wait with the others nor are accused."""
    others = [(each, _without_accused(each.ranks, found)) for each in found.groups if not each.is_majority]
    told = [f"{_names(ranks)} {_many('is', ranks)} in {group.where}" for group, ranks in others if ranks]
    if told:
        yield name_some(told, 2, "; ") + (" places" if len(told) > 2 else "")


# ---------------------------------------------------------------- who is accused


def _accused(found: Explanation, alive: Sequence[Rank]) -> Iterator[str]:
    alike: dict[str, list[Culprit]] = {}
    for each in found.culprits:
        alike.setdefault(each.why, []).append(each)
    for why, culprits in list(alike.items())[:_MOST_NAMED]:
        if culprits[0].seen is None and culprits[0].rank in found.missing[:1]:
            yield f"{_numbers(found.missing)} {_for(found.missing, why)}"
        elif len(culprits) == 1:
            yield f"{_name_of(culprits[0], alive)} {why}"
        elif _is_child(culprits[0], alive):
            yield f"its child processes with {_names_of(culprits)} {_for(culprits, why)}"
        else:
            yield f"{_names_of(culprits)} {_for(culprits, why)}"
    if left := sum(map(len, list(alike.values())[_MOST_NAMED:])):
        yield f"and {left} more"


def _is_child(culprit: Culprit, alive: Sequence[Rank]) -> bool:
    """Return whether a culprit is a child of the only rank, and no rank itself."""
    return len(alive) == 1 and culprit.seen in alive[0].children


def _name_of(culprit: Culprit, alive: Sequence[Rank]) -> str:
    if culprit.seen and _is_child(culprit, alive):
        return f"its child process with pid {culprit.seen.pid}"
    return _name(culprit.rank, culprit.seen)


def _names_of(culprits: Sequence[Culprit]) -> str:
    seen = [each.seen for each in culprits if each.seen]
    if len(seen) == len(culprits):
        return _names(seen)
    return _numbers(sorted(each.rank for each in culprits if each.rank is not None))


def _advice(found: Explanation, alive: Sequence[Rank]) -> str:
    odd = [each for each in found.culprits if each.seen]
    if not odd:
        return ""
    if found.confidence != "low":
        return ": look there"
    is_pair = len(alive) == 2 and len(odd) == 1
    who = (
        "the training is waiting"
        if _is_child(odd[0], alive)
        else "the other is waiting"
        if is_pair
        else "the others are waiting"
    )
    return f": perhaps {who} for {'it' if len(odd) == 1 else 'them'}"


def _children(rank: Rank | None) -> Iterator[str]:
    """Say what the children of a rank do that are not idle: a data worker may be what it waits for."""
    told = [_child(each) for each in rank.children if _is_telling(each)] if rank else []
    if rank and told:
        yield f"among the child processes of {_name(rank.rank, rank)}, pid {name_some(told, 2, '; pid ')}"


def _is_telling(child: Rank) -> bool:
    """Return whether a child waits for a disk, or is in the training's own code and does not wait for work there."""
    stack = child.main_stack
    is_idle = bool(stack) and bool(_DATA_WORKER.search(stack[0].file))
    return child.state in BLOCKED or (bool(stack) and not is_idle and not is_library(own_frames(stack)[0]))


def _child(child: Rank) -> str:
    where, what = where_is(child), does(child)
    return f"{child.pid} {' and '.join([*([f'is in {where}'] if where else []), *([what] if what else [])])}"


# ---------------------------------------------------------------- what else there is to say


def _why_unknown(alive: Sequence[Rank], found: Explanation) -> Iterator[str]:
    blind = [each for each in alive if not each.main_stack]
    if _are_stopped(alive):
        return
    if len(alive) == 1:
        yield from _children(alive[0])
        yield from _threads(alive[0])
        if found.confidence == "none" and _because(blind):
            yield f"its stack could not be read{_because(blind)}"
    elif awake := [each for each in alive if are_awake([each])]:
        yield f"{_names(awake)} woke up during the inspection, so the training may be making progress"
    elif len(blind) == len(alive):
        seen = "the kernel's report does not distinguish them"
        yield f"no stacks could be read{_because(blind)}, and {seen}: it is unknown which one is late"
    elif blind:
        yield f"no stack of {_names(blind)} could be read{_because(blind)}: it is unknown which rank is late"
    elif len(found.groups) > 1 and all(each.waits for each in found.groups):
        yield "all of them are waiting for others, in different calls: it is unknown which one is late"
    else:
        yield "nothing distinguishes the ranks: it is unknown which one is late"
    yield from _stragglers(alive)


def _because(blind: Sequence[Rank]) -> str:
    reasons = list(dict.fromkeys(each.no_stacks for each in blind if each.no_stacks))
    return f" ({brief(reasons[0])})" if len(reasons) == 1 else ""


def _threads(rank: Rank) -> Iterator[str]:
    """Say where the threads are for which the main thread may wait."""
    if rank.waits_for == LOCK and rank.main_stack:
        others = [each for each in rank.stacks if not each.is_main and not all(map(is_library, each.frames))]
        at = [f"{brief(each.thread)} is in {where_is(as_main(rank, each))}" for each in others]
        if at:
            yield f"other threads of the process: {name_some(at, _MOST_NAMED, '; ')}"


def _stragglers(alive: Sequence[Rank]) -> Iterator[str]:
    """Say which ranks have begun fewer batches, or use several times the CPU of the others."""
    begun = sorted(each.batches for each in alive if each.batches is not None)
    usual = begun[len(begun) // 2] if len(begun) > 2 else 0
    late = [f"{_name(each.rank, each)} only {each.batches}" for each in alive if (each.batches or usual) < usual - 1]
    if late:
        yield f"most ranks have begun {usual} batches, {name_some(late, _MOST_NAMED)}"
    cores = sorted(each.cpu_cores for each in alive if each.cpu_cores is not None)
    middle = cores[len(cores) // 2] if len(cores) > 2 else 0.0
    if middle > 0.1:
        hard = [(each, each.cpu_cores / middle) for each in alive if each.cpu_cores and each.cpu_cores > 2 * middle]
        told = [f"{_name(each.rank, each)} uses {factor:.1f} times the CPU of the others" for each, factor in hard]
        if told:
            yield name_some(told, _MOST_NAMED, "; ")


def _hardware_first(seen: RollCall) -> list[Finding]:
    return sorted(seen.findings, key=lambda each: not each.is_hardware)


def _beside(seen: RollCall) -> Iterator[str]:
    hard = _hardware_first(seen)
    yield from (each.text for each in hard[:_MOST_FINDINGS])
    if left := len(hard[_MOST_FINDINGS:]):
        yield f"{plural(left, 'more finding is', 'more findings are')} listed"


def _not_seen(seen: RollCall, alive: Sequence[Rank], found: Explanation, is_moving: bool | None) -> Iterator[str]:
    told = []
    if seen.silent:
        hosts = [f"{brief(call_host(host))} ({brief(why, _MOST_REASON)})" for host, why in seen.silent.items()]
        told.append(f"could not be queried: {name_some(hosts, _MOST_NAMED)}")
    sized = {each.host for each in alive if each.local_world_size is not None}  # the rest of its ranks is elsewhere
    nameless = sum(each.rank is None and each.host not in sized for each in seen.ranks)  # also zombies
    if found.unseen and (nameless >= len(found.unseen) or any(each.rank is None for each in alive)):
        told.append(
            f"not identified: {_numbers(found.unseen)}, because the rank numbers of some processes could not be read"
        )
    elif found.unseen and nameless:
        told.append(
            f"not identified or not seen: {_numbers(found.unseen)}, among processes whose rank numbers could not be "
            "read, or on hosts that were not queried or did not respond"
        )
    elif found.unseen:
        beside = "which may be among processes that were not inspected, or " if seen.partial else ""
        told.append(f"not seen: {_numbers(found.unseen)}, {beside}on hosts that were not queried or did not respond")
    if told and alive and not found.culprits and not is_moving:
        told[-1] += ": the late rank may be there"
    yield from told


# ---------------------------------------------------------------- names and grammar


def _name(rank: int | None, seen: Rank | None) -> str:
    pid = f"pid {seen.pid}" if seen else ""
    host = brief(call_host(seen.host)) if seen and seen.host != "local" else ""
    if rank is None:
        return f"the process with {pid}" + (f" ({host})" if host else "")
    place = ", ".join(each for each in (host, pid) if each)
    return f"rank {rank}" + (f" ({place})" if place else "")


def _names(ranks: Sequence[Rank]) -> str:
    numbers = sorted(each.rank for each in ranks if each.rank is not None)
    if len(numbers) < len(ranks):
        return _pids(ranks)
    return _numbers(numbers)


def _pids(ranks: Sequence[Rank]) -> str:
    return f"{'pid' if len(ranks) == 1 else 'pids'} {_listed([str(each.pid) for each in ranks], 2 * _MOST_NAMED)}"


def _numbers(ranks: Sequence[int]) -> str:
    """Return `rank 3`, `ranks 2 and 3` or `ranks 0, 2 to 7 and 9`."""
    runs: list[list[int]] = []
    for each in ranks:
        if runs and runs[-1][-1] + 1 == each:
            runs[-1] = [runs[-1][0], each]
        else:
            runs.append([each])
    told = [
        word
        for run in runs
        for word in ([f"{run[0]} to {run[-1]}"] if run[-1] - run[0] > 1 else [str(each) for each in run])
    ]
    return f"rank{'s' if len(ranks) > 1 else ''} {_listed(told, 2 * _MOST_NAMED)}"


def _listed(words: Sequence[str], most: int) -> str:
    """Return `1`, `1 and 2`, `1, 2 and 3`, or the first of them and how many there are beyond."""
    if len(words) > most or len(words) < 2:
        return name_some(words, most)
    return f"{', '.join(words[:-1])} and {words[-1]}"


_MANY = {"is": "are", "has": "have", "waits": "wait"}


def _many(verb: str, ranks: Sequence[object]) -> str:
    return verb if len(ranks) == 1 else _MANY[verb]


def _for(ranks: Sequence[object], predicate: str) -> str:
    """Return `wait for a lock` for `waits for a lock` where several ranks do."""
    if len(ranks) == 1:
        return predicate
    verb, gap, rest = predicate.partition(" ")
    rest = rest.replace("its process has ended, or was never", "their processes have ended, or were never")
    rest = rest.replace("its GPU", "their GPUs")
    return f"{_MANY.get(verb, verb.removesuffix('s'))}{gap}{rest}"
