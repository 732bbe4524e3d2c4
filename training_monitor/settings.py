"""Where things are kept and how the environment changes it; computed from a mapping, nothing is read or written."""

from __future__ import annotations

import os
from collections.abc import Mapping

STATE_DIR = "TRAINING_MONITOR_STATE_DIR"
SETTINGS = "TRAINING_MONITOR_SETTINGS"
LOG_LEVEL = "TRAINING_MONITOR_LOG_LEVEL"
LOG_FILE = "TRAINING_MONITOR_LOG_FILE"


def state_dir(environ: Mapping[str, str] = os.environ) -> str:
    """The folder for the database, locks and known hosts: TRAINING_MONITOR_STATE_DIR, else XDG, else ~/.local/state."""
    if chosen := environ.get(STATE_DIR):
        return os.path.abspath(os.path.expanduser(chosen))
    base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "training_monitor")


def runtime_dir(environ: Mapping[str, str] = os.environ) -> str:
    """A short private folder for ssh's control sockets (their paths may hold about 100 characters)."""
    return os.path.join(environ.get("XDG_RUNTIME_DIR") or "/tmp", f"training_monitor-{os.getuid()}")


def settings_files(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Where the settings file may be: TRAINING_MONITOR_SETTINGS, else settings.toml, then settings.json."""
    if chosen := environ.get(SETTINGS):
        return [os.path.abspath(os.path.expanduser(chosen))]
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return [os.path.join(base, "training_monitor", name) for name in ("settings.toml", "settings.json")]
