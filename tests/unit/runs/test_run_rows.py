"""Alive, killed or not to be known; process trees; CPU from two looks; what all runs use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import EPOCH
from tests.unit.runs.run_world import AT, GIB, HERE, look, machine, process, run
from training_monitor.core.values import Verdict
from training_monitor.runs.rows import judge_look, status_word
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    UNKNOWN,
    Estimate,
    FolderLook,
    Limits,
    OwnResources,
    RunRow,
    Usage,
)
from training_monitor.targets.proc_stat import Identity

NONE = Limits()


def judged(now: FolderLook, before: FolderLook | None = None, limits: Limits = NONE) -> RunRow:
    rows, _ = judge_look(now, before, limits)
    assert len(rows) == 1
    return rows[0]


def usage(now: FolderLook, before: FolderLook | None = None, limits: Limits = NONE) -> Usage:
    return judge_look(now, before, limits)[1]


def on(**changes: Any) -> Identity:
    """The identity of the run's process, changed."""
    return replace(Identity(100, 500_000, "gpu-1", "boot-a", "pid:[1]"), **changes)


# ---------------------------------------------------------------- alive, killed, unknown


def test_a_run_goes_on_with_its_process_and_was_killed_without_it() -> None:
    row = judged(look(run(), machine(process(100))))
    assert (row.status, row.is_alive, row.reason) == (RUNNING, True, "")
    for processes in [
        (),
        (process(1), process(101)),
        (process(100, start_ticks=500_001),),
        (process(100, state="Z"),),
        (process(100, state="X"),),
    ]:
        for updated_at in (EPOCH - 1, EPOCH - 60, None):
            row = judged(look(run(updated_at=updated_at), machine(*processes)))
            assert (row.status, row.is_alive, row.processes, row.cpu_percent) == (KILLED, False, 0, None)
            assert "process 100" in row.reason
    zombie = machine(process(100, state="Z"))
    assert judged(look(run(updated_at=EPOCH), zombie)).status == KILLED  # whenever it wrote


def test_a_run_in_its_last_batch_is_finished_when_its_process_is_gone(subtests: pytest.Subtests) -> None:
    last = {"epoch": 2, "total_epochs": 2, "batch": 9, "total_batches": 9}
    validates = {**last, "phase": "validation", "validation_batch": 2}
    for known, status in [
        (last, FINISHED),
        ({**last, "batch": 8}, KILLED),
        ({**last, "epoch": 1}, KILLED),
        ({**last, "total_epochs": None}, KILLED),
        ({**validates, "validation_batch": 1, "total_validation_batches": 2}, KILLED),
        ({**validates, "total_validation_batches": 2}, FINISHED),
        (validates, KILLED),
        ({"step": 7, "total_steps": 7}, FINISHED),
        ({**last, "step": 6, "total_steps": 7}, KILLED),
    ]:
        with subtests.test(known=known):
            row = judged(look(replace(run(updated_at=EPOCH - 1), **known), machine()))  # type: ignore[arg-type]
            assert (row.status, row.is_alive) == (status, False) and "process 100 has ended" in row.reason


def test_a_run_that_began_or_was_killed_amid_a_look_is_judged_by_the_next() -> None:
    began = on(pid=200, start_ticks=int(AT * 100) + 5)
    for reused in ((), (process(200, start_ticks=7),)):
        row = judged(look(run(process=began, updated_at=EPOCH - 0.45), machine(process(1), *reused)))
        assert (row.status, row.is_alive, row.processes) == (RUNNING, None, None)
        assert row.reason.startswith("its process 200 was not among the processes that could be read")
    seen = look(run(), machine(process(100)))
    assert judged(seen).status == RUNNING
    wrote = run(updated_at=EPOCH - 0.2)
    amid = look(wrote, machine())
    assert (judged(amid, seen).status, judged(amid, seen).is_alive) == (RUNNING, None)
    later = look(wrote, machine(at=AT + 2), timestamp=EPOCH + 2, processes_at=EPOCH + 1.5)
    assert (judged(later, amid).status, judged(later, amid).is_alive) == (KILLED, False)


