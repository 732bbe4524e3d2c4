"""The official Python SDK of the Model Context Protocol, in the versions that tests use as clients.

    python3 -m tests.mcp_clients        install them, each into an environment of its own below .venv/mcp

1.30 speaks the handshake's versions, 2.3 also 2026-07-28. A version that is not there skips its tests with a line that
says so, or fails them where TRAINING_MONITOR_REQUIRE names `mcp`.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.requirements import miss

FOLDER = Path(__file__).parents[1] / ".venv" / "mcp"
PACKAGE, VERSIONS = "mcp", ("1.30.*", "2.3.*")


def python_of(version: str) -> Path:
    """Return the Python of the environment with a version; skip or fail the test where it is not installed."""
    python = _environment(version) / "bin" / "python"
    if _is_complete(version):
        return python
    miss("mcp", f"{PACKAGE} {version} is not installed (python3 -m tests.mcp_clients)")


def install(version: str) -> None:
    """Install a version, unless it is there."""
    if not _is_complete(version):
        venv.create(_environment(version), with_pip=True, clear=True)
        command = [_environment(version) / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*command, "--disable-pip-version-check", f"{PACKAGE}=={version}"], check=True)


def _environment(version: str) -> Path:
    return FOLDER / version.removesuffix(".*")


def _is_complete(version: str) -> bool:
    """Whether the installation came to its end."""
    return any(_environment(version).glob(f"lib/*/site-packages/{PACKAGE}-{version}.dist-info/METADATA"))


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(install, VERSIONS))
    print(f"{len(VERSIONS)} versions are in {FOLDER}", file=sys.stderr)
