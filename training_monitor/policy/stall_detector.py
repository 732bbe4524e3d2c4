"""The samples of one run, and whether somebody was told that it stalls."""

from __future__ import annotations

from typing import Any

from training_monitor.policy.stall import DEFAULT_POLICY, WINDOW, StallPolicy, analyze_stall
from training_monitor.policy.stall_history import thin_looks
from training_monitor.verdicts import Observation, StallAnalysis


class StallDetector:
    """Keeps the samples of one run, older ones thinned, and what was said about it."""

    def __init__(self, policy: StallPolicy = DEFAULT_POLICY) -> None:
        self.policy = policy
        self._samples: list[Observation] = []
        self._notified_at: float | None = None

    def record_sample(self, sample: Observation) -> None:
        """Add one look; an older one than the last is not counted."""
        if not self._samples or sample.timestamp > self._samples[-1].timestamp:
            self._samples = thin_looks([*self._samples, sample], WINDOW)

    def analyze(self, now: float | None = None) -> StallAnalysis:
        """`analyze_stall` over what was recorded; `now` defaults to the last look. Recovery forgets the notice."""
        moment = now if now is not None else self._samples[-1].timestamp if self._samples else 0.0
        found = analyze_stall(tuple(self._samples), now=moment, policy=self.policy)
        if not found.is_stalling:
            self._notified_at = None
        return found

    def has_notified(self) -> bool:
        return self._notified_at is not None

    def mark_notified(self, now: float) -> None:
        """Somebody was told of the present stall."""
        self._notified_at = now

    def reset(self) -> None:
        self._samples.clear()
        self._notified_at = None

    def get_state(self) -> dict[str, Any]:
        """sample_count, current_step, current_speed, current_eta, stall_detected_at, stall_notified_at."""
        last = self._samples[-1] if self._samples else None
        found = self.analyze()
        return {
            "sample_count": len(self._samples),
            "current_step": last.step if last else None,
            "current_speed": last.steps_per_second if last else None,
            "current_eta": last.eta_seconds if last else None,
            "stall_detected_at": found.stall_detected_at,
            "stall_notified_at": self._notified_at,
        }
