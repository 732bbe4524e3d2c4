"""Monitor many trainings at once: members, alerts, the user's alert rules, history."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.fleet.config import *
    from training_monitor.fleet.fleet import *
    from training_monitor.fleet.history import *
    from training_monitor.fleet.metrics import *
    from training_monitor.fleet.mock import *
    from training_monitor.fleet.prometheus import *
    from training_monitor.fleet.trends import *
    from training_monitor.fleet.values import *
    from training_monitor.fleet.vast_ai import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "fleet.config": "AlertRule FleetConfig",
        "fleet.fleet": "FleetMonitor load_fleet_config",
        "fleet.history": "History",
        "fleet.metrics": "Health Thresholds TrainingMetrics",
        "fleet.mock": "MockFleet",
        "fleet.prometheus": "format_metrics",
        "fleet.trends": "compare_runs cost_by_day project_cost trend",
        "fleet.values": "FleetAlert MemberSpec FleetSample FleetSnapshot FleetSummary",
        "fleet.vast_ai": "VastAIMonitor",
    },
)
