"""The Python stacks of processes, as py-spy and the scripts tell them, and what is said where there are none."""

from __future__ import annotations

import gzip
import json
import os
import re
from base64 import encodebytes
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.errors import ParseError, SettingsError
from training_monitor.runs.stack_dump import stacks_as_json
from training_monitor.why.ranks import Frame
from training_monitor.why.stacks import StackAnswer, parse_answer, parse_stacks, read_spy, stacks_question

RECORDED = Path(__file__).parents[2] / "recorded" / "py-spy" / "0.4.3"
WORD = "0a1b"
PID = 22410  # of the recorded process


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def thread(name: str = "MainThread", number: int | None = 7, function: str = "f", **other: Any) -> dict[str, Any]:
    frame = {"name": function, "filename": "/t.py", "line": 3}
    return {"thread_name": name, "os_thread_id": number, "frames": [frame], **other}


def spy(*threads: object, pid: int = 7) -> StackAnswer:
    return parse_answer(pid, "py-spy", json.dumps(threads))


def packed(document: str) -> str:
    return encodebytes(gzip.compress(document.encode("utf-8", "surrogatepass"), mtime=0)).decode()


def reply(*parts: tuple[str, str], pythons: str = "7 8") -> str:
    told = [("pythons", f" {pythons}\n"), *parts, ("end", "")]
    return "".join(f"\n{WORD} {key}\n{body}" for key, body in told)


def test_the_threads_of_a_real_process() -> None:
    answer = parse_answer(PID, "py-spy", recorded("threads.json"))
    main, watcher = answer.stacks
    assert (answer.way, answer.lack, main.is_main, watcher.is_main) == ("py-spy", None, True, False)
    assert (main.thread, watcher.thread) == ("MainThread", 'watcher \x1b[31m\n"')
    assert [each.function for each in main.frames] == [
        "Condition.wait", "Queue.get", "Loader.load_batch", "train.<locals>.<lambda>", "train", "<module>",
    ]  # fmt: skip
    assert main.frames[2] == Frame("Loader.load_batch", "/srv/train/train.py", 7)


def test_the_reason_is_what_it_says_first_or_the_end_of_a_traceback() -> None:
    for name, lack, said in [
        ("denied.txt", "denied", "Error: Permission denied (os error 13) Caused by: Permission denied (os error 13)"),
        ("denied_other_user.txt", "denied", "Permission Denied: Try running again with elevated permissions by going"),
        ("not_python.txt", "failed", "Error: Failed to find python version from target process"),
        ("gone.txt", "failed", "Error: Failed to get process executable name. Check that the process is running."),
    ]:
        answer = parse_answer(PID, "py-spy", recorded(name))
        assert (answer.lack, answer.stacks, answer.way) == (lack, (), None)
        assert answer.said.startswith(said) and "anyhow" not in answer.said
    said = 'Traceback (most recent call last):\n  File "<string>", line 1\n' + "  x\n" * 400
    answer = parse_answer(7, "remote_exec", f"{said}PermissionError: [Errno 1] Operation not permitted\n")
    assert (answer.lack, answer.said) == ("denied", "PermissionError: [Errno 1] Operation not permitted")
    answer = parse_answer(7, "remote_exec", "its main thread was not running Python\n")
    assert (answer.lack, answer.said) == ("failed", "its main thread was not running Python")


def test_a_document_cut_anywhere_is_no_stack_and_no_missing_right() -> None:
    text = recorded("threads.json").replace("Loader.load_batch", "Permission denied")
    for end in range(0, len(text.rstrip()), 7):
        answer = parse_answer(PID, "py-spy", text[:end])
        assert (answer.lack, answer.stacks) == ("failed", ())
        assert answer.said in ("the response was truncated", "no answer")


