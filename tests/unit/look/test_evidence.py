"""What the processes of a training do, out of what the evidence question prints."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.models import Progress
from training_monitor.core.values import Observation
from training_monitor.look.evidence import Evidence, parse_evidence, parse_file_age
from training_monitor.look.looks import Look, observation_of

HEAD = "boot=b0\nhz=100\nawake=50000\nroots=10\nup=600.00\ntable=read"
ROOT = "proc 10 S 1 10 10 100 50 30 20 9000 python3"
RANK = "proc 11 R 10 10 10 1000 100 0 0 9100 pt_main_thread"
WRITTEN = "/proc/10/io:wchar: 1000\n/proc/10/io:write_bytes: 4096\n/proc/11/io:wchar: 50\n/proc/11/io:write_bytes: 0"


def reply(*parts: str) -> Evidence:
    return parse_evidence("\n".join((*parts, "end")))


def test_the_tree_is_added_up() -> None:
    found = reply(HEAD, ROOT, RANK, WRITTEN, "oom=2")
    known = {"processes": 2, "pids": (10, 11), "cpu_seconds": 13.0, "written_bytes": 4146, "blocked": 0, "compilers": 0}
    machine = {"oom_kills": 2, "boot": "b0", "awake_seconds": 500.0}
    assert found == Evidence(**known, **machine, process="10 9000 b0", runtime=510.0)  # type: ignore[arg-type]


def test_a_second_look_tells_what_happens_in_a_second() -> None:
    later = ["again=602.00", ROOT, RANK.replace(" 1000 100 ", " 1300 100 "), WRITTEN.replace(" 50", " 200050")]
    found = reply(HEAD, ROOT, RANK, WRITTEN, *later)
    assert (found.cpu_cores, found.write_rate) == (1.5, 100000.0)
    assert (found.cpu_seconds, found.written_bytes) == (13.0, 4146)
    ended = ROOT.replace(" 30 20 ", " 1030 120 ")
    assert reply(HEAD, ROOT, RANK, "again=601.00", ended).cpu_cores == 0.0
    found = reply(HEAD, ROOT, WRITTEN, "again=600.00", ROOT, WRITTEN)
    assert (found.cpu_cores, found.write_rate) == (None, None)


def test_the_memory_is_that_of_all_processes_and_no_command_line_can_add_to_it() -> None:
    sizes = "/proc/10/status:VmRSS:\t    2048\n/proc/11/status:VmRSS:\t    1024"
    assert reply(HEAD, ROOT, RANK, sizes).memory_bytes == 3 * 1024 * 1024
    assert reply(HEAD, ROOT, RANK, sizes, "again=601.00", ROOT, RANK, sizes).memory_bytes == 3 * 1024 * 1024
    assert reply(HEAD, ROOT, "/proc/10/cmdline:VmRSS: 99", "/proc/12/status:VmRSS: 99").memory_bytes is None


def test_waits_for_a_processor_or_a_disk_and_suspended_processes_are_seen() -> None:
    found = reply(HEAD, ROOT, RANK.replace(" R ", " T "), "delay=5000000000", "again=602.00", ROOT, "delay=6000000000")
    assert (found.delay_seconds, found.delay_cores, found.suspended) == (5.0, 0.5, (11,))
    assert reply(HEAD, ROOT, RANK).delay_seconds is None
    assert reply(HEAD, ROOT.replace(" S ", " D "), RANK).blocked == 1


def test_without_processes_or_permission_nothing_of_them_is_known() -> None:
    found = reply(HEAD.replace("roots=10", "roots="), "oom=1")
    assert found == Evidence(processes=0, oom_kills=1, boot="b0", awake_seconds=500.0)
    found = reply(HEAD, ROOT)
    assert found.written_bytes is None and found.cpu_seconds == 2.0
    assert reply("boot=\nhz=100\nawake=0\nclock=1750000000").clock == 1_750_000_000.0
    assert reply("boot=\nhz=100\nawake=0").processes is None
    assert reply("boot=\nhz=100\nawake=0").awake_seconds is None


def test_the_oldest_root_that_has_not_ended_stands_for_the_training() -> None:
    assert reply(HEAD.replace("roots=10", "roots=11 10"), RANK, ROOT).process == "10 9000 b0"
    assert reply(HEAD, ROOT.replace(" S ", " Z ")).process is None
    assert reply(HEAD, ROOT.replace(" S ", " Z "), RANK).pids == (11,)


def test_compilers_are_counted_and_a_compile_worker_while_it_computes() -> None:
    for name in "ptxas ptxas-blackwell cicc nvcc cc1plus g++-12 x86_64-linux-gnu-gcc ninja ld.lld".split():
        assert reply(HEAD, ROOT, RANK.replace("pt_main_thread", name)).compilers == 1
    for name in ["python3", "gccx", "ldconfigd", "asd", "torchrun"]:
        assert reply(HEAD, ROOT, RANK.replace("pt_main_thread", name)).compilers == 0
    worker = "/proc/11/cmdline:compile_worker"
    assert reply(HEAD, ROOT, RANK, worker).compilers == 1
    assert reply(HEAD, ROOT, RANK.replace(" R ", " S "), worker).compilers == 0


def test_numbers_that_are_none_are_not_known_and_a_reply_needs_its_end() -> None:
    for number in ["", "x", "-5", "1e9", "nan", "inf", "9" * 400, "٣"]:
        found = reply(f"boot=b0\nhz=100\nawake={number}\nroots={number}\nup={number}\ntable=read\noom={number}", ROOT)
        assert (found.awake_seconds, found.oom_kills, found.runtime, found.process) == (None, None, None, None)
        assert found.cpu_seconds == 2.0
    huge = ROOT.replace(" 100 50 ", f" {'9' * 19} {'9' * 19} ")
    assert reply(HEAD.replace("hz=100", "hz=0"), huge, f"again={'9' * 19}", huge).cpu_cores == 0.0
    for text in ["", "boot=b0", f"{HEAD}\n{ROOT}", "end of it\n"]:
        with pytest.raises(ParseError):
            parse_evidence(text)


def test_evidence_fills_fields_of_an_observation() -> None:
    look = Look(evidence=reply(HEAD, ROOT, RANK, WRITTEN), file_age=30.0)
    seen = observation_of(look, Progress(), "", 0.0, first=True)
    assert (seen.cpu_seconds, seen.written_bytes, seen.blocked, seen.file_age) == (13.0, 4146, 0, 30.0)
    assert seen.process == "10 9000 b0"
    assert observation_of(Look(), Progress(), "", 0.0, first=True) == Observation(0.0, None)


def test_the_age_of_the_newest_file() -> None:
    for text, age in [
        ("file 100\nfile 90\nfile 0\nnow 160\n", 60.0),
        ("file 200\nnow 160", 0.0),
        ("file 100\nfile 9999\nnow 160\n", 60.0),
        ("file 9999\nnow 160\n", None),
        ("file 0\nnow 160", None),
        ("now 160", None),
        ("file 100", None),
        ("", None),
        ("file x\nnow 1", None),
    ]:
        assert parse_file_age(text) == age
