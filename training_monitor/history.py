"""What was seen of every member of a fleet, in sqlite: all of it for a day, five minutes as one after, then nothing.

New samples are rows. Hours that are over are packed into chunks of one member, which take a tenth of the space; chunks
older than a day are thinned, and those older than `keep_days` deleted. sqlite uses the space again. Each of these steps
is one transaction: a process that is killed loses and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from training_monitor.errors import ParseError, SettingsError
from training_monitor.parse.history_chunk import (
    BUCKET,
    FIELDS,
    format_row,
    pack_chunk,
    parse_row,
    rounded,
    thin,
    unpack_chunk,
)
from training_monitor.policy.fleet_values import FleetSample
from training_monitor.store import Execute, Store
from training_monitor.units import known_number

HOUR, DAY = 3600.0, 86_400.0
QUARTER = 6 * HOUR  # so much of a member is thinned at a time
PAUSE = 60.0  # seconds between two looks for something to tidy
SHARD = 8  # members
BATCH = 3000  # samples that one call packs or thins, more or less
PER_CHUNK = 20  # samples, as much work as a chunk is beside them
FORGETTING = 1800.0  # seconds between two times
LAST_TIME = 1e11  # epoch seconds; no clock is later
FULL, THINNED, UNREADABLE = range(3)


@dataclass(frozen=True, slots=True)
class HistoryMember:
    """Of whom there is history: when it was seen first and last, epoch seconds, and how many samples there are.

    What was packed and then added once more counts twice until it is thinned.
    """

    key: str
    first: float
    last: float
    samples: int


class History:
    """The samples of a fleet in a store; safe from any thread and process, as the store is.

    The disk may be full, the folder read-only or the file damaged: then a method raises TrainingMonitorError, and what
    it was asked to do did not happen. Whoever watches says so and goes on; the next `add` tries again, and only what
    was seen meanwhile is missing.

    What is too old is forgotten slowly: a clock that was ahead for an hour takes away two or three days, not all.
    """

    def __init__(self, store: Store | None = None, *, keep_days: float = 31.0) -> None:
        """Keep samples in `store`, for `keep_days`; the usual store is opened when it is first needed.

        Raises:
            SettingsError: `keep_days` is no number above 0.
        """
        days = known_number(keep_days)
        if days is None or days <= 0:
            raise SettingsError("keep_days", keep_days, "days, above 0")
        self._opened, self._keep = store, days * DAY
        self._tidied, self._forgotten, self._is_behind = -inf, -inf, False

    @property
    def _store(self) -> Store:
        self._opened = self._opened or Store()
        return self._opened

    def add(self, samples: Mapping[str, FleetSample]) -> None:
        """Keep one sample of each member, by its key, in one transaction; then tidy a little, if it is time.

        The same key and timestamp count once. The times need not rise: a clock may be set back.

        Args:
            samples: their values of other names than `REPORTED` are not kept, and of numbers 6 digits.

        Raises:
            SettingsError: a timestamp is none.
            TrainingMonitorError: see the class. When only tidying failed, the samples are there.
        """
        if not samples:
            return
        for key, sample in samples.items():
            if (time := known_number(sample.timestamp)) is None or not 0 <= time < LAST_TIME:
                raise SettingsError(f"timestamp of {key[:100]!r}", sample.timestamp, "epoch seconds")
        kept = {_storable(key): rounded(sample) for key, sample in samples.items()}
        with self._store.transaction() as execute:
            _insert(execute, kept)
        now = max(sample.timestamp for sample in kept.values())
        if self._is_behind or not 0 <= now - self._tidied < PAUSE:
            self.tidy(now)
        if not 0 <= now - self._forgotten < FORGETTING:
            self.forget(now)

    def read(
        self, key: str, since: float, until: float = inf, *, fields: Collection[str] = FIELDS
    ) -> list[FleetSample]:
        """What was seen of a member between two times, both included, oldest first; [] when there is nothing.

        Of the last day and some hours these are all samples, before that one for each five minutes (see `thin`).

        Args:
            key: of the member.
            since, until: epoch seconds.
            fields: what is asked for, by the names of `REPORTED`; others may be left unknown, which is faster.

        Raises:
            TrainingMonitorError: see the class.
            ParseError: what is there cannot be read.
        """
        with self._store.transaction() as execute:
            found = execute("SELECT number FROM history_members WHERE key = ?", (_storable(key),))
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
        """Of whom there is history, by their keys. Raises as `read`."""
        with self._store.transaction() as execute:
            rows = execute(
                "SELECT key, first, last, coalesce(new.samples, 0) + (SELECT coalesce(sum(chunk.samples), 0) "
                "FROM history_chunks chunk WHERE chunk.member = each.number) FROM history_members each LEFT JOIN "
                "(SELECT member, count(*) AS samples FROM history_samples GROUP BY member) new "
                "ON new.member = each.number ORDER BY key"
            )
        return [HistoryMember(*row) for row in rows]

    def tidy(self, now: float) -> None:
        """Pack or thin for a fraction of a second; `add` calls it until all is done.

        Args:
            now: epoch seconds.
        """
        self._tidied = now
        for work in (self._pack, self._thin):
            done = 0
            while done < BATCH and (more := work(now)):
                done += more
            self._is_behind = done > 0
            if self._is_behind:
                return

    def forget(self, now: float) -> None:
        """Delete the oldest chunk of each member, if it is too old; `add` calls it twice an hour.

        Args:
            now: epoch seconds.
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

    def _pack(self, now: float) -> int:
        """Pack the oldest hour that is over of some members, or a part of it. Returns how much work it was."""
        with self._store.transaction() as execute:
            oldest = execute(
                "SELECT (SELECT min(timestamp) FROM history_samples WHERE shard = each.shard) AS oldest, shard "
                f"FROM (SELECT DISTINCT number / {SHARD} AS shard FROM history_members) each "
                "WHERE oldest < ? ORDER BY oldest LIMIT 1",
                (_floor(now, HOUR),),
            )
            if not oldest:
                return 0
            [(begin, shard)] = oldest
            end = _end_of_batch(execute, shard, begin)
            members: dict[int, list[FleetSample]] = {}
            chosen = "FROM history_samples WHERE shard = ? AND timestamp < ?"
            rows = execute(f"SELECT member, timestamp, sample {chosen} ORDER BY timestamp", (shard, end))
            for member, timestamp, row in rows:
                members.setdefault(member, []).append(parse_row(timestamp, row))
            for member, samples in members.items():
                there = _take(execute, member, FULL, _floor(begin, HOUR), end, last=samples[0].timestamp)
                _put(execute, member, FULL, _merged([*samples, *there]))
            execute(f"DELETE {chosen}", (shard, end))
        return sum(len(samples) + PER_CHUNK for samples in members.values())

    def _thin(self, now: float) -> int:
        """Thin six hours of a member that are older than a day. Returns how much work it was."""
        due = _floor(now - DAY, QUARTER)
        with self._store.transaction() as execute:
            oldest = execute(
                "SELECT (SELECT min(first) FROM history_chunks WHERE member = each.number AND kind = ?) AS oldest, "
                "number FROM history_members each WHERE oldest < ? ORDER BY oldest LIMIT 1",
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
    for key, sample in samples.items():
        execute(
            "INSERT INTO history_members (key, first, last) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
            "first = min(first, excluded.first), last = max(last, excluded.last)",
            (key, sample.timestamp, sample.timestamp),
        )
    numbers: dict[str, int] = dict(execute("SELECT key, number FROM history_members"))
    for key, sample in samples.items():
        values = (numbers[key] // SHARD, sample.timestamp, numbers[key], format_row(sample))
        execute("INSERT OR IGNORE INTO history_samples VALUES (?, ?, ?, ?)", values)


def _end_of_batch(execute: Execute, shard: int, begin: float) -> float:
    """Up to when to pack at once: the end of the hour, or of five minutes in it when there is a lot."""
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
    """Take the chunks that begin in [begin, end) and reach `last` out of the store; unreadable ones are set aside."""
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
    """Oldest first, one for each time: the last one given."""
    by_time = {sample.timestamp: sample for sample in samples}
    return [by_time[time] for time in sorted(by_time)]


def _floor(time: float, length: float) -> float:
    return time // length * length


def _storable(key: str) -> str:
    """A key that may hold a name that is no UTF-8, which sqlite refuses."""
    return key.encode("utf-8", "backslashreplace").decode()
