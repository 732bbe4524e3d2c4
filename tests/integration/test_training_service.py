"""The training service against a loopback market, real ssh and a real training: one command takes a job through all
its steps, also while a fifth of all requests fails, and when its process is killed at each of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SshServer, Surroundings, wait_until
from tests.loopback.messaging import Services
from tests.loopback.storage import ACCESS_KEY, BUCKET, SECRET_KEY, StorageGate
from tests.loopback.vast import VastApi
from training_monitor.cli import demo_training
from training_monitor.policy.job_states import STEPS
from training_monitor.renting import JobState, QueuedJob, read_label
from training_monitor.store import Store
from training_monitor.vast.credits import Credits
from training_monitor.vast.queue import TrainingQueue

ROOT = Path(__file__).parents[2]
JOB = "demo-1"
STEPS_TRAINED, SAVE_EVERY = 60, 10
DEPOSIT = 100.0
# The command line, killed by itself just before or after it writes down that a job goes to another state.
KILLED = """
import os, signal, sys
from training_monitor.cli.main import main
from training_monitor.vast.queue import TrainingQueue
state, when = sys.argv.pop(1), sys.argv.pop(1)
save = TrainingQueue.save
def watched(self, job, worker, **more):
    here = str(job.state) == state and self.get(job.id).state != job.state
    if here and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = save(self, job, worker, **more)
    if here:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
TrainingQueue.save = watched
sys.exit(main(sys.argv[1:]))
"""
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

    @property
    def queue(self) -> TrainingQueue:
        return TrainingQueue(Store())

    @property
    def job(self) -> QueuedJob:
        return self.queue.get(JOB)

    @property
    def machine(self) -> Path:
        """Where the jobs' folders are on the machines."""
        return self.folder / "machine"

    def argv(self, *more: str, crash: str = "") -> list[str]:
        """A training that fails once, at its 25th step: by `crash`, or for no reason of the machine's."""
        train = f'{sys.executable} {demo_training.__file__} --output "$OUTPUT" --hang-at 0'
        train += f" --save-every {SAVE_EVERY} --step-seconds 0.02"
        once = f'[ -e "$OUTPUT/.once" ] || {{ {train} --crash-at 0 --steps 25; touch "$OUTPUT/.once"; exit 1; }}; '
        train = f"{'' if crash else once}exec {train} --steps {STEPS_TRAINED} {crash or '--crash-at 0'}"
        sample = 'test -s "$MODEL/model.safetensors" && echo picture > "$SAMPLES/one.png"'
        words = ["launch", "--watch", "--id", JOB, "--name", "demo", "--command", train]
        words += ["--dataset", str(self.folder / "data set"), "--disk", "1", "--account", "alice"]
        words += ["--upload", f"s3://{BUCKET}/models", "--samples", sample]
        return [*words, "--register", self.services.webhook, "--notify", *more]

    @contextmanager
    def start(self, *argv: str, code: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
        """The command; it does not outlive the test."""
        words = [*(code or ("-m", "training_monitor")), *argv]
        log = (self.folder / "launch.log").open("ab")
        with log:
            process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, *argv: str, code: Sequence[str] = (), limit: float = 180.0) -> int:
        with self.start(*argv, code=code) as process:
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                pytest.fail(f"no end after {limit} s: {self.log()[-3000:]}")

    def log(self) -> str:
        return (self.folder / "launch.log").read_text("utf-8", "replace")

    def check_books(self, *, machines: int = 1) -> None:
        """Money, instances and files add up."""
        job, credits = self.job, Credits(Store())
        assert job.state is JobState.COMPLETED, (job, self.log()[-3000:])
        assert self.vast.instances == {}
        labels = [read_label(row["label"]) for row in self.vast.created]
        assert [label and label[1:] for label in labels] == [(JOB, attempt) for attempt in range(1, machines + 1)]
        assert [each.instance_id for each in job.work.rentals] == [row["id"] for row in self.vast.created]
        spent = sum((each.ended_at - each.started_at) * each.price_per_hour / 3600 for each in job.work.rentals)
        assert job.work.spent == pytest.approx(spent, abs=1e-9) and spent > 0
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
        assert f"step {STEPS_TRAINED}/{STEPS_TRAINED}" in (folder / "training.log").read_text()
        calls = [asked for asked in self.services.asked if asked.path.startswith("/hook/")]
        assert calls and {asked.headers["idempotency-key"] for asked in calls} == {f"{JOB}-register"}
        assert calls[-1].json["job_id"] == JOB and calls[-1].json["step"] == STEPS_TRAINED
        ended = [kept.notice for kept in Store().recent_notices() if kept.notice.kind == "job_ended"]
        assert len(ended) == 1 and "Completed" in ended[0].title


