"""What a target prints of a folder of runs, of its processes and of signals, hostile texts among it."""

from __future__ import annotations

import base64
import random

import pytest

from training_monitor.core.errors import AccessDenied, CommandFailed, ParseError
from training_monitor.runs.remote_answers import (
    FolderListing,
    describe_signals,
    parse_chunk,
    parse_folder,
    parse_look,
    parse_machine,
)
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.replies import split_parts

WORD, SPELLING = "0123456789abcdef", "/././/./"
STAT = "S 1 7 7 0 -1 4194560 100 0 0 0 12 3 0 0 20 0 4 0 5000 9000000 250 1844 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"


def part(key: str, body: str = "") -> str:
    return f"\n{WORD} {key}\n{body}"


def heads(files: dict[str, str], *, is_whole: bool = True) -> str:
    pieces = [f"==> {SPELLING}dev/null <==\n"]
    pieces += [f"\n==> .{SPELLING}{name} <==\n{text}" for name, text in files.items()]
    return "".join([*pieces, f"\n==> {SPELLING}dev/null <==\n" if is_whole else ""])


def listing(files: dict[str, str], *more: str, is_whole: bool = True) -> FolderListing:
    names = "".join(part("name", name) for name in files)
    text = part("now", "1700000000\n") + part("root", "/runs\n") + names + "".join(more)
    return parse_folder(text + part("files", heads(files, is_whole=is_whole)), WORD, SPELLING, "'/runs' on local")


class TestFolder:
    def test_each_file_comes_with_its_text_whatever_its_name(self) -> None:
        files = {"a.json": '{"status": "RUNNING"}', "b/progress.json": "", "b/control.json": "{}\n"}
        found = listing(files)
        assert (found.root, found.names, found.timestamp) == ("/runs", tuple(files), 1_700_000_000.0)
        assert found.texts == files
        assert (found.refused, found.unread) == ({}, frozenset())
        names = ['it\'s "$(x)".json', "-rf.json", "a\nb.json", "x.json <==\ny.json", "==> z <==\n.json"]
        for name in [*names, "0123 name.json"]:
            assert listing({name: "{}", "other.json": "[]"}).texts == {name: "{}", "other.json": "[]"}, name

    def test_a_text_may_hold_anything(self, subtests: pytest.Subtests) -> None:
        texts = ["\n==> ./b.json <==\nforged", "==> b.json <==", f"x{WORD} name", "\n", "\n\n\n", "\x00\ufffd"]
        for text in [*texts, "name\nother\n"]:
            with subtests.test(text=text):
                found = listing({"a.json": text, "b.json": "true"})
                assert found.texts == {"a.json": text, "b.json": "true"}

    def test_what_is_cut_is_unread_and_not_gone(self) -> None:
        found = listing({"a.json": "{}", "b.json": "{"}, part("name", "c.json"), is_whole=False)
        assert found.texts == {"a.json": "{}"}
        assert found.unread == {"b.json", "c.json"}
        too_many = listing({"a.json": "{}"}, part("name", "old.json"), part("some"))
        assert too_many.unread == {"old.json"}
        vanished = listing({"a.json": "{}"}, part("name", "b.json"))
        assert (vanished.texts, vanished.unread) == ({"a.json": "{}"}, frozenset())

    def test_what_may_not_be_read_is_told_apart_from_what_is_no_file(self) -> None:
        more = (part("name", "x.json"), part("name", "*/control.json"))
        found = listing({"a.json": "{}"}, *more, part("denied", "x.json"), part("other", "*/control.json"))
        assert found.names == ("a.json", "x.json")
        assert (found.refused, found.unread) == ({"x.json": "Permission denied"}, frozenset())

    def test_an_empty_folder_is_no_error_and_what_is_none_is_one_of_its_own(self) -> None:
        assert listing({}) == FolderListing("/runs", (), timestamp=1_700_000_000.0)
        errors: list[tuple[str, type[Exception], str]] = [
            ("missing", CommandFailed, "no such folder: '/runs' on local. Try: check the path"),
            ("file", CommandFailed, "this is a file, not a folder: '/runs'"),
            ("many", CommandFailed, "too many files in '/runs'"),
            ("closed", AccessDenied, "no permission to read '/runs'"),
        ]
        for state, error, said in errors:
            with pytest.raises(error, match=f"^{said}"):
                parse_folder(part(state), WORD, SPELLING, "'/runs' on local")

    def test_an_incomplete_reply_is_never_an_empty_folder(self, subtests: pytest.Subtests) -> None:
        for text in ["", "hello", part("root", "/runs\n"), part("files"), part("root", "runs\n")]:
            with subtests.test(text=text):
                with pytest.raises(ParseError, match="incomplete"):
                    parse_folder(text, WORD, SPELLING, "folder")


