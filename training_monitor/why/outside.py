"""Find the process of a training that all its others may wait for, by what the kernel reports of each wait. Pure.

A process that waits outside its training cannot be woken by the others, but they may wait for it: it sleeps, or reads
a disk, or a pipe whose other end no process of the training has. It may also have nothing to do with the others, so the
confidence is never high.
"""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.why.places import RUNNING_CORES, STOPPED, gpu_place
from training_monitor.why.ranks import DISK, LOCK, TERMINAL, TIMER, Rank


def find_outside(alive: Sequence[Rank]) -> list[Rank]:
    """Return the ranks that wait outside the training while all the others, at least as many, wait for a lock."""
    locked = [each for each in alive if each.waits_for == LOCK and each.is_still and not each.waits_outside]
    outside = [each for each in alive if each.waits_outside]
    return outside if len(locked) + len(outside) == len(alive) and len(outside) <= len(locked) else []


def are_awake(ranks: Sequence[Rank]) -> bool:
    """Return whether ranks that wait for a lock woke up between two looks: they may make steps."""
    return bool(ranks) and all(each.waits_for == LOCK and each.is_still is False for each in ranks)


def find_child(rank: Rank) -> tuple[list[Rank], str]:
    """Return the children that a training of one rank may wait for, and how sure that is.

    Its processes must all be at rest. Only those children count that `multiprocessing` started, or that the rank waits
    for by a system call.
    """
    awaited = rank.awaits or ()
    family = (rank, *rank.children)
    is_idle = all(each.cpu_cores is not None and each.cpu_cores < RUNNING_CORES for each in family)
    is_awake = any(are_awake([each]) for each in family)
    if not is_idle or is_awake or gpu_place(rank) in ("busy", "spinning"):
        return [], "none"
    if rank.waits_outside or rank.state in STOPPED or rank.waits_for in (None, TIMER, DISK, TERMINAL):
        return [], "none"
    found = [each for each in rank.children if each.waits_outside and (each.is_spawned or each.pid in awaited)]
    if not found:
        return [], "none"
    others = [each for each in rank.children if each.pid in awaited and each not in found]
    is_awaited = len(found) == 1 and found[0].pid in awaited and all(rank.pid in (each.awaits or ()) for each in others)
    return found, "medium" if is_awaited else "low"
