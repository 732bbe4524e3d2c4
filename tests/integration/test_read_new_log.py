"""What is new in a log file on this machine, in a pod through kubectl, and on a host through ssh."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from training_monitor.core.errors import AccessDenied, CommandFailed, SettingsError
from training_monitor.core.models import LogCursor, NewLog, Progress
from training_monitor.core.results import CommandResult
from training_monitor.logs.following import (
    FIRST_BYTES,
    HELD_BYTES,
    FileSource,
    get_log_progress,
    newest_of,
    read_new_log,
)
from training_monitor.logs.totals import LogTotals
from training_monitor.targets.asking import Site
from training_monitor.targets.transport import LocalTransport, Stream

KINDS = ("local",)  # of targets: what a shell does is the same on all
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]
TOOLS = ("head", "cat", "sleep", "tail", "dd", "tr", "wc", "stat", "ls", "md5sum", "cksum", "grep", "date")
GIB = 1 << 30


class Log:
    """A log file of a target, and a reader that goes on where it was."""

    def __init__(self, place: Place, name: str = "train.log") -> None:
        self.place, self.file = place, place.folder / name
        self.cursor: LogCursor | None = None

    def add(self, data: bytes | str) -> None:
        with self.file.open("ab") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def read(self, limit_bytes: int = 1 << 20) -> NewLog:
        new = read_new_log(self.place.address, str(self.file), self.cursor, limit_bytes=limit_bytes)
        self.cursor = new.cursor
        return new

    def rotate(self, to: str = ".1") -> None:
        """Rename it, as logrotate does; the next one has another inode as long as this one is there."""
        self.file.rename(f"{self.file}{to}")


@pytest.fixture
def log(target: Place) -> Log:
    return Log(target)


@pytest.fixture
def here(local: Place) -> Log:
    return Log(local)


class Counting:
    """This machine; counts round trips and what came back."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self.prefix, self.trips, self.received = list(prefix), 0, 0

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        result = LocalTransport().run([*self.prefix, *argv], timeout=timeout, input=input)
        self.trips, self.received = self.trips + 1, self.received + len(result.stdout.encode())
        return result

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        raise AssertionError(argv)


class TestGrowth:
    def test_each_line_is_read_once(self, log: Log) -> None:
        log.add("one\ntwo\n")
        assert log.read() == NewLog("one\ntwo\n", log.cursor)
        assert log.read() == NewLog("", log.cursor)
        log.add("three ü\n")
        assert log.read() == NewLog("three ü\n", log.cursor)
        assert log.cursor is not None and log.cursor.offset == 17 == log.file.stat().st_size
        changed = log.read().changed
        assert changed is not None and changed < 600

    def test_an_unfinished_line_is_shown_and_held_back(self, log: Log) -> None:
        log.add("one\ntw")
        first = log.read()
        assert (first.text, first.partial) == ("one\n", "tw")
        assert log.read() == NewLog("", log.cursor, partial="tw")
        log.add("o\nthr")
        assert log.read() == NewLog("two\n", log.cursor, partial="thr")

    def test_each_drawing_of_a_bar_ends_a_line(self, log: Log) -> None:
        log.add("start\n\r 10%|#  | 1/9 [00:01<00:09, 1.00it/s]\r 20%|## | 2/9 [")
        assert log.read().text == "start\n\r 10%|#  | 1/9 [00:01<00:09, 1.00it/s]\r"
        log.add("00:02<00:08, 1.00it/s]")
        assert log.read().partial == " 20%|## | 2/9 [00:02<00:08, 1.00it/s]"
        log.add("\r 30%|")
        assert log.read().text == " 20%|## | 2/9 [00:02<00:08, 1.00it/s]\r"

    def test_a_line_too_long_to_be_held_back_is_given_in_parts(self, here: Log) -> None:
        here.add("one\n")
        here.read()
        here.add("x" * (HELD_BYTES - 1))
        assert len(here.read().partial) == HELD_BYTES - 1
        here.add("x")
        assert here.read() == NewLog("x" * HELD_BYTES, here.cursor)
        here.add("y\n")
        assert here.read().text == "y\n"

    def test_more_than_the_limit_can_be_read_part_by_part(self, log: Log) -> None:
        def read() -> NewLog:
            path = str(log.file)
            question = FileSource.named(path, path).read(log.cursor, 50, oldest_first=True)
            new = Site.of(log.place.address).ask_one(question)
            log.cursor = new.cursor
            return new

        lines = [f"step {number} ü\n" for number in range(1, 30)]
        log.add("".join(lines))
        parts = [read()]
        assert parts[0].text.startswith("step 1 ü\n") and parts[0].left_bytes == log.file.stat().st_size - 50
        while parts[-1].left_bytes:
            parts.append(read())
        assert "".join(part.text for part in parts) == "".join(lines)
        assert not any(part.skipped_bytes for part in parts) and len(parts) > 4

    def test_the_pieces_add_up_to_the_whole(self, here: Log) -> None:
        lines = [f"step {number}/999 loss: {number}.5 ä█\n".encode() for number in range(1, 60)]
        whole, totals = b"".join(lines), LogTotals()
        for start in range(0, len(whole), 97):
            here.add(whole[start : start + 97])
            totals.feed(here.read().text)
        assert [entry["loss"] for entry in totals.as_dict()["loss_history"]] == [n + 0.5 for n in range(1, 60)]

    def test_the_cursor_survives_json(self, log: Log) -> None:
        log.add("one\n")
        log.read()
        assert log.cursor is not None
        log.cursor = LogCursor(**json.loads(json.dumps(asdict(log.cursor))))
        log.add("two\n")
        assert log.read().text == "two\n"


