"""The sh scripts that run on targets: a file a subject in `targets/sh/`, fed by variables only.

A file holds functions. In its first comment it names what it is made of:

    # uses: SUBJECT...     files whose functions it calls
    # needs: VARIABLE...   what whoever calls it assigns

A contract test runs shellcheck over every file with these. POSIX sh and few tools, see `asking.py`.
"""

from __future__ import annotations

import re
import shlex
from functools import cache


class Quoted(str):
    """A word of a script that is quoted already."""


def format_call(subject: str, call: str, **variables: str | int) -> str:
    """A program: the variables, each as one word, the functions of a subject, and the call of one of them.

    >>> print(format_call("claims", "show", key="it's", width=80)[:32])
    key='it'"'"'s'
    width=80
    : claims

    Raises TypeError for a variable that the subject does not need.
    """
    needed, text = read_subject(subject)
    if unknown := variables.keys() - needed:
        raise TypeError(f"{subject}.sh needs no {', '.join(sorted(unknown))}")
    values = "".join(f"{name}={_word(value)}\n" for name, value in variables.items())
    return f"{values}: {subject}\n{strip_comments(text)}{call}\n"


@cache
def read_subject(subject: str) -> tuple[frozenset[str], str]:
    """The variables that a file and those it uses need, and the text of all of them, each once."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = read_script(name)
        for used in _listed("uses", text):
            if used not in texts:
                add(used)
        texts[name] = text

    add(subject)
    needed = frozenset(name for text in texts.values() for name in _listed("needs", text))
    return needed, "".join(texts.values())


@cache
def read_script(name: str) -> str:
    """The text of one file."""
    from importlib.resources import files

    return (files(__package__) / "sh" / f"{name}.sh").read_text("utf-8")


def strip_comments(text: str) -> str:
    """The same without lines that say something to people only."""
    return re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)


def _listed(title: str, text: str) -> list[str]:
    return " ".join(re.findall(rf"^# {title}: (.*)$", text, re.MULTILINE)).split()


def _word(value: str | int) -> str:
    return value if isinstance(value, Quoted) else shlex.quote(str(value))
