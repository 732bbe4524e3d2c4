"""The sh scripts that run on targets, as shellcheck (https://www.shellcheck.net) sees them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import require
from training_monitor.targets.scripts import read_subject

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "training_monitor" / "targets" / "sh"
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


def test_an_installed_package_has_them(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT / "training_monitor", source / "training_monitor")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-c", "import setuptools; setuptools.setup()", "--quiet", "build_py"]
    subprocess.run([*command, "--build-lib", str(site)], cwd=source, check=True, timeout=300)
    installed = site / "training_monitor" / "targets" / "sh"
    assert names_in(installed) == names_in(FOLDER)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix in (".sh", ".py")}
