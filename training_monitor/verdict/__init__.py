"""Conclusions from observations: verdicts, stalls, losses, failures, restarts. No I/O."""

from __future__ import annotations

from training_monitor import export_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from training_monitor.core.models import *
    from training_monitor.core.values import *
    from training_monitor.verdict.failure import *
    from training_monitor.verdict.limits import *
    from training_monitor.verdict.loss import *
    from training_monitor.verdict.restart import *
    from training_monitor.verdict.stall import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.models": "Failure Goodput RunEvent",
        "core.values": "LossAnalysis Observation ProgressSample StallAnalysis Verdict",
        "verdict.failure": "classify_failure",
        "verdict.limits": "WatchConfig",
        "verdict.loss": "analyze_loss",
        "verdict.restart": "LedgerEntry RestartDecision RestartPolicy decide_restart",
        "verdict.stall": "StallDetector StallPolicy analyze_stall",
    },
)
