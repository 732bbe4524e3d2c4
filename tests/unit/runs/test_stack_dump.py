"""The stacks of a process as JSON: what is told, within which bounds, and that nothing of the training's is called."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from training_monitor.runs import stack_dump
from training_monitor.runs.stack_dump import stacks_as_json, write_stacks

SOURCE = Path(stack_dump.__file__).read_text()
WIDE = "\U00020000"  # a letter that JSON writes with twelve
MAX_BYTES = 512 * 1024


def stacks(**options: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(stacks_as_json(**options))
    return document


def stacks_from_another_thread() -> dict[str, Any]:
    """The document as another thread makes it while this one waits for that thread."""
    found: dict[str, Any] = {}

    def ask() -> None:
        while waits not in found.get("threads", [{}])[0].get("frames", []):
            found.update(stacks())

    waits = ["stacks_from_another_thread", __file__, line_of("joins")]
    thread = threading.Thread(target=ask, name="asks")
    thread.start()
    thread.join()  # marked: joins
    return found


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# marked: {mark}"))


@contextmanager
def beside(count: int, wait: Callable[[threading.Event], object], kind: type[threading.Thread]) -> Iterator[None]:
    """Run threads that call `wait`, until the end."""
    end, begun = threading.Event(), threading.Semaphore(0)

    def run() -> None:
        begun.release()
        wait(end)

    threads = [kind(target=run, name="reader", daemon=True) for _ in range(count)]
    for thread in threads:
        threading.Thread.start(thread)
    for _ in threads:
        begun.acquire()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            threading.Thread.join(thread)


def wait_for(end: threading.Event) -> None:
    end.wait()  # marked: waits


def test_the_main_thread_comes_first_and_the_one_that_looks_is_left_out() -> None:
    with beside(1, wait_for, threading.Thread):
        document = stacks_from_another_thread()
    main, *others = document["threads"]
    assert (main["name"], main["is_main"], main["is_daemon"]) == ("MainThread", True, False)
    assert (main["ident"], main["native_id"]) == (threading.get_ident(), threading.get_native_id())
    (own,) = (number for number, frame in enumerate(main["frames"]) if frame[0] == "stacks_from_another_thread")
    assert main["frames"][own] == ["stacks_from_another_thread", __file__, line_of("joins")]
    test = test_the_main_thread_comes_first_and_the_one_that_looks_is_left_out.__name__
    assert main["frames"][own + 1][0] == test, "innermost first"
    assert "asks" not in [each["name"] for each in others]
    (reader,) = (each for each in others if each["name"] == "reader")
    assert (reader["is_main"], reader["is_daemon"]) == (False, True)
    assert ["wait_for", __file__, line_of("waits")] in reader["frames"]
    assert document["left_out"] == 0 and document["pid"] == os.getpid()
    assert document["python"] == ".".join(map(str, sys.version_info[:3]))


class Loader:
    def load(self) -> dict[str, Any]:
        return stacks(with_caller=True)  # marked: loads


def test_the_caller_is_told_from_the_frame_that_called() -> None:
    found = Loader().load()["threads"][0]["frames"][:1]
    own = [["stacks", __file__, stacks.__code__.co_firstlineno + 1]]
    assert found == own
    name = "Loader.load" if sys.version_info >= (3, 11) else "load"
    assert Loader().load()["threads"][0]["frames"][1] == [name, __file__, line_of("loads")]
    assert stacks(extra={"batches": 3})["batches"] == 3


def test_variables_are_those_of_now_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in stack_dump.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert stacks()["variables"] == {}
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("MASTER_ADDR", "x" * 1000)
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert stacks()["variables"] == {"RANK": "3", "MASTER_ADDR": "x" * 100}


def test_a_thread_without_a_name_that_is_text_has_none() -> None:
    import _thread

    end, begun = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        end.wait()

    ident = _thread.start_new_thread(run, ())
    begun.wait()
    (found,) = (each for each in stacks()["threads"] if each["ident"] == ident)
    end.set()
    assert (found["name"], found["native_id"], found["is_daemon"]) == ("", None, None)
    assert any(frame[0].endswith("run") for frame in found["frames"])

    def wait(end: threading.Event) -> None:
        threading.current_thread().__dict__["_name"] = BadText("odd")
        renamed.set()
        end.wait()

    CALLS.clear()
    renamed = threading.Event()
    with beside(1, wait, threading.Thread):
        renamed.wait()
        told = stacks()
    assert CALLS == [] and "" in [each["name"] for each in told["threads"]]


@pytest.mark.parametrize(("depth", "is_whole"), [(50, True), (300, False)])
def test_of_a_deep_stack_both_ends_are_kept(depth: int, is_whole: bool) -> None:
    def descend(left: int) -> None:
        if left:
            descend(left - 1)
        else:
            found.append(stacks(with_caller=True))

    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=descend, args=(depth,), name="deep")
    thread.start()
    thread.join()
    (frames,) = (each["frames"] for each in found[0]["threads"] if each["name"] == "deep")
    names = [frame[0].rpartition(".")[2] for frame in frames]
    assert names[:45] == ["stacks", *["descend"] * 44] and names[-1] == "_bootstrap"
    if is_whole:
        assert names[45:-3] == ["descend"] * 7
    else:
        assert frames[45] == ["...", "", None] and names[46:] == ["descend"] * 12 + names[-3:]


def test_an_endless_stack_is_not_walked_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_dump, "MOST_WALKED", 100)

    def descend(left: int) -> dict[str, Any]:
        return descend(left - 1) if left else stacks(with_caller=True)

    frames = descend(200)["threads"][0]["frames"]
    assert len(frames) == 46 and frames[-1] == ["...", "", None]


def test_of_many_threads_two_hundred_are_told_and_the_rest_counted() -> None:
    with beside(250, wait_for, threading.Thread):
        document = stacks_from_another_thread()
    assert len(document["threads"]) == 200 and document["threads"][0]["is_main"]
    assert document["left_out"] >= 51


def test_the_longest_names_fit_and_the_main_thread_is_whole() -> None:
    names: dict[str, Any] = {}
    name = WIDE * 400
    text = f"def {name}(left, then):\n    return {name}(left - 1, then) if left else then()\n"
    exec(compile(text, WIDE * 400, "exec"), names)

    def wait_deep(end: threading.Event) -> None:
        names[name](100, end.wait)

    with beside(199, wait_deep, threading.Thread):
        told: str = names[name](100, lambda: stacks_as_json(with_caller=True))
    document = json.loads(told)
    assert told.isascii() and len(told) <= MAX_BYTES
    assert len(document["threads"][0]["frames"]) == 61 and document["threads"][0]["is_main"]
    assert document["threads"][0]["frames"][10][0] == WIDE * 300
    assert document["left_out"] + len(document["threads"]) >= 200


class Called(Exception):
    """Something of the training's was called."""


