"""Which files are runs, and replacing and reading them whole."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.runs.files import (
    RunFiles,
    list_run_files,
    log_paths,
    open_regular,
    paths_of_run,
    place_below,
    read_text,
    run_files,
    runs_from_names,
    write_atomically,
)


def names(folder: Path) -> list[str]:
    return [files.name for files in list_run_files(folder)]


# ---------------------------------------------------------------- layouts


def test_a_json_file_is_the_flat_layout_and_all_else_the_folder_layout() -> None:
    assert run_files("/p/run 1.json") == RunFiles("run 1", "/p/run 1.json", "/p/control_run 1.json")
    expected = RunFiles("run.v2", "/p/run.v2/progress.json", "/p/run.v2/control.json", "/p/run.v2")
    for given in ("/p/run.v2", "/p/run.v2/", "/p/run.v2/progress.json", Path("/p/x/../run.v2")):
        assert run_files(given) == expected


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_files("progress/a.json").progress_path == str(tmp_path / "progress" / "a.json")
    assert run_files("progress.json").folder == str(tmp_path)


def test_a_name_that_no_run_can_have_is_refused(tmp_path: Path) -> None:
    for given in ["", "/", "/p/.json", "/p/.hidden", "/p/control.json", "/p/control_a.json", "/p/a\0"]:
        with pytest.raises(SettingsError):
            run_files(given)
    with pytest.raises(FileNotFoundError):
        list_run_files(tmp_path / "missing")


def test_only_runs_are_listed(tmp_path: Path) -> None:
    for name in ("a.json", "control_a.json", "control.json", ".hidden.json", ".training-monitor-1-ab.tmp", "b.txt"):
        (tmp_path / name).write_text("{}")
    for name in ("run", "empty", ".git", "folder.json"):
        (tmp_path / name).mkdir()
    for name in ("run", ".git", "folder.json"):
        (tmp_path / name / "progress.json").write_text("{}")
    (tmp_path / "nothing").symlink_to(tmp_path / "missing")
    (tmp_path / "loop").symlink_to("loop")
    assert names(tmp_path) == ["a", "folder.json", "run"]


def test_a_run_in_both_layouts_is_listed_once_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "progress.json").write_text("{}")
    assert [(files.name, files.folder is None) for files in list_run_files(tmp_path)] == [("a", True), ("a/", False)]


def test_the_own_folder_of_a_run_shows_that_run(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "progress.json").write_text("{}")
    [files] = list_run_files(folder)
    assert (files.name, files.control_path, files.folder) == ("llama", str(folder / "control.json"), None)


def test_the_runs_of_a_group_are_listed_with_its_name(tmp_path: Path) -> None:
    for folder in ("sweep/lr2", "sweep/lr10", "sweep/.hidden", "alone", "alone/checkpoints", "deep/er/one"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "progress.json").write_text("{}")
    (tmp_path / "sweep" / "other.json").write_text("{}")
    assert names(tmp_path) == ["alone", "sweep/lr2", "sweep/lr10"]
    assert list_run_files(tmp_path)[1] == run_files(tmp_path / "sweep" / "lr2")._replace(name="sweep/lr2")


def test_names_are_unique_and_runs_stand_in_natural_order(tmp_path: Path) -> None:
    found = runs_from_names(iter(["a.json", "b.json", "progress.json"]), ["a", "b", "c"], here="a")
    assert [files.name for files in found] == ["a", "a/", "a//", "b", "b/", "c"]
    assert len({files.progress_path for files in found}) == 6
    for name in ("run-10", "Run-9", "run-2b", "run-2", "run-02", "7", "ü", f"run-{'9' * 200}"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert names(tmp_path) == ["7", "run-02", "run-2", "run-2b", "Run-9", "run-10", f"run-{'9' * 200}", "ü"]


def test_what_belongs_to_a_run_is_deleted_with_it_its_progress_file_last() -> None:
    flat = run_files("/p/a.json")
    assert log_paths(flat) == ("/p/a_stdout.log", "/p/a_stderr.log")
    assert paths_of_run(flat) == ["/p/control_a.json", *log_paths(flat), "/p/.a.json.owner", "/p/a.json"]
    own = run_files("/p/a")
    assert log_paths(own) == ("/p/a/stdout.log", "/p/a/stderr.log") and paths_of_run(own) == ["/p/a"]
    [here] = runs_from_names(["progress.json"], [], here="a")
    assert paths_of_run(here) == ["control.json", "stdout.log", "stderr.log", ".progress.json.owner", "progress.json"]
    assert paths_of_run(place_below("/p/a", here))[-1] == "/p/a/progress.json"


# ---------------------------------------------------------------- writing and reading


@pytest.mark.parametrize(("public", "umask", "mode"), [(False, 0o027, 0o640), (True, 0o077, 0o644)])
def test_a_file_is_readable_by_all_but_for_the_umask(tmp_path: Path, public: bool, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "a.prom", "a 1\n", public=public)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.prom").stat().st_mode) == mode
    assert os.listdir(tmp_path) == ["a.prom"]


def test_a_failed_write_leaves_the_old_file_and_any_text_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "a.json", "{}")
    assert os.listdir(tmp_path) == ["a.json"]
    name = tmp_path / ("n" * 250 + ".json")
    write_atomically(name, '"ü\n\ud800"')
    assert name.read_bytes() == '"ü\n\\ud800"'.encode()


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path, seen, ended = tmp_path / "a.json", set[str](), threading.Event()
    texts = {"a" * 200_000, "b" * 100_000}
    write_atomically(path, "a" * 200_000)

    def read() -> None:
        while not ended.is_set():
            seen.add(read_text(path))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        for text in texts:
            write_atomically(path, text)
    ended.set()
    reader.join()
    assert seen <= texts
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_file_is_read_to_its_end_or_limit_whatever_bytes_it_holds(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 101)
    with pytest.raises(OSError, match="longer than 100 bytes"):
        read_text(tmp_path / "a", 100)
    assert read_text(tmp_path / "a", 101) == "x" * 101
    assert "MemTotal" in read_text("/proc/meminfo")  # it tells no size
    (tmp_path / "a").write_bytes(b"a\xff\xfeb")
    assert read_text(tmp_path / "a") == "a\ufffd\ufffdb"


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
