"""The programs and packages that integration tests need, and what happens when one is missing.

A missing program skips the test with a line that says so. Where a test run must not skip, name the programs in
TRAINING_MONITOR_REQUIRE (separated by commas or spaces): a missing one then fails the test.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

NAMES = {  # where they are not the tool's own
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "chromedriver": ("chromedriver", "chromium.chromedriver"),
    "alertmanager": ("prometheus-alertmanager", "alertmanager"),
    "node_exporter": ("prometheus-node-exporter", "node_exporter"),
}
# Of programs that are in no user's PATH, such as sshd.
MORE_FOLDERS = (str(Path(sys.executable).parent), "/usr/sbin", "/usr/local/sbin", "/usr/lib/systemd")
TOOLS = (
    *("kubectl", "sshd", "ssh", "ssh-keygen", "ray", "vastai", "tmux", "rsync"),
    *("shellcheck", "hf", "moto_server", "busybox"),
    *("agentskills", "pyproject-build", "twine", "pipx", "uvx"),
    *("systemd-journald", "zsh", "fish", "mandoc", "unshare", "podman", "slurmctld", "py-spy", "python3.14"),
    *("prometheus", "promtool", "alertmanager", "amtool", "node_exporter", "chromium", "chromedriver"),
)


def require(name: str, path: str | None = None) -> str:
    """The path of a tool on PATH or `path`.

    A shim of pyenv is no tool: it fails where pyenv's current Python has none. Without the tool, skip the test, or
    fail it if TRAINING_MONITOR_REQUIRE names it.
    """
    if name not in TOOLS:
        raise ValueError(f"{name!r} is none of {', '.join(TOOLS)}")
    searched = (path or os.environ.get("PATH", os.defpath)).split(os.pathsep)
    folders = os.pathsep.join([*(each for each in searched if Path(each).name != "shims"), *MORE_FOLDERS])
    for program in NAMES.get(name, (name,)):
        if found := shutil.which(program, path=folders):
            return found
    miss(name, f"{name} is not installed")


def require_package(name: str) -> Any:
    """Return a module of a package that not every machine has; skip or fail the test without it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        miss(package, f"{package} is not installed")


def require_installed(*names: str) -> None:
    """Skip or fail the test without these packages. The test does not import them itself, which may take seconds."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            miss(name, f"{name} is not installed")


def miss(name: str, said: str) -> NoReturn:
    """Skip the test, or fail it where TRAINING_MONITOR_REQUIRE names what is missing."""
    if name in re.split(r"[\s,]+", os.environ.get("TRAINING_MONITOR_REQUIRE", "")):
        pytest.fail(f"{said}, and required (TRAINING_MONITOR_REQUIRE)", pytrace=False)
    pytest.skip(f"{said}: nothing here was tested")
