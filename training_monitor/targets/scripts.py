"""The sh scripts that run on targets: one file per subject in `targets/sh/`, with input through variables only.

A file defines functions. Its first comment declares its dependencies:

    # uses: SUBJECT...     files whose functions it calls
    # needs: VARIABLE...   variables that the caller assigns
    # paths: VARIABLE...   those of them that are paths which may come from a person or program: see `fence.sh`
    # found: VARIABLE...   those of them that name what a training prints to and is no file: the same

A contract test runs shellcheck on every file with these. The files are POSIX sh and need few tools, see `asking.py`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from functools import cache, lru_cache

from training_monitor.core.read_fence import is_fenced

_DESCRIPTOR = 8  # of the file behind a path that was checked


class Quoted(str):
    """A word of a script that is already quoted."""


def format_call(subject: str, function: str, *arguments: str | float, **variables: str | float) -> str:
    """Return a program: the variables, each as one word, the functions of a subject, and a call of one of them.

    >>> print(format_call("claims", "show", key="it's", width=80)[:37])
    : claims show
    key='it'"'"'s'
    width=80

    Raises TypeError for a variable that the subject does not need.
    """
    needed, _ = read_subject(subject)
    if unknown := variables.keys() - needed:
        raise TypeError(f"{subject}.sh does not accept {', '.join(sorted(unknown))}")
    values = "".join(f"{name}={_word(value)}\n" for name, value in variables.items())
    call = " ".join([function, *map(_word, arguments)])
    fence = _format_fences(subject, tuple(variables)) if is_fenced() else ""
    return f": {subject} {function}\n{values}{_program(subject)}{fence}{call}\n"


def _format_fences(subject: str, variables: Sequence[str]) -> str:
    """Return the program that lets the variables name what may be read, and ends for others."""
    text = read_subject(subject)[1]
    paths = [name for name in variables if name in _listed("paths", text)]
    calls = [f"fence {name} {_DESCRIPTOR - number}\n" for number, name in enumerate(paths)]
    calls += [f"fence_found {name}\n" for name in variables if name in _listed("found", text)]
    return f"{_program('fence')}{''.join(calls)}" if calls else ""


@cache
def _program(subject: str) -> str:
    """Return what a target needs of `read_subject`."""
    return re.sub(r"^ *#.*\n", "", read_subject(subject)[1], flags=re.MULTILINE)  # without its comments


@cache
def read_subject(subject: str) -> tuple[frozenset[str], str]:
    """Return the variables that a file and its dependencies need, and their concatenated text, each once."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = read_file(f"{name}.sh")
        for used in _listed("uses", text):
            if used not in texts:
                add(used)
        texts[name] = text

    add(subject)
    needed = frozenset(name for text in texts.values() for name in _listed("needs", text))
    return needed, "".join(texts.values())


@cache
def read_file(name: str) -> str:
    """Return the text of one file of `targets/sh/`."""
    with open(os.path.join(os.path.dirname(__file__), "sh", name), encoding="utf-8") as file:
        return file.read()


def spell_path() -> str:
    """Return a random spelling (one of 2**48) of "/./", to put between a dot and a name; no file can contain it."""
    return "/./" + "".join("./" if bit == "1" else "/" for bit in f"{int.from_bytes(os.urandom(6), 'big'):048b}")


def _listed(title: str, text: str) -> list[str]:
    return " ".join(re.findall(rf"^# {title}: (.*)$", text, re.MULTILINE)).split()


_quote = lru_cache(maxsize=64)(shlex.quote)


def _word(value: str | float) -> str:
    if isinstance(value, Quoted):
        return value
    if isinstance(value, str):
        return _quote(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
