"""A market whose machines are this one, behind a real ssh server, and all that a job on them talks to."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import PYTHON
from tests.integration.conftest import SshServer, Surroundings
from tests.integration.forked import Act, Forked, command, forked
from tests.loopback.messaging import Services
from tests.loopback.storage import ACCESS_KEY, BUCKET, SECRET_KEY, StorageGate
from tests.loopback.vast import VastApi
from tests.requirements import require
from training_monitor.cli import demo_training
from training_monitor.cli.main import main
from training_monitor.core.store import Store
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast.rows import read_label
from training_monitor.vast.training_request import JobState, QueuedJob

ROOT = Path(__file__).parents[2]
JOB = "demo-1"
STEPS_TRAINED, SAVE_EVERY = 60, 10
DEPOSIT = 100.0
PATIENCE = 400.0  # seconds for what takes one: beside other work, a single call of the market takes twenty
NVIDIA_SMI = """#!/bin/sh
case "$*" in
*--query-gpu=*)
  for name in $(echo "$*" | sed 's/.*--query-gpu=\\([^ ]*\\).*/\\1/' | tr , ' '); do
    case $name in
    index) v=0;; name|gpu_name) v="NVIDIA GeForce RTX 4090";; uuid|gpu_uuid) v=GPU-1;; memory.total) v=24564;;
    memory.used) v=300;; memory.free) v=24264;; utilization.gpu) v=90;; power.draw) v=300.00;; power.limit) v=450.00;;
    temperature.gpu) v=60;; *) v="[N/A]";;
    esac
    line="${line:+$line, }$v"
  done
  echo "$line";;
esac
"""


@dataclass
class World:
    """A market whose machines are this one, behind a real ssh server; and all that a job talks to."""

    vast: VastApi
    sshd: SshServer
    folder: Path
    gate: StorageGate
    services: Services
    name: str = JOB  # of the job

    @property
    def queue(self) -> TrainingQueue:
        return TrainingQueue(Store())

    @property
    def job(self) -> QueuedJob:
        return self.queue.get(self.name)

    @property
    def machine(self) -> Path:
        """Where the jobs' folders are on the machines."""
        return self.folder / "machine"

    def argv(self, *more: str, crash: str = "", step_seconds: float = 0.02) -> list[str]:
        """A training that fails once, at its 25th step: by `crash`, or for no reason of the machine's.

        Where a test does something to a training, `step_seconds` keeps it going until then.
        """
        train = f'{PYTHON} {shlex.quote(demo_training.__file__)} --output "$OUTPUT" --hang-at 0'
        train += f" --save-every {SAVE_EVERY} --step-seconds {step_seconds}"
        once = f'[ -e "$OUTPUT/.once" ] || {{ {train} --crash-at 0 --steps 25; touch "$OUTPUT/.once"; exit 1; }}; '
        train = f"{'' if crash else once}exec {train} --steps {STEPS_TRAINED} {crash or '--crash-at 0'}"
        sample = 'test -s "$MODEL/model.safetensors" && echo picture > "$SAMPLES/one.png"'
        words = ["rent", "launch", "--watch", "--id", self.name, "--name", "demo", "--command", train]
        words += ["--dataset", str(self.folder / "data set"), "--disk", "1", "--account", "alice"]
        words += ["--upload", f"s3://{BUCKET}/models", "--samples", sample]
        return [*words, "--register", self.services.webhook, "--notify", *more]

    def start(self, *argv: str, act: Act = command) -> AbstractContextManager[Forked]:
        """The command; it does not outlive the test."""
        return forked(argv, self.folder / "launch.log", act)

    def run(self, *argv: str, act: Act = command) -> int:
        with self.start(*argv, act=act) as process:
            status = process.wait(PATIENCE)
            assert status is not None, f"no end after {PATIENCE} s: {self.log()[-3000:]}"
            return status

    def killing(self, state: str, when: str) -> Act:
        """What kills its process just before or after it writes down that a job goes to a state."""
        return partial(die_as_it_saves, state, when)

    def run_killed(self, state: str, when: str, *argv: str) -> None:
        """Run the command, which kills itself just before or after it writes down that a job goes to a state.

        What it holds of the queue it holds no longer, as when its lease has run out.
        """
        status = self.run(*argv, act=self.killing(state, when))
        assert status == -signal.SIGKILL, (state, when, status, self.log()[-3000:])
        if worker := self.job.worker:
            self.queue.release(self.name, worker)

    def log(self) -> str:
        return (self.folder / "launch.log").read_text("utf-8", "replace")

    def check_books(self, *, machines: int | None = 1) -> None:
        """Money, instances and files add up; `machines`: how many it took, None: one for each attempt."""
        job, credits = self.job, Credits(Store())
        assert job.state is JobState.COMPLETED, (job, self.log()[-3000:])
        assert self.vast.instances == {}
        labels = [read_label(row["label"]) for row in self.vast.created]
        assert [label and label[1:] for label in labels] == [
            (JOB, attempt) for attempt in range(1, (machines or len(labels)) + 1)
        ]
        assert [each.instance_id for each in job.work.rentals] == [row["id"] for row in self.vast.created]
        spent = job.work.spent
        assert spent == pytest.approx(self.vast.cost(), rel=0.05), job.work.rentals
        assert [each.kind for each in credits.movements("alice")] == ["deposit", "reserve", "settle"]
        assert credits.balance("alice") == pytest.approx(DEPOSIT - spent, abs=2e-6)
        self.check_files()

    def check_files(self) -> None:
        """The model is what an undisturbed training makes, here and in the bucket; nothing of it runs any more."""
        job, expected = self.job, expected_model()
        assert job.work.saved_path and job.work.step == STEPS_TRAINED
        assert (Path(job.work.saved_path) / "model.safetensors").read_bytes() == expected
        assert self.gate.content(f"models/step_{STEPS_TRAINED}/model.safetensors") == expected
        folder = Path(Store().folder) / "jobs" / JOB
        assert (folder / "samples" / "one.png").read_text() == "picture\n"
        kept = (folder / "training.log").read_text()
        assert f"step {STEPS_TRAINED}/{STEPS_TRAINED}" in kept, kept[-500:]
        calls = [asked for asked in self.services.asked if asked.path.startswith("/hook/")]
        assert calls and {asked.headers["idempotency-key"] for asked in calls} == {f"{JOB}-register"}
        assert calls[-1].json["job_id"] == JOB and calls[-1].json["step"] == STEPS_TRAINED
        ended = [kept.notice for kept in Store().recent_notices() if kept.notice.kind == "job_ended"]
        assert len(ended) == 1 and "Completed" in ended[0].title


