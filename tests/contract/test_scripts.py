"""The sh scripts that run on targets, as shellcheck (https://www.shellcheck.net) sees them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.requirements import require
from training_monitor.targets.scripts import read_subject

FOLDER = Path(__file__).parents[2] / "training_monitor" / "targets" / "sh"
USUAL = "SC2034"  # what functions set for whoever calls them


def test_shellcheck_finds_nothing_in_them() -> None:
    shellcheck, said = require("shellcheck"), ""
    for path in sorted(FOLDER.glob("*.sh")):
        needed, text = read_subject(path.stem)
        given = "".join(f"{name}=$1\n" for name in sorted(needed))
        command = [shellcheck, "--shell=sh", "--severity=warning", f"--exclude={USUAL}", "-"]
        found = subprocess.run(command, input=given + text, capture_output=True, text=True, timeout=60)
        said += f"{path.name}: {found.stdout}\n" if found.returncode else ""
    assert not said, said
