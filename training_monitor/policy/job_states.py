"""The one table of where a queued training may go from where it stands. Pure."""

from __future__ import annotations

from training_monitor.errors import InvalidTransition
from training_monitor.renting import JobState

# the way of a job to which nothing happens
STEPS = (
    JobState.QUEUED,
    JobState.CHARGING,
    JobState.RENTING,
    JobState.PREPARING,
    JobState.SYNCING,
    JobState.CHECKING,
    JobState.TRAINING,
    JobState.UPLOADING,
    JobState.SAMPLING,
    JobState.REGISTERING,
    JobState.DESTROYING,
    JobState.SETTLING,
    JobState.NOTIFYING,
)
# A job that fails or is cancelled leaves by DESTROYING from wherever it is, also when it has no machine yet: one way
# out, on which nothing that costs money or was charged can be forgotten.
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.CHARGING, JobState.DESTROYING}),
    JobState.CHARGING: frozenset({JobState.RENTING, JobState.DESTROYING}),
    JobState.RENTING: frozenset({JobState.PREPARING, JobState.DESTROYING}),
    JobState.PREPARING: frozenset({JobState.SYNCING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.SYNCING: frozenset({JobState.CHECKING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.CHECKING: frozenset({JobState.TRAINING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.TRAINING: frozenset({JobState.UPLOADING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.REPLACING: frozenset({JobState.RENTING, JobState.DESTROYING}),
    JobState.UPLOADING: frozenset({JobState.SAMPLING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.SAMPLING: frozenset({JobState.REGISTERING, JobState.DESTROYING}),
    JobState.REGISTERING: frozenset({JobState.DESTROYING}),
    JobState.DESTROYING: frozenset({JobState.SETTLING}),
    JobState.SETTLING: frozenset({JobState.NOTIFYING}),
    JobState.NOTIFYING: frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


def check_transition(old: JobState, new: JobState) -> None:
    """Refuse a way that is not in the table; to stay where it stands is none.

    Raises:
        InvalidTransition: naming both states and where `old` leads to.
    """
    if new is old or new in TRANSITIONS[old]:
        return
    allowed = " or ".join(str(each) for each in JobState if each in TRANSITIONS[old])
    raise InvalidTransition(
        f"a job does not go from {old} to {new}, {f'only to {allowed}' if allowed else 'it is over'}"
    )
