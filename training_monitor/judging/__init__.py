"""Conclusions from observations: verdicts, stalls, losses, failures, restarts. No I/O."""

from __future__ import annotations

from training_monitor import export_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from training_monitor.core.models import *
    from training_monitor.core.values import *
    from training_monitor.judging.failure import *
    from training_monitor.judging.limits import *
    from training_monitor.judging.loss import *
    from training_monitor.judging.restart import *
    from training_monitor.judging.stall import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.models": "Failure Goodput RunEvent",
        "core.values": "LossAnalysis Observation ProgressSample StallAnalysis Verdict",
        "judging.failure": "classify_failure",
        "judging.limits": "WatchConfig",
        "judging.loss": "analyze_loss",
        "judging.restart": "LedgerEntry RestartDecision RestartPolicy decide_restart",
        "judging.stall": "StallDetector StallPolicy analyze_stall",
    },
)
