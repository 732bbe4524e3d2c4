"""Calls of functions in files: every value arrives as one word, and nothing else gets into a script."""

from __future__ import annotations

import subprocess

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
