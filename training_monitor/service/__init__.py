"""Trainings on rented machines, from the queue to the destroyed instance."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.service.config import *
    from training_monitor.service.credits import *
    from training_monitor.service.dataset import *
    from training_monitor.service.instance_steps import *
    from training_monitor.service.queue import *
    from training_monitor.service.sweeper import *
    from training_monitor.service.sync import *
    from training_monitor.service.worker import *
    from training_monitor.vast.training_request import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "service.config": "ServiceConfig",
        "service.credits": "Credits",
        "service.dataset": "validate_dataset",
        "service.instance_steps": "check_instance format_training_config",
        "service.queue": "TrainingQueue",
        "service.sweeper": "sweep_instances",
        "service.sync": "fetch_folder push_folder",
        "service.worker": "run_worker submit_training",
        "vast.training_request": "Hook JobState JobWork QueuedJob TrainingRequest TrainingSpec",
    },
)
