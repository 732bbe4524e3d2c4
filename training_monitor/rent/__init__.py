"""Run trainings on rented machines, from the queue to the destruction of the instance."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.rent.config import *
    from training_monitor.rent.credits import *
    from training_monitor.rent.dataset import *
    from training_monitor.rent.instance_steps import *
    from training_monitor.rent.queue import *
    from training_monitor.rent.sweeper import *
    from training_monitor.rent.sync import *
    from training_monitor.rent.worker import *
    from training_monitor.vast.training_request import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "rent.config": "ServiceConfig",
        "rent.credits": "Credits",
        "rent.dataset": "validate_dataset",
        "rent.instance_steps": "check_instance format_training_config",
        "rent.queue": "TrainingQueue",
        "rent.sweeper": "sweep_instances",
        "rent.sync": "fetch_folder push_folder",
        "rent.worker": "run_worker submit_training",
        "vast.training_request": "Hook JobState JobWork QueuedJob TrainingRequest TrainingSpec",
    },
)
