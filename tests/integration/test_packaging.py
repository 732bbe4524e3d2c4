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

from tests.requirements import require, require_package
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
    command = [require("pyproject-build"), "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Release(sdist, wheel)


@pytest.fixture(scope="module")
def run(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=LIMIT)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv"), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-index", str(release.wheel)]
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


def test_the_source_has_the_package_its_pages_and_examples(release: Release) -> None:
    source = set(release.source)
    scripts = {name for name in files_of("docs") if name.endswith(".py")}
    assert {*files_of("docs"), *files_of("examples"), *files_of("training_monitor")} - scripts <= source
    assert {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff", "setup.cfg"} <= source


def test_the_wheel_has_the_package_the_pages_and_examples_as_they_are(release: Release) -> None:
    share = f"training_monitor-{__version__}.data/data/share/"
    found = {
        name.replace(f"{share}doc/training_monitor/", "").replace(f"{share}man/man1/", "docs/"): data
        for name, data in release.installed.items()
        if ".dist-info/" not in name
    }
    pages = {name: data for name, data in {**files_of("docs"), **files_of("examples")}.items()}
    scripts = {name for name in pages if name.startswith("docs/") and name.endswith(".py")}
    tops = {name: (ROOT / name).read_bytes() for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff")}
    expected = {**files_of("training_monitor"), **pages, **tops}
    assert found == {name: data for name, data in expected.items() if name not in scripts}


def test_twine_accepts_both(release: Release) -> None:
    command = [require("twine"), "--no-color", "check", "--strict", str(release.sdist), str(release.wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


def test_every_link_of_the_description_works_on_an_index_page(release: Release) -> None:
    metadata = message_from_string(release.metadata)
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL") or [])
    assert {"Source", "Documentation", "Changelog", "Issues"} <= set(urls)
    assert all(url.startswith(urls["Source"]) for url in urls.values())
    links = LINK.findall(str(metadata.get_payload()))
    of_the_project = re.compile(rf"{re.escape(urls['Source'])}/(?:blob|raw)/main/([^#]*)")
    paths = [found[1] for link in links if (found := of_the_project.match(link))]
    assert len(paths) > 20 and all((ROOT / path).exists() for path in paths)
    assert all(link.startswith("https://") for link in links)


def test_it_can_be_cited() -> None:
    """As the schema of Citation File Format 1.2.0 asks for, of the keys that are used here."""
    citation = require_package("yaml").safe_load((ROOT / "CITATION.cff").read_text())
    texts = {"cff-version", "message", "type", "title", "abstract", "version", "license", "repository-code"}
    assert set(citation) == texts | {"authors", "keywords"}
    assert all(isinstance(citation[key], str) and citation[key] for key in texts)
    assert (citation["cff-version"], citation["type"], citation["version"]) == ("1.2.0", "software", __version__)
    assert [list(author) for author in citation["authors"]] == [["name"]]
    assert len(set(citation["keywords"])) == len(citation["keywords"]) > 0
    assert f"Source = {citation['repository-code']}\n" in (ROOT / "setup.cfg").read_text()


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
    for name, data in files_of("training_monitor/skill/references").items():
        assert (installed / name.removeprefix("training_monitor/skill/")).read_bytes() == data


def test_it_judges_a_training(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {step}/200 loss 0.5\n" for step in range(1, 201)) + "Training completed\n")
    done = run("training-monitor", "check", "local", str(log), "--json")
    assert done.returncode == 0, done.stderr
    [job] = json.loads(done.stdout)["jobs"]
    assert (job["state"], job["step"]) == ("finished", 200)


def test_its_demo_comes_to_its_end(run: Run) -> None:
    done = run("training-monitor", "demo", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["success"] is True
