"""The rooms of docs/architecture.md, read from the source: who may import whom, and what may do I/O."""

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
SENT_TO_TARGETS = "targets/sh"  # data, whatever it is written in

# A room imports itself and rooms of the levels before its own.
LEVELS = (
    "core / targets / logs notify vast / jobs verdict / checkpoints uploads / look / runs / why / supervision"
    " / rent src / fleet / ui / web / agents / cli"
).split(" / ")
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms.split()}
FREE = ("__init__", "__main__")
DEFINED_BY_THE_PACKAGE = (f"{NAME}.__version__", f"{NAME}.export_names", f"{NAME}.TYPE_CHECKING")
ONLY_IMPORTER = {
    "subprocess": "targets",
    "urllib.request": "core.rest",
    "smtplib": "core.mail",
    "sqlite3": "core.store",
    "curses": "ui.kit.terminal",
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
WHERE_THERE = {(f"{NAME}/core/settings_file.py", "tomllib")}  # used where Python has it, and an error elsewhere
VAGUE_NAMES = frozenset("util utils helper helpers common base manager managers misc".split())
NAMES_INSIDE_A_ROOM = {"__main__", "queue"}  # rent/queue.py is imported by its whole name only
THIRD_PARTY_NAMES = frozenset(
    "torch torchvision torchaudio ray numpy pandas scipy sklearn tensorflow keras jax flax optax transformers datasets"
    " accelerate deepspeed megatron lightning pytorch_lightning diffusers peft trl vllm safetensors huggingface_hub"
    " tokenizers wandb mlflow tensorboard kubernetes requests httpx aiohttp yaml rich click typer pydantic psutil"
    " pynvml tqdm matplotlib plotly boto3 anthropic openai fastapi flask textual paramiko fabric vastai pytest".split()
)


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
    imports: tuple[Import, ...]

    @property
    def room(self) -> str:
        """The first name below the package."""
        return room_of(self.name)

    @property
    def is_pure(self) -> bool:
        """Whether its docstring says that it does no I/O."""
        return re.search(r"\bPure\.(\s|$)", ast.get_docstring(self.tree) or "") is not None

    def at(self, line: int, message: str) -> str:
        return f"{self.path}:{line}: {message}"


Package = dict[str, Module]


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def read_package(root: Path) -> Package:
    files = (file for file in sorted(root.rglob("*.py")) if not file.is_relative_to(root / SENT_TO_TARGETS))
    modules = [read_module(file, root) for file in files]
    return {module.name: module for module in modules}


def read_module(file: Path, root: Path) -> Module:
    relative = file.relative_to(root.parent)
    parts = relative.with_suffix("").parts
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text, str(file))
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(str(relative), name, tree, tuple(imports_below(tree)))


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


def every_module_is_in_a_room(package: Package) -> list[str]:
    return [
        module.at(1, f"{module.room} is no room")
        for module in package.values()
        if module.room not in LEVEL_OF and module.room not in FREE
    ]


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


def rooms_import_only_rooms_below(package: Package) -> list[str]:
    found = []
    for module, imported in every_import(package):
        target = imported_module(imported, package)
        if target is None or module.room not in LEVEL_OF or (room := room_of(target)) == module.room:
            continue
        if room == "__init__" and imported.targets[0] not in DEFINED_BY_THE_PACKAGE:
            found.append(module.at(imported.line, "import from the module that defines it, not from the package"))
        elif room != "__init__" and LEVEL_OF.get(room, len(LEVELS)) >= LEVEL_OF[module.room]:
            found.append(module.at(imported.line, f"{module.room} may not import {target}"))
    return found


def each_way_out_has_one_importer(package: Package) -> list[str]:
    return [
        module.at(imported.line, f"only {owner} imports {outside}")
        for module, imported in every_import(package)
        for outside, owner in ONLY_IMPORTER.items()
        if any(is_within(target, outside) for target in imported.targets)
        if not is_within(module.name, f"{NAME}.{owner}")
    ]


