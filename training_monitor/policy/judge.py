"""The one judge: from what was seen of a training to one verdict. Pure.

`auto_restart`, `wait`, `watch`, `launch`, `terminate`, `fleet`, `top`, `stall`, `status`, `health` and `check` show
what it says, and none of them judges for itself. docs/verdicts.md says what each state means, and how well it is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.models import Observation, Verdict
from training_monitor.policy.stall import DEFAULT_POLICY, StallPolicy

STATES = ("starting", "running", "slow", "stalled", "finished", "failed", "stopped", "unknown")
VERDICTS = ("ok", "warning", "unknown", "failed")  # better ones first
NOBODY_LOOKED = Verdict("unknown", "unknown", "nobody has looked yet")


def judge(observations: Sequence[Observation], *, now: float, policy: StallPolicy = DEFAULT_POLICY) -> Verdict:
    """Judge one training by all that was seen of it.

    Args:
        observations: oldest first, of any command and any length; the first counts as much as the last.
        now: epoch seconds; what was not looked at since the last observation is not concluded from.
        policy: the limits.
    """
    seen = [each for each in observations if each.timestamp <= now]
    if not seen:
        return NOBODY_LOOKED
    return _judge_end(seen[-1]) or _judge_running(seen, now, policy)


def _judge_end(last: Observation) -> Verdict | None:
    """The verdict on a training that runs no more; None while it runs, or nobody knows."""
    raise NotImplementedError


def _judge_running(seen: Sequence[Observation], now: float, policy: StallPolicy) -> Verdict:
    raise NotImplementedError
