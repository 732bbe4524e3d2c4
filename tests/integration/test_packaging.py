"""What a release is made of: built by `python -m build`, checked by twine, and installed into an empty environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest

from tests.requirements import require
from training_monitor import __version__

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]*)\)")
LIMIT = 300  # seconds, for a build that fetches its backend

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Release:
    sdist: Path
    wheel: Path

    @property
    def source(self) -> dict[str, bytes]:
        """The files of the sdist, by path in its folder."""
        with tarfile.open(self.sdist) as archive:
            members = [(each.name.partition("/")[2], archive.extractfile(each)) for each in archive if each.isfile()]
            return {name: file.read() for name, file in members if file}

    @property
    def installed(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    @property
    def metadata(self) -> str:
        return self.installed[f"training_monitor-{__version__}.dist-info/METADATA"].decode()


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The sdist, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [require("pyproject-build"), "--installer", "uv", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Release(sdist, wheel)


@pytest.fixture(scope="module")
def run(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=LIMIT)
    pip = [str(Path(require("uvx")).with_name("uv")), "pip", "install", "--quiet", "--python", str(folder / "venv")]
    pip += ["--no-index", str(release.wheel)]
    own = {"HOME": str(folder), "TRAINING_MONITOR_STATE_DIR": str(folder / "state")}
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own
    subprocess.run(pip, env=environ, check=True, timeout=LIMIT)

    def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(folder / "venv" / "bin" / name), *words]
        return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT)

    return run


def files_of(folder: str) -> dict[str, bytes]:
    """What git keeps of a folder, by path in the project."""
    kept = (path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix not in (".pyc", ".pyo"))
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in kept}


# ---------------------------------------------------------------- what is in them


def test_the_source_has_all_that_a_person_needs_to_build_and_to_test_it(release: Release) -> None:
    source = set(release.source)
    for folder in ("training_monitor", "tests", "docs", "examples", "bench"):
        assert not set(files_of(folder)) - source, folder
    assert {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "SKILL.md", "setup.cfg", ".ci/run"} <= source


def test_the_wheel_has_the_package_the_pages_and_examples_as_they_are(release: Release) -> None:
    share = f"training_monitor-{__version__}.data/data/share/"
    found = {
        name.replace(f"{share}doc/training_monitor/", "").replace(f"{share}man/man1/", "docs/"): data
        for name, data in release.installed.items()
        if ".dist-info/" not in name
    }
    pages = {name: data for name, data in files_of("docs").items() if name.endswith((".md", ".1"))}
    tops = {name: (ROOT / name).read_bytes() for name in ("README.md", "CHANGELOG.md")}
    assert found == {**files_of("training_monitor"), **pages, **files_of("examples"), **tops}


def test_twine_accepts_both(release: Release) -> None:
    command = [require("twine"), "--no-color", "check", "--strict", str(release.sdist), str(release.wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


def test_no_address_is_made_up(release: Release) -> None:
    assert "Project-URL" not in message_from_string(release.metadata)
    links = LINK.findall((ROOT / "README.md").read_text())
    assert not [link for link in links if "://" in link] and all(
        (ROOT / link.partition("#")[0]).exists() for link in links
    )


# ---------------------------------------------------------------- in an empty environment


def test_an_empty_environment_has_the_command_and_nothing_else(run: Run) -> None:
    assert run("training-monitor", "--version").stdout == f"training-monitor {__version__}\n"
    code = "from importlib.metadata import distributions; print(*{each.name for each in distributions()})"
    assert run("python", "-c", code).stdout == "training_monitor\n"


@pytest.mark.parametrize("tool", ["pipx", "uvx"])
def test_it_runs_as_the_readme_says(release: Release, tool: str, tmp_path: Path) -> None:
    wheel, environ = str(release.wheel), {**os.environ, "HOME": str(tmp_path), "UV_PYTHON": sys.executable}
    environ.pop("PYTHONPATH", None)
    words = {"pipx": ["run", "--spec", wheel], "uvx": ["--from", wheel]}[tool]
    command = [require(tool), *words, "training-monitor", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout == f"training-monitor {__version__}\n", done.stderr


def test_the_skill_comes_with_it(run: Run, tmp_path: Path) -> None:
    assert run("training-monitor", "skill").stdout == (ROOT / "SKILL.md").read_text()
    for expected in ("installed", "unchanged"):
        done = run("training-monitor", "skill", "--install", str(tmp_path), "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["folders"][0]["state"] == expected, done.stderr
    installed = tmp_path / "training-monitor"
    assert (installed / "SKILL.md").read_bytes() == (ROOT / "SKILL.md").read_bytes()
    for name, data in files_of("training_monitor/agents/skill/references").items():
        assert (installed / name.removeprefix("training_monitor/agents/skill/")).read_bytes() == data


def test_it_judges_a_training(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {step}/200 loss 0.5\n" for step in range(1, 201)) + "Training completed\n")
    done = run("training-monitor", "check", "local", str(log), "--json")
    assert done.returncode == 0, done.stderr
    [job] = json.loads(done.stdout)["jobs"]
    assert (job["state"], job["step"]) == ("finished", 200)


def test_it_supervises_the_training_of_its_demo(run: Run) -> None:
    training = "venv/bin/python -m training_monitor.cli.demo_training --crash-at 0 --hang-at 0 --steps 40"
    options = ["--name", "demo", "--checkpoint-dir", "none", "--interval", "0.2", "--json"]
    done = run("training-monitor", "run", *options, "--", *training.split(), "--output", "checkpoints")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["final_step"] == 40
