"""The commands of the skill that need a host or an account: typed as they are, one page after the other.

Those of its other blocks run in tests/integration/test_documents.py.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evals.conftest import put
from tests.images import png
from tests.integration.commands import run_command
from tests.integration.conftest import SshServer, Surroundings, kill, wait_until
from tests.loopback.hub import TOKEN, Hub
from tests.loopback.vast import VastApi
from tests.requirements import require
from training_monitor.cli import demo_training

ROOT = Path(__file__).parents[2]
TRAINING = "echo $$ >train.pid; for step in 1 2 3; do echo step $step/40 loss 0.$step; done; sleep 600"


def snippets(page: str) -> list[list[str]]:
    """The words of each command in the `sh` blocks of a page."""
    text = (ROOT / "training_monitor" / "agents" / "skill" / "references" / page).read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


def answer(words: list[str], changes: dict[str, str]) -> Any:
    for there, here in changes.items():
        words = [word.replace(there, here) for word in words]
    done = run_command(*words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout.splitlines()[-1])  # before it: what it does meanwhile


@pytest.fixture
def workspace(surroundings: Surroundings) -> Iterator[Path]:
    """A training that somebody else started, with its log, its pid file and a checkpoint."""
    folder = surroundings.folder / "workspace"
    whole = demo_training.encode_checkpoint(demo_training.new_weights(), 3)
    put(folder / "out" / "step_3" / "model.safetensors", whole)
    with (folder / "train.log").open("wb") as log:
        command = ["sh", "-c", TRAINING]
        training = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    assert wait_until(lambda: "step 3/" in (folder / "train.log").read_text())
    yield folder
    kill(training.pid)
    training.wait()


def test_a_run_of_somebody_else_is_looked_at_and_then_ended_and_saved(workspace: Path, sshd: SshServer) -> None:
    changes = {"ssh://root@host:2222": sshd.address, "/workspace": str(workspace), "OWNER/NAME": "me/model"}
    look, end = snippets("watch.md")
    with Hub() as hub:
        path = f"{Path(require('hf')).parent}:/usr/bin:/bin"
        sshd.set_environment({**hub.environ, "PATH": path, "HF_TOKEN": TOKEN, "HOME": str(workspace)})
        seen = answer(look, changes)
        assert seen["is_running"] is True and seen["step"] == 3 and seen["state"]
        done = answer(end, changes)
        assert "model.safetensors" in hub.files("me/model")
    assert done["uploads"][0]["verified"] is True, done


def test_a_training_is_queued_on_a_rented_machine(
    vast: VastApi, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(surroundings.folder)
    for number in range(12):
        put(Path("images", f"{number}.png"), png(600 + number, 600))
        put(Path("images", f"{number}.txt"), "mylora, a photo")
    vast.add_offer(1, price=0.4)
    answers = {words[1]: answer(words, {}) for words in snippets("rent.md")}
    assert list(answers) == ["dataset", "offers", "instances", "credits", "launch", "queue"]
    assert answers["offers"]["found"] == 1 and answers["queue"]["jobs"][0]["state"] == "QUEUED", answers["queue"]
    assert vast.created == []  # it waits for a worker
