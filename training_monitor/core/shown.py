"""What is shown of a text that somebody else wrote, on every face: screens, lines, notices, tables, CSV files. Pure.

Logs, labels, names and messages come from machines that may be hostile. Colours and moves of the cursor (ECMA-48 CSI)
are removed, and so is what nobody sees: direction controls, joiners, fillers, tags and variation selectors (what
Unicode calls default ignorable, and interlinear annotations), but for the selector that makes a sign an emoji. Every
other control character, lone surrogate, private or unassigned character becomes a question mark, every blank a space.
Of a pile of combining marks the first few stay. Nothing else disappears: neither a title nor a sequence without an end
hides the text after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from training_monitor.core.regex import regex

MOST_MARKS = 3  # combining marks of one character
TAB = 8
_SEQUENCE = regex(r"\x1b(?:\[[0-?]*[!-/]*[@-~]|[()][0AB])")
_LINE_ENDS = regex(r"\r\n?|[\x85\u2028\u2029]")
_IGNORABLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = regex(f"[{_IGNORABLE}]|(?<![\u203c-\u3299\U0001f000-\U0001faff])\ufe0f")
_CONTROLS = r"\0-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufe0f"
UNSEEN = regex(rf"[{_CONTROLS}{_IGNORABLE}]+|{_SEQUENCE.pattern}|\x1b")  # what nobody sees between other characters
MAY_BE_UNSEEN = regex(rf"[\x1b{_CONTROLS}{_IGNORABLE}]")
# Outside these, there are printable characters that are invisible or combine with the one before.
_MAY_NOT_BE_PLAIN = regex(
    "[^ -~\xa1-\u02ff\u0370-\u0482\u048a-\u0590\u05d0-\u05f4\u0620-\u064a\u0660-\u066f\u0671-\u06d5\u1e00-\u20cf"
    "\u2100-\u2bff\u2e00-\u3029\u3030-\u3098\u309b-\u3163\u3165-\ua66e\uac00-\ud7a3\uf900-\ufaff\uff01-\uff9f"
    "\uffa1-\uffe6\U0001f000-\U0001faff\U00020000-\U0003ffff]"
)
_FORMULA = tuple("=+-@＝＋－＠'")


def shown(text: str) -> str:
    """Return what is shown of a foreign text, on one line."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text)
    if not text.isascii():
        text = _INVISIBLE.sub("", text)
    if not text.isprintable():
        text = "".join(map(_visible, text))
    return "".join(_with_few_marks(text)) if _MAY_NOT_BE_PLAIN.search(text) else text


def shown_lines(text: str) -> str:
    """Return what is shown of a foreign text that may have several lines; tabs become spaces."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    lines = _LINE_ENDS.sub("\n", text).split("\n")
    return "\n".join(shown(line.expandtabs(TAB)) for line in lines)


def shown_cell(text: str) -> str:
    """Return what a CSV file gets of a foreign text: a spreadsheet takes it for a text, not for a formula.

    One that begins like a formula, also after spaces, or with an apostrophe, gets an apostrophe in front. Who reads the
    file removes one apostrophe from the beginning of a text, and has what was shown.
    """
    text = shown(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


@lru_cache(maxsize=1024)
def _visible(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() else "?"


def _with_few_marks(text: str) -> Iterator[str]:
    marks = MOST_MARKS  # drops leading marks, which would combine with what stands before the text
    for char in text:
        marks = marks + 1 if _is_mark(char) else 0
        if marks <= MOST_MARKS:
            yield char


@lru_cache(maxsize=4096)
def _is_mark(char: str) -> bool:
    from unicodedata import category

    return category(char) in ("Mn", "Me")


def text_of(value: object) -> str:
    """Return str(value), or a placeholder when it raises."""
    try:
        return str(value)
    except Exception as error:  # `__str__` of a class that is not ours
        return f"(its text raises {type(error).__name__})"
