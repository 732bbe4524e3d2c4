"""Invalid values in rows of the state file: they are reported, and the other rows are shown."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.integration.commands import run_command
from training_monitor.core.errors import StateError
from training_monitor.core.store import Store
from training_monitor.core.values import Notice, Observation
from training_monitor.fleet.history import FIELDS, HOUR, History
from training_monitor.fleet.values import FleetSample
from training_monitor.look.kept_looks import Looks
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast.training_request import TrainingRequest

VALUES = {
    "deep JSON": "'" + "[" * 5000 + "'",
    "another kind": "5",
    "cut": "substr({column}, 1, max(1, length({column}) / 2))",
    "digits": "'" + "9" * 5000 + "'",
    "a large number": "'" + "9" * 400 + "'",
    "bytes": "x'fffe00'",
    "a word": "'word'",
    "endless": "9e999",
    "negative": "-1e300",
    "control": "char(27) || '[2J'",
}
# Of each table: which row is damaged, the commands that read it, and whether they show the row that is not.
TABLES = {
    "training_jobs": (
        "id = 'hurt'",
        (("rent", "queue", "--all"), ("rent", "queue", "--all", "--json"), ("rent", "queue")),
    ),
    "notices": ("job_id = 'hurt'", (("notify", "--list"), ("notify", "--list", "--json"))),
    "credit_movements": ("account = 'hurt'", (("rent", "credits", "sound"), ("rent", "credits", "sound", "--json"))),
    "history_members": ("key = 'hurt'", (("history",), ("history", "--json"), ("history", "sound"))),
    "history_samples": ("member = 1", (("history",), ("history", "--json"), ("history", "--csv", "-"))),
    "history_chunks": ("member = 1", (("history",), ("history", "--json"), ("history", "--compare"))),
}
OWN = {  # what asks for the damaged row itself
    "training_jobs": (("rent", "queue", "hurt"), ("rent", "queue", "hurt", "--cancel")),
    "notices": (("notify", "--list", "--job", "hurt"),),
    "credit_movements": (("rent", "credits", "hurt"), ("rent", "credits", "hurt", "--withdraw", "1", "--reason", "x")),
    "history_members": (("history", "hurt"), ("history", "--cost"), ("history", "--csv", "-")),
    "history_samples": (("history", "hurt"), ("history", "--cost"), ("history", "--compare")),
    "history_chunks": (("history", "hurt"), ("history", "--cost"), ("history", "--csv", "-")),
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A state file in which each table has two rows or more, one of them called `hurt`."""
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINING_MONITOR_SETTINGS", str(tmp_path / "none.toml"))
    monkeypatch.delenv("TRAINING_MONITOR_LOG_FILE", raising=False)
    store, now = Store(), time.time()
    history = History(store)
    for name in ("hurt", "sound"):
        TrainingQueue(store).submit(TrainingRequest(name, command="python train.py"), name)
        store.add_notice("", Notice("failed", name, job_id=name), now=now)
        Credits(store).deposit(name, 5.0, "paid")
        for age in (3 * HOUR, 2.5 * HOUR, 60.0, 0.0):
            values = {**dict.fromkeys(FIELDS), "step": 7.0, "loss": 0.5, "cost_per_hour": 1.0}
            history.add_past([{name: FleetSample(now - age, values, "ok")}])
    while history.tidy(now):
        pass
    return store


