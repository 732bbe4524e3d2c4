"""Calls of functions in files: every value arrives as one word, and nothing else gets into a script."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from training_monitor.targets.scripts import Quoted, format_call

HOSTILE = ["it's", 'a "b" $HOME `id`', "two\nlines", "", "*", "-n", "\\"]


def run(script: str) -> str:
    return subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True, timeout=30).stdout


def test_variables_and_arguments_arrive_as_they_are() -> None:
    for text in HOSTILE:
        head, _, _ = format_call("host", "show_disks", file=text).partition("\nshow_disks() {")
        assert run(f'{head}\nprintf %s "$file"') == text
    script = format_call("host", "show_disks", *HOSTILE, 2, 0.5)
    call = script[script.rindex("\nshow_disks ") :]
    said = run(f"show_disks() {{ printf '%s|' \"$@\"; }}{call}")
    assert said == "".join(f"{each}|" for each in [*HOSTILE, "2", "0.5"])
    head, _, _ = format_call("host", "show_disks", file=Quoted('"$((1 + 1))"/x')).partition("\nshow_disks() {")
    assert run(f'{head}\necho "$file"') == "2/x\n"


def test_a_variable_that_no_file_names_is_refused_and_comments_do_not_travel() -> None:
    with pytest.raises(TypeError, match="host.sh does not accept other"):
        format_call("host", "show_disks", other=1)
    script = format_call("log", "read_new", limit=1)
    assert not [line for line in script.splitlines() if line.lstrip().startswith("#")]


def test_only_threads_of_the_kernel_are_left_out_of_the_processes(tmp_path: Path) -> None:
    """Behind a command such as bwrap, process 2 of a pid namespace is a program, and no process has a session there."""
    lines = {
        "thread of the kernel": "7 (kworker/0:0) S 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0 18446744073 0",
        "child of process 2": "8 (python3) S 2 0 0 0 -1 4194304 9 0 0 0 5 1 0 0 20 0 1 0 250 9000000 700 18446744073 1",
        "its zombie": "9 (python3) Z 2 0 0 0 -1 4194308 9 0 0 0 5 1 0 0 20 0 1 0 250 0 0 18446744073 0",
        "process 2": "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0 18446744073 0",
    }
    files = [tmp_path / str(number) for number in range(len(lines))]
    for file, line in zip(files, lines.values()):
        file.write_text(f"{line}\n")
    script = format_call("processes", "read_stats", *map(str, files))
    assert [line.split()[0] for line in run(script).splitlines()] == ["8", "9", "2"]
