"""Dumps of PyTorch's flight recorder: the collective that each rank is at in each process group. Pure.

A dump is a pickle or JSON (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp): `entries` in the order in which they
were recorded, and `pg_status` with the number of the last collective that completed, since the entries of gloo never
say so. Its file is named by a prefix and the rank. Dumps that are older than the processes are of an earlier attempt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from training_monitor.core.errors import ParseError
from training_monitor.core.regex import regex
from training_monitor.core.units import name_some
from training_monitor.targets.replies import unpack
from training_monitor.why.plain_pickle import read_plain_pickle
from training_monitor.why.ranks import Collective, Finding, Frame, Surroundings, finding, in_brief

SOURCE = "flight recorder"
MOST_FILES = 64  # that are sent; as many more are named
MOST_FILE_BYTES = 6 * 1024 * 1024  # of one dump
_MOST_BYTES = 12 * 1024 * 1024  # of all of them together, unpacked
_MOST_GROUPS, _MOST_FRAMES, _MOST_NAME, _MOST_NAMED = 32, 100, 120, 8
_LARGEST = 1 << 63
_PROCESS = regex(r"process (\d{1,12}) ([01]) (.+)", re.ASCII)
_DUMP = regex(r"dump (\d{1,12}) \d{1,15} (base64|hex|unsent) /proc/\d{1,10}/(?:root|cwd/)(.+)", re.ASCII)
_RANK = regex(r"(\d{1,6})(?:\.json)?", re.ASCII)
_DIGITS = regex(r"\d{1,18}", re.ASCII)
_NOT_OWN = regex(r"/(?:site|dist)-packages/|/lib/python\d[\d.]*/|/torch/distributed/|^[<?]|\.(?:c|cc|cpp|cu|h|hpp|so)$")


class _File(NamedTuple):
    """A dump as it came: its path, when it was written, and its lines as text; none of one that is `unsent`."""

    path: str
    written: int
    encoding: str
    lines: list[str]


_Starts = dict[str, list[tuple[int, bool]]]  # by prefix: when its processes began, and whether they are local ranks


def parse_dumps(text: str) -> Surroundings:
    """Parse the reply of `targets/sh/flight_recorder.sh`.

    Raises ParseError when its end is missing, or when it is about several trainings.
    """
    lines = text.rstrip("\n").split("\n")
    if lines.pop() != "end":
        raise ParseError("the reply is truncated", source=SOURCE, text=text[-1000:])
    findings: list[Finding] = []
    collectives: list[Collective] = []
    unread: list[str] = []
    left = _MOST_BYTES
    for rank, file in _choose(*_split(lines)).items():
        if file.encoding == "unsent":
            unread.append(file.path)
            continue
        try:
            data = unpack("".join(file.lines), file.encoding, min(left, MOST_FILE_BYTES), source=SOURCE)
            left -= len(data)
            entries, status = _read(data)
        except ParseError:
            unread.append(file.path)
            continue
        transfers, begun = _open_transfers(entries, status), _newest_numbers(entries)
        findings += [_open_transfer(rank, entry) for entry in transfers]
        collectives += [_collective(rank, entry, status, begun) for entry in _first_open(entries, status)]
    return Surroundings(tuple(findings), tuple(collectives), tuple(_say_unread(unread)))


def _split(lines: list[str]) -> tuple[_Starts, list[_File]]:
    starts: _Starts = {}
    files: list[_File] = []
    for line in lines:
        if process := _PROCESS.fullmatch(line):
            starts.setdefault(process[3].removeprefix("./"), []).append((int(process[1]), process[2] == "1"))
        elif dump := _DUMP.fullmatch(line):
            files.append(_File(dump[3], int(dump[1]), dump[2], []))
        elif files:
            files[-1].lines.append(line)
    return starts, files


def _choose(starts: _Starts, files: list[_File]) -> dict[int, _File]:
    """Return the newest dump of each rank that was written since its processes began.

    A launcher has the prefix of the ranks that it starts, and may be older than a dump of an earlier attempt. Raises
    ParseError for dumps of the same rank below several prefixes: they are of several trainings.
    """
    chosen: dict[int, tuple[str, _File]] = {}
    for file in files[: 2 * MOST_FILES]:
        for prefix, own in starts.items():
            rank = _RANK.fullmatch(file.path, len(prefix)) if file.path.startswith(prefix) else None
            ranks = [start for start, is_local in own if is_local] or [start for start, _ in own]
            if rank and file.written >= min(ranks):
                first, _ = chosen.setdefault(int(rank[1]), (prefix, file))
                if first != prefix:
                    raise ParseError(f"several trainings have dumps of rank {rank[1]}", source=SOURCE)
    return {rank: file for rank, (_, file) in sorted(chosen.items())}


def _read(data: bytes) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """Return the entries of a dump and the status of its process groups. Raises ParseError."""
    try:
        dump = json.loads(data) if data[:1] in (b"{", b" ", b"\n") else read_plain_pickle(data)
    except (ValueError, RecursionError) as error:
        raise ParseError("neither JSON nor a pickle", source=SOURCE) from error
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(entries, list):
        raise ParseError("no entries", source=SOURCE)
    status = dump.get("pg_status")
    return [entry for entry in entries if isinstance(entry, dict)], status if isinstance(status, dict) else {}


def _first_open(entries: list[Mapping[str, Any]], status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return for each process group the first collective that has not completed, or else the last one."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        known = found.get(_group(entry))
        if _number(entry) is not None and (known is None or _is_done(known, status)):
            found[_group(entry)] = entry
    return list(found.values())[-_MOST_GROUPS:]


def _newest_numbers(entries: list[Mapping[str, Any]]) -> dict[str, int]:
    """Return for each process group the number of the collective that the host has begun last."""
    return {_group(entry): number for entry in entries if (number := _number(entry)) is not None}


def _number(entry: Mapping[str, Any]) -> int | None:
    """Return the number of a collective in its process group; None for transfers between two ranks."""
    return None if entry.get("is_p2p") else _whole(entry.get("collective_seq_id"))


def _open_transfers(entries: list[Mapping[str, Any]], status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return for each process group the transfer between two ranks that goes on."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if entry.get("is_p2p") and not _is_done(entry, status):
            found[_group(entry)] = entry
        elif entry.get("is_p2p"):
            found.pop(_group(entry), None)
    return list(found.values())[-_MOST_GROUPS:]


def _is_done(entry: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    if entry.get("state") == "completed":
        return True
    of_group = status.get(str(_whole(entry.get("pg_id"))))
    last = _written(of_group.get("last_completed_collective")) if isinstance(of_group, dict) else None
    number = _whole(entry.get("collective_seq_id"))
    if entry.get("is_p2p") or not isinstance(of_group, dict) or number is None:
        return entry.get("retired") is True
    return last is not None and number <= last


def _collective(rank: int, entry: Mapping[str, Any], status: Mapping[str, Any], begun: Mapping[str, int]) -> Collective:
    done = _is_done(entry, status)
    return Collective(
        rank=rank,
        group=_group(entry),
        name=_name(entry),
        sequence=_number(entry) or 0,
        state="completed" if done else "started" if entry.get("state") == "started" else "scheduled",
        called_at=_own_frame(entry),
        newest=begun.get(_group(entry)),
    )


def _open_transfer(rank: int, entry: Mapping[str, Any]) -> Finding:
    at = _own_frame(entry)
    called = f", called at {at.file}:{at.line} ({at.function})" if at else ""
    what = f"rank {rank} waits in {_name(entry)} of process group {_group(entry)}{called}"
    return finding("flight_recorder", f"{what}, according to PyTorch's flight recorder", ranks=(rank,))


def _name(entry: Mapping[str, Any]) -> str:
    name = entry.get("profiling_name")
    return in_brief(name, _MOST_NAME) if isinstance(name, str) and name else "?"


def _group(entry: Mapping[str, Any]) -> str:
    """Return the name of a process group, and its description where it has one: `0 default_pg`."""
    named = entry.get("process_group")
    words = [each for each in named[:2] if isinstance(each, str)] if isinstance(named, (list, tuple)) else []
    return in_brief(" ".join(each for each in words if each and each != "undefined"), _MOST_NAME) or "?"


def _own_frame(entry: Mapping[str, Any]) -> Frame | None:
    """Return the innermost call of the training's own code."""
    return next((frame for frame in _frames(entry) if not _NOT_OWN.search(frame.file)), None)


def _frames(entry: Mapping[str, Any]) -> Iterator[Frame]:
    frames = entry.get("frames")
    for each in frames[:_MOST_FRAMES] if isinstance(frames, list) else ():
        if isinstance(each, dict) and isinstance(each.get("filename"), str) and isinstance(each.get("name"), str):
            yield Frame(in_brief(each["name"], _MOST_NAME), in_brief(each["filename"]), _whole(each.get("line")))


def _written(value: Any) -> int | None:
    """Return a number, which JSON has as a text in the status of a process group."""
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else _whole(value)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and -1 <= value < _LARGEST else None


def _say_unread(paths: list[str]) -> Iterator[str]:
    if paths:
        some = name_some([in_brief(path, _MOST_NAME) for path in paths], _MOST_NAMED)
        yield f"flight recorder dumps that were not read (too large, too many, truncated, or not plain data): {some}"