def test_a_missing_process_means_nothing_where_it_may_be_hidden_or_read_too_early() -> None:
    row = judged(look(run(), machine(), processes_at=None))
    assert (row.status, row.is_alive) == (RUNNING, None)
    assert judged(look(run(updated_at=EPOCH - 60), machine(), processes_at=None)).status == UNKNOWN
    row = judged(look(run(updated_at=EPOCH + 3600), machine()))
    assert row.status == UNKNOWN and "its clock is 1h00m ahead" in row.reason
    hidden = look(run(updated_at=EPOCH - 60), machine(process(1), sees_all=False))
    assert judged(hidden, hidden).status == UNKNOWN and "hidepid" in judged(hidden).reason
    reused = look(run(updated_at=EPOCH - 60), machine(process(100, start_ticks=9), sees_all=False))
    assert judged(reused).status == KILLED


@pytest.mark.parametrize("status", [FINISHED, FAILED, CANCELED, KILLED])
def test_what_a_run_wrote_of_its_end_stands(status: str) -> None:
    for at, is_alive in ((EPOCH - 1, False), (EPOCH, None)):  # before and after the processes were read
        row = judged(look(run(status=status, updated_at=at), machine()))
        assert (row.status, row.reason, row.is_alive) == (status, "", is_alive)
        assert (row.eta_seconds, row.quiet_seconds) == (None, None)
        there = judged(look(run(status=status, updated_at=at), machine(process(100))))
        assert (there.status, there.reason, there.is_alive, there.rss_bytes) == (status, "", True, GIB)


def test_a_file_that_names_no_process_or_cannot_be_read_says_nothing_of_its_life() -> None:
    assert judged(look(run(status=None), machine(process(100)))).status == UNKNOWN
    row = judged(look(run(process=None, updated_at=None), machine()))
    assert (row.status, row.reason) == (UNKNOWN, "its file does not name its process")
    unread = run(error="no JSON", updated_at=EPOCH - 60)
    row = judged(look(unread, machine()), look(unread, machine()))
    assert row.status == UNKNOWN and "cannot be read: no JSON" in row.reason
    assert judged(look(unread, machine(process(100)))).status == RUNNING
    assert judged(look(run(error="no JSON", status=None), machine())).reason == "no JSON"


ELSEWHERE = [
    (on(hostname="gpu-7"), "it runs on gpu-7 and is not visible from here"),
    (on(hostname="gpu-7", boot_id="boot-b"), "it runs on gpu-7 and is not visible from here"),
    (on(hostname=None), "it runs on an unnamed host and is not visible from here"),
    (on(pid_namespace="pid:[2]"), "it runs in another PID namespace (a container) and is not visible from here"),
    (on(boot_id=None), "it is unknown whether process 100 on this machine is its process"),
    (on(pid_namespace=None), "it is unknown whether process 100 on this machine is its process"),
]


def test_a_run_that_cannot_be_seen_goes_on_while_its_file_is_written(subtests: pytest.Subtests) -> None:
    for process_there, why in ELSEWHERE:
        for age, status, said in [
            (2, RUNNING, "its file was written 2s ago"),
            (29.9, RUNNING, "its file was written"),
            (-50, RUNNING, "its file was written 0s ago"),
            (300, UNKNOWN, "no update for 5m"),
            (-600, UNKNOWN, "its clock is 10m ahead of this one"),
            (None, UNKNOWN, ""),
        ]:
            with subtests.test(process_there=process_there, age=age):
                there = run(process=process_there, updated_at=None if age is None else EPOCH - age)
                now = look(there, machine(process(1), process(100, start_ticks=7)))
                row = judged(now, now)
                assert (row.status, row.is_alive, row.tree, row.processes) == (status, None, (), None)
                assert row.reason.startswith(f"{why}; ") if said else row.reason == why
                assert said in row.reason
                used = (99.0, 7, 5.0, 3) if status == RUNNING else (None,) * 4
                assert (row.cpu_percent, row.rss_bytes, row.gpu_mib, row.threads) == used


