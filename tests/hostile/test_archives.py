"""Folders sent by a rented machine: from a false archive, only listed files are written, with their listed sizes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock, FakeStream, FakeTransport
from tests.hostile.tries import tried
from training_monitor.core.errors import CommandError, CommandFailed
from training_monitor.core.results import CommandResult
from training_monitor.rent.file_lists import PARTIAL
from training_monitor.rent.sync import SyncReport, fetch_folder
from training_monitor.rent.transfers import Sent as Answer, send_by_rsync
from training_monitor.targets.transport import LocalTransport

TIME = 1_700_000_000
MIB = 1024 * 1024
BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)


class Sent(FakeStream):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.taken = 0

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.taken += len(chunk)
            assert self.taken < 8 * MIB, "it reads for ever"
            yield chunk


class Machine(FakeTransport):
    """A machine that lists `files` by their sizes, and sends these chunks for an archive of them."""

    def __init__(self, files: dict[str, int], *chunks: bytes, for_ever: bytes = b"") -> None:
        super().__init__(self.list)
        self.files, self.sent, self.for_ever = files, chunks, for_ever
        self.streams: list[Sent] = []

    def list(self, script: str) -> tuple[str, int]:
        lines = ["state=folder", "root=/far", "tool tar"]
        return "\n".join([*lines, *(f"file {size} {TIME} ./{name}" for name, size in self.files.items())]), 0

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Sent:
        self.streams.append(Sent(chain(self.sent, repeat(self.for_ever) if self.for_ever else ())))
        return self.streams[-1]

    def fetch(self, folder: Path) -> SyncReport:
        return fetch_folder("local", "/far", str(folder), transport=self, clock=FakeClock())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname, member.mtime = size, kind, link, TIME
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)


def member(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    return header(name, len(content), kind) + padded(content)


def record(key: str, value: str) -> bytes:
    rest = f" {key}={value}\n".encode("utf-8", "surrogateescape")
    length = len(rest) + len(str(len(rest)))
    return str(len(rest) + len(str(length))).encode() + rest


def with_sum(block: bytes) -> bytes:
    """A header with the checksum that fits."""
    total = sum(block[:148]) + sum(block[156:]) + 8 * 32
    return block[:148] + f"{total:06o}\0 ".encode() + block[156:]


def old_sparse(name: str, size: int) -> bytes:
    """A header of the old GNU format: four bytes at the end of a file of `size`."""
    block = bytearray(header(name, 4, tarfile.GNUTYPE_SPARSE))
    block[386:410] = f"{size - 4:011o} {4:011o} ".encode()
    block[483:495] = f"{size:011o} ".encode()
    return with_sum(bytes(block)) + padded(b"abcd")


def new_sparse(name: str, size: int) -> bytes:
    """The same as an extended header, in its version 1.0."""
    records = record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0")
    records += record("GNU.sparse.name", name) + record("GNU.sparse.realsize", str(size))
    return member("x", records, tarfile.XHDTYPE) + member(name, padded(f"1\n{size - 4}\n4\n".encode()) + b"abcd")


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if PARTIAL not in path.parts)


def bytes_below(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------- what arrives


def test_what_the_usual_formats_make_of_a_folder_arrives(here: Path, subtests: pytest.Subtests) -> None:
    long = "/".join("d" * 100 for _ in range(20)) + "/model"
    files = {"a": b"abc", "sub/b": b"x" * 70_000, long: b"long", "caf\u00e9": b"", "e" * 255: b"e"}
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with subtests.test(form=form):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
                for name, content in files.items():
                    one = tarfile.TarInfo(f"./{name}")
                    one.size, one.mtime = len(content), TIME + 0.5
                    archive.addfile(one, io.BytesIO(content))
            folder = here / str(form)
            machine = Machine({name: len(content) for name, content in files.items()}, buffer.getvalue(), b"tar: slow")
            assert machine.fetch(folder).files == 5
            assert {name: (folder / name).read_bytes() for name in files} == files


def test_names_that_differ_in_case_are_different_files(here: Path) -> None:
    Machine({"a": 3, "A": 3}, member("A", b"big"), member("a", b"abc"), END).fetch(here)
    assert {name: (here / name).read_text() for name in os.listdir(here)} == {"a": "abc", "A": "big"}


# ---------------------------------------------------------------- what is refused

ARCHIVES: dict[str, bytes] = {
    "an old sparse file": old_sparse("./a", 100 * MIB) + END,
    "a new sparse file": new_sparse("./a", 100 * MIB) + END,
    "a sparse file of the listed size": old_sparse("./a", 3) + END,
    "a link": header("./a", 0, tarfile.SYMTYPE, "/etc/passwd") + END,
    "a link and a file behind it": header("./up", 0, tarfile.SYMTYPE, "..") + member("./up/a", b"abc") + END,
    "a hard link": header("./a", 0, tarfile.LNKTYPE, "/etc/passwd") + END,
    "a device": header("./a", 0, tarfile.CHRTYPE) + END,
    "a fifo": header("./a", 0, tarfile.FIFOTYPE) + END,
    "a folder": header("./a", 0, tarfile.DIRTYPE) + END,
    "a folder of an old format": header("./a/", 3, tarfile.AREGTYPE) + padded(b"abc") + END,
    "an unknown kind": header("./a", 3, b"Q") + padded(b"abc") + END,
    "an absolute name": member("/etc/escaped", b"abc") + END,
    "a name that leads out": member("./../escaped", b"abc") + END,
    "a long name that leads out": member("x", b"../escaped\0", tarfile.GNUTYPE_LONGNAME) + member("./a", b"abc") + END,
    "a record that leads out": member("x", record("path", "../escaped"), tarfile.XHDTYPE) + member("a", b"abc") + END,
    "another size in a record": member("x", record("size", "9"), tarfile.XHDTYPE) + member("a", b"abc") + END,
    "a size below zero": with_sum(header("./a", 3)[:124] + b"\xff" * 12 + header("./a", 3)[136:]) + END,
    "a long name of a size below zero": with_sum(
        header("L", 3, tarfile.GNUTYPE_LONGNAME)[:124] + b"\xff" * 12 + header("L", 3, tarfile.GNUTYPE_LONGNAME)[136:]
    ),
    "a long name without an end": header("L", 10**9, tarfile.GNUTYPE_LONGNAME),
    "a longer file": member("./a", b"abcd") + END,
    "a shorter file": member("./a", b"ab") + END,
    "a cut file": header("./a", 3) + b"ab",
    "a cut header": header("./a", 3)[:300],
    "a wrong checksum": header("./a", 3)[:100] + b"9" + header("./a", 3)[101:] + padded(b"abc") + END,
    "a record whose length is zero": member("x", b"0 path=a\n", tarfile.XHDTYPE) + member("a", b"abc") + END,
    "a record whose length is too long": member("x", b"99 path=a\n", tarfile.XHDTYPE) + member("a", b"abc") + END,
    "a global header": member("x", record("path", "a"), tarfile.XGLTYPE) + member("a", b"abc") + END,
    "gzip": gzip.compress(member("./a", b"abc") + END),
    "cut gzip": gzip.compress(member("./a", b"abc") + END)[:60],
    "nothing": b"",
    "an empty archive": END,
}


def test_an_archive_that_lies_writes_nothing_at_all(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (what, archive) in enumerate(ARCHIVES.items()):
        tried()
        with subtests.test(what):
            folder = tmp_path / str(number) / "here"
            with pytest.raises(CommandFailed, match="1 of 1 file did not arrive"):
                Machine({"a": 100 * MIB if "sparse" in what and "listed" not in what else 3}, archive).fetch(folder)
            assert tree(folder) == [] and os.listdir(folder.parent) == ["here"] and bytes_below(folder) == 0


MORE: dict[str, bytes] = {
    "a second one of the same name": member("./a", b"xyz") + END,
    "one that was not asked for": member("./b", b"xyz") + END,
    "a hidden one": member("./.ssh/authorized_keys", b"xyz") + END,
    "an old sparse one": old_sparse("./b", 100 * MIB) + END,
    "more than its header says": padded(b"more") + END,
    "no end": b"",
}


def test_a_file_that_came_whole_stays_and_what_follows_it_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (what, rest) in enumerate(MORE.items()):
        tried()
        with subtests.test(what):
            folder = tmp_path / str(number)
            machine = Machine({"a": 3, "c": 1}, member("./a", b"abc") + rest)
            with pytest.raises(CommandFailed, match="of 2 files did not arrive"):
                machine.fetch(folder)
            assert tree(folder) == ["a"] and (folder / "a").read_text() == "abc"


def test_what_has_no_end_is_left_after_a_few_pieces(tmp_path: Path, subtests: pytest.Subtests) -> None:
    whole = member("./a", b"abc")
    long_header = member("x", record("comment", "9" * 100_000), tarfile.XHDTYPE)
    for number, (begin, for_ever) in enumerate(
        [
            (b"", bytes(65536)),
            (b"", b"x" * 65536),
            (b"", gzip.compress(bytes(MIB))),
            (header("./a", MIB), b""),
            (whole, b"x" * 65536),
            (whole + END, bytes(65536)),
            (whole + END, b"said "),
            (b"", long_header),
            (b"", member("L", b"a\0", tarfile.GNUTYPE_LONGNAME)),
        ]
    ):
        tried()
        with subtests.test(str(number)):
            machine = Machine({"a": 3}, begin, for_ever=for_ever)
            with suppress(CommandFailed):
                machine.fetch(tmp_path / str(number))
            assert all(stream.taken < MIB for stream in machine.streams)
            assert tree(tmp_path / str(number)) == (["a"] if begin.startswith(whole) else [])


def test_a_header_of_digits_is_read_at_once(here: Path) -> None:
    """The pattern of TarFile takes minutes for it, and holds every thread meanwhile."""
    digits = member("x", b"1" * 100_000, tarfile.XHDTYPE) + member("./a", b"abc") + END
    with pytest.raises(CommandFailed, match="a number in the archive is invalid"):
        Machine({"a": 3}, digits).fetch(here)


# ---------------------------------------------------------------- what a listing claims


@pytest.mark.parametrize("size", [10**17, 10**14, 15 * 1024**4])
def test_what_does_not_fit_on_the_disk_here_is_not_begun(here: Path, size: int) -> None:
    machine = Machine({"a": size})
    with pytest.raises(CommandError, match="is too full|more than 16"):
        machine.fetch(here)
    assert machine.streams == [] and tree(here) == []


def test_many_files_count_together(here: Path) -> None:
    free = os.statvfs(here.parent).f_bavail * os.statvfs(here.parent).f_frsize
    with pytest.raises(CommandFailed, match="is too full"):
        Machine({f"file-{number}": free // 50 for number in range(51)}).fetch(here)


@pytest.mark.parametrize("name", ["n" * 256, "sub/" + "\u00fc" * 128, "x/" * 2100 + "x"])
def test_a_name_that_no_disk_could_hold_is_refused(here: Path, name: str) -> None:
    with pytest.raises(CommandFailed, match="names that are too long"):
        Machine({name: 3}).fetch(here)
    assert tree(here) == []


def test_a_link_in_the_way_of_unfinished_files_is_not_followed(here: Path, tmp_path: Path) -> None:
    (here / PARTIAL).mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (here / PARTIAL / "incoming").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommandFailed, match="is a symbolic link on this machine"):
        Machine({"a": 3}, member("./a", b"abc"), END).fetch(here)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_names_that_a_disk_takes_for_the_same_are_refused_there(here: Path) -> None:
    """Where case is ignored, our own subfolder is there in capitals too; here a second one stands for it."""
    for twins in (
        {"Model": 3, "model": 3},
        {"A/x": 3, "a/y": 3},
        {"caf\u00e9": 1, "cafe\u0301": 1},
        {"\u00df": 1, "SS": 1},
    ):
        (here / PARTIAL.upper() / "INCOMING").mkdir(parents=True, exist_ok=True)
        machine = Machine(twins)
        with pytest.raises(CommandFailed, match="would be the same file in"):
            machine.fetch(here)
        assert machine.streams == []


# ---------------------------------------------------------------- rsync


def fetch_by_rsync(far: Path, here: Path, *names: str) -> Answer:
    """Fetch files that are listed with three bytes each."""
    (here / PARTIAL / "incoming").mkdir(parents=True, exist_ok=True)
    sizes = dict.fromkeys(names, 3)
    return send_by_rsync(LocalTransport(), names, str(far), str(here), push=False, limit=600.0, sizes=sizes)


def test_rsync_writes_not_much_more_in_all_than_was_listed(here: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    names = [f"{number:02}" for number in range(30)]
    for name in names:
        (tmp_path / "far" / name).touch()
        os.truncate(tmp_path / "far" / name, 60 * MIB)
    answer = fetch_by_rsync(tmp_path / "far", here, *names)
    assert not answer.ok and "more than it listed" in answer.said
    assert bytes_below(here) < 900 * MIB
    assert not fetch_by_rsync(tmp_path / "far", here, *names[-2:]).ok, "also when it was quick"


def test_rsync_writes_no_file_that_is_far_larger_than_it_was_listed(here: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    os.truncate(os.open(tmp_path / "far" / "a", os.O_CREAT | os.O_WRONLY), 200 * MIB)
    (tmp_path / "far" / "b").write_text("b")

    def copy(name: str) -> bool:
        return fetch_by_rsync(tmp_path / "far", here, name).ok

    assert copy("b") and (here / "b").read_text() == "b"
    assert not copy("a") and not (here / "a").exists() and bytes_below(here) < 80 * MIB


def test_a_missing_rsync_is_still_seen_as_missing(here: Path, tmp_path: Path) -> None:
    class Without(Machine):
        def list(self, script: str) -> tuple[str, int]:
            output, status = super().list(script)
            return output.replace("tool tar", "tool tar\ntool rsync"), status

        def stream(self, argv: Sequence[str], *, input: str | None = None) -> Any:
            is_rsync = "rsync" in argv
            return FakeTransport.stream(self, argv, input=input) if is_rsync else super().stream(argv, input=input)

    machine = Without({"a": 3}, member("./a", b"abc"), END)
    machine.register(["sh", "-c"], lambda words, _: CommandResult(words, 127, "", "sh: rsync: not found", 0.1))
    assert machine.fetch(here).by == "tar"
