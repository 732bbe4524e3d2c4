"""What must not be shown: values that were given under a secret's name, and what looks like a key or password. Pure.

`redact` stands in front of all that leaves the package: text of logs as it is read, errors, events, notices, JSON. It
knows the variables that this process had when it was imported, what `keep_secret` was given, and the tables of
`secret_forms.py`. `redact_named` also masks what a secret's name stands beside, in a table or a record.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from itertools import accumulate
from typing import Any, TypeVar

from training_monitor.core.regex import regex
from training_monitor.core.secret_forms import (
    CONTEXTS,
    LONG_TOKEN,
    SHORT_TOKEN,
    TOKEN_FORMS,
    Context,
    TokenForm,
    end_of_value,
    is_code,
    is_secret,
    is_secret_name,
)

LEAST_SECRET = 8  # characters of a value that is masked wherever it is found; 5 where it has letters and digits
MASK = "***"

_Form = TypeVar("_Form", Context, TokenForm)


def _by_sign(forms: Iterable[_Form]) -> dict[str, list[_Form]]:
    """Return the forms by each of their signs."""
    found: dict[str, list[_Form]] = {}
    for form in forms:
        for sign in form.signs:
            found.setdefault(sign, []).append(form)
    return found


_ORIGIN = regex(r"[a-z][a-z0-9+.-]{0,20}://[^/?#@\s]*/?", re.IGNORECASE)  # of a service: where, but no secret
_SETTING = regex(r"(-{0,2}([\w.-]{1,100})=)(.+)", re.DOTALL)  # a word of a command
_UNRESERVED = regex(r"[A-Za-z0-9_.~-]*")  # characters that are in URLs as they are
_PIECE = 65536  # characters of a text that are split into words at once
_BEFORE = 300  # characters in front of a secret that are searched
_CONTEXTS = _by_sign(each for contexts in CONTEXTS.values() for each in contexts)
_BLOCKS = _by_sign(each for each in TOKEN_FORMS.values() if any(" " in sign for sign in each.signs))
_SHORT = _by_sign(each for each in TOKEN_FORMS.values() if each.is_short)
_LONG = _by_sign(each for each in TOKEN_FORMS.values() if not each.is_short)
_UNSEEN_IN_ASCII = "\x1b\0\b\x7f"  # the others are shown as question marks: they hide nothing
_KEY_BEGINS = regex(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?![\s\S]*-----END)")
# Lines of a key that began before, and its headers.
_REST_OF_KEY = regex(
    r"\s*(?:(?:[A-Za-z0-9+/=]{16,}|[A-Za-z0-9+/]+={1,2}|(?:Proc-Type|DEK-Info|Comment|Version):.*)(?:\s+|\Z))*"
)


class _Known:
    """The values that this process was given; replaced as a whole, so that threads may read them at any time."""

    values: tuple[str, ...] = ()


def keep_secret(*values: str | None) -> None:
    """Mask these values from now on wherever they are found; too short ones are not, since that would garble texts."""
    given = [value.strip() for value in values if value and not _ORIGIN.fullmatch(value)]
    lines = {line for value in given for line in (value, *value.splitlines()) if _can_be_found(line)}
    known = {*_Known.values, *(spelling for line in lines for spelling in _spellings(line))}
    _Known.values = tuple(sorted(known, key=len, reverse=True))


def _can_be_found(value: str) -> bool:
    is_mixed = re.search(r"\d", value) and re.search(r"[A-Za-z]", value)
    return len(value) >= (5 if is_mixed else LEAST_SECRET)


def _spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, as in URLs, and as in JSON."""
    yield value
    if not _UNRESERVED.fullmatch(value):
        from urllib.parse import quote

        yield quote(value, safe="", errors="replace")
    if not (value.isascii() and value.isprintable()) or '"' in value or "\\" in value:
        import json

        yield from (json.dumps(value, ensure_ascii=ascii)[1:-1] for ascii in (True, False))