def test_a_run_is_shown_by_the_name_that_its_script_gave_it() -> None:
    for titles, shown in (
        ({"a": "b", "b": "c", "c": "c"}, ["a", "b", "c"]),
        ({"a": "first", "b": "same", "c": "same", "d": None, "e": "d"}, ["first", "b", "c", "d", "e"]),
        ({"sweep/a": "a", "sweep/b": "lr 2", "a": "a", "a/": "a"}, ["sweep/a", "sweep/lr 2", "a", "a/"]),
    ):
        rows, _ = judge_look(look([run(name, title=title) for name, title in titles.items()], machine()), None, NONE)
        assert [row.run.name for row in rows] == shown


def test_a_loss_that_is_nan_is_seen_in_the_status() -> None:
    row = judged(look(run(), machine(process(100))))
    words = [status_word(replace(row, verdict=Verdict(state, verdict, ""))) for state, verdict in (
        ("running", "ok"), ("running", "failed"), ("stalled", "failed"), ("running", "warning"),
    )]  # fmt: skip
    assert words == ["RUNNING", "NaN loss", "stalled", "RUNNING"]


def test_a_process_is_known_by_its_namespace_unless_nobody_can_read_the_namespaces() -> None:
    row = judged(look(run(process=on(pid_namespace="pid:[2]")), machine(process(100))))
    assert (row.is_alive, row.tree) == (None, ())
    assert judged(look(run(process=on(pid_namespace=None)), machine(process(100)))).is_alive is True


def test_a_reboot_kills_runs_of_this_machine_only() -> None:
    other = on(boot_id="boot-b")
    row = judged(look(run(process=other, updated_at=EPOCH - AT - 1), machine(process(100))))
    assert (row.status, row.is_alive, row.reason) == (KILLED, False, "the machine has restarted since then")
    twin = judged(look(run(process=other, updated_at=EPOCH - 5), machine(process(100))))
    assert (twin.status, twin.is_alive) == (RUNNING, None) and "also named gpu-1" in twin.reason
    silent = judged(look(run(process=other, updated_at=EPOCH - AT + 1), machine(process(100))))
    assert silent.status == UNKNOWN
    just_booted = judged(look(run(process=other, updated_at=EPOCH - 12), machine(process(100), at=10.0)))
    assert (just_booted.status, just_booted.is_alive) == (RUNNING, None)


def test_a_file_of_the_earlier_ttop_knows_its_process_by_the_time_it_began(subtests: pytest.Subtests) -> None:
    for there, started, status in [
        (process(100), EPOCH - 4990, RUNNING),  # it began 5,000 s ago, and wrote its start 10 s later
        (process(100), EPOCH - 4998, RUNNING),
        (process(100), EPOCH - 9000, UNKNOWN),  # another one has its number, or the file tells a time of elsewhere
        (process(100, start_ticks=100), EPOCH - 4990, UNKNOWN),  # one that was always there: it is in a container
        (process(100, state="Z"), EPOCH - 4990, KILLED),
        (process(101), EPOCH - 4990, UNKNOWN),  # gone, or in a container that shares the host's name
        (process(100), None, UNKNOWN),
    ]:
        with subtests.test(there=there, started=started, status=status):
            old = run(process=Identity(100, None, "gpu-1"), started_at=started, updated_at=None)
            row = judged(look(old, machine(there)))
            assert row.status == status and (row.is_alive is True) is bool(row.tree) is (status == RUNNING)


def test_without_a_machine_the_file_is_all_there_is() -> None:
    row = judged(look(run(), None, machine_error="there is no /proc"))
    assert (row.status, row.is_alive, row.cpu_percent, row.rss_bytes) == (RUNNING, None, 99.0, 7)
    assert row.reason.startswith("there is no /proc")
    assert judged(look(run(updated_at=EPOCH - 31), None)).status == UNKNOWN


# ---------------------------------------------------------------- trees and what they use

FAMILY = (
    process(100, cpu_ticks=1000),
    process(120, 100, cpu_ticks=50),
    process(110, 100, start_ticks=500_100),
    process(111, 110),
    process(7, 111, start_ticks=600_000),
    process(200, 1),
)


