"""The history of a fleet in SQLite: all samples for a day, then one per five minutes, until `keep_days` have passed.

New samples are rows. Completed hours are packed into one chunk per member, a tenth of the size; chunks older than a day
are thinned, and those older than `keep_days` deleted. SQLite reuses the space. Each of these steps is one transaction:
a killed process loses and duplicates nothing.

A row is a JSON array: the status, then the values in the order of REPORTED, which may only grow at its end.

A chunk is a JSON object compressed by zlib, its head, and a compressed body. The head holds `status`, run-length-
encoded as pairs of text and count; and `columns` by name: their number of decimals, and pairs of index and value for
what is 0 in the body: null (unknown), NaN, the infinities, and all of a column whose numbers are too large or small for
it. The body holds the times in milliseconds since the epoch, then the columns in the order of the head, as integers of
8 bytes in the unit of their decimals: each as its difference from the one before, doubled, and inverted if it is
negative; the lowest bytes of all, then the next higher ones. A column without known values is left out.

Stored precision: 6 significant digits, integers below 2**53 exactly, and milliseconds.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from math import fsum, inf, isfinite
from typing import Any

from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.errors import ParseError, SettingsError, TrainingMonitorError
from training_monitor.core.records import LAST_TIME, read_row
from training_monitor.core.store import Execute, Store, storable
from training_monitor.core.store_files import tell
from training_monitor.core.units import DAY, HOUR, known_number
from training_monitor.fleet.metrics import FLEET_COLUMNS
from training_monitor.fleet.values import REPORTED, FleetSample

BUCKET = 300.0  # seconds; thinning leaves one sample of each
LONGEST_STATUS = 40
FIELDS = tuple(REPORTED)
# A thinned sample has the last value of these and the mean of all others.
_LAST = {each.name for each in FLEET_COLUMNS if each.thinned == "last"}
_EXACT = 2.0**53
MOST_DECIMALS = 16  # of a column of integers
_SOURCE = "the history"
QUARTER = 6 * HOUR  # thinned at once, of one member
PAUSE = 600.0  # seconds between two checks for something to pack or thin: hours, which end once an hour
SHARD = 8  # members
BATCH = 3000  # samples that one call packs or thins, approximately
PER_CHUNK = 20  # overhead of a chunk, in samples
FORGETTING = 1800.0  # seconds between two deletions of old chunks
FULL, THINNED, UNREADABLE = range(3)


def _rounded(value: object) -> float | None:
    if type(value) is float:  # as nearly all are
        number = value if value.is_integer() and abs(value) < _EXACT else float(f"{value:.6g}")
        return int(number) if number.is_integer() and abs(number) < _EXACT else number
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) < _EXACT and value == int(value):
        return int(value)
    try:
        return _rounded(float(value))
    except OverflowError:
        return None


# ---------------------------------------------------------------- rows


def format_row(sample: FleetSample) -> str:
    """Format a sample as a row, at stored precision; the timestamp is stored beside it.

    Values that are not numbers become unknown; other fields are dropped.
    """
    values = sample.values
    parts = [json.dumps(sample.status[:LONGEST_STATUS] if isinstance(sample.status, str) else None)]
    for name in FIELDS:
        value = values.get(name)
        if type(value) is float and "." in (text := f"{value:.6g}") and "e" not in text:
            parts.append(text)  # finite, and six digits were enough for what stands before the point
        else:
            number = _rounded(value)
            parts.append(str(number) if type(number) is int else json.dumps(number))
    return f"[{','.join(parts)}]"


def parse_row(timestamp: float, text: str) -> FleetSample:
    """Parse a row; an invalid one yields a sample with its time only."""
    try:
        status, *values = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        status, values = None, []
    known = [each if type(each) is float or (type(each) is int and abs(each) < _EXACT) else None for each in values]
    known += [None] * (len(FIELDS) - len(known))
    return FleetSample(timestamp, dict(zip(FIELDS, known)), status if type(status) is str else None)


# ---------------------------------------------------------------- chunks


def pack_chunk(samples: Sequence[FleetSample]) -> bytes:
    """Pack rounded samples of one member, oldest first."""
    status = [(text, len(list(group))) for text, group in groupby(sample.status for sample in samples)]
    columns, body = {}, _pack_numbers([round(sample.timestamp * 1000) for sample in samples])
    for name in FIELDS:
        column = [sample.values[name] for sample in samples]
        if column.count(None) < len(column):
            *columns[name], numbers = _pack_column(column)
            body += _pack_numbers(numbers)
    head = {"status": status, "columns": columns}
    return zlib.compress(json.dumps(head, separators=(",", ":")).encode()) + zlib.compress(body)


def unpack_chunk(packed: bytes, fields: Collection[str] = FIELDS) -> list[FleetSample]:
    """Unpack the samples of a chunk, oldest first.

    Args:
        packed: a chunk.
        fields: only these are decoded, which is faster; all others are unknown.

    Raises:
        ParseError: it is invalid.
    """
    try:
        reader = zlib.decompressobj()
        chunk = json.loads(reader.decompress(packed) + reader.flush())
        return _read_chunk(chunk, zlib.decompress(reader.unused_data), fields)
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ParseError(f"the samples cannot be read ({type(error).__name__}: {error})", source=_SOURCE) from error


def _read_chunk(chunk: Mapping[str, Any], body: bytes, fields: Collection[str]) -> list[FleetSample]:
    states = [text for text, count in chunk["status"] for _ in range(count)]
    size = 8 * len(states)
    if len(body) != size * (1 + len(chunk["columns"])):
        raise ValueError("another length")
    columns: dict[str, Sequence[float | None]] = dict.fromkeys(FIELDS, [None] * len(states))
    for place, (name, (decimals, special)) in enumerate(chunk["columns"].items(), 1):
        if name in fields and name in columns:
            numbers = _unpack_numbers(body[place * size : (place + 1) * size])
            columns[name] = _unpack_column(numbers, decimals, special)
    times, values = _unpack_numbers(body[:size]), (columns[name] for name in FIELDS)
    return [
        FleetSample(time / 1000, dict(zip(FIELDS, row)), state)
        for time, state, *row in zip(times, states, *values, strict=True)
    ]


def _pack_column(column: Sequence[float | None]) -> tuple[int, list[tuple[int, float | None]], list[int]]:
    """Return the decimals of a column, the values that are not in its body, and the body's integers."""
    values = [value if value is not None and isfinite(value) else 0 for value in column]
    largest = max(map(abs, values))
    for decimals in range(MOST_DECIMALS):
        unit = 10**decimals
        if largest * unit >= _EXACT:
            break
        if round(values[0] * unit) / unit != values[0]:
            continue  # before all of them are tried
        numbers = [round(value * unit) for value in values]
        if [number / unit for number in numbers] == values:
            special = [(at, value) for at, value in enumerate(column) if value is None or not isfinite(value)]
            return decimals, special, numbers
    return 0, list(enumerate(column)), [0] * len(column)


