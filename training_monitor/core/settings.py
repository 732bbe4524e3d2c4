"""Where files are kept and how the environment changes it; computed from a mapping, without file access."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from training_monitor.core.errors import SettingsError
from training_monitor.core.regex import regex

STATE_DIR = "TRAINING_MONITOR_STATE_DIR"
SETTINGS = "TRAINING_MONITOR_SETTINGS"
LEASE = "TRAINING_MONITOR_LEASE"
LOG_LEVEL = "TRAINING_MONITOR_LOG_LEVEL"
LOG_FILE = "TRAINING_MONITOR_LOG_FILE"
VAST_KEY_PATH = "VASTAI_SSH_KEY_PATH"
VAST_DEFAULT_KEY = "~/.ssh/vastai/vastai_ed25519"
_API_KEYS = ("VASTAI_API_KEY", "VAST_API_KEY")  # the first one set wins
_API_PATH = regex(r"/+(?:api/v\d+/*)?$")


def state_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder of database, locks and known hosts: TRAINING_MONITOR_STATE_DIR, XDG, or ~/.local/state."""
    if chosen := environ.get(STATE_DIR):
        return os.path.abspath(os.path.expanduser(chosen))
    base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "training_monitor")


def runtime_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return a short private folder for ssh control sockets, whose paths are limited to about 100 characters."""
    return os.path.join(environ.get("XDG_RUNTIME_DIR") or "/tmp", f"training_monitor-{os.getuid()}")


def settings_files(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the candidate settings files: TRAINING_MONITOR_SETTINGS, else settings.toml, then settings.json."""
    if chosen := environ.get(SETTINGS):
        return [os.path.abspath(os.path.expanduser(chosen))]
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return [os.path.join(base, "training_monitor", name) for name in ("settings.toml", "settings.json")]


def vast_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Map our variables (VASTAI_API_KEY, VASTAI_API_BASE_URL) to those of the vastai CLI (VAST_API_KEY, VAST_URL).

    Unset variables are left out. The key travels in the environment only, never in argv. Raises SettingsError for an
    invalid URL.
    """
    found = {}
    if key := next((environ[name].strip() for name in _API_KEYS if environ.get(name, "").strip()), None):
        found["VAST_API_KEY"] = key
    if url := environ.get("VASTAI_API_BASE_URL", "").strip():
        if not re.fullmatch(r"https?://[^\s/@]+(?:/\S*)?", url):
            raise SettingsError("VASTAI_API_BASE_URL", url, "a URL such as https://console.vast.ai/api/v0")
        found["VAST_URL"] = _API_PATH.sub("", url)
    return found


def without_http_proxies(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment with a proxy for https alone, of which it sees only the host; it would read http."""
    kept = {name: value for name, value in environ.items() if name.lower() not in ("http_proxy", "all_proxy")}
    names = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    proxy = next((environ[name] for name in names if environ.get(name)), None)
    return {**kept, "https_proxy": proxy} if proxy else kept


def vast_key_path(environ: Mapping[str, str] = os.environ) -> str:
    """Return the private key for rented instances: VASTAI_SSH_KEY_PATH, else ~/.ssh/vastai/vastai_ed25519."""
    return os.path.abspath(os.path.expanduser(environ.get(VAST_KEY_PATH) or VAST_DEFAULT_KEY))
