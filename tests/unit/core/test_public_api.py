"""The public API, flat and by room: every name importable, none imported before it is used."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import training_monitor
from training_monitor.notify import channels

DOCUMENTED = set(
    """
    monitor_job check_job_status get_current_step detect_stall auto_restart submit_job_with_resume get_logger
    setup_logging check_gpu_utilization verify_ray_resources check_efa_utilization get_training_health
    print_training_health get_job_logs get_throughput find_latest_checkpoint start_background_monitor JobMonitor
    """.split()
)
PACKAGE = Path(training_monitor.__file__).parent
ROOMS = sorted(
    f"training_monitor.{file.parent.name}"
    for file in PACKAGE.glob("*/__init__.py")
    if "export_names" in file.read_text(encoding="utf-8")
)
PACKAGES = ("training_monitor", *ROOMS)


def test_every_public_name_is_importable_and_is_what_it_says() -> None:
    assert set(training_monitor.__all__) >= DOCUMENTED
    everywhere: dict[str, object] = {}
    for package in map(importlib.import_module, PACKAGES):
        assert list(package.__all__) == sorted(set(package.__all__))
        assert set(package.__all__) < set(dir(package))
        assert all(hasattr(package, name) for name in dir(package))
        modules = {each.name for each in pkgutil.iter_modules(package.__path__)}
        assert modules.isdisjoint(package.__all__), "whoever imports such a module would find it in place of the name"
        space: dict[str, object] = {}
        exec(f"from {package.__name__} import *", space)
        assert set(package.__all__) <= set(space)
        for name in package.__all__:
            found = getattr(package, name)
            assert found.__name__ == {"ProgressSample": "Observation"}.get(name, name)
            assert found.__module__.startswith("training_monitor.")
            assert found.__doc__ or issubclass(found, Exception) or name == "Transport"
            assert everywhere.setdefault(name, found) is found, name


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    for package in PACKAGES:
        with pytest.raises(AttributeError, match=f"{package}.*no_such_thing"):
            importlib.import_module(package).no_such_thing  # noqa: B018
    with pytest.raises(ImportError, match="no_such_thing"):
        from training_monitor import no_such_thing  # noqa: F401


def test_what_type_checkers_are_told_is_what_there_is() -> None:
    text = Path(training_monitor.__file__).read_text()
    assert set(re.findall(r"\b(\w+) as \1\b", text)) == set(training_monitor.__all__)
    for package in ROOMS:
        text = Path(importlib.import_module(package).__file__ or "").read_text()
        told = re.findall(r"^    from training_monitor\.(\S+) import \*$", text, re.MULTILINE)
        homes = {*re.findall(r'^ {8}"([a-z_.]+)":', text, re.MULTILINE)}
        if "**list_homes()" in text:
            homes.add("notify.channels")
        assert told == sorted(homes), package
    text = Path(channels.__file__).read_text()
    assert sorted(re.findall(r"\b(\w+) as \1\b", text)) == sorted(" ".join(channels.list_homes().values()).split())


def test_the_version_is_the_one_of_the_distribution() -> None:
    setup = (Path(__file__).parents[3] / "setup.cfg").read_text()
    assert f"version = {training_monitor.__version__}\n" in setup


def test_importing_the_package_loads_nothing_else_that_costs_time() -> None:
    heavy = "json argparse subprocess sqlite3 urllib.request http.server"
    code = "import sys, training_monitor\n"
    code += f"print(*(m for m in sys.modules if m.startswith('training_mon') or m in {heavy.split()!r}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "training_monitor\n"


@pytest.mark.parametrize("name", ["fleet", "launch", "run", "watch", "web"])
def test_a_large_command_is_declared_without_what_it_does(name: str) -> None:
    """For `--help` and Tab, which people wait for."""
    code = f"import sys; from training_monitor.cli.parsing import build_parser; build_parser({name!r})"
    code += "; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("training_monitor.")}
    assert rooms <= {"cli", "core", "logs", "targets", "verdict"}


@pytest.mark.parametrize("file", ["__init__.py", "__main__.py"])
def test_an_older_python_can_read_what_says_that_it_is_too_old(file: str) -> None:
    ast.parse((Path(training_monitor.__file__).parent / file).read_text(), feature_version=(3, 7))