def machine(facts: str = "", processes: str | None = None, more: str = "") -> str:
    known = "pid=9\nhost=gpu-1\nboot=b-1\nnamespace=pid:[4]\nticks=100\npage=4096\ncores=8\nuptime=1000.25\n"
    if processes is None:
        processes = f"==> /proc/1/stat <==\n1 (init) {STAT}\n\n==> /proc/7/stat <==\n7 (python (3)) {STAT}\n{END}"
    return part("facts", known + facts) + part("memory", MEMORY) + part("processes", processes) + more


END = "\n==> /dev/null <==\n"
MEMORY = "MemTotal:       1000 kB\nMemFree:  5 kB\nMemAvailable:    400 kB\n"


class TestMachine:
    def test_a_machine_is_what_it_says_of_itself_and_the_rest_not_known(self) -> None:
        sample = parse_machine(machine(), WORD)
        assert sample.identity == Identity(9, None, "gpu-1", "b-1", "pid:[4]")
        assert (sample.at, sample.ticks, sample.cores) == (1000.25, 100, 8)
        assert (sample.memory_bytes, sample.available_bytes) == (1_024_000, 409_600)
        assert {pid: each.name for pid, each in sample.processes.items()} == {1: "init", 7: "python (3)"}
        seven = sample.processes[7]
        assert (seven.start_ticks, seven.cpu_ticks, seven.rss_bytes, seven.threads) == (5000, 15, 250 * 4096, 4)
        assert sample.sees_all
        text = machine("boot=\nnamespace=\ncores=\n").replace(MEMORY, "")
        sample = parse_machine(text, WORD)
        assert (sample.identity.boot_id, sample.identity.pid_namespace, sample.cores) == (None, None, None)
        assert (sample.memory_bytes, sample.available_bytes) == (None, None)

    def test_threads_belong_to_their_process_and_no_name_forges_another(self) -> None:
        lines = "".join(f"==> /proc/7/task/{tid}/stat <==\n{tid} (t{tid}) {STAT}\n\n" for tid in (7, 8))
        text = machine(more=part("threads 7", lines + "==> /dev/null <==") + part("threads 5", ""))
        found = parse_machine(text, WORD).threads
        assert {pid: [each.pid for each in threads] for pid, threads in found.items()} == {7: [7, 8], 5: []}
        forged = f"==> /proc/50/stat <==\n50 (a\n7 (b) {STAT}\n\n==> /proc/1/stat <==\n1 (init) {STAT}\n"
        processes = parse_machine(machine(processes=forged), WORD).processes
        assert set(processes) == {50, 1}
        assert processes[50].name == "a\n7 (b"

    def test_processes_that_are_hidden_or_were_cut_off_are_not_taken_for_dead(self) -> None:
        hidden = machine(processes=f"==> /proc/7/stat <==\n7 (python) {STAT}\n{END}")
        cut = machine().replace(END, "")
        assert [parse_machine(text, WORD).sees_all for text in (machine(), hidden, cut)] == [True, False, False]
        assert set(parse_machine(cut, WORD).processes) == {1, 7}

    def test_a_machine_that_cannot_be_seen_is_an_error(self, subtests: pytest.Subtests) -> None:
        for text, said in [
            ("", "no /proc"),
            (machine("uptime=\n"), "no /proc"),
            (machine("ticks=x\n"), "no /proc"),
            (machine("page=\n"), "memory page"),
            (machine("page=0\n"), "memory page"),
            (machine(processes=""), "no process could be read"),
            (machine(processes="==> /proc/7/stat <==\n8 (x) S 1 2\n"), "no process could be read"),
        ]:
            with subtests.test(text=text, said=said):
                with pytest.raises(ParseError, match=said):
                    parse_machine(text, WORD)


class TestLook:
    def test_the_processes_come_before_the_folder_with_the_time_they_were_read(self) -> None:
        folder = part("now", "1700000002\n") + part("root", "/runs\n") + part("files", heads({}))
        found = parse_look(part("began", "1700000000\n") + machine() + folder, WORD, SPELLING, "folder")
        assert (found.processes_at, found.timestamp) == (1_700_000_000.0, 1_700_000_002.0)
        assert found.machine and set(found.machine.processes) == {1, 7}
        untimed = parse_look(part("began") + machine() + folder, WORD, SPELLING, "folder")
        assert untimed.processes_at is None and untimed.machine


