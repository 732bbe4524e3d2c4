"""axe-core, which looks for barriers in a page: its script, as npm packs it.

    python3 -m tests.axe        put it below .venv, by the npm that is installed and its configuration

Without it tests are skipped with a line that says so, or fail where TRAINING_MONITOR_REQUIRE names `axe`.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.requirements import miss

FOLDER = Path(__file__).parents[1] / ".venv" / "axe"
PACKAGE, VERSION = "axe-core", "4.14.1"
ARCHIVE = FOLDER / f"{PACKAGE}-{VERSION}.tgz"


def axe_script() -> str:
    """Return the script; skip or fail the test where it is not there."""
    if not ARCHIVE.exists():
        miss("axe", f"{PACKAGE} {VERSION} is not installed (python3 -m tests.axe)")
    with tarfile.open(ARCHIVE) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script
        return script.read().decode()


def install() -> None:
    """Fetch it, unless it is there."""
    if not ARCHIVE.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"]
        subprocess.run(command, check=True, cwd=FOLDER, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    install()
    print(f"{PACKAGE} {VERSION} is in {FOLDER}", file=sys.stderr)
