"""One member of a fleet: each line once, a new run as one, what failed kept apart from what is not there."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, is_call
from tests.unit.fleet.fleet_world import Machine, World, row, unreachable
from training_monitor.core.errors import SettingsError, TargetNotFound, TargetUnreachable, TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.fleet.buffers import LastLines
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.member import KEPT_SAMPLES, FleetMember
from training_monitor.fleet.rows import Listed, Seen
from training_monitor.fleet.values import REPORTED, FleetSample, MemberSpec
from training_monitor.logs.patterns import LogPattern


class Bench:
    """A member that is this machine."""

    def __init__(self, spec: MemberSpec | None = None, patterns: tuple[LogPattern, ...] = ()) -> None:
        self.world, self.now = World(), EPOCH
        self.member = FleetMember(spec or MemberSpec("local"), FleetConfig(), patterns, "default")

    @property
    def machine(self) -> Machine:
        return self.world.machine("local")

    def look(self, after: float = 10) -> Any:
        self.now += after
        try:
            self.member.look(self.now, self.world)
        except TrainingMonitorError as error:
            self.member.fail(error, self.now)
        return self.member.seen


def test_one_round_trip_tells_of_log_process_gpus_disk_and_memory() -> None:
    bench = Bench()
    reading = bench.look().reading
    assert bench.machine.asked == 1 and len(bench.machine.scripts) == 6 + 5, "and those of a search"
    assert reading.status.progress.step == 1 and reading.status.is_running
    assert [gpu.utilization for gpu in reading.gpus] == [97]
    assert (reading.disk_percent, reading.ram_percent) == (30.0, 75.0)
    assert reading.log_lines == ("step 1/100 loss 0.5",) and reading.timestamp == bench.now


def test_lines_come_once_and_only_what_is_new_is_read() -> None:
    bench = Bench()
    bench.look()
    assert bench.look().logs == ("step 1/100 loss 0.5",)
    bench.machine.log += "".join(f"step {number}/100 loss 0.4\n" for number in range(2, 30))
    seen = bench.look()
    assert seen.logs == tuple(f"step {number}/100 loss 0.4" for number in range(20, 30))
    assert seen.reading.status.progress.step == 29


def bar(step: int) -> str:
    return f"{step:3}%|####      | {step}/100 [00:{step % 60:02}<01:00,  1.00it/s]"


def test_a_bar_drawn_over_by_carriage_returns_is_one_line_at_most() -> None:
    bench = Bench()
    bench.machine.log = "start\n" + "".join(f"\r{bar(step)}" for step in range(1, 60))
    seen = bench.look()
    assert seen.logs == ("start", bar(59)) and seen.reading.status.progress.step == 59
    bench.machine.log += f"\r{bar(60)}\r{bar(61)}\nsaved\r\nnext"
    seen = bench.look()
    assert seen.logs == ("start", bar(61), "saved", "next")
    assert seen.reading.status.progress.step == 61


def test_lines_are_put_together_whatever_they_end_with() -> None:
    for pieces, shown in [
        (["a\r", "b\r", "c\n", "d\n"], ("c", "d")),
        (["a\r\n", "b\r\n"], ("a", "b")),
        (["a\r", "\n", "b\n"], ("a", "b")),
        (["\r\r\n\n  \n"], ()),
        (["x" * 5000 + "\n"], ("x" * 500,)),
        (["é\u2028line\n", "\x1b[31mred\n"], ("é line", "red")),
    ]:
        lines = LastLines()
        for piece in pieces:
            lines.add(piece)
        assert lines.shown() == shown, pieces


def test_cleared_logs_do_not_come_back_and_the_rest_is_kept() -> None:
    lines = LastLines()
    lines.add("a\nb\n", "50%")
    assert lines.shown() == ("a", "b", "50%")
    lines.clear()
    lines.add("", "50%")
    assert lines.shown() == ()
    lines.add("", "60%")
    assert lines.shown() == ("60%",)
    bench = Bench()
    reading = bench.look().reading
    bench.member.clear_logs()
    assert bench.member.seen.logs == () and bench.member.seen.reading is reading
    assert bench.look().logs == ()


def test_the_end_of_a_long_log_is_parsed() -> None:
    bench = Bench()
    bench.look()
    bench.machine.log += "x" * 1_000_000 + "\rstep 2/100 loss 0.1\n"  # a line without an end
    assert bench.look().reading.status.progress.step == 2
    bench.machine.log += "".join(f"step {number}/9000 loss 0.4 {'x' * 400}\n" for number in range(2, 2000))
    seen = bench.look()
    assert seen.reading.status.progress.step == 1999
    assert [line.split()[1] for line in seen.logs] == [f"{number}/9000" for number in range(1990, 2000)]
    bench.machine.log += f"step 2000/9000 loss 0.3 {'x' * 5000}\n"
    assert bench.look().logs[-1].startswith("step 2000/9000")


def test_patterns_of_the_user_are_looked_for_in_new_lines_and_stay_known() -> None:
    bench = Bench(patterns=(LogPattern("reward", r"reward (\S+)"), LogPattern("who", r"by (\w+)", "str")))
    bench.machine.log += "reward 0.25 by me\n" + "noise\n" * 4000
    assert bench.look().reading.extra == {}  # further back than what is searched
    bench.machine.log += "reward 0.5 by me\n"
    assert bench.look().reading.extra == {"reward": 0.5}
    assert bench.look().reading.extra == {"reward": 0.5}
    bench.machine.log += "reward nan\n"
    assert math.isnan(bench.look().reading.extra["reward"])


def test_a_look_that_fails_keeps_the_last_reading_and_says_since_when() -> None:
    bench = Bench()
    bench.machine.error = unreachable()
    bench.look()
    assert bench.look().reading is None and bench.member.seen.stale_since == EPOCH + 10  # it never answered
    bench.machine.error = None
    good = bench.look()
    bench.machine.error = unreachable("no route")
    first, second = bench.look(), bench.look()
    assert first.reading is good.reading and first.logs == good.logs
    assert "no route" in first.error and first.stale_since == second.stale_since == EPOCH + 30
    bench.machine.error = None
    assert bench.look().error is None and bench.member.seen.stale_since is None


def test_a_missing_job_is_unknown_and_its_machine_is_seen() -> None:
    bench = Bench(MemberSpec("local", "process:nobody"))
    seen = bench.look()
    assert seen.error is None and [gpu.utilization for gpu in seen.reading.gpus] == [97]
    assert seen.reading.status.is_running is None and "process:nobody" in seen.reading.status.message
    assert bench.member.metrics(bench.now).status == "unknown"


def test_a_log_or_an_answer_that_is_not_there_is_absent_no_error() -> None:
    bench = Bench()
    bench.machine.path = ""
    seen = bench.look()
    assert seen.error is None and seen.reading.log_lines == () and seen.reading.status.progress.step is None
    bench = Bench()
    bench.machine.answer = lambda script: ("garbage", 1) if is_call(script, "host") else Machine().answer(script)
    reading = bench.look().reading
    assert (reading.disk_percent, reading.ram_percent) == (None, None) and reading.status.progress.step == 1


def test_another_file_is_another_run_and_nothing_of_the_old_one_stays() -> None:
    bench = Bench()
    bench.machine.log = "step 99/100 loss 0.1\nTraining finished\n"
    assert bench.look().reading.status.progress.finished
    bench.machine.log, bench.machine.inode, bench.machine.path = "step 2/50 loss 3\n", 8, "/workspace/b.log"
    status = bench.look().reading.status
    assert (status.progress.step, status.progress.total_steps, status.progress.finished) == (2, 50, None)
    assert status.generation == 1 and status.is_running is None  # the process may be that of the old one


def rented(**details: Any) -> FleetMember:
    member = FleetMember(MemberSpec("vast://7"), FleetConfig(), (), "default")
    member.listed = Listed(row(7, **details), EPOCH)
    return member


def test_an_instance_that_is_not_up_is_not_asked_and_that_is_no_error() -> None:
    for details in [
        *({"actual_status": each} for each in ("exited", None, ["running"])),
        {"actual_status": "loading", "ssh_host": ""},
    ]:
        member = rented(**details)
        member.look(EPOCH, World())
        assert not member.is_asked and member.seen == Seen(), details


def test_the_address_is_that_of_the_newest_listing_or_a_failure_to_ask() -> None:
    member = rented()
    assert member.address().port == 10007
    member.listed = Listed(row(7, ssh_port=22000), EPOCH)
    assert member.address().port == 22000
    for details in {"ssh_host": "-oProxyCommand=id"}, {"ssh_host": None}, {"ssh_port": None}:
        member = rented(**details)
        assert member.is_asked
        with pytest.raises(TargetUnreachable, match="no usable ssh address"):
            member.look(EPOCH, World())


def test_a_new_key_for_a_rented_machine_is_offered_once_a_look_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    world, member = World(7), rented()
    member.look(EPOCH, world)
    assert "IdentityFile=none" in world.said[-1]
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id_rsa").touch()
    member.fail(unreachable(), EPOCH + 10)
    member.look(EPOCH + 20, world)
    assert f"{tmp_path}/.ssh/id_rsa" in world.said[-1]


def test_of_two_addresses_each_look_takes_the_one_that_answers() -> None:
    class ProxyRefuses(World):
        def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
            if f"root@{row(7)['ssh_host']}" in argv:
                return CommandResult(tuple(argv), 255, "", "ssh: connect to host x: Connection refused", 0.1)
            return super().run(argv, timeout=timeout, input=input)

    member = rented(public_ipaddr="192.0.2.7", ports={"22/tcp": [{"HostPort": "4022"}]})
    member.look(EPOCH, World(7))
    member.look(EPOCH + 30, ProxyRefuses(7))
    assert member.seen.error is None and member.seen.reading


def test_only_what_is_new_is_remembered_and_what_failed_is_not_known() -> None:
    bench = Bench()
    bench.look()
    metrics = bench.member.metrics(bench.now)
    sample, is_new = bench.member.sample(metrics, bench.now)
    assert is_new and sample.values["loss"] == 0.5
    assert bench.member.sample(metrics, bench.now)[1] is False
    bench.machine.error = unreachable()
    bench.look()
    sample, is_new = bench.member.sample(bench.member.metrics(bench.now), bench.now)
    assert not is_new and set(sample.values.values()) == {None}
    assert [each.values["loss"] for each in bench.member.recent()] == [0.5]


def test_what_was_remembered_stands_in_front_of_what_was_seen_and_is_bounded() -> None:
    bench = Bench()
    bench.look()
    bench.member.sample(bench.member.metrics(bench.now), bench.now)
    old = [FleetSample(EPOCH - 8000 + number, {"loss": float(number), "odd": 1.0}) for number in range(2000)]
    bench.member.remember([*old, FleetSample(bench.now + 5, {"loss": 9.0})])
    recent = bench.member.recent()
    assert KEPT_SAMPLES / 2 <= len(recent) <= KEPT_SAMPLES and recent[-1].values["loss"] == 0.5
    assert recent[-2].values["loss"] > 1980.0 and set(recent[0].values) == set(REPORTED)
    assert [each.timestamp for each in recent] == sorted(each.timestamp for each in recent)


def test_what_is_no_target_or_pattern_is_refused() -> None:
    for spec in (MemberSpec("vast://x"), MemberSpec("local", log_paths=("",)), MemberSpec("a b")):
        with pytest.raises(SettingsError):
            FleetMember(spec, FleetConfig(), (), "default")


def test_a_target_that_is_not_there_is_no_machine_without_an_answer() -> None:
    bench = Bench()
    bench.look()
    bench.member.fail(TargetNotFound('pod "trainer-0" not found', target="local"), bench.now)
    row = bench.member.metrics(bench.now + 60)
    assert row.missing and row.health(now=bench.now + 60).brief == "not found 1m"
    bench.member.fail(TargetUnreachable("no route to host", target="local"), bench.now)
    assert not bench.member.metrics(bench.now + 61).missing
    bench.look()
    assert not bench.member.metrics(bench.now).missing and bench.member.seen.error is None


def test_members_that_are_gone_leave_nothing_in_memory() -> None:
    def watch(numbers: range) -> None:
        for number in numbers:
            FleetMember(MemberSpec(f"vast://{number}"), FleetConfig(), (), "default")
        gc.collect()

    watch(range(1, 100))
    tracemalloc.start()
    watch(range(1000, 2000))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 100_000
