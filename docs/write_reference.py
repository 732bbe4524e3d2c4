"""Write docs/reference.md from the docstrings of the public names: `python3 docs/write_reference.py`."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import training_monitor  # noqa: E402

TITLE = """# Reference

All public names with their docstrings: first those of `training_monitor`, then those that only its submodules contain.
`docs/write_reference.py` generates this page from the docstrings. [python.md](python.md) is the introduction.
"""


def write_reference() -> str:
    """The page: what `training_monitor` has, then what only its rooms have, each in alphabetical order."""
    parts, told = [TITLE], set[str]()
    for package in ("training_monitor", *_rooms()):
        module = importlib.import_module(package)
        names = [name for name in module.__all__ if name not in told]
        told.update(names)
        if names:
            parts.append(f"\n## {package}\n")
        if package != "training_monitor" and names:
            parts.append(f"\n{inspect.cleandoc(module.__doc__ or '')}\n")
        parts += [_entry(name, getattr(module, name)) for name in names]
    return "".join(parts)


def _rooms() -> list[str]:
    found = pkgutil.iter_modules(training_monitor.__path__, "training_monitor.")
    return sorted(each.name for each in found if hasattr(importlib.import_module(each.name), "__all__"))


def _entry(name: str, found: object) -> str:
    text = inspect.cleandoc(found.__doc__ or "")
    signature = _signature(found) if inspect.isfunction(found) else _fields(found)
    return f"\n### `{name}`\n\n```text\n{name}{signature}\n\n{text}\n```\n"


def _signature(function: Callable[..., object]) -> str:
    """As the source has it: a default such as `os.environ` by its name."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    return f"({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def _fields(found: object) -> str:
    """The fields of a dataclass and the public methods of any other class."""
    if isinstance(found, type) and is_dataclass(found):
        return f"({', '.join(f'{each.name}: {each.type}' for each in fields(found))})"
    methods = [name for name, each in vars(found).items() if inspect.isfunction(each) and not name.startswith("_")]
    return f"  methods: {', '.join(methods)}" if methods else ""


if __name__ == "__main__":
    (ROOT / "docs" / "reference.md").write_text(write_reference(), encoding="utf-8")
