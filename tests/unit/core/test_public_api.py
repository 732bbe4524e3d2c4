"""The flat public API: every name importable, none imported before it is used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import training_monitor

DOCUMENTED = {
    "monitor_job",
    "check_job_status",
    "get_current_step",
    "detect_stall",
    "auto_restart",
    "submit_job_with_resume",
    "get_logger",
    "setup_logging",
    "check_gpu_utilization",
    "verify_ray_resources",
    "check_efa_utilization",
    "get_training_health",
    "print_training_health",
    "get_job_logs",
    "get_throughput",
    "find_latest_checkpoint",
    "start_background_monitor",
    "JobMonitor",
}


def test_all_is_sorted_and_has_no_name_twice() -> None:
    assert list(training_monitor.__all__) == sorted(set(training_monitor.__all__))


def test_every_documented_function_is_public() -> None:
    assert set(training_monitor.__all__) >= DOCUMENTED


@pytest.mark.parametrize("name", training_monitor.__all__)
def test_every_public_name_is_importable_and_is_what_it_says(name: str) -> None:
    found = getattr(training_monitor, name)
    assert found.__name__ == name
    assert found.__module__.startswith("training_monitor.")
    assert found.__doc__ or issubclass(found, Exception) or name == "Transport"


def test_a_star_import_gives_all_of_them() -> None:
    space: dict[str, object] = {}
    exec("from training_monitor import *", space)
    assert set(training_monitor.__all__) <= set(space)


def test_dir_lists_every_public_name() -> None:
    assert set(training_monitor.__all__) < set(dir(training_monitor))


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        training_monitor.no_such_thing  # noqa: B018
    with pytest.raises(ImportError, match="no_such_thing"):
        from training_monitor import no_such_thing  # noqa: F401


def test_what_type_checkers_are_told_is_what_there_is() -> None:
    text = Path(training_monitor.__file__).read_text()
    assert set(re.findall(r"\b(\w+) as \1\b", text)) == set(training_monitor.__all__)


def test_the_version_is_the_one_of_the_distribution() -> None:
    setup = (Path(__file__).parents[3] / "setup.cfg").read_text()
    assert f"version = {training_monitor.__version__}\n" in setup


def test_importing_the_package_loads_nothing_that_costs_time() -> None:
    heavy = "json argparse subprocess sqlite3 urllib.request http.server"
    code = f"import sys; import training_monitor; print([m for m in {heavy.split()!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_importing_the_package_loads_no_other_module_of_it() -> None:
    code = "import sys; import training_monitor; print(sorted(m for m in sys.modules if m.startswith('training_mon')))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "['training_monitor']\n"


@pytest.mark.parametrize("file", ["__init__.py", "__main__.py"])
def test_an_older_python_can_read_what_says_that_it_is_too_old(file: str) -> None:
    ast.parse((Path(training_monitor.__file__).parent / file).read_text(), feature_version=(3, 7))
