"""What must not be shown: values that the user gave, and everything that looks like a key, token or password. Pure.

`redact` stands in front of all that leaves the package: text of logs as it is read, errors, events, notices, JSON. It
knows the variables that this process had when it was imported, and what `keep_secret` was told.

Formats: prefixes as in https://docs.github.com/en/code-security/secret-scanning (partner patterns), presigned URLs as
in https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html and its siblings.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from training_monitor.core.frozen import asdict, is_dataclass
from training_monitor.core.regex import regex

LEAST_SECRET = 8  # characters of a value that is masked wherever it is found; 5 where it has letters and digits
MASK = "***"

_VALUE = r"""[^\s"'&,;\\]{4,}"""
_PHRASE = r"""(?<=")[^"\r\n\\]{4,200}(?=")|(?<=')[^'\r\n\\]{4,200}(?=')"""
_ENDING = r"(?:[_-](?:key|value|id|access[_-]key|\d{1,2}))?"
_IS = r"""\\?["']?\s*(?:[:=]|%3d|\\u003d)\s*\\?["']?"""
_NAMES = (
    *("api_key", "api-key", "apikey", "access_key", "access-key", "accesskey", "accountkey", "private_key"),
    *("token", "secret", "password", "passwd", "passphrase", "pwd", "_pass"),
)
_SHORT, _LONG = "(?:bearer|basic|token|bot)", r"(?:digest|negotiate|ntlm|hawk|key|aws4-[\w-]+)"  # Authorization
_OPTION = regex(r"(?<![\w-])--?(?:[a-z0-9]+[_-])*\Z")
# Not a secret after `token=`, `key=` or `pwd=`: a number, a placeholder, the name of a variable, a folder.
_PLAIN_VALUE = regex(r"[-+]?[\d.,]+(?:e[-+]?\d+)?%?|[<\[($*@/~].*|none|null|true|false", re.IGNORECASE)
_MAY_BE_PLAIN = ("ken", "key", "pwd", "ass")
_SECRET_NAME = regex(
    r"(?:token|secret|passw(?:or)?d|passphrase|passwd|pwd|credential|webhook|auth(?!or)|dsn"
    r"|(?:api|access|private|encryption|signing|account)[_-]?key|(?:^|_)(?:key|pat|pass)(?:$|_))",
    re.IGNORECASE,
)
_ASSIGNMENTS = {name: regex(rf"{name}{_ENDING}{_IS}({_PHRASE}|{_VALUE})") for name in _NAMES}
_OPTIONS = {name: regex(rf"""{name}{_ENDING}\s+["']?({_VALUE})""") for name in _NAMES}
_ORIGIN = regex(r"[a-z][a-z0-9+.-]{0,20}://[^/?#@\s]*/?", re.IGNORECASE)  # of a service: where, but no secret
_NAMED_OPTION = {name: regex(rf"--?(?:[a-z0-9]+[_-])*{name}{_ENDING}") for name in _NAMES}
# By a text that each match contains; searched in lower case. The first group is the secret.
_IN_LOWER_CASE = {
    "authorization": regex(
        rf"authorization{_IS}(?:{_LONG}\s+([^\s*][^\r\n']{{3,}})|(?:{_SHORT}\s+)?(?!(?:{_SHORT}|{_LONG})\s)({_VALUE}))"
    ),
    "bearer": regex(r"""bearer\s+([^\s"'&,;\\]{8,})"""),
    "cookie": regex(r"""cookie["']?\s*:\s*["']?([^\s*"'][^\r\n"']{3,})"""),
    "://": regex(
        r"""://[^\s/:@]{0,200}:((?!\d{1,5}[/?#])[^\s"'<>]{1,500})(?=@)|(?<=http)s?://([^\s/:@]{16,200})(?=@)"""
    ),
    "%3a%2f%2f": regex(r"%3a%2f%2f[^\s/:@%]{0,200}%3a([^\s/]{1,500}?)(?=%40)"),
    "hooks.slack.com": regex(r"""hooks\.slack\.com(?:/|%2f)(?:[a-z]+(?:/|%2f))?([^\s"'<>]+)"""),
    "webhooks": regex(r"(?:/|%2f)webhooks(?:/|%2f)(\d{1,25}(?:/|%2f)[\w-]{8,})"),
    "webhook.office.com/": regex(r"""webhook\.office\.com/([^\s"'<>]+)"""),
    ":aa": regex(r"(?<!\d)\d{6,12}:(aa[\w-]{30,})"),  # the bots of Telegram
    "amz-": regex(rf"amz-(?:signature|credential|security-token){_IS}({_VALUE})"),
    "goog-": regex(rf"goog-(?:signature|credential){_IS}({_VALUE})"),
    "sig": regex(rf"(?:[?&]|&amp;|\\u0026)(?:sig|signature)=({_VALUE})"),
    "key=": regex(r"[?&]key=([\w-]{16,})"),
    "awsaccesskeyid": regex(rf"awsaccesskeyid{_IS}({_VALUE})"),
}
_AS_WRITTEN = {
    "PRIVATE KEY": regex(
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----([\s\S]*?)(?=-----END|\Z)"
        r"|\A((?:[A-Za-z0-9+/=]{16,}\s+)+)(?=-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)"
    ),
    "hf_": regex(r"(?<![A-Za-z0-9])(hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{16,}))"),
    "eyJ": regex(r"\b(eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]{4,})?)"),
    "SG.": regex(r"\b(SG\.[\w-]{16,}\.[\w-]{16,})"),
    "ya29.": regex(r"\b(ya29\.[\w-]{16,})"),
    **{
        sign: regex(rf"(?<![A-Za-z0-9])({sign}[A-Za-z0-9_-]{{{least},}})")
        for sign, least in {
            "sk-": 8, "sk_live_": 8, "rk_live_": 8, "ghp_": 8, "gho_": 8, "ghu_": 8, "ghs_": 8, "ghr_": 8,
            "github_pat_": 8, "glpat-": 8, "xapp-": 8, "AIza": 20, "nvapi-": 8, "r8_": 16, "npm_": 16, "pypi-": 16,
            "AKIA": 12, "ASIA": 12, "dop_v1_": 16, "api_org_": 16, "sk_test_": 8, "rk_test_": 8, "gsk_": 16, "xai-": 16,
            "gldt-": 8, "glrt-": 8, "glptt-": 8, "hvs.": 16, "dckr_pat_": 8, "pplx-": 16, "tskey-": 8,
        }.items()
    },  # fmt: skip
    "xox": regex(r"(?<![A-Za-z0-9])(xox[a-z]-[A-Za-z0-9-]{8,})"),
}


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
    return len(value) >= LEAST_SECRET or (len(value) >= 5 and _is_mixed(value))


def _is_mixed(value: str) -> bool:
    return bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value))