def columns(store: Store, table: str) -> list[str]:
    with sqlite3.connect(store.path) as database:
        return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def damage(store: Store, table: str, column: str, value: str, row: str) -> bool:
    """Whether the file takes this value."""
    database = sqlite3.connect(store.path, isolation_level=None)
    with suppress(sqlite3.IntegrityError):
        return database.execute(f"UPDATE {table} SET {column} = {value.format(column=column)} WHERE {row}").rowcount > 0
    return False


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_row_hides_no_other(store: Store, table: str) -> None:
    row, commands = TABLES[table]
    whole, faults = Path(store.path).read_bytes(), list[str]()
    for column in columns(store, table):
        for at, (what, value) in enumerate(VALUES.items()):
            asked = OWN[table] if at % 2 else commands  # the values take turns
            argv = asked[at // 2 % len(asked)]
            for name in ("", "-wal", "-shm"):
                Path(store.path + name).unlink(missing_ok=True)
            Path(store.path).write_bytes(whole)
            if not damage(store, table, column, value, row):
                continue
            tried()
            said = f"{column}: {what}, {' '.join(argv)}"
            try:
                done = run_command(*argv)
            except Exception as error:
                faults.append(f"{said}: {type(error).__name__}: {error}")
                continue
            if argv in commands and "sound" not in done.stdout:
                faults.append(f"{said}: status {done.returncode}, {done.stdout[-200:]!r} {done.stderr[-300:]!r}")
            if done.returncode not in (0, 1, 2, 3) or "Traceback" in done.stderr or "\x1b" in done.stdout:
                faults.append(f"{said}: status {done.returncode}, {done.stdout[-300:]!r} {done.stderr[-300:]!r}")
    assert not faults, "\n".join([f"{len(faults)} faults", *faults])


@pytest.mark.parametrize("value", ["'[[['", "5", "x'ff'"])
def test_a_damaged_job_is_named_beside_the_others(store: Store, value: str) -> None:
    damage(store, "training_jobs", "request", value, "id = 'hurt'")
    listed = run_command("rent", "queue", "--all")
    assert listed.returncode == 3 and "sound" in listed.stdout and "valid job hurt" in listed.stderr
    told = json.loads(run_command("rent", "queue", "--all", "--json").stdout)
    assert [job["job_id"] for job in told["jobs"]] == ["sound"]
    assert [job["job_id"] for job in told["damaged"]] == ["hurt"]


@pytest.mark.parametrize("budget", [10**400, -(10**30)])
def test_a_number_that_no_float_holds_is_damage(store: Store, budget: int) -> None:
    damage(store, "training_jobs", "request", f"json_set(request, '$.budget', json('{budget}'))", "id = 'hurt'")
    assert "valid job hurt" in run_command("rent", "queue", "--all").stderr


def test_what_an_account_has_is_unknown_with_a_damaged_movement(store: Store) -> None:
    for value in ("'word'", "x'00'", "9e999", "2.5", "9223372036854775807"):
        damage(store, "credit_movements", "amount", value, "account = 'hurt'")
        with pytest.raises(StateError, match="account hurt has a damaged ledger entry"):
            Credits(store).balance("hurt")
        assert Credits(store).balance("sound") == 5.0


@pytest.mark.parametrize("table", ["history_members", "history_samples", "history_chunks"])
def test_the_history_goes_on_beside_damaged_rows(store: Store, table: str) -> None:
    whole, now = Path(store.path).read_bytes(), time.time()
    for column in columns(store, table):
        for value in VALUES.values():
            for name in ("", "-wal", "-shm"):
                Path(store.path + name).unlink(missing_ok=True)
            Path(store.path).write_bytes(whole)
            if not damage(store, table, column, value, TABLES[table][0]):
                continue
            tried()
            history = History(store)
            history.add({"sound": FleetSample(now + 60, {**dict.fromkeys(FIELDS), "step": 9.0}, "ok")})
            while history.tidy(now + 3 * HOUR):
                pass
            assert history.read("sound", 0.0)[-1].values["step"] == 9.0, (column, value)
            with store.transaction() as execute:
                assert execute("SELECT count(*) FROM history_samples WHERE member = 2") == [(0,)], (column, value)


def test_looks_that_cannot_be_read_are_left_out(store: Store) -> None:
    for number, value in enumerate(("'[[['", "5", "x'ff'", f"json_set(observation, '$.step', json('{10**400}'))")):
        key = f"local#{number}"
        for timestamp in (1.0, 2.0):
            store.add_look(key, timestamp, Observation(timestamp, 7))
        damage(store, "looks", "observation", value, f"key = '{key}' AND timestamp = 1.0")
        assert [each.timestamp for each in Looks(store, key).all()] == [2.0]
        tried()
