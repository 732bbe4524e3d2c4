"""Find the checkpoints of a training, and check whether they are complete."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.checkpoints.checkpoints import *
    from training_monitor.core.models import *
    from training_monitor.core.values import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "checkpoints.checkpoints": "find_latest_checkpoint get_checkpoint_listing list_checkpoints",
        "core.models": "Checkpoint",
        "core.values": "CheckpointListing",
    },
)