def test_the_tree_is_all_below_the_process_depth_first_and_ends() -> None:
    row = judged(look(run(), machine(*FAMILY)))
    tree = {each.identity.pid: each.depth for each in row.tree if each.kind == "P"}
    assert [*tree.items()] == [(100, 0), (120, 1), (110, 1), (111, 2), (7, 3)] and len(row.tree) == 5
    assert row.tree[0].identity == on() and (row.processes, row.threads, row.rss_bytes) == (5, 10, 5 * GIB)
    round_trip = machine(process(100, 101), process(101, 100))
    assert judged(look(run(), round_trip)).processes == 2
    chain = machine(process(100), *(process(pid, pid - 1) for pid in range(101, 5101)))
    assert judged(look(run(), chain)).tree[-1].depth == 5000


def test_cpu_is_what_was_used_between_two_looks() -> None:
    before = look(run(), machine(*FAMILY))
    later = [each._replace(cpu_ticks=each.cpu_ticks + 300) for each in FAMILY]
    new = process(300, 100, start_ticks=int(AT * 100) + 50, cpu_ticks=100)
    row = judged(look(run(), machine(*later, new, at=AT + 2)), before)
    expected = {**dict.fromkeys((100, 120, 110, 111, 7), 150), 300: 50}
    assert {each.identity.pid: each.cpu_percent for each in row.tree} == expected and row.cpu_percent == 800
    before = look(run(), machine(process(100, cpu_ticks=500), at=AT - 2))
    assert judged(look(run(), machine(process(100, cpu_ticks=400))), before).cpu_percent == 0
    now = look(run(), machine(*FAMILY))
    assert judged(now).cpu_percent is None and usage(now).cpu_percent is None


def test_at_the_first_look_cpu_is_what_the_run_measured(subtests: pytest.Subtests) -> None:
    for before in [
        None,
        look(run(), None),
        *(look(run(), machine(process(100), at=at)) for at in (AT, AT + 5, AT - 0.05)),
        look(run(), machine(process(100), at=AT - 2, identity=replace(HERE, boot_id="boot-b"))),
        look(run(), machine(at=AT - 2)),  # it was there unseen
    ]:
        with subtests.test(before=before):
            row = judged(look(run(), machine(process(100, cpu_ticks=500))), before)
            assert (row.cpu_percent, row.tree[0].cpu_percent) == (99.0, None)


def test_threads_stand_below_their_process_with_their_own_shares() -> None:
    threads = tuple(process(tid, 100, name=f"t{tid}", cpu_ticks=10) for tid in (100, 105))
    before = look(run(), machine(*FAMILY, threads={100: threads}, at=AT - 2))
    later = (threads[0]._replace(cpu_ticks=110), threads[1], process(106, 100, start_ticks=999_900, cpu_ticks=20))
    row = judged(look(run(), machine(*FAMILY, threads={100: later, 111: threads[:1]})), before)
    shown = [(each.kind, each.identity.pid, each.depth, each.cpu_percent) for each in row.tree if each.kind == "T"]
    assert shown == [("T", 100, 1, 50), ("T", 105, 1, 0), ("T", 106, 1, 10), ("T", 100, 3, None)]
    assert row.tree[1].rss_bytes is None and row.processes == 5


@pytest.mark.parametrize(
    ("by_pid", "expected"),
    [
        ({100: 500.0, 111: 20.0, 200: 9000.0}, 520.0),
        ({4711: 500.0}, 5.0),  # pids of another namespace
        ({}, 5.0),
        (None, 5.0),
    ],
)
def test_gpu_memory_is_that_of_the_tree_or_what_the_run_says(by_pid: Any, expected: float) -> None:
    assert judged(look(run(), machine(*FAMILY, gpu_mib=by_pid))).gpu_mib == expected
    silent = run(resources=OwnResources())
    row = judged(look(silent, machine(*FAMILY, gpu_mib=by_pid)))
    assert row.gpu_mib == (expected if expected > 5 else None)


