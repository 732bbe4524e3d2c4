"""One search of the package: one place with stall limits, one with thresholds of GPUs, no second judge."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import training_monitor

PACKAGE = Path(training_monitor.__file__).parent
LIMITS = re.compile(r"[a-z_]+_pause|stall_after|stagnation_threshold|IDLE_PERCENT|FULL_PERCENT|SPINNING_POWER")
POLICY = "verdict/limits.py"
# A threshold of the caller, documented as `stagnation_threshold`: a number as its default, and no limit beside it.
CALLERS_THRESHOLD = {"supervision/monitor.py", "supervision/restart.py", "verdict/restart.py", "rent/config.py"}
# The places that create a Verdict without observations, because there was nothing to observe or to judge.
VERDICTS_BESIDE = {
    "runs/values.py",  # a run that was not judged yet
    "look/health_report.py",  # a job that is not there
    "supervision/watch_state.py",  # stall detection that is switched off
}
OTHER_VERDICTS = {"rent/sweep.py"}  # a class of its own: what becomes of a rented machine
ANALYZE_STALL = {"verdict/judge.py", "verdict/stall.py", "__init__.py"}


@cache
def modules() -> list[tuple[str, list[ast.AST]]]:
    """The modules of the package, with all nodes of each."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE).as_posix(), [*ast.walk(ast.parse(path.read_text("utf-8")))]) for path in paths]


def numbered(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that are given a number above zero: constants, fields, defaults of arguments, and arguments of calls."""
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from _if_number(node.target.id, node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield from _if_number(target.id, node.value)
        elif isinstance(node, ast.keyword) and node.arg:
            yield from _if_number(node.arg, node.value)
        elif isinstance(node, ast.arguments):
            given = [*node.posonlyargs, *node.args]
            pairs = [*zip(reversed(given), reversed(node.defaults)), *zip(node.kwonlyargs, node.kw_defaults)]
            for argument, default in pairs:
                yield from _if_number(argument.arg, default)


def _if_number(name: str, value: ast.expr | None) -> Iterator[str]:
    if value is not None and _is_number(value) and ast.literal_eval(value) > 0:
        yield name


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def called(nodes: list[ast.AST]) -> set[str]:
    """The names of what is called, without what they are attributes of."""
    return {ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)}


def test_only_the_stall_policy_has_limits_of_silence() -> None:
    found = {name: {each for each in numbered(nodes) if LIMITS.fullmatch(each)} for name, nodes in modules()}
    assert len(found.pop(POLICY)) == 9
    assert found.pop("verdict/gpu_load.py") == {"IDLE_PERCENT", "FULL_PERCENT", "SPINNING_POWER"}
    for name, limits in found.items():
        assert not limits or (limits == {"stagnation_threshold"} and name in CALLERS_THRESHOLD), (name, limits)


def test_only_gpu_load_compares_a_utilization_or_power_with_a_number() -> None:
    compared = re.compile(r"utili[sz]ation|gpu_power|power_fraction|power_draw")
    for name, nodes in modules():
        for node in nodes:
            if isinstance(node, ast.Compare) and name != "verdict/gpu_load.py":
                sides = [node.left, *node.comparators]
                numbers = [each for each in sides if _is_number(each)]
                words = [ast.unparse(each) for each in sides]
                assert not (numbers and any(map(compared.search, words))), (name, node.lineno, words)


def test_only_the_judge_makes_a_verdict_of_what_was_seen() -> None:
    makers = {name for name, nodes in modules() if "Verdict" in called(nodes)}
    assert makers - OTHER_VERDICTS == VERDICTS_BESIDE | {"verdict/judge.py"}
    for name, nodes in modules():
        for node in nodes:
            is_verdict = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Verdict"
            if is_verdict and name in VERDICTS_BESIDE:
                states = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
                assert states == ["unknown"] or name == "supervision/watch_state.py", (name, node.lineno)


def test_nobody_but_the_judge_analyzes_stalls() -> None:
    users = {name for name, nodes in modules() for node in nodes if _names(node, "analyze_stall")}
    assert users <= ANALYZE_STALL and "verdict/judge.py" in users
    detectors = {name for name, nodes in modules() if "StallDetector" in called(nodes)}
    assert detectors == set()


def _names(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(each.name == name for each in node.names)
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