def only_targets_starts_programs(package: Package) -> list[str]:
    return [
        module.at(node.lineno, f"only targets starts programs: os.{node.attr}")
        for module in package.values()
        if module.room != "targets"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and STARTS_A_PROGRAM.match(node.attr)
    ]


def patterns_compile_when_first_used(package: Package) -> list[str]:
    def compiled_while_importing(node: ast.AST) -> Iterator[ast.Call]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and ast.unparse(child.func) == "re.compile":
                yield child
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from compiled_while_importing(child)

    return [
        module.at(call.lineno, "compiled while importing: use core.regex")
        for module in package.values()
        for call in compiled_while_importing(module.tree)
    ]


def pure_modules_do_no_io(package: Package) -> list[str]:
    found = []
    for module, imported in every_import(package):
        if not module.is_pure or imported.for_typing:
            continue
        target = imported_module(imported, package)
        if imported.top in IO_MODULES and not any(is_within(each, NO_IO_BUT_TEXT) for each in imported.targets):
            found.append(module.at(imported.line, f"it is pure but imports {imported.targets[-1]}"))
        elif target in package and not package[target].is_pure and imported.targets[0] not in DEFINED_BY_THE_PACKAGE:
            found.append(module.at(imported.line, f"it is pure but imports {target}, which is not"))
    return found


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


Rule = Callable[[Package], list[str]]
RULES: tuple[Rule, ...] = (
    every_module_is_in_a_room,
    imports_are_absolute,
    imports_stay_in_the_standard_library,
    rooms_import_only_rooms_below,
    each_way_out_has_one_importer,
    only_targets_starts_programs,
    patterns_compile_when_first_used,
    pure_modules_do_no_io,
    names_are_telling_and_free,
    modules_import_in_one_direction,
)


@pytest.fixture(scope="module")
def package() -> Package:
    return read_package(ROOT)


def test_the_package_keeps_the_rule(subtests: pytest.Subtests, package: Package) -> None:
    for rule in RULES:
        with subtests.test(rule.__name__):
            found = dict.fromkeys(rule(package))
            assert not found, "\n" + "\n".join(found)


