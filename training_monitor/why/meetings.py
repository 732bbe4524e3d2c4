"""Whether ranks can be those of one training, by where they meet and by their numbers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from training_monitor.core.units import name_some
from training_monitor.targets.proc_stat import Meeting, are_one
from training_monitor.why.ranks import Rank

_MOST_NAMED = 3


def leave_out_others(own: Iterable[Rank], ranks: Iterable[Rank]) -> list[Rank]:
    """Return the ranks without those of another training than that of one's own."""
    meeting = next((each.meeting for each in own if each.meeting), None)
    return [each for each in ranks if are_one(meeting, each.meeting) is not False]


# ---------------------------------------------------------------- whether they can be one training


def find_contradiction(ranks: Sequence[Rank]) -> str | None:
    """Return why these cannot be the ranks of one training, as a sentence; None if they can."""
    numbered = [each for each in ranks if each.rank is not None]
    first = next((each.meeting for each in numbered if each.meeting), None)
    if apart := [each for each in numbered if are_one(first, each.meeting) is False]:
        places = dict.fromkeys(str(each.meeting) for each in (numbered[0], *apart) if each.meeting)
        return f"their rendezvous addresses differ ({name_some(list(places), _MOST_NAMED)})"
    for number, count in Counter(each.rank for each in numbered).most_common(1):
        if count > 1:
            pids = [str(each.pid) for each in numbered if each.rank == number]
            return f"{count} processes have rank {number} (pids {name_some(pids, _MOST_NAMED)})"
    beyond = next((each for each in numbered if each.world_size and (each.rank or 0) >= each.world_size), None)
    if beyond:
        return f"pid {beyond.pid} has rank {beyond.rank}, but its world size is {beyond.world_size}"
    sizes = sorted({each.world_size for each in numbered if each.world_size})
    return f"their world sizes differ ({sizes[0]} and {sizes[-1]})" if len(sizes) > 1 else None


def are_doubtful(ranks: Sequence[Rank]) -> bool:
    """Return whether ranks on different hosts have different names for the place where they meet.

    They may be of two trainings, unless only the first rank calls its own host `localhost`.
    """
    meetings: dict[Meeting, bool] = {}  # whether the first rank has it
    for each in ranks:
        if each.meeting and each.meeting.address:
            meetings[each.meeting] = each.rank == 0 or meetings.get(each.meeting, False)
    named = ((each.name, has_first) for each, has_first in meetings.items())
    return len({name for name, has_first in named if name or not has_first}) > 1