def secrets_of(env: Mapping[str, str]) -> list[str]:
    """Return the values of variables whose names say that they are secret.

    >>> secrets_of({"HF_TOKEN": "quiet-word", "EPOCHS": "300000000", "OUT": "/data/run-01234", "MODEL": "llama-3.1-8b"})
    ['quiet-word']
    """
    return [value for name, value in env.items() if is_secret(name, value)]


def is_secret_key(key: str) -> bool:
    """Whether the value of a setting may be secret: a variable of a training, or what its name says."""
    return key.startswith("env.") or is_secret_name(key.rpartition(".")[2])


keep_secret(*secrets_of(os.environ))


def redact(text: str) -> str:
    """Replace everything that is known to be secret, or looks like a key, token or password, by ***.

    Colours and invisible signs inside a secret hide it as little as they hide it from a reader.
    """
    return _masked(text, _spans(text)) if text else ""


def _spans(text: str) -> list[tuple[int, int]]:
    hidden = not text.isascii() or any(sign in text for sign in _UNSEEN_IN_ASCII)
    return sorted(_find_between(text) if hidden else _find(text))


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    if not spans:
        return text
    pieces, end = [], 0
    for first, last in spans:
        if last > end:
            pieces.append(text[end:first] + MASK if first >= end else "")
            end = last
    return "".join([*pieces, text[end:]])


def redact_next(text: str, in_key: bool) -> tuple[str, bool]:
    """Redact the next part of a text; `in_key`: a private key has begun in the part before.

    Returns the text, and whether a private key has begun in it and not ended.
    """
    rest, masked = text, ""
    if in_key and (found := _REST_OF_KEY.match(text)):
        rest, masked = text[found.end() :], f"{MASK}\n" if found[0].strip() else ""
        in_key = not rest
    begun = _KEY_BEGINS.search(rest)
    return masked + redact(rest), in_key if not rest else begun is not None


def _find_between(text: str) -> Iterator[tuple[int, int]]:
    """Yield where secrets stand that are whole without what nobody sees, or with blanks in its place."""
    from training_monitor.core.shown import MAY_BE_UNSEEN, UNSEEN

    unseen = [found.span() for found in UNSEEN.finditer(text)] if MAY_BE_UNSEEN.search(text) else []
    if not unseen:
        yield from _find(text)
        return
    kept = list(zip([0, *(end for _, end in unseen)], [*(start for start, _ in unseen), len(text)]))
    starts = [0, *accumulate(end - start for start, end in kept)]

    def place(position: int) -> int:
        number = bisect_right(starts, position) - 1
        return kept[number][0] + position - starts[number]

    for first, last in _find("".join(text[start:end] for start, end in kept)):
        yield place(first), place(last - 1) + 1
    yield from _find(UNSEEN.sub(lambda found: " " * len(found[0]), text))