class TestBytes:
    def test_bytes_that_are_no_text_move_no_offset(self, log: Log) -> None:
        log.add(bytes(range(256)) * 3 + b"\n")
        first = log.read()
        assert "�" in first.text and "\0" not in first.text
        log.add(b"\xff\xfe tail\n\x80")
        assert log.read() == NewLog("�� tail\n", log.cursor, partial="�")
        log.add("é\n")
        assert log.read().text == "�é\n"
        assert log.cursor is not None and log.cursor.offset == log.file.stat().st_size

    def test_a_character_cut_in_the_middle_is_read_whole_later(self, log: Log) -> None:
        block = "█".encode()
        log.add(b"one\n" + block + block[:1])
        assert log.read().partial == "█�"
        log.add(block[1:] + b"\n")
        assert log.read().text == "██\n"

    def test_the_marks_of_the_answer_are_only_text(self, here: Log) -> None:
        text = "log\nstate=missing\nheld=3\nlog\n\n\n"
        here.add(text)
        assert here.read().text == text


class TestReset:
    def test_an_emptied_file_is_read_from_its_start(self, log: Log) -> None:
        log.add("one\ntwo\n")
        log.read()
        log.file.write_bytes(b"new\n")
        assert log.read() == NewLog("new\n", log.cursor, "truncated")
        log.add("more\n")
        assert log.read() == NewLog("more\n", log.cursor)

    def test_a_file_emptied_and_filled_past_the_cursor_is_recognised(self, log: Log) -> None:
        log.add("first run 1\nfirst run 2\n")
        log.read()
        log.file.write_bytes(b"second run 1\nsecond run 2\nsecond run 3\n")
        assert log.read() == NewLog("second run 1\nsecond run 2\nsecond run 3\n", log.cursor, "truncated")

    def test_the_rest_of_a_rotated_file_comes_before_the_new_one(self, log: Log) -> None:
        log.add("one\ntw")
        log.read()
        log.add("o\nthree\n")
        log.rotate()
        log.add("four\nfi")
        assert log.read() == NewLog("two\nthree\nfour\n", log.cursor, "rotated", "fi")
        log.add("ve\n")
        assert log.read() == NewLog("five\n", log.cursor)

    def test_the_last_line_of_a_rotated_file_ends_with_it(self, here: Log) -> None:
        here.add("one\n")
        here.read()
        here.add("two")
        here.rotate()
        here.add("three\n")
        assert here.read().text == "two\nthree\n"

    def test_a_rotated_file_that_is_gone_is_lost(self, log: Log) -> None:
        log.add("one\n")
        log.read()
        log.add("two\n")
        log.rotate(".old")
        log.add("three\n")
        assert log.read() == NewLog("three\n", log.cursor, "rotated")

    def test_another_file_of_that_name_is_not_the_rotated_one(self, log: Log) -> None:
        log.add("one\n")
        log.read()
        log.rotate(".old")
        Path(f"{log.file}.1").write_text("an older rotation\n" * 9)
        log.add("two\n")
        assert log.read() == NewLog("two\n", log.cursor, "rotated")

    def test_a_copy_made_before_emptying_is_the_rotated_file(self, here: Log) -> None:
        here.add("one\n")
        here.read()
        here.add("two\n")
        shutil.copy(here.file, f"{here.file}.1")
        here.file.write_bytes(b"x\n")
        assert here.read() == NewLog("two\nx\n", here.cursor, "truncated")

    def test_a_symlink_that_moves_on_is_a_rotation(self, here: Log) -> None:
        for name in ("run1", "run2"):
            (here.place.folder / name).write_text(f"{name}\n")
        here.file.symlink_to("run1")
        assert here.read().text == "run1\n"
        here.file.unlink()
        here.file.symlink_to("run2")
        assert here.read() == NewLog("run2\n", here.cursor, "rotated")


