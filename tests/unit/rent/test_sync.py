"""When a folder counts as copied, what is tried again, and what is not believed; the tools are stand-ins."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.fakes import FakeClock, FakeTransport
from training_monitor.core.errors import (
    AccessDenied,
    CommandFailed,
    CommandTimedOut,
    SettingsError,
    TargetUnreachable,
    ToolNotFound,
)
from training_monitor.core.results import CommandResult
from training_monitor.rent.sync import SyncProgress, fetch_folder, push_folder

TIME = 1_700_000_000
Act = Callable[["FarFolder", list[str]], tuple[int, str]]


class FarFolder:
    """A folder on the other side: its listing, and what its tools do to it."""

    def __init__(self, *acts: Act, tools: Sequence[str] = ("rsync", "tar")) -> None:
        self.files: dict[str, tuple[int, int]] = {}
        self.tools, self.acts = tools, list(acts)
        self.extra: list[str] = []
        self.unreachable: list[Exception | None] = []
        self.argvs: list[tuple[str, ...]] = []
        self.transport = FakeTransport(self.list)
        self.transport.register(["rsync"], self.work)
        self.transport.register(["sh", "-c"], self.work)

    def list(self, script: str) -> tuple[str, int]:
        if self.unreachable and (error := self.unreachable.pop(0)):
            raise error
        lines = ["state=folder", "root=/far", *(f"tool {tool}" for tool in self.tools), *self.extra]
        return "\n".join([*lines, *(f"file {size} {time} ./{name}" for name, (size, time) in self.files.items())]), 0

    def work(self, words: tuple[str, ...], said: str | None) -> CommandResult:
        self.argvs.append(words)
        names = [name.removeprefix("./") for name in (said or "").split("\0")] if said else list(words[4:])
        status, text = (self.acts.pop(0) if len(self.acts) > 1 else self.acts[0])(self, names)
        return CommandResult(words, status, "", text, 0.1)


def succeed(far: FarFolder, names: list[str]) -> tuple[int, str]:
    far.files |= {name.removeprefix("./"): (3, TIME) for name in names}
    return 0, ""


def do_nothing(far: FarFolder, names: list[str]) -> tuple[int, str]:
    return 0, ""


def fail(far: FarFolder, names: list[str]) -> tuple[int, str]:
    return 12, "rsync error: error in rsync protocol data stream (code 12)"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).write_text("xyz")
        os.utime(tmp_path / name, (TIME, TIME))
    return tmp_path


def test_what_a_tool_claims_is_not_believed(here: Path) -> None:
    far, clock = FarFolder(do_nothing), FakeClock()
    with pytest.raises(CommandFailed, match="2 of 2 files did not arrive: 'a', 'b'"):
        push_folder(str(here), "local", "/far", transport=far.transport, clock=clock)
    assert [argv[0] for argv in far.argvs] == ["rsync", "rsync", "sh"] and clock.slept == [2.0, 10.0]


def test_a_failed_try_is_made_again_and_the_report_counts_each_file_once(here: Path) -> None:
    far, clock = FarFolder(fail, succeed), FakeClock()
    report = push_folder(str(here), "local", "/far", transport=far.transport, clock=clock)
    assert (report.files, report.sent_files, report.sent_bytes, report.by) == (2, 2, 6, "rsync")
    assert report.duration == 2.0


def test_progress_starts_the_count_of_tries_anew(here: Path) -> None:
    for name in "cdefg":
        (here / name).write_text("xyz")
        os.utime(here / name, (TIME, TIME))

    def one(far: FarFolder, names: list[str]) -> tuple[int, str]:
        succeed(far, names[:1])
        return 12, "cut"

    far, clock = FarFolder(one), FakeClock()
    assert push_folder(str(here), "local", "/far", transport=far.transport, clock=clock).sent_files == 7
    assert clock.slept == []


def test_a_part_of_a_large_file_is_progress(here: Path) -> None:
    parts = iter(range(1, 6))

    def grow(far: FarFolder, names: list[str]) -> tuple[int, str]:
        if (part := next(parts)) == 5:
            far.extra = []
            return succeed(far, names)
        far.extra = [f"file {part} {TIME} ./.training_monitor_partial/a"]
        return 12, "cut"

    clock = FakeClock()
    push_folder(str(here), "local", "/far", transport=FarFolder(grow).transport, clock=clock)
    assert clock.slept == []


def test_a_file_of_equal_size_counts_only_after_a_tool_succeeded(here: Path) -> None:
    def keep_no_time(far: FarFolder, names: list[str]) -> tuple[int, str]:
        far.files |= {name: (3, 0) for name in names}
        return 0, ""

    clock = FakeClock()
    push_folder(str(here), "local", "/far", transport=FarFolder(keep_no_time).transport, clock=clock)
    assert clock.slept == []
    far = FarFolder(fail)
    far.files = {"a": (3, TIME - 60), "b": (3, TIME)}
    with pytest.raises(CommandFailed, match="1 of 2 files did not arrive: 'a' .*code 12"):
        push_folder(str(here), "local", "/far", transport=far.transport, clock=FakeClock())


def test_an_outage_in_the_middle_is_bridged(here: Path) -> None:
    far, clock = FarFolder(fail, succeed), FakeClock()
    far.unreachable = [None, TargetUnreachable("gone"), CommandTimedOut("slow")]
    assert push_folder(str(here), "local", "/far", transport=far.transport, clock=clock).sent_files == 2
    assert clock.slept == [2.0, 10.0]


@pytest.mark.parametrize(
    ("outages", "error", "slept"),
    [
        ([None, *[TargetUnreachable("gone")] * 3], TargetUnreachable, [2.0, 10.0]),  # no verdict
        ([None, AccessDenied("no")], AccessDenied, []),
        ([TargetUnreachable("gone")], TargetUnreachable, []),
        ([AccessDenied("no")], AccessDenied, []),
        ([CommandTimedOut("slow")], CommandTimedOut, []),
    ],
)
def test_a_long_outage_a_refused_key_or_a_target_out_of_reach_is_what_it_raises(
    here: Path, outages: list[Exception | None], error: type[Exception], slept: list[float]
) -> None:
    far, clock = FarFolder(fail), FakeClock()
    far.unreachable = list(outages)
    with pytest.raises(error):
        push_folder(str(here), "local", "/far", transport=far.transport, clock=clock)
    assert clock.slept == slept and bool(far.argvs) == (outages[0] is None)


def test_a_full_disk_ends_it_at_once(here: Path) -> None:
    def fill(far: FarFolder, names: list[str]) -> tuple[int, str]:
        return 11, 'rsync: write failed on "/far/a": No space left on device (28)'

    clock = FakeClock()
    with pytest.raises(CommandFailed, match="the disk is full, 6 B were not copied"):
        push_folder(str(here), "local", "/far", transport=FarFolder(fill).transport, clock=clock)
    assert clock.slept == []


def test_out_of_time_says_what_is_left(here: Path) -> None:
    clock = FakeClock()

    def be_slow(far: FarFolder, names: list[str]) -> tuple[int, str]:
        clock.sleep(100)
        succeed(far, names[:1])
        return 12, "cut"

    with pytest.raises(CommandTimedOut, match="1 of 2 files were not copied within 50 s"):
        push_folder(str(here), "local", "/far", timeout=50, transport=FarFolder(be_slow).transport, clock=clock)


def test_without_rsync_here_tar_is_taken_at_once(here: Path) -> None:
    def lack_rsync(far: FarFolder, names: list[str]) -> tuple[int, str]:
        raise ToolNotFound("rsync is not installed here")

    far, clock = FarFolder(lack_rsync, succeed), FakeClock()
    report = push_folder(str(here), "local", "/far", transport=far.transport, clock=clock)
    assert report.by == "tar" and clock.slept == []


def test_what_a_listener_raises_ends_the_copying(here: Path) -> None:
    far = FarFolder(succeed)

    def cancel(seen: SyncProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push_folder(str(here), "local", "/far", on_progress=cancel, transport=far.transport, clock=FakeClock())
    assert far.argvs == []


def test_a_pod_gets_an_archive_even_where_both_sides_have_rsync(here: Path) -> None:
    far = FarFolder(succeed)
    far.transport.register(["kubectl"], far.transport.answer_all)
    report = push_folder(str(here), "head", "/far", transport=far.transport, clock=FakeClock())
    [words] = far.argvs
    assert report.by == "tar" and words[3:] == ("sh", "./a", "./b")
    assert f"\nfolder={here}\ncommand='kubectl exec -i -n default head -- tar -C /far -xof -'\n" in words[2]


@pytest.mark.parametrize(
    ("target", "end"),
    [
        ("ssh://root@host:2222", "root@host:/far/"),
        ("ssh://root@[::1]:2222", "root@[::1]:/far/"),
        ("ssh://h", "h:/far/"),
    ],
)
def test_rsync_goes_the_way_of_our_own_ssh(here: Path, target: str, end: str) -> None:
    far = FarFolder(succeed)
    far.transport.register(["ssh"], far.transport.answer_all)
    push_folder(str(here), target, "/far", transport=far.transport, clock=FakeClock())
    [words] = far.argvs
    assert words[-3:] == ("--", f"{here}/", end)
    shell = words[words.index("-e") + 1]
    assert shell.startswith("'ssh' '-T' '-o' 'BatchMode=yes'") and "StrictHostKeyChecking=accept-new" in shell
    assert ("'-p' '2222'" in shell) is (":2222" in target)


@pytest.mark.parametrize("local", ["/nowhere/at/all", "", "a\0b", "/etc/hostname"])
def test_what_is_no_folder_here_cannot_be_pushed(local: str) -> None:
    with pytest.raises(SettingsError, match="a readable folder"):
        push_folder(local, "local", "/far", transport=FarFolder(succeed).transport, clock=FakeClock())


@pytest.mark.parametrize("remote", ["", "two\nlines", "nul\0"])
def test_what_is_no_path_there_is_refused(here: Path, remote: str) -> None:
    for copy in (
        lambda far: push_folder(str(here), "local", remote, transport=far, clock=FakeClock()),
        lambda far: fetch_folder("local", remote, str(here), transport=far, clock=FakeClock()),
    ):
        with pytest.raises(SettingsError):
            copy(FarFolder(succeed).transport)


def test_a_host_that_lists_more_than_was_asked_for_gets_nothing_written(here: Path) -> None:
    far = FarFolder(succeed)
    far.files = {"model": (3, TIME), "a": (9, TIME)}
    with pytest.raises(CommandFailed, match="not requested"):
        fetch_folder("local", "/far", str(here), only=["model"], transport=far.transport, clock=FakeClock())
    assert far.argvs == [] and (here / "a").read_text() == "xyz"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("other ./sub", "/far/sub is a symbolic link"),
        ("said find: ./private: Permission denied", "completely: find: ./private"),
    ],
)
def test_a_link_on_the_other_side_or_an_incomplete_listing_ends_it(here: Path, line: str, problem: str) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "c").write_text("c")
    far = FarFolder(succeed)
    far.extra = [line]
    with pytest.raises(CommandFailed, match=problem):
        if line.startswith("other"):
            push_folder(str(here), "local", "/far", transport=far.transport, clock=FakeClock())
        else:
            fetch_folder("local", "/far", str(here / "new"), transport=far.transport, clock=FakeClock())
    assert far.argvs == []