def _unpack_column(
    numbers: Sequence[int], decimals: int, special: Sequence[tuple[int, float | None]]
) -> list[float | None]:
    unit = 10**decimals
    values: list[float | None] = [number / unit for number in numbers] if decimals else list(numbers)
    for at, value in special:
        values[at] = value
    return values


def _pack_numbers(numbers: Sequence[int]) -> bytes:
    """Return the differences: their lowest bytes first, the sign in bit 0."""
    steps = [after - before for before, after in zip((0, *numbers), numbers)]
    octets = struct.pack(f"<{len(steps)}Q", *[step << 1 if step >= 0 else ~(step << 1) for step in steps])
    return b"".join(octets[place::8] for place in range(8))


def _unpack_numbers(body: bytes) -> list[int]:
    count = len(body) // 8
    octets = bytearray(len(body))
    for place in range(8):
        octets[place::8] = body[place * count : (place + 1) * count]
    return list(accumulate((step >> 1) ^ -(step & 1) for step in struct.unpack(f"<{count}Q", octets)))


# ---------------------------------------------------------------- thinning


def thin(samples: Iterable[FleetSample]) -> list[FleetSample]:
    """Reduce samples to one per five minutes, with the time and status of the last one.

    Loss, speed, utilisation, power and temperature are means of the known values, nan if one of them is nan; all else
    is the last known value. A value unknown for the whole five minutes stays unknown. Thinning twice changes nothing.

    Args:
        samples: rounded, of one member, oldest first.
    """
    buckets = groupby(samples, lambda sample: sample.timestamp // BUCKET)
    return [_thin_bucket(list(bucket)) for _, bucket in buckets]


def _thin_bucket(bucket: Sequence[FleetSample]) -> FleetSample:
    values = {name: _join(name, [sample.values[name] for sample in bucket]) for name in FIELDS}
    status = next((sample.status for sample in reversed(bucket) if sample.status), None)
    return FleetSample(bucket[-1].timestamp, values, status)


def _join(name: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known or name in _LAST:
        return known[-1] if known else None
    if all(isfinite(value) for value in known):
        return _rounded(fsum(value / len(known) for value in known))
    return _rounded(sum(known))  # an infinity, or nan


@dataclass(frozen=True, slots=True)
class HistoryMember:
    """A member with history: when it was first and last seen (epoch seconds), and how many samples are stored.

    A sample that was packed and then added again counts twice until it is thinned.
    """

    key: str
    first: float
    last: float
    samples: int


class History:
    """The samples of a fleet in a store. Like the store, a History can be used by any thread and process.

    If the disk is full, the folder is read-only or the file is damaged, a method raises TrainingMonitorError and
    changes nothing. The caller should report the error and continue. The next `add` tries again, and only the samples
    in between are lost.

    Old samples are deleted slowly. If a clock is far ahead for an hour, only two or three days of history are deleted.
    """

    def __init__(
        self, store: Store | None = None, *, keep_days: float = 31.0, open_store: Callable[[], Store] = Store
    ) -> None:
        """Keep samples in `store` for `keep_days`; without one, `open_store` is called on first use.

        Raises:
            SettingsError: `keep_days` is not a number above 0.
        """
        days = known_number(keep_days)
        if days is None or days <= 0:
            raise SettingsError("keep_days", keep_days, "days, above 0")
        self._opened, self._open_store, self._keep = store, open_store, days * DAY
        self._tidied, self._forgotten, self._is_behind = -inf, -inf, False

    @property
    def _store(self) -> Store:
        self._opened = self._opened or self._open_store()
        return self._opened

    def _repr_html_(self) -> str:
        from training_monitor.core.panel_html import format_html
        from training_monitor.core.panels import Panel, clean, panel_of

        try:
            return format_html(panel_of(self.members(), "History"))
        except TrainingMonitorError as error:
            return format_html(Panel("History", "unknown", clean(error)))

    def add(self, samples: Mapping[str, FleetSample]) -> None:
        """Store one sample of each member, by its key, in one transaction. Then tidy up a little if it is time.

        Adding a sample again with the same key and timestamp has no further effect. Timestamps may decrease, because a
        clock may be set back.

        Args:
            samples: the samples, by key. Fields that are not in `REPORTED` are not stored, and numbers are rounded to 6
                digits.

        Raises:
            SettingsError: a timestamp is invalid.
            TrainingMonitorError: see the class. If only tidying up failed, the samples have been stored.
        """
        if not samples:
            return
        self.add_past([samples])
        now = max(sample.timestamp for sample in samples.values())
        if self._is_behind or not 0 <= now - self._tidied < PAUSE:
            self.tidy(now)
        if not 0 <= now - self._forgotten < FORGETTING:
            self.forget(now)

    def add_past(self, rounds: Iterable[Mapping[str, FleetSample]]) -> None:
        """Store many samples of each member in one transaction. Raises the same errors as `add`."""
        with self._store.transaction() as execute:
            for samples in rounds:
                for key, sample in samples.items():
                    if (time := known_number(sample.timestamp)) is None or not 0 <= time < LAST_TIME:
                        raise SettingsError(f"timestamp of {key[:100]!r}", sample.timestamp, "epoch seconds")
                _insert(execute, samples)

    def read(
        self, key: str, since: float, until: float = inf, *, fields: Collection[str] = FIELDS
    ) -> list[FleetSample]:
        """Return the samples of a member between two times (inclusive), oldest first; [] if there are none.

        All samples of about the last day are returned. For earlier times, there is one sample per five minutes (see
        `thin`).

        Args:
            key: the key of the member.
            since, until: epoch seconds; samples with impossible times are omitted.
            fields: the names of the fields that you need, from `REPORTED`. Other fields may be left unknown, which is
                faster.

        Raises:
            TrainingMonitorError: see the class.
            ParseError: the stored samples cannot be read.
        """
        since, until = max(since, 0.0), min(until, LAST_TIME)
        with self._store.transaction() as execute:
            found = execute("SELECT number FROM history_members WHERE key = ?", (storable(key),))
            if not found:
                return []
            [(member,)] = found
            chunks = execute(
                "SELECT packed FROM history_chunks WHERE member = ? AND first <= ? AND last >= ? "
                "ORDER BY kind = ?, first",
                (member, until, since, FULL),
            )
            rows = execute(
                "SELECT timestamp, sample FROM history_samples WHERE shard = ? AND timestamp BETWEEN ? AND ? "
                "AND member = ?",
                (member // SHARD, since, until, member),
            )
        packed = [sample for (chunk,) in chunks for sample in unpack_chunk(chunk, fields)]
        found_at = _merged(packed + [parse_row(timestamp, row) for timestamp, row in rows])
        return [sample for sample in found_at if since <= sample.timestamp <= until]

    def members(self) -> list[HistoryMember]:
        """Return the members that have history, sorted by key. Damaged members are logged and omitted.

        Raises the same errors as `read`.
        """
        with self._store.transaction() as execute:
            rows = execute(
                "SELECT key, first, last, coalesce(new.samples, 0) + (SELECT coalesce(sum(chunk.samples), 0) "
                "FROM history_chunks chunk WHERE chunk.member = each.number) FROM history_members each LEFT JOIN "
                "(SELECT member, count(*) AS samples FROM history_samples GROUP BY member) new "
                "ON new.member = each.number ORDER BY key"
            )
        found = list[HistoryMember]()
        for row in rows:
            try:
                found.append(read_row(HistoryMember, row))
            except ParseError as error:
                tell(f"the record of a member in the history {self._store.path} is damaged and was skipped: {error}")
        return found

    def tidy(self, now: float) -> bool:
        """Pack or thin samples for a fraction of a second. Return False if there is nothing left to do.

        `add` calls this method until it returns False.

        Args:
            now: the current time in epoch seconds.
        """
        self._tidied = now
        for work in (_pack_oldest, _thin_oldest):
            done = 0
            with self._store.transaction() as execute:
                while done < BATCH and (more := work(execute, now)):
                    done += more
            self._is_behind = done > 0
            if self._is_behind:
                return True
        return False

    def forget(self, now: float) -> None:
        """Delete the oldest chunk of each member if it is too old. `add` calls this method twice an hour.

        Args:
            now: the current time in epoch seconds.
        """
        before = now - self._keep
        self._forgotten = now
        with self._store.transaction() as execute:
            execute(
                "DELETE FROM history_chunks WHERE number IN (SELECT (SELECT number FROM history_chunks "
                "WHERE member = each.number AND last < ? ORDER BY first LIMIT 1) FROM history_members each)",
                (before,),
            )
            execute(
                "DELETE FROM history_members AS each WHERE last < ? AND "
                "NOT EXISTS (SELECT 1 FROM history_chunks WHERE member = each.number) AND "
                f"NOT EXISTS (SELECT 1 FROM history_samples WHERE shard = each.number / {SHARD} "
                "AND member = each.number)",
                (before,),
            )


class HistoryReader:
    """Reads the history of members, for a command. `unread` has the keys of those that cannot be read.

    Their history is empty, and `complain` gets the reason; without it, reading such a member raises ParseError.
    """

    def __init__(self, history: History, complain: Callable[[str], object] | None = None) -> None:
        self._history, self._complain = history, complain
        self.unread = set[str]()

    def read(self, key: str, since: float, until: float, *, fields: Collection[str] = FIELDS) -> list[FleetSample]:
        """Return the samples of a member. Raises like `History.read`."""
        try:
            return [] if key in self.unread else self._history.read(key, since, until, fields=fields)
        except ParseError as error:
            if self._complain is None:
                raise
            self.unread.add(key)
            self._complain(f"{key}: {error}")
            return []


def mock_history(*, keep_days: float = 31.0) -> History:
    """Return the history of made-up members. It is in a file of its own, apart from that of real ones."""
    return History(keep_days=keep_days, open_store=partial(BestEffortStore, file="mock.db"))


def _pack_oldest(execute: Execute, now: float) -> int:
    """Pack the oldest completed hour of some members, or a part of it. Returns the amount of work in samples."""
    oldest = execute(
        "SELECT (SELECT min(timestamp) FROM history_samples WHERE shard = each.shard AND timestamp >= 0) AS oldest, "
        f"shard FROM (SELECT DISTINCT number / {SHARD} AS shard FROM history_members) each "
        "WHERE oldest < ? ORDER BY oldest LIMIT 1",
        (_floor(now, HOUR),),
    )
    if not oldest:
        return 0
    [(begin, shard)] = oldest
    end = _end_of_batch(execute, shard, begin)
    members: dict[int, list[FleetSample]] = {}
    chosen = "FROM history_samples WHERE shard = ? AND timestamp >= 0 AND timestamp < ?"
    rows = execute(f"SELECT member, timestamp, sample {chosen} ORDER BY timestamp", (shard, end))
    for member, timestamp, row in rows:
        members.setdefault(member, []).append(parse_row(timestamp, row))
    for member, samples in members.items():
        there = _take(execute, member, FULL, _floor(begin, HOUR), end, last=samples[0].timestamp)
        _put(execute, member, FULL, _merged([*samples, *there]))
    execute(f"DELETE {chosen}", (shard, end))
    return sum(len(samples) + PER_CHUNK for samples in members.values())


def _thin_oldest(execute: Execute, now: float) -> int:
    """Thin six hours of a member that are older than a day. Returns the amount of work in samples."""
    due = _floor(now - DAY, QUARTER)
    oldest = execute(
        "SELECT (SELECT min(first) FROM history_chunks WHERE member = each.number AND kind = ? AND first >= 0) "
        "AS oldest, number FROM history_members each WHERE oldest < ? ORDER BY oldest LIMIT 1",
        (FULL, due),
    )
    if not oldest:
        return 0
    [(begin, member)] = oldest
    day = _floor(begin, DAY)
    samples = _take(execute, member, THINNED, day, day + DAY)
    samples += _take(execute, member, FULL, begin, _floor(begin, QUARTER) + QUARTER)
    if samples:
        _put(execute, member, THINNED, thin(_merged(samples)))
    return len(samples) + PER_CHUNK


def _insert(execute: Execute, samples: Mapping[str, FleetSample]) -> None:
    rows = [(round(sample.timestamp, 3), format_row(sample), storable(key)) for key, sample in samples.items()]
    execute(
        "INSERT INTO history_members (key, first, last) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
        "first = min(first, excluded.first), last = max(last, excluded.last)",
        each=[(key, time, time) for time, _, key in rows],
    )
    execute(
        f"INSERT OR IGNORE INTO history_samples SELECT number / {SHARD}, ?, number, ? FROM history_members "
        "WHERE key = ?",
        each=rows,
    )


def _end_of_batch(execute: Execute, shard: int, begin: float) -> float:
    """Return the end of the time to pack at once: the hour, or five minutes of it when there are many samples."""
    end = _floor(begin, HOUR) + HOUR
    beyond = execute(
        "SELECT timestamp FROM history_samples WHERE shard = ? AND timestamp < ? ORDER BY timestamp LIMIT 1 OFFSET ?",
        (shard, end, BATCH),
    )
    if not beyond:
        return end
    return max(_floor(beyond[0][0], BUCKET), _floor(begin, BUCKET) + BUCKET)


def _take(
    execute: Execute, member: int, kind: int, begin: float, end: float, *, last: float = -inf
) -> list[FleetSample]:
    """Remove and return the chunks that begin in [begin, end) and reach `last`; unreadable ones are only marked."""
    samples: list[FleetSample] = []
    chosen = "WHERE member = ? AND kind = ? AND first >= ? AND first < ? AND last >= ? ORDER BY first"
    values = (member, kind, begin, end, last)
    for number, packed in execute(f"SELECT number, packed FROM history_chunks {chosen}", values):
        try:
            samples += unpack_chunk(packed)
        except ParseError:
            execute("UPDATE history_chunks SET kind = ? WHERE number = ?", (UNREADABLE, number))
            continue
        execute("DELETE FROM history_chunks WHERE number = ?", (number,))
    return samples


def _put(execute: Execute, member: int, kind: int, samples: list[FleetSample]) -> None:
    execute(
        "INSERT INTO history_chunks (member, kind, first, last, samples, packed) VALUES (?, ?, ?, ?, ?, ?)",
        (member, kind, samples[0].timestamp, samples[-1].timestamp, len(samples), pack_chunk(samples)),
    )


def _merged(samples: Iterable[FleetSample]) -> list[FleetSample]:
    """Return the samples oldest first, one per timestamp: the last one given."""
    by_time = {sample.timestamp: sample for sample in samples}
    return [by_time[time] for time in sorted(by_time)]


def _floor(time: float, length: float) -> float:
    return time // length * length