def die_as_it_saves(state: str, when: str, argv: Sequence[str]) -> int:
    save = TrainingQueue.save

    def watched(self: TrainingQueue, job: QueuedJob, worker: str, **more: Any) -> QueuedJob:
        here = str(job.state) == state and self.get(job.id).state != job.state
        if here and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = save(self, job, worker, **more)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    TrainingQueue.save = watched  # type: ignore[method-assign]
    return main()


def run_script(argv: Sequence[str]) -> None:
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")


def expected_model() -> bytes:
    weights = demo_training.new_weights()
    for step in range(1, STEPS_TRAINED + 1):
        demo_training.train_step(weights, step)
    return demo_training.encode_checkpoint(weights, STEPS_TRAINED)


@pytest.fixture(name="world")
def make_world(
    surroundings: Surroundings,
    vast: VastApi,
    sshd: SshServer,
    gate: StorageGate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    if sshd.user != "root":
        pytest.skip("an instance's user is root, and this server's is not: nothing here was tested")
    smi = surroundings.folder / "machine tools"
    smi.mkdir()
    (smi / "nvidia-smi").write_text(NVIDIA_SMI)
    (smi / "nvidia-smi").chmod(0o755)
    sshd.set_environment({"PATH": f"{smi}:{os.path.dirname(require('hf'))}:{os.defpath}:/usr/local/bin:/usr/bin"})
    vast.details = {"ssh_host": "127.0.0.1", "ssh_port": sshd.port}
    for number in range(1, 30):
        vast.add_offer(number, price=0.3 + number / 100, machine_id=500 + number)
    data = tmp_path / "data set"
    data.mkdir()
    for number in range(5):
        (data / f"image {number}.txt").write_text("a caption " * number)
    service = {
        "remote_root": str(tmp_path / "machine"),
        "lease_seconds": 2,
        "check_interval": 1,
        "create_timeout": 15,
        "ready_timeout": 180,
        "retry_wait": 0.3,
        "retry_delay": 0.5,
        "save_interval": 0.1,
        "unreachable_after": 20,
    }
    (tmp_path / "settings.json").write_text(json.dumps({"service": service}))
    environ = {
        "TRAINING_MONITOR_SETTINGS": str(tmp_path / "settings.json"),
        "AWS_ENDPOINT_URL": gate.address,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    Credits(Store()).deposit("alice", DEPOSIT, "paid in", payment_id="1")
    with Services() as services:
        yield World(vast, sshd, tmp_path, gate, services)