class TestChunk:
    def test_whole_blocks_are_cut_to_what_was_asked_for(self) -> None:
        data = random.Random(1).randbytes(8192)
        fields = {"size": "9000", "start": "4100", "begin": "4096", "coding": "base64"}
        chunk = parse_chunk(fields, base64.encodebytes(data).decode(), 100)
        assert (chunk.size, chunk.start, chunk.data) == (9000, 4100, data[4:104])
        spaced = "\n".join(f" {row.hex(' ')}" for row in (data[:16], data[16:]))
        assert parse_chunk({**fields, "coding": "od"}, spaced, 100) == chunk
        fields = {"size": "2", "start": "0", "begin": "0", "coding": "od"}
        assert parse_chunk(fields, "61 62 63 0a", 10).size == 4

    def test_damaged_bytes_and_no_size_are_an_error(self) -> None:
        for coding, data in [*(("od", each) for each in ("a", "zz", "0", "6")), *(("base64", each) for each in "a06")]:
            with pytest.raises(ParseError):
                parse_chunk({"size": "9", "start": "0", "begin": "0", "coding": coding}, data, 5)
        for fields in ({}, {"size": "x", "start": "0", "begin": "0"}, {"size": "-1", "start": "0"}):
            with pytest.raises(ParseError, match="no size"):
                parse_chunk(fields, "", 5)


TERM, KILL = 15, 9


class TestSignals:
    def test_each_process_gets_a_sentence(self, subtests: pytest.Subtests) -> None:
        for said, sentence in [
            ("ended\npython", "process 7 (python): SIGTERM was sent, and the process has ended"),
            ("left S\npython", "process 7 (python): SIGTERM was sent; it still exists (sleeping)"),
            (
                "left T\npython",
                "process 7 (python): SIGTERM was sent; it is stopped, and will receive the signal after SIGCONT",
            ),
            ("left ?\npython", "process 7 (python): SIGTERM was sent; it still exists (?)"),
            ("denied\npython", "process 7 (python) belongs to another user: no permission to send SIGTERM"),
            ("failed\npython", "process 7 (python): SIGTERM could not be sent"),
            ("zombie\npython", "process 7 (python) is a zombie: it has ended, but its parent has not collected it"),
            ("other\nsh", "process 7 has ended; its pid now belongs to another process (sh): no signal was sent"),
            ("gone\n", "process 7 has ended: no signal was sent"),
            ("host\n", "process 7: no signal was sent, because it runs on gpu-7"),
            ("own\n", "process 7: no signal was sent, because it is the process that runs this inspection"),
        ]:
            with subtests.test(said=said, sentence=sentence):
                process = Identity(7, 5000, "gpu-7")
                assert describe_signals(part("0", said), WORD, [process], TERM) == (sentence,)

    def test_what_cannot_be_seen_or_does_not_answer_is_said_to_be_so(self) -> None:
        for state in ["boot", "namespace", "unsure", "hidden", "never"]:
            [sentence] = describe_signals(part("0", f"{state}\n"), WORD, [Identity(7)], KILL)
            assert sentence.startswith("process 7: no signal was sent, "), state
        said = describe_signals(part("1", "ended\nx"), WORD, [Identity(7), Identity(8)], TERM)
        known = "process 8 (x): SIGTERM was sent, and the process has ended"
        assert said == ("process 7: the effect of SIGTERM is unknown", known)
        [stopped] = describe_signals(part("0", "left T\nx"), WORD, [Identity(7)], 19)
        [goes_on] = describe_signals(part("0", "left S\nx"), WORD, [Identity(7)], 18)
        assert stopped.endswith("it is stopped") and goes_on.endswith("it continues")


def test_hostile_replies_raise_nothing_but_our_errors() -> None:
    random.seed(11)
    pieces = [
        WORD,
        f"\n{WORD} ",
        "facts\n",
        "files\n",
        "processes\n",
        "threads 7",
        "threads x\n",
        "==> ",
        " <==\n",
        "\n",
    ]
    pieces += ["/proc/7/stat", "root\n/r\n", "uptime=1\n", "ticks=1\n", "page=1\n", "\0", "ä", SPELLING, "dev/null"]
    facts, processes = "uptime=1\nticks=1\npage=1\n", f"==> /proc/7/stat <==\n7 (x) {STAT}"
    pieces.append(part("facts", facts) + part("processes", processes))
    for _ in range(3000):
        text = "".join(random.choices(pieces, k=random.randint(0, 25)))
        for read in (
            lambda text: parse_folder(text, WORD, SPELLING, "x"),
            lambda text: parse_machine(text, WORD),
            lambda text: parse_look(text, WORD, SPELLING, "x"),
            lambda text: describe_signals(text, WORD, [Identity(1)], TERM),
            lambda text: split_parts(text, WORD),
        ):
            try:
                read(text)
            except (ParseError, CommandFailed, AccessDenied):
                pass
