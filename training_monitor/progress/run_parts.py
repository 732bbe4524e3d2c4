"""The training or the validation batches of a run, and the past epochs of them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from training_monitor.progress.pace import Pace

MOST_DURATIONS = 16


@dataclass(frozen=True, slots=True)
class Span:
    """How long the batches of a past epoch or validation took, pauses included, and at which rate they were made.

    `rate` is None where it is not known, or became another one on the way.
    """

    seconds: float
    batches: int
    rate: float | None

    def at(self, rate: float | None) -> float:
        """Seconds that it would take at this rate, with the same pauses."""
        if not rate or not self.rate:
            return self.seconds
        return max(0.0, self.seconds + self.batches * (1.0 / rate - 1.0 / self.rate))


@dataclass(slots=True)
class Part:
    """The training or the validation batches of a run.

    Attributes:
        total: batches in this epoch. count: batches begun in the whole run, as they were counted.
        first: of them, those begun before this epoch (or this validation).
        skipped: how far the script's own number of the last batch is ahead of those counted in this epoch.
        leaps: batches of the whole run that the script's own numbers passed over (below zero: counted more than once).
        made, made_of: batches of the last epoch, and how many had been said.
        seconds: in which such batches were made, in the whole run; before: of them, those before this epoch.
        began_at, changes: number of the last batch, and changes of the pace, before this epoch.
        changed_at: `seconds` when the last batch began; is_over: it has ended, and no other one has begun.
        past: the last epochs.
    """

    total: int | None = None
    count: int = 0
    first: int = 0
    skipped: int = 0
    leaps: int = 0
    from_zero: bool = False
    made: int | None = None
    made_of: int | None = None
    seconds: float = 0.0
    before: float = 0.0
    began_at: int = 0
    changes: int = 0
    changed_at: float = 0.0
    is_over: bool = False
    pace: Pace = field(default_factory=Pace)
    past: deque[Span] = field(default_factory=lambda: deque(maxlen=MOST_DURATIONS))

    def begin(self, total: int | None) -> None:
        """Count from here; `total` None keeps what was known."""
        self.first, self.before, self.skipped, self.changed_at = self.count, self.seconds, 0, self.seconds
        self.began_at, self.changes = self.count + self.leaps, self.pace.changes
        self.mark()
        if total is not None:
            self.total = total

    def mark(self) -> None:
        """Note that the next batch begins here, or would, were this not the end."""
        self.pace.add(self.seconds, self.count + self.leaps + 1)

    def observe(self, count: int) -> bool:
        """Note the counter; True when batches were begun."""
        if count <= self.count:
            return False
        self.count, self.changed_at, self.is_over = count, self.seconds, False
        self.pace.add(self.seconds, count + self.leaps)
        return True

    def place(self, batch: int, begun: int) -> None:
        """Note the script's own number of the batch that was begun as number `begun` of all.

        The first number of an epoch may be that of a resume. Later ones that pass some over, or come again, tell how
        many batches of `total` a counted one is. One that is less begins anew.
        """
        self.from_zero = self.from_zero or batch == 0
        counted = max(1, begun - self.first)
        skipped = batch + self.from_zero - counted
        if counted > 1 and skipped >= self.skipped - 1:
            self.leaps += skipped - self.skipped
        self.skipped = skipped

    def end_epoch(self) -> None:
        self.mark()
        self.past.append(self.span())
        self.made, self.made_of = self.batch, self.total

    @property
    def is_steady(self) -> bool:
        """Whether the speed was the same in all of this epoch."""
        return self.changes == self.pace.changes

    def span(self) -> Span:
        """This epoch so far."""
        batches = self.count + self.leaps - self.began_at
        return Span(self.elapsed, batches, self.pace.rate() if self.is_steady else None)

    @property
    def durations(self) -> list[float]:
        return [span.seconds for span in self.past]

    @property
    def expected(self) -> int | None:
        """Batches of this epoch: as many as the last one made of the same total, until that proves to be too few."""
        return self.made if self.made and self.made_of == self.total and self.made >= (self.batch or 0) else self.total

    @property
    def batch(self) -> int | None:
        """The batch that was begun last in this epoch, from 1."""
        done = self.count - self.first
        return done + self.skipped if done else None

    @property
    def elapsed(self) -> float:
        return self.seconds - self.before

    def waiting(self, left: int | None) -> int | None:
        """Batches of this epoch that have not begun; None where that is not known.

        Args:
            left: batches of the whole run that have not begun, None where it has no end of its own.
        """
        known = [] if left is None else [left]
        if self.expected is not None:
            known.append(max(0, self.expected - (self.batch or 0)))
        return min(known, default=None)

    def remaining(self, left: int | None = None) -> float | None:
        """Seconds until the last batch has ended, by the rate, else by the durations of earlier epochs."""
        rate, waiting = self.pace.rate(), self.waiting(left)
        if waiting is None or not rate:
            return max(0.0, usual_seconds(self.past, rate) - self.elapsed) if self.past else None
        is_within = self.expected is None or (self.batch or 0) <= self.expected
        is_under_way = self.batch and is_within and not self.is_over
        current = 1.0 - rate * (self.seconds - self.changed_at) if is_under_way else 0.0
        return (waiting + max(0.0, current)) / rate


def usual_seconds(spans: Iterable[Span], rate: float | None) -> float:
    """Seconds that such a span usually takes at this rate."""
    return median(span.at(rate) for span in spans)
