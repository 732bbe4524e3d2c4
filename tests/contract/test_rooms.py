"""The rooms of docs/architecture.md, read from the source: who may import whom, what may do I/O, how long code gets.

    CORE <- PURE <- DOMAIN <- LOOPS <- FACES        EDGE imports CORE only; DOMAIN and later import EDGE

A room may import itself; a face only itself, except that cli may start the others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

NAME = "training_monitor"
ROOT = Path(__file__).parents[2] / NAME

ROOM_OF = {
    part: room
    for room, parts in {
        "FREE": "__init__ __main__",
        "CORE": "errors models verdicts watching renting reports settings units clock",
        "PURE": "parse policy",
        "EDGE": "targets rest mail store",
        "DOMAIN": "probes vast progress history looks notify uploads",
        "LOOPS": "supervise",
        "FACES": "cli tui web mcp csv_export",
    }.items()
    for part in parts.split()
}
MAY_IMPORT = {
    "CORE": {"CORE"},
    "PURE": {"CORE", "PURE"},
    "EDGE": {"CORE", "EDGE"},
    "DOMAIN": {"CORE", "PURE", "EDGE", "DOMAIN"},
    "LOOPS": {"CORE", "PURE", "EDGE", "DOMAIN", "LOOPS"},
    "FACES": {"CORE", "PURE", "EDGE", "DOMAIN", "LOOPS", "FACES"},
}
ONLY_IMPORTER = {
    "subprocess": "targets",
    "urllib.request": "rest",
    "smtplib": "mail",
    "sqlite3": "store",
    "curses": "tui",
    "http.server": "web",
}
IO_MODULES = ("subprocess", "socket", "urllib", "sqlite3", "http", "shutil", "tempfile", "smtplib")
NO_IO_BUT_TEXT = "urllib.parse"
STARTS_A_PROGRAM = re.compile(r"(system|popen|fork|forkpty|startfile|(posix_)?spawn.*|exec[lv].*)$")
# Python 3.10 lacks the first three; later versions dropped the others.
NOT_IN_EVERY_PYTHON = frozenset(
    "tomllib annotationlib compression aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp"
    " lib2to3 mailcap msilib nis nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib".split()
)
WHERE_THERE = {(f"{NAME}/probes/settings_file.py", "tomllib")}  # used where Python has it, and an error elsewhere
VAGUE_NAMES = frozenset("util utils helper helpers common base manager managers misc".split())
NAMES_INSIDE_A_ROOM = {"__main__", "queue"}  # the training queue is that of vast/: nobody imports it by this name
THIRD_PARTY_NAMES = frozenset(
    "torch torchvision torchaudio ray numpy pandas scipy sklearn tensorflow keras jax flax optax transformers datasets"
    " accelerate deepspeed megatron lightning pytorch_lightning diffusers peft trl vllm safetensors huggingface_hub"
    " tokenizers wandb mlflow tensorboard kubernetes requests httpx aiohttp yaml rich click typer pydantic psutil"
    " pynvml tqdm matplotlib plotly boto3 anthropic openai fastapi flask textual paramiko fabric vastai pytest".split()
)
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400


# ---------------------------------------------------------------- reading a package


@dataclass(frozen=True, slots=True)
class Import:
    """One name that one statement imports; `targets` are the dotted names it may mean, the longest first."""

    line: int
    targets: tuple[str, ...]
    level: int = 0
    while_importing: bool = True
    for_typing: bool = False

    @property
    def top(self) -> str:
        return self.targets[-1].partition(".")[0]


@dataclass(frozen=True, slots=True)
class Module:
    path: str
    name: str
    tree: ast.Module
    lines: int
    imports: tuple[Import, ...]

    @property
    def part(self) -> str:
        """What decides the room: the first name below the package."""
        return self.name.split(".")[1] if "." in self.name else "__init__"

    def at(self, line: int, message: str) -> str:
        return f"{self.path}:{line}: {message}"


Package = dict[str, Module]


def read_package(root: Path) -> Package:
    modules = [read_module(file, root) for file in sorted(root.rglob("*.py"))]
    return {module.name: module for module in modules}


def read_module(file: Path, root: Path) -> Module:
    relative = file.relative_to(root.parent)
    parts = relative.with_suffix("").parts
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text, str(file))
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(str(relative), name, tree, len(text.splitlines()), tuple(imports_below(tree)))


def imports_below(node: ast.AST, while_importing: bool = True, for_typing: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        typing = for_typing or is_typing_branch(node, child)
        for targets, level in imported_names(child):
            yield Import(getattr(child, "lineno", 0), targets, level, while_importing, typing)
        inside_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports_below(child, while_importing and not inside_function, typing)


def is_typing_branch(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, ast.If) and child in node.body and "TYPE_CHECKING" in ast.unparse(node.test)


def imported_names(node: ast.AST) -> Iterator[tuple[tuple[str, ...], int]]:
    """(dotted names from the longest, relative level), also of import_module("x") and __import__("x")."""
    match node:
        case ast.Import(names=names):
            yield from (((alias.name,), 0) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            yield from (((f"{module or ''}.{alias.name}", module or ""), level) for alias in names)
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            yield (name,), 0


def imported_module(imported: Import, package: Package) -> str | None:
    """The module of this package that is meant, or None; whether it exists is left to mypy."""
    if imported.level or imported.top != NAME:
        return None
    return next((target for target in imported.targets if target in package), imported.targets[-1])


def is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def every_import(package: Package) -> Iterator[tuple[Module, Import]]:
    return ((module, imported) for module in package.values() for imported in module.imports)


# ---------------------------------------------------------------- rules: each returns its violations


def every_module_has_a_room(package: Package) -> list[str]:
    return [module.at(1, f"{module.part} has no room") for module in package.values() if module.part not in ROOM_OF]


def imports_are_absolute(package: Package) -> list[str]:
    return [
        module.at(imported.line, f"relative import of {imported.targets[0].strip('.')}")
        for module, imported in every_import(package)
        if imported.level
    ]


def imports_stay_in_the_standard_library(package: Package) -> list[str]:
    known = (set(sys.stdlib_module_names) - NOT_IN_EVERY_PYTHON) | {NAME}
    return [
        module.at(imported.line, f"{imported.top} is not in the standard library of every supported Python")
        for module, imported in every_import(package)
        if not imported.level and imported.top not in known and (module.path, imported.top) not in WHERE_THERE
    ]


def rooms_import_only_what_they_may(package: Package) -> list[str]:
    found = []
    for module, imported in every_import(package):
        target, room = imported_module(imported, package), ROOM_OF.get(module.part)
        if target is None or room in (None, "FREE"):
            continue
        part = target.split(".")[1] if "." in target else "__init__"
        if part == "__init__" and not imported.targets[0].endswith(".__version__"):
            found.append(module.at(imported.line, "import from the module that defines it, not from the package"))
        elif part != "__init__" and ROOM_OF.get(part) not in MAY_IMPORT[room]:
            found.append(module.at(imported.line, f"{room} may not import {target} ({ROOM_OF.get(part)})"))
    return found


def faces_never_import_one_another(package: Package) -> list[str]:
    found = []
    for module, imported in every_import(package):
        target = imported_module(imported, package)
        if target is None or "." not in target or ROOM_OF.get(module.part) != "FACES" or module.part == "cli":
            continue
        part = target.split(".")[1]
        if ROOM_OF.get(part) == "FACES" and part != module.part:
            found.append(module.at(imported.line, f"the face {module.part} imports the face {part}"))
    return found


def each_way_out_has_one_importer(package: Package) -> list[str]:
    return [
        module.at(imported.line, f"only {owner} imports {outside}")
        for module, imported in every_import(package)
        for outside, owner in ONLY_IMPORTER.items()
        if module.part != owner and any(is_within(target, outside) for target in imported.targets)
    ]


def only_targets_starts_programs(package: Package) -> list[str]:
    return [
        module.at(node.lineno, f"only targets starts programs: os.{node.attr}")
        for module in package.values()
        if module.part != "targets"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and STARTS_A_PROGRAM.match(node.attr)
    ]


def core_and_pure_do_no_io(package: Package) -> list[str]:
    return [
        module.at(imported.line, f"{ROOM_OF[module.part]} does no I/O but imports {imported.targets[-1]}")
        for module, imported in every_import(package)
        if ROOM_OF.get(module.part) in ("CORE", "PURE")
        and imported.top in IO_MODULES
        and not any(is_within(target, NO_IO_BUT_TEXT) for target in imported.targets)
    ]


def names_are_telling_and_free(package: Package) -> list[str]:
    taken = {
        **dict.fromkeys(VAGUE_NAMES, "says nothing"),
        **dict.fromkeys(THIRD_PARTY_NAMES, "is a package that users import"),
        **dict.fromkeys(sys.stdlib_module_names - NAMES_INSIDE_A_ROOM, "is a standard library module"),
    }
    return [
        module.at(1, f"the name {last} {taken[last]}")
        for module in package.values()
        if (last := module.name.rpartition(".")[2]) in taken
    ]


def modules_import_in_one_direction(package: Package) -> list[str]:
    lines: dict[tuple[str, str], int] = {}
    for module, imported in every_import(package):
        target = imported_module(imported, package)
        if target is None or not imported.while_importing or imported.for_typing:
            continue
        names = target.split(".")
        ancestors = {".".join(names[:count]) for count in range(1, len(names))}
        running = {name for name in ancestors if is_within(module.name, name)}
        for needed in {target, *ancestors} - running:
            if needed in package and needed != module.name:
                lines.setdefault((module.name, needed), imported.line)
    graph: dict[str, set[str]] = {name: set() for name in package}
    for module_name, needed in lines:
        graph[module_name].add(needed)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        return [package[cycle[0]].at(lines[cycle[0], cycle[1]], "import cycle " + " -> ".join(cycle))]
    return []


def functions_are_short(package: Package) -> list[str]:
    return [
        module.at(node.lineno, f"{node.name} has {length} lines of at most {MAX_FUNCTION_LINES}")
        for module in package.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def files_are_short(package: Package) -> list[str]:
    return [
        module.at(module.lines, f"{module.lines} lines of at most {MAX_FILE_LINES}")
        for module in package.values()
        if module.lines > MAX_FILE_LINES
    ]


Rule = Callable[[Package], list[str]]
RULES: tuple[Rule, ...] = (
    every_module_has_a_room,
    imports_are_absolute,
    imports_stay_in_the_standard_library,
    rooms_import_only_what_they_may,
    faces_never_import_one_another,
    each_way_out_has_one_importer,
    only_targets_starts_programs,
    core_and_pure_do_no_io,
    names_are_telling_and_free,
    modules_import_in_one_direction,
    functions_are_short,
    files_are_short,
)


# ---------------------------------------------------------------- the package


@pytest.fixture(scope="module")
def package() -> Package:
    return read_package(ROOT)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Rule, package: Package) -> None:
    found = dict.fromkeys(rule(package))
    assert not found, "\n" + "\n".join(found)


def test_the_package_was_read(package: Package) -> None:
    assert {f"{NAME}.errors", f"{NAME}.models", f"{NAME}.cli.demo_training"} <= set(package)


# ---------------------------------------------------------------- the rules themselves

LONG_FUNCTION = "def long():\n" + "    pass\n" * MAX_FUNCTION_LINES
TYPE_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from training_monitor import {}\n"
PLANTED: list[tuple[Rule, dict[str, str], str]] = [
    (every_module_has_a_room, {"attic/box.py": ""}, "attic/box.py:1: attic has no room"),
    (imports_are_absolute, {"probes/gpu.py": "\nfrom . import jobs"}, "probes/gpu.py:2: relative import of jobs"),
    (imports_stay_in_the_standard_library, {"probes/gpu.py": "import requests"}, "gpu.py:1: requests is not"),
    (imports_stay_in_the_standard_library, {"probes/gpu.py": "__import__('yaml')"}, "gpu.py:1: yaml is not"),
    (imports_stay_in_the_standard_library, {"settings.py": "import tomllib"}, "settings.py:1: tomllib is not"),
    (
        rooms_import_only_what_they_may,
        {"policy/stall.py": "import training_monitor.rest", "rest.py": ""},
        "stall.py:1: PURE may not import training_monitor.rest (EDGE)",
    ),
    (
        rooms_import_only_what_they_may,
        {"errors.py": TYPE_ONLY.format("store"), "store.py": ""},
        "errors.py:3: CORE may not import training_monitor.store (EDGE)",
    ),
    (
        rooms_import_only_what_they_may,
        {
            "rest.py": "def f():\n    from training_monitor.parse import kube",
            "parse/__init__.py": "",
            "parse/kube.py": "",
        },
        "rest.py:2: EDGE may not import training_monitor.parse.kube (PURE)",
    ),
    (
        rooms_import_only_what_they_may,
        {"notify.py": "from training_monitor.cli.main import main", "cli/__init__.py": "", "cli/main.py": ""},
        "notify.py:1: DOMAIN may not import training_monitor.cli.main (FACES)",
    ),
    (
        rooms_import_only_what_they_may,
        {"mcp.py": "from training_monitor import check_gpu"},
        "mcp.py:1: import from the module that defines it",
    ),
    (
        faces_never_import_one_another,
        {"mcp.py": "from training_monitor import tui", "tui/__init__.py": ""},
        "mcp.py:1: the face mcp imports the face tui",
    ),
    (each_way_out_has_one_importer, {"probes/gpu.py": "from subprocess import run"}, "gpu.py:1: only targets imports"),
    (each_way_out_has_one_importer, {"notify.py": "from urllib import request"}, "only rest imports urllib.request"),
    (each_way_out_has_one_importer, {"history.py": "def f():\n    import sqlite3"}, "history.py:2: only store imports"),
    (each_way_out_has_one_importer, {"cli/top.py": "import curses.ascii"}, "top.py:1: only tui imports curses"),
    (each_way_out_has_one_importer, {"mcp.py": "from http import server"}, "mcp.py:1: only web imports http.server"),
    (only_targets_starts_programs, {"progress/x.py": "import os\nos.posix_spawn('a', [], {})"}, "x.py:2: only targets"),
    (core_and_pure_do_no_io, {"units.py": "import socket"}, "units.py:1: CORE does no I/O but imports socket"),
    (core_and_pure_do_no_io, {"parse/kube.py": "import tempfile"}, "kube.py:1: PURE does no I/O but imports tempfile"),
    (names_are_telling_and_free, {"probes/utils.py": ""}, "probes/utils.py:1: the name utils says nothing"),
    (names_are_telling_and_free, {"probes/torch.py": ""}, "the name torch is a package that users import"),
    (names_are_telling_and_free, {"parse/json/__init__.py": ""}, "the name json is a standard library module"),
    (
        modules_import_in_one_direction,
        {"units.py": "import training_monitor.clock", "clock.py": "from training_monitor import units"},
        "import cycle",
    ),
    (
        modules_import_in_one_direction,
        {
            "parse/__init__.py": "from training_monitor.parse.kube import x",
            "parse/kube.py": "from training_monitor.parse import y",
        },
        "import cycle",
    ),
    (functions_are_short, {"units.py": LONG_FUNCTION}, "units.py:1: long has 61 lines of at most 60"),
    (files_are_short, {"units.py": "x = 1\n" * (MAX_FILE_LINES + 1)}, "units.py:401: 401 lines of at most 400"),
]
ALLOWED: dict[str, dict[str, str]] = {
    "cli starts the others": {"cli/main.py": "from training_monitor import tui", "tui/__init__.py": ""},
    "owners": {
        "targets/transport.py": "import subprocess",
        "rest.py": "import urllib.request",
        "store.py": "import sqlite3",
        "tui/screen.py": "import curses",
        "web/server.py": "from http.server import HTTPServer",
    },
    "parsing a URL is no I/O": {"settings.py": "from urllib.parse import urlsplit"},
    "the version": {"rest.py": "from training_monitor import __version__"},
    "typing goes both ways": {"errors.py": TYPE_ONLY.format("models"), "models.py": "import training_monitor.errors"},
    "late imports break cycles": {
        "units.py": "def f():\n    import training_monitor.clock",
        "clock.py": "import training_monitor.units",
    },
    "a package imports its modules": {
        "parse/__init__.py": "from training_monitor.parse.kube import x",
        "parse/kube.py": "from training_monitor.parse import proc",
        "parse/proc.py": "",
    },
    "the entry is free": {
        "__main__.py": "from training_monitor.cli.main import main",
        "cli/__init__.py": "",
        "cli/main.py": "",
    },
}


def plant(folder: Path, files: dict[str, str]) -> Package:
    for name, text in {"__init__.py": "", **files}.items():
        file = folder / NAME / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return read_package(folder / NAME)


@pytest.mark.parametrize(("rule", "files", "expected"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_violation_is_found(rule: Rule, files: dict[str, str], expected: str, tmp_path: Path) -> None:
    found = rule(plant(tmp_path, files))
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize("files", ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_is_not_found(files: dict[str, str], tmp_path: Path) -> None:
    package = plant(tmp_path, files)
    assert [found for rule in RULES for found in rule(package)] == []


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, *_ in PLANTED} == set(RULES)