class TestLimits:
    def test_the_first_read_is_of_the_end_from_a_whole_line_on(self, log: Log) -> None:
        lines = [f"line {number:06d}\n" for number in range(10_000)]
        log.add("".join(lines))
        first = log.read()
        kept = FIRST_BYTES // 12
        assert first.text == "".join(lines[-kept:])
        assert first.skipped_bytes == 120_000 - 12 * kept

    def test_a_first_read_that_begins_with_a_line_keeps_it(self, here: Log) -> None:
        here.add("1234567\n" * 3)
        assert here.read(16) == NewLog("1234567\n" * 2, here.cursor, skipped_bytes=8)
        here.cursor = None
        assert here.read(15) == NewLog("1234567\n", here.cursor, skipped_bytes=16)

    def test_of_too_much_the_newest_is_read_and_the_rest_counted(self, log: Log) -> None:
        log.add("one\n")
        log.read()
        log.add("".join(f"line {number:04d}\n" for number in range(1000)))
        assert log.read(25) == NewLog("line 0998\nline 0999\n", log.cursor, skipped_bytes=9980)
        log.add("two\n")
        assert log.read(25) == NewLog("two\n", log.cursor)

    def test_the_limit_spans_a_rotated_file(self, here: Log) -> None:
        here.add("one\n")
        here.read()
        here.add("two\nthree\nfour\n")
        here.rotate()
        here.add("five\nsix\n")
        cursor = here.cursor
        assert here.read(17) == NewLog("four\nfive\nsix\n", here.cursor, "rotated", skipped_bytes=10)
        here.cursor = cursor
        assert here.read(8) == NewLog("six\n", here.cursor, "rotated", skipped_bytes=20)
        here.cursor = cursor
        assert here.read(9) == NewLog("five\nsix\n", here.cursor, "rotated", skipped_bytes=15)

    def test_a_line_longer_than_the_limit_does_not_stop_the_reading(self, here: Log) -> None:
        here.add("one\n")
        here.read()
        here.add("x" * 50)
        assert here.read(20) == NewLog("x" * 20, here.cursor, skipped_bytes=30)
        here.add("\ntwo\n")
        assert here.read(20).text == "\ntwo\n"

    def test_a_gigabyte_costs_as_little_as_a_kilobyte(self, here: Log) -> None:
        line = " 10%|#   | 10/100 [00:10<01:30, 1.00it/s]"
        small, big = Counting(), Counting()
        with here.file.open("wb") as file:
            file.truncate(GIB)
        here.add("\n" + "x\n" * FIRST_BYTES + line)
        (here.place.folder / "small").write_text("x\n" * FIRST_BYTES + line)
        found = [
            get_log_progress("local", str(file), transport=transport)
            for file, transport in ((here.file, big), (here.place.folder / "small", small))
        ]
        assert found[0] == found[1] and (found[0].step, found[0].total_steps) == (10, 100)
        assert (big.trips, small.trips) == (1, 1)
        assert abs(big.received - small.received) < 20 and big.received < FIRST_BYTES + 2000

        new = read_new_log("local", str(here.file), here.cursor, transport=big)
        here.add("\rmore\n")
        again = read_new_log("local", str(here.file), new.cursor, transport=(few := Counting()))
        assert again.text == f"{line}\rmore\n" and few.received < 1000