def test_exactly_one_thread_is_the_main_one() -> None:
    by_number = spy(thread("MainThread", 9, "not"), thread("renamed", 7, "main"), thread("MainThread", 8, "not"))
    assert [each.is_main for each in by_number.stacks] == [True, False, False]
    assert by_number.stacks[0].thread == "renamed"
    in_container = spy(thread("MainThread", 9, "not"), thread("x", 2), thread("MainThread", 1, "main"))
    assert [each.frames[0].function for each in in_container.stacks if each.is_main] == ["main"]
    assert not any(each.is_main for each in spy(thread("a", 1), thread("b", None)).stacks)


def test_what_is_no_document_of_stacks_or_has_none() -> None:
    for document in [
        "null",
        "1",
        '"x"',
        "{}",
        '{"a": 1}',
        "[null]",
        "[[]]",
        '["a"]',
        '[{"frames": {}}]',
        '[{"frames": null}]',
        '[{"frames": [{}]}]',
        '[{"frames": [{"name": 1, "filename": "a", "line": 1}]}]',
        "[" * 100_000,
        '{"threads": [{"name": "a", "frames": [""]}]}',
        '{"a":' * 100_000,
        f"[{'1' * 5000}]",
        '[{"frames": [], "thread_name": {"a": []}}]',
    ]:
        for way in ["py-spy", "in-script", "remote_exec"]:
            assert parse_answer(7, way, document).lack == "failed"
    for way, text in {"py-spy": "[]", "in-script": '{"threads": []}'}.items():
        assert parse_answer(7, way, text) == StackAnswer(lack="failed", said="no thread with a Python stack")
    for lack in ("late", "none"):
        assert parse_stacks(reply((f"stack 7 {lack}", "whatever")), WORD).answers == {7: StackAnswer(lack=lack)}


def test_a_line_or_count_of_batches_that_is_none_is_unknown() -> None:
    for value in [None, -1, 1 << 60, 1.5, True, "7"]:
        answer = spy({**thread(), "frames": [{"name": "f", "filename": "/t.py", "line": value}]})
        assert answer.stacks[0].frames == (Frame("f", "/t.py", None),)
        frames = {"name": "MainThread", "is_main": True, "frames": [["f", "/t.py", 1]]}
        assert parse_answer(7, "in-script", json.dumps({"threads": [frames], "batches": value})).batches is None


def test_long_stacks_are_cut_and_names_may_hold_anything() -> None:
    long, frame = "\U0001f600" * 1000, {"name": "n" * 9999, "filename": "/f" * 9999, "line": 1}
    answer = spy(*[thread(long, 10 + each) for each in range(10_000)], thread(frames=[frame] * 500))
    assert len(answer.stacks) == 64 and answer.stacks[0].is_main
    assert len(answer.stacks[0].frames) == 64 and len(answer.stacks[0].frames[0].function) == 300
    assert len(answer.stacks[1].thread) == 300
    many = "[" + ",".join(['{"frames":[]}'] * 200_000) + "]"
    assert len(parse_answer(7, "py-spy", many).stacks) == 64
    name = 'a\nb\t"\\\x1b[31m\ud800\U0001f600\x00' + WORD
    assert spy(thread(name, function=name)).stacks[0].frames[0].function == name


def test_what_a_script_writes_is_read() -> None:
    document = json.loads(stacks_as_json({"batches": 12}, with_caller=True))
    document["variables"] = {"RANK": "3", "LOCAL_RANK": "-1", "WORLD_SIZE": "9" * 80, "MASTER_ADDR": "h", "X": ["1"]}
    answer = parse_answer(7, "in-script", json.dumps(document))
    assert (answer.way, answer.batches, dict(answer.variables)) == ("in-script", 12, {"RANK": 3})
    [main] = [each for each in answer.stacks if each.is_main]
    assert any(each.function.endswith("test_what_a_script_writes_is_read") for each in main.frames)