def _spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, as in URLs, and as in JSON."""
    yield value
    yield _percent_encoded(value)
    if not (value.isascii() and value.isprintable()) or '"' in value or "\\" in value:
        import json

        yield from (json.dumps(value, ensure_ascii=ascii)[1:-1] for ascii in (True, False))


def _percent_encoded(text: str) -> str:
    """Return what `urllib.parse.quote(text, safe="")` returns, which takes long to import."""
    kept = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
    return "".join(chr(each) if each in kept else f"%{each:02X}" for each in text.encode("utf-8", "replace"))


def secrets_of(env: Mapping[str, str]) -> list[str]:
    """Return the values of variables that may be secret: by their names, or since they are neither words nor paths.

    >>> secrets_of({"HF_TOKEN": "quiet-word", "EPOCHS": "300000000", "OUT": "/data/run-01234", "MAGIC": "x8Kq-22bd"})
    ['quiet-word', 'x8Kq-22bd']
    """
    return [value for name, value in env.items() if _SECRET_NAME.search(name) or _is_odd(value)]


def secrets_of_environment(env: Mapping[str, str]) -> list[str]:
    """Return the values of variables whose names say that they are secret: this machine's own has many others."""
    return [value for name, value in env.items() if _SECRET_NAME.search(name) and not _is_path(value)]


def is_secret_key(key: str) -> bool:
    """Whether the value of a setting may be secret: a variable of a training, or what its name says."""
    return key.startswith("env.") or bool(_SECRET_NAME.search(key.rpartition(".")[2]))


def _is_path(value: str) -> bool:
    return value.startswith(("/", "./", "../", "~"))


def _is_odd(value: str) -> bool:
    """Whether a value mixes letters with digits or signs and is no path, address, number or list of words."""
    if len(value) < LEAST_SECRET or _is_path(value) or _PLAIN_VALUE.fullmatch(value) or " " in value:
        return False
    if re.fullmatch(r"[a-z][a-z0-9+.-]*://[^@?]*", value):  # an address without a password
        return False
    return _is_mixed(value)


keep_secret(*secrets_of_environment(os.environ))


def redact(text: str) -> str:
    """Replace everything that is known to be secret, or looks like a key, token or password, by ***.

    Colours and invisible signs inside a secret hide it as little as they hide it from a reader.
    """
    hidden = not text.isascii() or any(sign in text for sign in _UNSEEN_IN_ASCII)
    spans = sorted(_find_between(text) if hidden else _find(text))
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
        text: what becomes of each string; default: secrets are masked.
        name: what becomes of each key.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), text, name)
    if isinstance(value, Mapping):
        return {name(key): plain(item, text, name) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, text, name) for item in value]
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


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
    for name in _NAMES:
        if name in lower:
            yield from _assigned(lower, name)
    for table, searched in ((_IN_LOWER_CASE, lower), (_AS_WRITTEN, text)):
        for sign, pattern in table.items():
            if sign in searched:
                for found in pattern.finditer(searched):
                    yield found.span(1 if found[1] is not None else 2)


def _assigned(lower: str, name: str) -> Iterator[tuple[int, int]]:
    """Yield where the values of `name=VALUE` and `--name VALUE` stand."""
    for found in _ASSIGNMENTS[name].finditer(lower):
        if not (name[-3:] in _MAY_BE_PLAIN and _PLAIN_VALUE.fullmatch(found[1])):
            yield found.span(1)
    for found in _OPTIONS[name].finditer(lower):
        if _OPTION.search(lower[max(0, found.start() - 60) : found.start()]):
            yield found.span(1)


def redact_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Redact each word, and replace the whole word after an option such as --token."""
    before = ("", *argv)
    return tuple(MASK if _is_secret_option(last) else redact(word) for last, word in zip(before, argv))


def _is_secret_option(word: str) -> bool:
    lower = word.lower()
    return lower.startswith("-") and any(_NAMED_OPTION[name].fullmatch(lower) for name in _NAMES if name in lower)
