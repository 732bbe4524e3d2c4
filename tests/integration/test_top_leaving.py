"""Leaving `top` while what was asked for last is under way: it waits a moment, and says what came of it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import SshServer, Surroundings
from tests.integration.screens import Screen

TOP = [sys.executable, "-m", "training_monitor", "top"]


@pytest.fixture
def screen(surroundings: Surroundings) -> Iterator[Screen]:
    shown = Screen(surroundings.folder)
    yield shown
    shown.tmux("kill-server")


def ended_run(folder: Path) -> Path:
    """A run that has ended, in a folder of its own."""
    own = folder / "progress" / "llama"
    own.mkdir(parents=True)
    (own / "progress.json").write_text(json.dumps({"status": "FINISHED", "start_time": 1.0, "metadata": {"pid": 7}}))
    return own


def slow(server: SshServer, seconds: float) -> None:
    """Let each command of this server begin so many seconds later, from the next connection on."""
    late = server.folder / "late"
    late.write_text(f'#!/bin/sh\nsleep {seconds}\neval "$SSH_ORIGINAL_COMMAND"\n')
    late.chmod(late.stat().st_mode | stat.S_IXUSR)
    key = (server.folder / "user_key.pub").read_text()
    (server.folder / "authorized_keys").write_text(f'command="{late}" {key}')


def delete(screen: Screen) -> None:
    screen.shows(r"llama +FINISHED")
    screen.press("c")
    screen.shows("delete llama", "type +yes")
    screen.type("yes")
    screen.press("Enter")


def test_what_is_under_way_is_done_before_top_has_ended(screen: Screen, sshd: SshServer) -> None:
    own = ended_run(screen.folder)
    screen.start("100x24", *TOP, f"{sshd.address}{own.parent}")
    delete(screen)
    screen.press("q")
    screen.shows("status=0")
    assert not own.exists()
    screen.shows("waiting for at most 2 s for: delete llama", "^deleted llama")


def test_what_takes_longer_is_left_and_told(screen: Screen, sshd: SshServer, surroundings: Surroundings) -> None:
    own = ended_run(screen.folder)
    screen.start("100x24", *TOP, "-i", "60", f"{sshd.address}{own.parent}")
    screen.shows(r"llama +FINISHED")
    surroundings.disconnect()
    slow(sshd, 30)
    delete(screen)
    screen.press("q")
    screen.shows(
        "waiting for at most 2 s for: delete llama", "error: delete llama: no response yet", "status=0", seconds=20
    )


def test_ctrl_c_waits_less_than_a_second_and_tells_what_is_left(
    screen: Screen, sshd: SshServer, surroundings: Surroundings
) -> None:
    own = ended_run(screen.folder)
    screen.start("100x24", *TOP, "-i", "60", f"{sshd.address}{own.parent}", before="trap : INT;")
    screen.shows(r"llama +FINISHED")
    surroundings.disconnect()
    slow(sshd, 30)
    delete(screen)
    screen.shows("deleting llama")
    screen.press("C-c")
    screen.shows("waiting for at most 0.3 s for: delete llama", "error: delete llama: no response yet", "status=130")
    screen.given_back()


def test_where_nothing_is_under_way_nothing_is_said(screen: Screen) -> None:
    own = ended_run(screen.folder)
    screen.start("100x24", *TOP, str(own.parent))
    screen.shows(r"llama +FINISHED")
    screen.press("q")
    screen.shows("status=0")
    assert "waiting" not in screen.text() and os.path.exists(own)