def test_what_was_not_packed_as_it_should_be() -> None:
    for body in ["", "%%%", packed("[]" * 400_000), packed("[]")[:-9], encodebytes(b"\x1f\x8bx").decode()]:
        [answer] = parse_stacks(reply(("stack 7 py-spy base64", body)), WORD).answers.values()
        assert (answer.lack, answer.stacks) == ("failed", ())
        [answer] = parse_stacks(reply(("stack 7 py-spy", "[]")), WORD).answers.values()
        assert answer.lack == "failed"


def test_one_process_that_cannot_be_read_hides_no_other() -> None:
    text = reply(
        ("stack 8 in-script base64", packed("{broken")),
        ("stack 7 py-spy base64", packed(json.dumps([thread()]))),
        ("stack 8 py-spy hex", json.dumps([thread(number=8)]).encode().hex(" ")),
        ("stack 7 none", ""),
        ("stack 7 py-spy", "[]"),
        ("stack -1 py-spy base64", packed("[]")),
        ("stack 9 gdb base64", packed("[]")),
        ("stack 12345678901 py-spy base64", packed("[]")),
    )
    seen = parse_stacks(text, WORD)
    ways = {pid: each.way for pid, each in seen.answers.items()}
    assert seen.pythons == (7, 8) and ways == {7: "py-spy", 8: "py-spy"}


def test_a_reply_cut_anywhere_or_without_its_beginning_has_no_wrong_stack() -> None:
    text = reply(("stack 7 py-spy base64", packed(recorded("threads.json"))), ("stack 8 none", ""))
    whole = parse_stacks(text, WORD)
    for end in range(0, len(text), 11):
        try:
            seen = parse_stacks(text[:end], WORD)
        except ParseError:
            assert end < len(f"\n{WORD} pythons")
            continue
        assert set(seen.answers) <= {7, 8}
        stacks = seen.answers.get(7, StackAnswer()).stacks
        assert stacks in ((), whole.answers[7].stacks)
    assert parse_stacks(reply(pythons="7 -1 x ٣ 99999999999 8"), WORD).pythons == (7, 8)
    for text in ("", "garbage", f"\n{WORD} end\n\n", reply().replace(WORD, "ffff")):
        with pytest.raises(ParseError):
            parse_stacks(text, WORD)


def test_a_late_program_ends_before_its_question_and_no_two_have_the_same_words() -> None:
    for seconds in [1.0, 11.3, 60.0]:
        question = stacks_question("echo 1", seconds)
        names = (r"\nseconds=(\d+)", r"'timeout -s KILL (\d+)'")
        [until], [limit] = (re.findall(name, question.script) for name in names)
        assert int(until) + int(limit) + 1 <= question.limit
    words = [set(re.findall(r"^(?:word|nonce)='?(\w+)", stacks_question("echo 1", 5).script, re.M)) for _ in range(2)]
    assert [len(each) for each in words] == [2, 2] and not words[0] & words[1]


def test_what_is_no_program_is_said_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello\n")
    os.mkfifo(tmp_path / "fifo")
    for path in ("folder", "empty", "fifo", "text", "missing", "/dev/zero", "a\0b"):
        with pytest.raises(SettingsError, match="py_spy"):
            read_spy(str(tmp_path / path))


def test_what_is_packed_small_and_is_large_is_read_up_to_a_bound() -> None:
    """A thousand processes of 64 threads with 64 frames: 90 MB, in a reply of half a megabyte."""
    threads = [thread("MainThread" if not each else f"t{each}", each, "f") for each in range(64)]
    document = packed(json.dumps([{**each, "frames": each["frames"] * 64} for each in threads]))
    seen = parse_stacks(reply(*((f"stack {pid} py-spy base64", document) for pid in range(10, 1010))), WORD)
    frames = sum(len(stack.frames) for each in seen.answers.values() for stack in each.stacks)
    assert 100_000 <= frames < 250_000
    assert {each.lack for each in seen.answers.values()} == {None, "late"}
    last = [each for each in seen.answers.values() if each.stacks][-1]
    assert [each.is_main for each in last.stacks] == [True]