TYPE_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from training_monitor import {}\n"
PURE = '"""A room. Pure."""\n'
PLANTED: list[tuple[Rule, dict[str, str], str]] = [
    (every_module_is_in_a_room, {"attic/box.py": ""}, "attic/box.py:1: attic is no room"),
    (every_module_is_in_a_room, {"errors.py": ""}, "errors.py:1: errors is no room"),
    (imports_are_absolute, {"look/gpu.py": "\nfrom . import jobs"}, "look/gpu.py:2: relative import of jobs"),
    (imports_stay_in_the_standard_library, {"look/gpu.py": "import requests"}, "gpu.py:1: requests is not"),
    (imports_stay_in_the_standard_library, {"look/gpu.py": "__import__('yaml')"}, "gpu.py:1: yaml is not"),
    (imports_stay_in_the_standard_library, {"core/settings.py": "import tomllib"}, "settings.py:1: tomllib is not"),
    (
        rooms_import_only_rooms_below,
        {"verdict/stall.py": "import training_monitor.look.gpu", "look/gpu.py": ""},
        "stall.py:1: verdict may not import training_monitor.look.gpu",
    ),
    (
        rooms_import_only_rooms_below,
        {"vast/rent.py": "def f():\n    from training_monitor.notify import outbox", "notify/outbox.py": ""},
        "rent.py:2: vast may not import training_monitor.notify",
    ),
    (
        rooms_import_only_rooms_below,
        {"core/errors.py": TYPE_ONLY.format("cli"), "cli/__init__.py": ""},
        "errors.py:3: core may not import training_monitor.cli",
    ),
    (
        rooms_import_only_rooms_below,
        {"cli/main.py": "from training_monitor import check_gpu"},
        "main.py:1: import from the module that defines it",
    ),
    (each_way_out_has_one_importer, {"look/gpu.py": "from subprocess import run"}, "gpu.py:1: only targets imports"),
    (each_way_out_has_one_importer, {"notify/x.py": "from urllib import request"}, "only core.rest imports urllib"),
    (each_way_out_has_one_importer, {"fleet/x.py": "def f():\n    import sqlite3"}, "x.py:2: only core.store imports"),
    (each_way_out_has_one_importer, {"cli/top.py": "import curses.ascii"}, "only ui.kit.terminal imports curses"),
    (each_way_out_has_one_importer, {"cli/x.py": "from http import server"}, "x.py:1: only web imports http.server"),
    (only_targets_starts_programs, {"runs/x.py": "import os\nos.posix_spawn('a', [], {})"}, "x.py:2: only targets"),
    (patterns_compile_when_first_used, {"logs/x.py": "import re\nA = {1: re.compile('a')}"}, "x.py:2: compiled while"),
    (pure_modules_do_no_io, {"logs/text.py": PURE + "import socket"}, "text.py:2: it is pure but imports socket"),
    (
        pure_modules_do_no_io,
        {"logs/text.py": PURE + "import training_monitor.core.store", "core/store.py": ""},
        "text.py:2: it is pure but imports training_monitor.core.store, which is not",
    ),
    (names_are_telling_and_free, {"health/utils.py": ""}, "health/utils.py:1: the name utils says nothing"),
    (names_are_telling_and_free, {"health/torch.py": ""}, "the name torch is a package that users import"),
    (names_are_telling_and_free, {"logs/json/__init__.py": ""}, "the name json is a standard library module"),
    (
        modules_import_in_one_direction,
        {"core/units.py": f"import {NAME}.core.clock", "core/clock.py": f"from {NAME}.core import units"},
        "import cycle",
    ),
    (
        modules_import_in_one_direction,
        {"jobs/__init__.py": f"from {NAME}.jobs.claims import x", "jobs/claims.py": f"from {NAME}.jobs import y"},
        "import cycle",
    ),
]
ALLOWED: dict[str, dict[str, str]] = {
    "a room below": {"cli/main.py": "from training_monitor.core import units", "core/units.py": ""},
    "owners": {
        "targets/transport.py": "import subprocess",
        "core/rest.py": "import urllib.request",
        "core/store.py": "import sqlite3",
        "ui/kit/terminal.py": "import curses",
    },
    "a pattern made of arguments": {"logs/x.py": "import re\ndef f(a):\n    return re.compile(a)"},
    "parsing a URL is no I/O": {"core/settings.py": PURE + "from urllib.parse import urlsplit"},
    "the version": {"core/rest.py": PURE + "from training_monitor import __version__"},
    "typing goes both ways": {
        "core/errors.py": TYPE_ONLY.format("core"),
        "core/__init__.py": "",
        "core/models.py": "import training_monitor.core.errors",
    },
    "late imports break cycles": {
        "core/units.py": "def f():\n    import training_monitor.core.clock",
        "core/clock.py": "import training_monitor.core.units",
    },
    "a package imports its modules": {
        "jobs/__init__.py": "from training_monitor.jobs.claims import x",
        "jobs/claims.py": "from training_monitor.jobs import process_jobs",
        "jobs/process_jobs.py": "",
    },
    "the entry is free": {"__main__.py": "from training_monitor.cli.main import main", "cli/main.py": ""},
}


def plant(folder: Path, files: dict[str, str]) -> Package:
    for name, text in {"__init__.py": "", **files}.items():
        file = folder / NAME / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return read_package(folder / NAME)


def test_a_planted_violation_is_found(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (rule, files, expected) in enumerate(PLANTED):
        with subtests.test(rule.__name__, files=files, expected=expected):
            found = rule(plant(tmp_path / str(number), files))
            assert len(found) == 1
            assert expected in found[0]


def test_what_is_allowed_is_not_found(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name, files in ALLOWED.items():
        with subtests.test(name):
            package = plant(tmp_path / name, files)
            assert [found for rule in RULES for found in rule(package)] == []


def test_every_rule_has_a_planted_violation_and_the_package_was_read(package: Package) -> None:
    assert {rule for rule, *_ in PLANTED} == set(RULES)
    assert {f"{NAME}.core.errors", f"{NAME}.ui.kit.keys", f"{NAME}.cli.demo_training"} <= set(package)
