"""How much room and time the history takes, beside a plain sqlite table with the same samples in the same run.

    python3 bench/history.py [--members 20] [--days 30] [--at-once 1000]

Each member has `days` of samples thinned to five minutes and then 30 hours of one every 10 seconds, the most that is
kept in full. The values are noisy, as a training's are: what never changes would take no room. The 30 hours go through
`History.add`. The days before are thinned and packed by the same functions, from samples a minute apart, and put into
the table at once. The reference is a table with a column for each value.

Printed are bytes per member and what 1,000 members come to (goal: under 1 GB), by how much the file grows when a
week is forgotten and another one is added, and the time of one `add` of many members, of reading one, and of reading
the last minutes of all.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, in_turn  # noqa: E402
from training_monitor.core.store import Store
from training_monitor.core.units import DAY, HOUR
from training_monitor.fleet.history import FIELDS, THINNED, History, format_row, pack_chunk, parse_row, thin
from training_monitor.fleet.values import FleetSample

START = 1_750_032_000.0  # a midnight
FULL_HOURS = 30
RECENT = 300.0  # seconds of which a table of many members reads
WEEK = 7
PLAIN = f"CREATE TABLE plain (member INTEGER, timestamp REAL, {', '.join(FIELDS)}, PRIMARY KEY (member, timestamp))"
INSERT = f"INSERT INTO plain VALUES (?, ?{', ?' * len(FIELDS)})"


def training(seed: int, begin: float, end: float, interval: float) -> Iterator[FleetSample]:
    """What a training on eight GPUs looks like from START on, seen between two times."""
    chance = random.Random(f"{seed} {begin}")
    own = random.Random(seed)
    speed, price, epoch = own.uniform(0.5, 8), own.uniform(0.3, 20), own.randint(500, 5000)
    total, disk, ram = int(speed * 60 * DAY), own.uniform(20, 60), own.uniform(20, 60)
    for number in range(int((end - begin) / interval)):
        timestamp = begin + number * interval + chance.gauss(0, 0.02)
        ran = timestamp - START + 600
        step = int(speed * ran + chance.gauss(0, 2))
        gpus = [min(100, round(chance.gauss(93, 5))) for _ in range(8)]
        degrees = [round(chance.gauss(66 + 6 * math.sin(ran / 1800), 1)) for _ in range(8)]
        values = {
            "gpu_utilization": sum(gpus) / 8,
            "memory_utilization": 100 * (70000 + chance.choice((0, 0, 0, 2, 64))) / 81559,
            "disk_utilization": disk + ran / 5e5,
            "ram_utilization": ram + chance.gauss(0, 0.3),
            "gpu_power": chance.gauss(630, 25) / 700,
            "gpu_temperature": sum(degrees) / 8,
            "step": step,
            "epoch": step / epoch,
            "loss": round(2.5 * math.exp(-ran / 9e5) + 0.8 + chance.gauss(0, 0.06), 4),
            "learning_rate": 1.5e-4 * (1 + math.cos(ran / 3e6)),
            "grad_norm": round(abs(chance.gauss(1, 0.3)), 4),
            "steps_per_second": speed * chance.gauss(1, 0.03),
            "eta_seconds": (total - step) / speed * chance.gauss(1, 0.003),
            "cost_per_hour": price,
            "total_cost": price * ran / HOUR,
            "runtime_seconds": ran - 600,
            "lowest_gpu_utilization": min(gpus),
        }
        yield FleetSample(timestamp, values, "running")


def thinned_days(seed: int, begin: float, days: int) -> Iterator[list[FleetSample]]:
    for day in range(days):
        seen = training(seed, begin + day * DAY, begin + (day + 1) * DAY, 60.0)
        yield thin(parse_row(sample.timestamp, format_row(sample)) for sample in seen)


def put_thinned(store: Store, members: int, begin: float, days: int) -> None:
    for member in range(members):
        with store.transaction() as execute:
            [(number,)] = execute("SELECT number FROM history_members WHERE key = ?", (key(member),))
            for samples in thinned_days(member, begin, days):
                times = (samples[0].timestamp, samples[-1].timestamp)
                execute(
                    "INSERT INTO history_chunks (member, kind, first, last, samples, packed) VALUES (?, ?, ?, ?, ?, ?)",
                    (number, THINNED, *times, len(samples), pack_chunk(samples)),
                )


def key(member: int) -> str:
    return f"vast://{30_000_000 + member}"


def at_once(members: int, begin: float, end: float, interval: float) -> Iterator[dict[str, FleetSample]]:
    for samples in zip(*(training(member, begin, end, interval) for member in range(members))):
        yield {key(member): sample for member, sample in enumerate(samples)}


def plain_row(member: int, sample: FleetSample) -> tuple[float | None, ...]:
    return (member, sample.timestamp, *(sample.values[name] for name in FIELDS))


def plain_table(path: str, members: Iterable[tuple[int, list[FleetSample]]]) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(PLAIN)
    for member, samples in members:
        database.execute("BEGIN")
        database.executemany(INSERT, [plain_row(member, sample) for sample in samples])
        database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return database


def room(folder: str, members: int, days: int) -> None:
    """Print bytes, and the time of reading a member."""
    store = Store(folder)
    history, empty = History(store, keep_days=days + 3), os.path.getsize(store.path)
    begin = START + days * DAY
    for samples in at_once(members, begin, begin + FULL_HOURS * HOUR, 10.0):
        history.add(samples)
    put_thinned(store, members, START, days)
    size = os.path.getsize(store.path) - empty
    kept = [(member, history.read(key(member), 0.0)) for member in range(members)]
    plain = plain_table(os.path.join(folder, "plain.db"), kept)
    reference = os.path.getsize(os.path.join(folder, "plain.db"))
    print(f"{members} members, {days} days thinned and {FULL_HOURS} hours in full: {len(kept[0][1])} samples each")
    for name, count in (("plain table", reference), ("history", size)):
        print(f"{name:<12}{count / members / 1e6:7.3f} MB per member{count / members / 1e6:8.2f} GB for 1,000 of them")
    print(f"ratio {size / reference:.2f} (goal 1,000 members under 1 GB: {size / members / 1e6:.2f} GB)")
    read_times(history, plain, members)
    plain.close()
    forget_and_add(history, store, members, begin + FULL_HOURS * HOUR)


def read_times(history: History, plain: sqlite3.Connection, members: int) -> None:
    ours, theirs = [], []
    for member in range(min(members, 10)):
        started = time.perf_counter()
        history.read(key(member), 0.0)
        ours.append(time.perf_counter() - started)
        started = time.perf_counter()
        plain.execute("SELECT * FROM plain WHERE member = ? ORDER BY timestamp", (member,)).fetchall()
        theirs.append(time.perf_counter() - started)
    report("reading a member", ours, theirs)


def forget_and_add(history: History, store: Store, members: int, now: float) -> None:
    """Forget the oldest week, put another one behind the newest, and print by how much the file grows."""
    forgetting = History(store, keep_days=(now - START) / DAY - WEEK)
    before, count = os.path.getsize(store.path), 0
    while (left := len(history.read(key(0), START, START + WEEK * DAY - HOUR))) and count < 100 * members:
        forgetting.forget(now)
        count += 1
    put_thinned(store, members, now + DAY, WEEK)
    grown = os.path.getsize(store.path) / before - 1
    print(f"a week forgotten ({left} samples left) and another one added: the file grows by {100 * grown:.1f} %")


def add_times(folder: str, members: int) -> None:
    """Print the time of an add of many members, a minute apart for two hours and a half: the first hours get packed."""
    history = History(Store(folder))
    database = plain_table(os.path.join(folder, "plain.db"), ())
    ours, theirs = [], []
    for samples in at_once(members, START, START + 2.5 * HOUR, 60.0):
        started = time.perf_counter()
        history.add(samples)
        ours.append(time.perf_counter() - started)
        started = time.perf_counter()
        database.execute("BEGIN")
        database.executemany(INSERT, [plain_row(member, sample) for member, sample in enumerate(samples.values())])
        database.execute("COMMIT")
        theirs.append(time.perf_counter() - started)
    database.close()
    report(f"an add of {members}", ours, theirs)
    started, last = time.perf_counter(), START + 2.5 * HOUR
    found = [history.read(each.key, last - RECENT, fields={"step", "loss"}) for each in history.members()]
    seconds = time.perf_counter() - started
    print(f"the last {sum(map(len, found)) / members:.0f} samples of each of {members}: {seconds:.1f} s")


def report(what: str, ours: list[float], theirs: list[float]) -> None:
    one, other = statistics.median(ours), statistics.median(theirs)
    print(
        f"{what}: {1000 * one:.0f} ms (median; {1000 * max(ours):.0f} ms at worst), plain table {1000 * other:.0f} ms, "
        f"ratio {one / other:.1f}"
    )


# ---------------------------------------------------------------- for python3 -m bench


def rows() -> list[Row]:
    members = 500
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs, packing = added(folder, members)
    with tempfile.TemporaryDirectory() as folder:
        size, reference = thinned_size(folder, 5, 10)
    return [
        Row(
            f"history: CPU time to add a sample, {members} members",
            *(1e6 * ours, "µs"),
            *(1e6 * theirs, "add a row to a plain table, in batches"),
            goal="25 µs",
        ),
        Row("history: CPU time per sample to pack the samples of a past hour", 1e6 * packing, "µs", None, "", ""),
        Row("history: size of a sample after thinning", size, "B", reference, "a row of a plain table", goal="40 B"),
    ]


def growth() -> list[str]:
    lines = [
        "| members | CPU time to add a sample | CPU time to pack a sample "
        "| reference: CPU time to add a row to a plain table |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for members in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs, packing = added(folder, members)
        lines.append(f"| {members} | {1e6 * ours:.0f} µs | {1e6 * packing:.0f} µs | {1e6 * theirs:.1f} µs |")
    with tempfile.TemporaryDirectory() as folder:
        return [*lines, "", *month(folder, 500, 30)]


def added(folder: str, members: int) -> tuple[float, float, float]:
    """Return the CPU seconds of a sample that is added, of one in a plain table, and of packing one afterwards."""
    history, database = History(Store(folder)), plain_table(os.path.join(folder, "plain.db"), ())
    ours = theirs = 0.0
    count = 0
    for samples in at_once(members, START, START + HOUR, 60.0):
        started = time.process_time()
        history.add(samples)
        ours += time.process_time() - started
        batch = [plain_row(member, sample) for member, sample in enumerate(samples.values())]
        started = time.process_time()
        database.execute("BEGIN")
        database.executemany(INSERT, batch)
        database.execute("COMMIT")
        theirs += time.process_time() - started
        count += members
    database.close()
    started = time.process_time()
    while history.tidy(START + 1.01 * HOUR):
        pass
    return ours / count, theirs / count, (time.process_time() - started) / count


def thinned_size(folder: str, members: int, days: int) -> tuple[float, float]:
    """Return the bytes that a thinned sample takes in the file, and in one with a plain table."""
    store = Store(folder)
    history = History(store, keep_days=days + 3)
    history.add({key(member): FleetSample(START + days * DAY, {}, None) for member in range(members)})
    before = os.path.getsize(store.path)
    put_thinned(store, members, START, days)
    kept = [(member, history.read(key(member), 0.0, START + days * DAY - 1)) for member in range(members)]
    count = sum(len(samples) for _, samples in kept)
    whole = [
        (member, [FleetSample(each.timestamp, {**dict.fromkeys(FIELDS), **each.values}, None) for each in samples])
        for member, samples in kept
    ]
    plain_table(os.path.join(folder, "plain.db"), whole).close()
    return (os.path.getsize(store.path) - before) / count, os.path.getsize(os.path.join(folder, "plain.db")) / count


def month(folder: str, members: int, days: int) -> list[str]:
    """Return what a thinned month takes; the members have the same few histories, each its own copy."""
    store = Store(folder)
    history = History(store, keep_days=days + 3)
    now = {key(member): FleetSample(START + days * DAY, {"step": 1}, "running") for member in range(members)}
    history.add(now)
    made = [list(thinned_days(seed, START, days)) for seed in range(2)]
    packed = [
        [(samples[0].timestamp, samples[-1].timestamp, len(samples), pack_chunk(samples)) for samples in each]
        for each in made
    ]
    with store.transaction() as execute:
        execute(
            "INSERT INTO history_chunks (member, kind, first, last, samples, packed) "
            f"SELECT number, {THINNED}, ?, ?, ?, ? FROM history_members WHERE key = ?",
            each=[(*chunk, key(member)) for member in range(members) for chunk in packed[member % 2]],
        )
    later = {name: FleetSample(each.timestamp + 10, each.values, each.status) for name, each in now.items()}
    calls = {
        "time to add one sample per member": lambda: history.add(later),
        f"time to read all {days} days of one member's history": lambda: history.read(key(7), 0.0),
        "time to read the most recent hour of one member's history": lambda: history.read(
            key(7), START + days * DAY - HOUR
        ),
        "time to list the members": history.members,
    }
    lines = [f"| thinned history of {members} members over {days} days | |", "| --- | ---: |"]
    lines.append(f"| size of the file | {os.path.getsize(store.path) / 1e6:.0f} MB |")
    taken = in_turn(calls, 5)
    return [*lines, *(f"| {name} | {1000 * seconds:.1f} ms |" for name, seconds in taken.items())]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        room(first, options.members, options.days)
        add_times(second, options.at_once)