class TestFiles:
    def test_a_missing_file_is_no_error_and_keeps_the_cursor(self, log: Log) -> None:
        assert log.read() == NewLog("", None, missing=True)
        assert get_log_progress(log.place.address, str(log.file)) == Progress()
        log.add("one\n")
        before = log.read().cursor
        log.rotate()
        assert log.read() == NewLog("", before, missing=True)
        log.add("two\n")
        assert log.read() == NewLog("two\n", log.cursor, "rotated")

    def test_an_empty_file_is_there(self, log: Log) -> None:
        log.add("")
        first = log.read()
        assert not first.missing and first.cursor is not None and first.cursor.offset == 0
        log.add("one\n")
        assert log.read() == NewLog("one\n", log.cursor)

    @pytest.mark.parametrize(
        "name", ['a b\'s "log".txt', "new\nline.log", "$(echo x) `y` \\ 训练", "-n", "=INODE HELD"]
    )
    def test_a_file_can_have_any_name(self, target: Place, name: str) -> None:
        log = Log(target, name)
        log.add("one\n")
        assert log.read().text == "one\n"
        log.rotate()
        log.add("two\n")
        assert log.read().text == "two\n"

    def test_a_path_can_be_relative_or_begin_at_home(self, here: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        (here.place.folder / "-n").write_text("one\n")
        monkeypatch.chdir(here.place.folder)
        monkeypatch.setenv("HOME", str(here.place.folder))
        assert read_new_log("local", "-n").text == "one\n"
        assert read_new_log("local", "~/-n").text == "one\n"

    def test_what_is_no_regular_file_is_refused_and_not_waited_for(self, here: Log) -> None:
        os.mkfifo(here.file)
        for path in (here.file, here.place.folder):
            with pytest.raises(CommandFailed, match="not a regular file"):
                read_new_log("local", str(path))

    def test_a_file_that_may_not_be_read_is_denied(self) -> None:
        if os.geteuid() == 0 and not shutil.which("setpriv"):
            pytest.skip("root may read everything, and there is no setpriv to be somebody else with")
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            folder, closed = Path(name), Path(name) / "closed"
            folder.chmod(0o755)
            closed.mkdir()
            for file in (folder / "log", closed / "log"):
                file.write_text("one\n")
            assert read_new_log("local", f"{folder}/log", transport=Counting(nobody)).text == "one\n"
            (folder / "log").chmod(0)
            closed.chmod(0)
            for file in (folder / "log", closed / "log"):
                with pytest.raises(AccessDenied):
                    read_new_log("local", str(file), transport=Counting(nobody))
            closed.chmod(0o755)

    @pytest.mark.parametrize(("path", "limit"), [("", 1), ("a\0b", 1), ("a", 0), ("a", -1), ("a", 1 << 30)])
    def test_what_makes_no_sense_is_refused(self, path: str, limit: int) -> None:
        with pytest.raises(SettingsError):
            FileSource.named(path, path).read(None, limit)

    @pytest.mark.parametrize("shell", SHELLS)
    def test_the_usual_shells_will_do(self, here: Log, shell: str) -> None:
        folder = here.place.folder / "bin"
        folder.mkdir()
        for name in ("sh", *TOOLS):
            program = shutil.which(shell if name == "sh" or shell == "busybox" else name, path="/usr/bin:/bin")
            assert program, name
            (folder / name).symlink_to(program)
        here.place.set_environment({"PATH": str(folder)})
        here.add(b"one\n\xff\0tw")
        assert here.read().text == "one\n"
        here.add("o\n")
        here.rotate()
        here.add("three\r\nfo")
        assert here.read() == NewLog("�two\nthree\r\n", here.cursor, "rotated", "fo")
        here.add("x" * 100 + "\nfive\n")
        assert here.read(50) == NewLog("five\n", here.cursor, skipped_bytes=103)


def test_the_log_of_an_upload_is_never_the_newest_log_of_a_training(local: Place) -> None:
    upload = "upload-0123456789abcdef-1"
    for age, name in enumerate((upload, "samples-0123456789abcdef-1", "samples-imagenet-256x256-1", "lora-attempt-1")):
        (local.folder / name).mkdir()
        (local.folder / name / "log").write_text(name)
        os.utime(local.folder / name / "log", (1e9 - age, 1e9 - age))
    for folder, found in (("*", "samples-imagenet-256x256-1"), ("l*", "lora-attempt-1"), (upload, upload)):
        pattern = f"{local.folder}/{folder}/log"
        [answer] = Site.of("local").ask(FileSource(newest_of((pattern,), ""), pattern).read())
        assert answer.get().partial == found