def expected_model() -> bytes:
    weights = demo_training.new_weights()
    for step in range(1, STEPS_TRAINED + 1):
        demo_training.train_step(weights, step)
    return demo_training.encode_checkpoint(weights, STEPS_TRAINED)


@pytest.fixture
def world(
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
    sshd.set_environment({"PATH": f"{smi}:{os.defpath}:/usr/local/bin:/usr/bin"})
    vast.details = {"ssh_host": "127.0.0.1", "ssh_port": sshd.port, "start_date": time.time()}
    vast.boot = [{"actual_status": status} for status in (None, "loading", "running")]
    for number in range(1, 30):
        vast.add_offer(number, price=0.3 + number / 100, machine_id=500 + number)
    data = tmp_path / "data set"
    data.mkdir()
    for number in range(5):
        (data / f"image {number}.txt").write_text("a caption " * number)
    service = {
        "remote_root": str(tmp_path / "machine"),
        "lease_seconds": 2,
        "check_interval": 0.5,
        "create_timeout": 15,
        "ready_timeout": 60,
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


def test_one_command_takes_a_training_through_all_its_steps(world: World) -> None:
    started = time.monotonic()
    assert world.run(*world.argv()) == 0, world.log()
    print(f"all steps in {time.monotonic() - started:.1f} s")
    world.check_books()


def test_the_same_while_a_fifth_of_what_the_market_is_asked_fails(world: World) -> None:
    world.vast.fail_share = 0.2
    assert world.run(*world.argv()) == 0, world.log()
    world.vast.fail_share = 0.0
    assert world.job.state is JobState.COMPLETED and world.vast.instances == {}
    labels = [row["label"] for row in world.vast.created]
    assert len(labels) == len(set(labels)), "two instances for one attempt"
    world.check_files()


def test_killed_at_every_step_it_ends_with_the_same_result(world: World) -> None:
    for state in (*STEPS[1:], JobState.COMPLETED):
        for when in ("before", "after"):
            assert world.run(str(state), when, *world.argv(), code=("-c", KILLED)) == -signal.SIGKILL, (state, when)
    world.run(*world.argv())
    world.check_books()


def test_a_machine_that_is_lost_is_replaced_and_the_training_goes_on_from_its_checkpoint(world: World) -> None:
    with world.start(*world.argv()) as process:
        assert wait_until(lambda: world.vast.created and (world.job.work.saved_step or 0) >= 2 * SAVE_EVERY, 60)
        lose_machine(world)
        assert process.wait(120) == 0, world.log()
    world.check_books(machines=2)
    assert "Resuming from" in (Path(Store().folder) / "jobs" / JOB / "training.log").read_text()


def test_a_fault_of_the_machine_moves_the_training_to_another_one(world: World) -> None:
    assert world.run(*world.argv(crash="--crash-at 25")) == 0, world.log()
    world.check_books(machines=2)
    assert world.job.work.bad_machines == (501,) and "ecc_error" in world.job.work.warnings[0]


def lose_machine(world: World) -> None:
    """As a host does that lets the GPU to somebody who bids more: nothing answers there, and the row says exited."""
    [number] = world.vast.instances
    world.sshd.stop()
    world.vast.boots[number] = [{"actual_status": "exited", "cur_state": "stopped"}]
    world.vast.instances[number] |= {"actual_status": "exited", "cur_state": "stopped", "ssh_port": 1}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(world.machine).encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue
    shutil.rmtree(world.machine)
    world.sshd.port = 0
    world.sshd.start()
    world.vast.details["ssh_port"] = world.sshd.port


def test_a_job_that_is_cancelled_saves_what_there_is_and_leaves_no_machine(world: World) -> None:
    with world.start(*world.argv()) as process:
        assert wait_until(lambda: world.vast.created and (world.job.work.step or 0) > SAVE_EVERY, 60)
        assert world.run("queue", JOB, "--cancel") == 0
        assert process.wait(60) == 1, world.log()
    job = world.job
    assert (job.state, job.work.reason) == (JobState.CANCELLED, "cancelled by hand")
    assert world.vast.instances == {} and job.work.saved_step
    assert [each.kind for each in Credits(Store()).movements("alice")] == ["deposit", "reserve", "settle"]


def test_an_account_without_credits_rents_nothing(world: World) -> None:
    argv = ["bob" if word == "alice" else word for word in world.argv()]
    assert world.run(*argv) == 1
    assert world.job.state is JobState.FAILED and "bob has $0.00" in (world.job.work.reason or "")
    assert world.vast.created == [] and Credits(Store()).movements("bob") == []


AI_TOOLKIT = """
import json, struct, sys, time
from pathlib import Path
config = json.loads(Path(sys.argv[1]).read_text())["config"]
process, name = config["process"][0], config["name"]
images = [path for path in Path(process["datasets"][0]["folder_path"]).iterdir() if path.suffix == ".png"]
assert len(images) == 10 and process["network"]["linear"] == 32 and process["train"]["lr"] == 1e-4
folder, steps = Path(process["training_folder"]) / name, process["train"]["steps"]
folder.mkdir(parents=True)
def save(path, step):
    header = {"__metadata__": {"training_info": json.dumps({"step": step, "epoch": 1})}}
    header = json.dumps({**header, "weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2))
for step in range(0, steps + 1, 250):
    percent = 100 * step // steps
    print(f"{name}:  {percent}%|#| {step}/{steps} [00:01<00:10, 2.5it/s, lr: 1.0e-04 loss: 0.3]", flush=True)
    if 0 < step < steps:
        save(folder / f"{name}_{step:09d}.safetensors", step)
    time.sleep(0.1)
save(folder / f"{name}.safetensors", steps)
"""


def write_png(path: Path, colour: int) -> None:
    """A picture of 512 by 512 pixels of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([colour, 0, 0]) * 512) * 512
    head = struct.pack(">2I5B", 512, 512, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def test_the_example_trains_a_lora_by_ai_toolkit(world: World) -> None:
    toolkit, images = world.folder / "toolkit", world.folder / "images"
    toolkit.mkdir()
    images.mkdir()
    (toolkit / "run.py").write_text(AI_TOOLKIT)
    for number in range(10):
        write_png(images / f"{number}.png", number)
        (images / f"{number}.txt").write_text("mylora, a red wall")
    world.sshd.set_environment({"AI_TOOLKIT": str(toolkit)})
    example = str(ROOT / "examples" / "rent_and_train.py")
    code = f"import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path({example!r}, run_name='__main__')"
    assert world.run(example, str(images), "my-lora", "mylora", code=("-c", code)) == 0, world.log()
    [job] = world.queue.list_jobs()
    assert job.work.model_url == str(Path(Store().folder) / "jobs" / job.id / "model" / "my-lora.safetensors")
    assert (job.work.step, job.work.saved_step) == (
        4000,
        4000,
    ) and "COMPLETED: completed; the model is at" in world.log()
    assert world.vast.instances == {} and len(Path(job.work.model_url).read_bytes()) > 8


def digest(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_dataset_arrives_as_it_is(world: World) -> None:
    kept: dict[str, Any] = {}

    def look() -> bool:
        if world.vast.created and world.job.state is JobState.TRAINING:
            kept.update(digest(world.machine / JOB / "dataset"))
        return bool(kept)

    with world.start(*world.argv()) as process:
        assert wait_until(look, 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert kept == digest(world.folder / "data set")
    assert "goes on costing money" in world.log() and len(world.vast.instances) == 1