CALLS: list[str] = []


class BadText(str):
    __slots__ = ()

    def _called(self, *arguments: object) -> Any:
        CALLS.append("text")
        raise Called

    __str__ = __repr__ = __getitem__ = __len__ = __format__ = _called


class BadThread(threading.Thread):
    """Its attributes raise once it has begun."""

    is_bad = False

    def __getattribute__(self, name: str) -> Any:
        if BadThread.is_bad and not name.startswith("__"):
            CALLS.append(name)
            raise Called
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        CALLS.append("repr")
        raise Called


class BadLocal:
    def __repr__(self) -> str:
        CALLS.append("local")
        raise Called


def test_no_code_of_the_training_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(end: threading.Event) -> None:
        local = BadLocal()
        end.wait()
        del local

    code = wait.__code__.replace(co_name=BadText("odd"), co_filename=BadText("odd.py"))
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=BadText("odd"))
    monkeypatch.setattr(wait, "__code__", code)
    CALLS.clear()
    with beside(1, wait, BadThread):
        BadThread.is_bad = True
        try:
            told = stacks()
        finally:
            BadThread.is_bad = False
    assert CALLS == []
    (reader,) = (each for each in told["threads"] if each["name"] == "reader")
    assert ["?", "?"] in [frame[:2] for frame in reader["frames"]]


def test_the_file_is_for_this_user_and_replaces_what_was_there(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "stacks").symlink_to(other)
    before = os.umask(0)
    try:
        write_stacks(str(tmp_path / "stacks"), {"batches": 3})
    finally:
        os.umask(before)
    state = os.lstat(tmp_path / "stacks")
    assert stat.S_ISREG(state.st_mode) and stat.S_IMODE(state.st_mode) == 0o600
    assert json.loads((tmp_path / "stacks").read_text())["batches"] == 3 and other.read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["other", "stacks"]


def test_a_file_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    with pytest.raises(OSError):
        write_stacks(str(tmp_path / "stacks"))
    assert os.listdir(tmp_path) == ["stacks"]
    with pytest.raises(FileNotFoundError):
        write_stacks(str(tmp_path / "gone" / "stacks"))


def test_the_source_is_that_of_python_3_10_and_imports_four_modules() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 10))
    found = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert found == {"json", "os", "sys", "threading"}
    at_run_time = [node for node in tree.body if not isinstance(node, ast.If)]
    others = [each for node in at_run_time for each in ast.walk(node) if isinstance(each, ast.ImportFrom)]
    assert [each.module for each in others] == ["__future__"]


ELSEWHERE = """
import os, sys
def load_batch():
    with open("program.py", "rb") as file:
        exec(file.read(), {})  # marked
names, modules = set(globals()), set(sys.modules)
names |= {"names", "modules"}
load_batch()
print(set(globals()) - names, *sorted(set(sys.modules) - modules))
"""


def test_the_source_runs_in_a_namespace_of_its_own_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """As `sys.remote_exec` of Python 3.14 runs it: a new dict is its namespace, in the main thread."""
    call = (
        f"\ntry:\n    write_stacks({str(tmp_path / 'stacks')!r}, with_caller=True)\nfinally:\n    globals().clear()\n"
    )
    ask = "import sys; before = set(sys.modules); import json, threading; print(*set(sys.modules) - before)"
    bare = [sys.executable, "-S", "-E", "-c", ask]
    needed = set(subprocess.run(bare, capture_output=True, text=True, timeout=60, check=True).stdout.split())
    (tmp_path / "program.py").write_text(SOURCE + call)
    (tmp_path / "train.py").write_text(ELSEWHERE)
    run = subprocess.run(
        [sys.executable, "-S", "-E", "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stderr == ""
    left, *modules = run.stdout.split()
    assert left == "set()" and set(modules) <= needed | {"__future__"}
    (main,) = json.loads((tmp_path / "stacks").read_text())["threads"]
    names = [frame[0] for frame in main["frames"]]
    line = next(number for number, line in enumerate(ELSEWHERE.splitlines(), 1) if line.endswith("# marked"))
    assert names == ["load_batch", "<module>"] and main["frames"][0][2] == line and main["is_main"]
