"""Who may supervise a training: what a claim on its target says, and what follows from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from training_monitor.policy.resume import training_name
from training_monitor.units import format_duration
from training_monitor.watching import WatchedJob

LEASE_SECONDS = 120.0
BEATS_A_LEASE = 6.0
ROUNDING_SECONDS = 1.5  # ages are whole seconds


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that supervises: on which host, since which boot of it, as whom, with which state folder."""

    host: str
    user: str
    pid: int
    boot: str
    folder: str

    def is_same_place(self, other: Owner) -> bool:
        """Whether both are one supervisor, started again on the same machine with the same state folder."""
        return (self.host, self.user, self.boot, self.folder) == (other.host, other.user, other.boot, other.folder)

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (process {self.pid})"


@dataclass(frozen=True, slots=True)
class Claim:
    """The newest claim on a training. `age` and `lease` are seconds by the target's clock, `since` UTC epoch seconds.

    `number` grows with every owner. `held` is False once its owner has let go, and where the line that tells of the
    owner is damaged.
    """

    name: str
    number: int
    token: str
    held: bool
    lease: float
    age: float
    since: float
    owner: Owner
    is_damaged: bool = False

    @property
    def is_live(self) -> bool:
        """Whether its owner may still act."""
        return self.held and self.age <= self.lease

    def __str__(self) -> str:
        return f"{self.owner}, last heard of {format_duration(max(0.0, self.age))} ago"


def claim_name(job: WatchedJob) -> str:
    """Under which name a training is claimed that is watched: that of its attempts, or else its log or process."""
    if job.job_id:
        return training_name(job.job_id)
    return job.log_file or ", ".join(job.log_paths) or job.pid_file or f"pid {job.pid}"


def decide_claim(
    found: Claim | None, me: Owner, *, take_over: bool, silence: float | None = None
) -> Literal["take", "wait", "refuse"]:
    """Whether `me` may claim a training.

    Nobody is refused for the sake of a dead owner: a second supervisor waits until the lease ends or the owner renews
    it. `silence` is how old the claim would be without a beat since the first look; None at the first look.
    """
    if found is None or take_over or not found.is_live or found.owner.is_same_place(me):
        return "take"
    return "wait" if silence is None or found.age > silence - ROUNDING_SECONDS else "refuse"
