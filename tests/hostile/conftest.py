"""The targets and the account of the integration tests, and a table of what was tried and what got through."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.tries import Tries
from tests.integration.conftest import (  # noqa: F401
    in_pod,
    kube,
    local,
    over_ssh,
    pod,
    pytest_generate_tests,
    sshd,
    surroundings,
    target,
    vast,
    vastai,
)
from tests.warm_tools import warm_tool

HERE = Path(__file__).parent
# In the place of Python, which is started for each call of a tool: `-c CODE WORD...`.
CALLED = f"""
import sys
if sys.argv[1:] == ["--help"]:
    sys.path.insert(0, {str(HERE.parents[1])!r})
    import importlib, pkgutil, training_monitor
    for each in pkgutil.walk_packages(training_monitor.__path__, "training_monitor."):
        if not each.name.endswith("__main__") and ".sh." not in each.name:
            importlib.import_module(each.name)
else:
    code = sys.argv[2]
    del sys.argv[1:3]
    exec(code)
"""


@pytest.fixture(scope="session")
def mcp_code() -> Iterator[str]:
    """The code of an MCP server whose calls import the package once for all: that takes most of their time."""
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as folder:
        script = Path(folder, "script", "python")
        script.parent.mkdir()
        script.write_text(CALLED)
        with warm_tool(str(script), Path(folder), "", HOME=folder) as python:
            start = "from training_monitor.cli.main import main; sys.exit(main())"
            yield f"import sys; sys.executable = {str(python)!r}; {start}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    Tries.count = 0
    try:
        return (yield)
    finally:
        item.user_properties.append(("tried", Tries.count or 1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print for each module what it tried; of a test that fails, one try got through, or more."""
    tried, through = Counter[str](), Counter[str]()
    for outcome in ("passed", "failed", "rerun"):
        for report in terminalreporter.getreports(outcome):
            module = Path(report.nodeid.partition("::")[0])
            if module.parent.name == HERE.name and report.when == "call":
                tried[module.stem] += sum(number for name, number in report.user_properties if name == "tried")
                through[module.stem] += outcome != "passed"
    if not tried:
        return
    terminalreporter.section("attacks and faults")
    terminalreporter.write_line("| class of attacks | attempts | successful |\n| --- | ---: | ---: |")
    for name in sorted(tried):
        kind = re.split('[:,.\n"]', (HERE / f"{name}.py").read_text(), maxsplit=4)[3]
        terminalreporter.write_line(f"| {kind} (`{name}.py`) | {tried[name]:,} | {through[name]} |")
    terminalreporter.write_line(f"| total | {tried.total():,} | {through.total()} |")
