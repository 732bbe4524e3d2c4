"""The module names of the earlier Ray skill; new code imports from `training_monitor`."""