def test_eta_rate_and_quiet_time_are_of_a_run_that_goes_on() -> None:
    row = judged(look(run(), machine(process(100))))
    assert (row.eta_seconds, row.rate, row.quiet_seconds) == (900.0, 4.0, 3.0)
    assert judged(look(run(step_at=EPOCH + 9), machine(process(100)))).quiet_seconds == 0
    assert judged(look(run(step_at=None), machine(process(100)))).quiet_seconds is None
    killed = judged(look(run(updated_at=EPOCH - 60), machine()))
    assert (killed.eta_seconds, killed.quiet_seconds, killed.rate) == (None, None, 4.0)


@pytest.mark.parametrize(("state", "said"), [("T", "send SIGCONT to resume it"), ("t", "debugger")])
def test_a_halted_process_is_alive_and_has_no_eta(state: str, said: str) -> None:
    row = judged(look(run(), machine(process(100, state=state))))
    assert (row.status, row.is_alive, row.eta_seconds, row.run.run.remaining) == (RUNNING, True, None, None)
    assert said in row.reason and len(row.tree) == 1


def test_only_a_run_that_goes_on_or_is_finished_has_time_left() -> None:
    part = Estimate(4.0, 10.0, 30.0, 40.0)
    spans = {"epoch_time": part, "training": part, "validation": part}
    killed = judged(look(run(updated_at=EPOCH - 60, **spans), machine())).run
    for span in (killed.run, killed.epoch_time, killed.training, killed.validation):
        assert span.elapsed and span.rate and (span.remaining, span.total) == (None, None)
    lost = judged(look(run(process=on(hostname="gpu-7"), updated_at=EPOCH - 900, **spans), machine()))
    assert (lost.status, lost.run.epoch_time.remaining) == (UNKNOWN, None)
    finished = judged(look(run(status=FINISHED, run=Estimate(4.0, 9.0, 0.0, 9.0)), machine()))
    assert (finished.run.run.remaining, finished.run.run.total) == (0.0, 9.0)
    assert judged(look(run(), machine(process(100)))).run.run.remaining == 900.0


def test_no_process_counts_twice() -> None:
    child, twin = run("child", process=on(pid=110, start_ticks=500_100)), run("twin")
    sample, before = machine(*FAMILY, gpu_mib={111: 10.0}), look([], machine(*FAMILY, at=AT - 2))
    now = look([run(), child, twin], sample)
    assert [row.processes for row in judge_look(now, before, NONE)[0]] == [5, 3, 5]
    for each in (now, look([child, run(), twin], sample)):
        used = usage(each, before)
        assert (used.cpu_percent, used.rss_bytes, used.gpu_mib) == (0, 5 * GIB, 10.0)


def test_processes_are_counted_where_they_are_and_of_ended_runs_none() -> None:
    away = run("away", process=on(hostname="gpu-7", boot_id="boot-b"), resources=OwnResources(50, 1, 2, 3))
    boxed = run("boxed", process=on(pid_namespace="pid:[2]"), resources=OwnResources(30, 11, 4, 3))
    used = usage(look([away, boxed], machine()))
    assert (used.cpu_percent, used.rss_bytes, used.gpu_mib) == (30, 11, 4)
    used = usage(look([run(status=FINISHED)], machine()))
    assert (used.cpu_percent, used.rss_bytes, used.gpu_mib) == (0, 0, 0)
    lost = usage(look([run(process=on(pid_namespace="pid:[2]"), updated_at=None)], machine()))
    assert (lost.cpu_percent, lost.rss_bytes, lost.gpu_mib) == (None, None, None)
    assert usage(look([], None)) == Usage(0, 0, 0)


def test_limits_are_those_of_the_user_or_all_the_machine_has() -> None:
    sample = machine(gpu_total_mib=81920.0)
    mine = usage(look([], sample), limits=Limits(4.0, 32.0, 40.0))
    assert (mine.max_cores, mine.max_rss_bytes, mine.max_gpu_mib) == (4.0, 32 * GIB, 40960.0)
    all_of_it = usage(look([], sample))
    assert (all_of_it.max_cores, all_of_it.max_rss_bytes, all_of_it.max_gpu_mib) == (8, 64 * GIB, 81920.0)
