"""Processes that wait in the kernel, and the network file systems that they may wait for."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.why.blocked import parse_blocked
from training_monitor.why.ranks import Surroundings

NFS = "mount 412 30 0:55 / /data rw,relatime shared:5 - nfs4 10.0.0.7:/export rw,vers=4.2\n"
LUSTRE = "mount 413 412 0:56 /sub /data/large rw - lustre 10.0.0.8@tcp:/fsx rw\n"
BLANK = "mount 414 30 0:57 / /mnt/a\\040b rw - fuse.s3fs s3fs rw\n"


def texts(text: str) -> list[str]:
    seen = parse_blocked(f"{text}end\n")
    assert {each.kind for each in seen.findings} <= {"blocked"}
    return [each.text for each in seen.findings]


def test_the_mount_of_its_files_is_named_else_all_network_file_systems() -> None:
    assert texts(f"blocked 123 nfs_wait_bit_killable python\n{NFS}{LUSTRE}path /home/me\npath /data/large/a.bin\n") == [
        "pid 123 (python) has been waiting for a disk or a driver (nfs_wait_bit_killable); it has open files on "
        "/data/large (lustre 10.0.0.8@tcp:/fsx)"
    ]
    assert texts(f"blocked 123 0 my prog\n{NFS}{BLANK}path /database/a\n") == [
        "pid 123 (my prog) has been waiting for a disk or a driver; network file systems on this host: "
        "/data (nfs4 10.0.0.7:/export), /mnt/a b (fuse.s3fs s3fs)"
    ]
    assert texts(f"blocked 123 0 a\n{BLANK}path /mnt/a b/c\n")[0].endswith(
        "it has open files on /mnt/a b (fuse.s3fs s3fs)"
    )
    assert texts("blocked 7 kernel_clone python\n") == [
        "pid 7 (python) has been waiting for a vfork child that has not yet started its program (kernel_clone)"
    ]


def test_nobody_may_wait_and_a_reply_without_its_end_is_no_answer() -> None:
    seen = parse_blocked(f"blocked 1 io_schedule a\nblocked 2 x b\n{NFS}path /data/x\nend\n")
    assert [each.pids for each in seen.findings] == [(1,), (2,)]
    assert "nfs4" not in seen.findings[0].text and "nfs4" in seen.findings[1].text
    assert parse_blocked("end\n") == Surroundings()
    assert parse_blocked(f"{NFS}path /data/x\nnonsense\nend\n") == Surroundings()
    for text in ["", "end", "blocked 1 0 a\n"]:
        with pytest.raises(ParseError):
            parse_blocked(text)


def test_text_of_a_stranger_is_short_and_plain() -> None:
    [text] = texts("blocked 1 0 a\x1b[31m\x07\u202e\n" + "".join(f"path /{'x' * 900}{n}\n" for n in range(300)) + NFS)
    assert len(text) <= 300 and text.isprintable()
