"""Hostile names of functions and files in the stacks of a training, in every interface, and a target that fails.

What a reader sees is on one line, without control characters, and holds no secret.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.tries import tried
from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings
from tests.requirements import require
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.targets.asking import Site
from training_monitor.targets.transport import LocalTransport
from training_monitor.why.before_end import explain_before_end
from training_monitor.why.explain import explain_training

TOKEN = "hf_" + "aBcD1234" * 4
EVIL = f"f\x1b[31m\x1b]0;title\x07\n\t\x9b2J\u202e{TOKEN}"
TRAIN = """
import sys, threading, time

def sleep():
    time.sleep(3600)

def named(text, file):
    code = sleep.__code__.replace(co_name=text, co_qualname=text, co_filename=file)
    return type(sleep)(code, globals())

evil = sys.argv[1]
thread = threading.Thread(target=sleep, name=evil, daemon=True)
thread.start()
print("ready", flush=True)
named(evil, f"/w/{evil}.py")()
"""


@pytest.fixture
def training(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A training of one process, whose stack py-spy sees."""
    (surroundings.tools / "py-spy").symlink_to(require("py-spy"))
    monkeypatch.setenv("PATH", f"{surroundings.tools}{os.pathsep}{os.environ['PATH']}")
    program = TRAIN if sys.version_info >= (3, 11) else TRAIN.replace(" co_qualname=text,", "")
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    command = [sys.executable, "-c", program, EVIL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=surroundings.folder) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def is_clean(text: str) -> bool:
    return TOKEN not in text and all(each.isprintable() for each in text.replace("\n", ""))


def test_the_screen_and_the_json_show_no_secret_and_no_control_character(training: int) -> None:
    tried()
    shown = run_command("why", "local", str(training), "--stacks")
    assert "***" in shown.stdout and is_clean(shown.stdout), shown.stdout
    assert is_clean(shown.stderr)
    tried()
    document = run_command("why", "local", str(training), "--json").stdout
    assert TOKEN not in document and is_clean(document)
    report = json.loads(document)
    assert is_clean(report["explanation"]) and "\n" not in report["explanation"]
    [rank] = report["ranks"]
    assert rank["stacks_from"] == "py-spy" and is_clean(rank["where"])


def test_the_bundle_and_the_text_of_the_notice_show_none(training: int, tmp_path: Path) -> None:
    tried()
    store = Store(str(tmp_path / "state"))
    kept = explain_before_end(Site.of("local"), WatchedJob(pid=training), store)
    assert is_clean(kept.text) and kept.folder
    assert b"***" in gzip.decompress((Path(kept.folder) / "report.json.gz").read_bytes())
    for path in Path(store.folder).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")
            assert TOKEN not in text, path


class Refusing(LocalTransport):
    """A target that takes no program."""

    def run(self, argv: Any, **options: Any) -> CommandResult:
        if "receive receive" in " ".join(argv):
            return CommandResult(tuple(argv), 1, "", "no folder takes a program that may be executed", 0.1)
        return super().run(argv, **options)


def test_a_py_spy_that_cannot_be_sent_does_not_hide_the_rest(training: int) -> None:
    tried()
    report = explain_training("local", training, py_spy=require("py-spy"), transport=Refusing())
    assert report["silent"] == [] and [each["pid"] for each in report["ranks"]] == [training]
    assert any("py-spy could not be copied" in each and "no folder takes" in each for each in report["unknown"])
