"""Measure the structure of the package: `python3 bench/house.py [FOLDER]`, of this checkout or another one.

Prints a table of name and number; asserts nothing. The number of test cases is printed where pytest is installed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "training_monitor"
SHARED_ROOMS = ("core", "targets")  # every room may import these


def main(root: Path) -> None:
    trees = {_module(path, root): ast.parse(path.read_text()) for path in sorted((root / PACKAGE).rglob("*.py"))}
    public = {_module(path, root) for path in (root / PACKAGE).rglob("__init__.py")}  # they name what is public
    edges = {
        (module, used)
        for module, tree in trees.items()
        if module not in public
        for used in _imports(tree, trees)
        if used != module
    }
    rooms = {(_room(importer), _room(used)) for importer, used in edges if _room(importer) != _room(used)}
    rows = {
        "lines of Python": sum(len(path.read_text().splitlines()) for path in (root / PACKAGE).rglob("*.py")),
        "lines of sh": sum(len(path.read_text().splitlines()) for path in (root / PACKAGE).rglob("*.sh")),
        "files": len(trees),
        "modules with one importer": len(_imported_once(edges)),
        "of these, under 100 lines": sum(_lines(root, module) < 100 for module in _imported_once(edges)),
        "cycles of folders": len(_cycles(rooms)),
        "circles of files": len(_circles(edges)),
        "imports across subject folders": sum(_room(a) != _room(b) and _room(b) not in SHARED_ROOMS for a, b in edges),
        "frozen values": sum(_is_frozen(node) for tree in trees.values() for node in ast.walk(tree)),
        "public names": len(_public_names(trees[PACKAGE])),
        "words of docs/architecture.md": len((root / "docs/architecture.md").read_text().split()),
        "test cases": _test_cases(root),
    }
    for name, number in rows.items():
        print(f"{name:<32} {number:>7}")


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _lines(root: Path, module: str) -> int:
    path = root / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(path.read_text().splitlines())


def _room(module: str) -> str:
    """The folder of a module below the package; modules beside the folders are the core."""
    parts = module.split(".")
    return parts[1] if len(parts) > 2 else "core"


def _imports(tree: ast.Module, modules: dict[str, ast.Module]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


def _imported_once(edges: set[tuple[str, str]]) -> list[str]:
    importers = defaultdict(set)
    for importer, used in edges:
        importers[used].add(importer)
    return [module for module, found in importers.items() if len(found) == 1]


def _cycles(rooms: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of folders each of which reaches the other one."""
    reached = {(a, b) for a, b in rooms if "core" not in (a, b)}
    while more := {(a, d) for a, b in reached for c, d in reached if b == c} - reached:
        reached |= more
    return sorted((a, b) for a, b in reached if a < b and (b, a) in reached)


def _circles(edges: set[tuple[str, str]]) -> set[frozenset[str]]:
    """The groups of modules that all reach one another."""
    used = defaultdict(set)
    for importer, each in edges:
        used[importer].add(each)
    reached = {module: _reach(module, used) for module in [*used]}
    return {frozenset(b for b in seen if a in reached.get(b, ())) for a, seen in reached.items() if a in seen}


def _reach(module: str, used: dict[str, set[str]]) -> set[str]:
    seen, waiting = set[str](), [module]
    while waiting:
        new = used.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def _is_frozen(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any("frozen=True" in ast.unparse(each) for each in node.decorator_list)


def _public_names(tree: ast.Module) -> list[str]:
    """The names in the table of the package that says where each lives."""
    tables = (node for node in ast.walk(tree) if isinstance(node, ast.Dict) and node.keys)
    homes: dict[str, str] = ast.literal_eval(next(tables))
    return " ".join(homes.values()).split()


def _test_cases(root: Path) -> int:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True)
    counted = re.search(r"^(\d+)(?:/\d+)? tests? collected", found.stdout, re.MULTILINE)
    return int(counted[1]) if counted else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