def plain(value: Any, text: Callable[[str], str] = redact, name: Callable[[object], str] = str) -> Any:
    """Return what another program is told of a value, ready for `json.dumps`: nan and the infinities become None.

    Args:
        value: a value, or dicts, lists and tuples of values.
        text: what becomes of each string; default: secrets are masked. What a secret's name stands beside always is.
        name: what becomes of each key.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), text, name)
    if isinstance(value, Mapping):
        named = value.get("name", value.get("key")) if "value" in value else None
        return {
            name(key): _plain_named(named if key == "value" and isinstance(named, str) else str(key), item, text, name)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        if text is redact and value and all(isinstance(each, str) for each in value):
            return list(redact_argv(tuple(value)))
        return [plain(item, text, name) for item in value]
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _plain_named(key: str, value: Any, text: Callable[[str], str], name: Callable[[object], str]) -> Any:
    """Return a value of a dictionary, masked, with all texts in it, where its key says that it is secret."""
    if not isinstance(value, (str, Mapping, list, tuple)) or not is_secret_name(key):
        return plain(value, text, name)
    return plain(value, lambda each: MASK if _is_secret_by(key, each) else text(each), name)


def _is_secret_by(key: str, value: str) -> bool:
    """Return whether a value is secret by its key; `key` itself is mostly that of a table."""
    return key != "key" and is_secret(key, value)


def _find(text: str) -> Iterator[tuple[int, int]]:
    """Yield where in a text secrets stand."""
    for value in _Known.values:
        at = text.find(value)
        while at >= 0:
            yield at, at + len(value)
            at = text.find(value, at + len(value))
    lower = text.lower()
    if len(lower) != len(text):  # few letters become two in lower case
        lower = "".join(each if len(each.lower()) > 1 else each.lower() for each in text)
    for sign in filter(lower.__contains__, _CONTEXTS):
        for context in _CONTEXTS[sign]:
            yield from _find_values(text, lower, context)
    for sign in filter(text.__contains__, _BLOCKS):
        for form in _BLOCKS[sign]:
            yield from _find_tokens(text, form)
    for form in _forms_with_signs(text):
        yield from _find_tokens(text, form)


def _forms_with_signs(text: str) -> Iterator[TokenForm]:
    """Yield the forms of tokens of which a sign is in a word that is long enough; few words of a log are."""
    short, long = set[str](), set[str]()
    for at in range(0, len(text), _PIECE):
        words = {word for word in text[at : at + _PIECE + LONG_TOKEN].split() if len(word) >= SHORT_TOKEN}
        if words:
            short.update(filter(" ".join(words).__contains__, _SHORT))
            if longer := " ".join(word for word in words if len(word) >= LONG_TOKEN):
                long.update(filter(longer.__contains__, _LONG))
    for signs, forms in ((short, _SHORT), (long, _LONG)):
        for sign in signs:
            yield from forms[sign]


def _find_values(text: str, lower: str, context: Context) -> Iterator[tuple[int, int]]:
    searched = text if context.as_written else lower
    for found in context.pattern.finditer(searched):
        if context.before and not context.before.search(searched[max(0, found.start() - _BEFORE) : found.start()]):
            continue
        first, last = found.span(found.lastindex or 0)
        last = end_of_value(text, first, last)
        if "name" in found.groupdict() and not is_secret(found["name"], text[first:last]):
            continue
        if context.accepts(text[first:last]) and not is_code(text, first, last):
            yield first, last


def _find_tokens(text: str, form: TokenForm) -> Iterator[tuple[int, int]]:
    for found in form.pattern.finditer(text):
        first, last = found.span(found.lastindex or 0)
        if form.before is None:
            yield first, last
        elif begun := form.before.search(text[max(0, first - _BEFORE) : first]):
            yield first - len(begun[0]), last


def redact_named(name: str, value: Any) -> Any:
    """Return a value as it may be shown beside its name: *** for a text that is secret by it."""
    if isinstance(value, str):
        return MASK if _is_secret_by(name, value) else redact(value)
    return value


def redact_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Redact the words of a command, each also by the words before it."""
    line, masked, at = "\n".join(argv), list[str](), 0
    spans = _spans(line)
    for before, word in zip(("", *argv), argv):
        end = at + len(word)
        own = [(max(first, at) - at, min(last, end) - at) for first, last in spans if first < end and last > at]
        if (setting := _SETTING.fullmatch(word)) and is_secret(setting[2], setting[3]):
            own.append(setting.span(3))  # whatever signs are in it
        masked.append(MASK if _is_of_option(before, word) else _masked(word, sorted(own)))
        at = end + 1
    return tuple(masked)


def secrets_of_argv(argv: tuple[str, ...]) -> list[str]:
    """Return the secrets in the words of a command, such as that of a header."""
    line = "\n".join(argv)
    options = (word for before, word in zip(("", *argv), argv) if _is_of_option(before, word))
    return [*options, *(line[first:last] for first, last in _spans(line))]


def _is_of_option(option: str, value: str) -> bool:
    """Return whether a word is secret as the value of the option before it, such as --token."""
    return option.startswith("-") and "=" not in option and is_secret(option.lstrip("-"), value)
