"""The training service against a loopback market, real ssh and a real training: one command takes a job through all
its steps, also while a fifth of all requests fails, and when its process is killed at each of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import struct
import zlib
from pathlib import Path

import pytest

from tests.integration.conftest import wait_until
from tests.integration.roll_call_training import BROKEN_GPU
from tests.integration.service_world import JOB, PATIENCE, ROOT, SAVE_EVERY, World, make_world, run_script  # noqa: F401 (a fixture)
from tests.job_states import STEPS
from tests.loopback.hub import TOKEN, Hub
from training_monitor.core.store import Store
from training_monitor.rent.credits import Credits
from training_monitor.vast.training_request import JobState


def test_one_command_takes_a_training_through_all_its_steps_and_from_a_faulty_machine(world: World) -> None:
    world.vast.boot = [{"actual_status": status} for status in (None, "loading", "running")]
    there: dict[str, str] = {}
    with world.start(*world.argv(crash="--crash-at 25")) as process:
        assert wait_until(lambda: world.queue.list_jobs() and world.job.state is JobState.TRAINING, PATIENCE)
        there.update(digest(world.machine / JOB / "dataset"))
        assert process.wait(PATIENCE) == 0, world.log()
    world.check_books(machines=2)
    assert there == digest(world.folder / "data set")
    assert world.job.work.bad_machines == (501,) and "ecc_error" in world.job.work.warnings[0]


def digest(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


LIES = {"PREPARING": (6, 0.0), "SYNCING": (2, 0.5), "DESTROYING": (1, 0.0), "SETTLING": (6, 0.5)}


def test_kills_and_wrong_answers_at_every_step_change_no_result(world: World) -> None:
    """The listings that come after some of the kills lack some or all instances, and say that there are no more.

    tests/unit/vast/test_market_faults.py kills before and after each step.
    """
    for number in (5, 6, 7):  # somebody else's, which half of a listing has
        world.vast.add_instance(number, label="somebody else's")
    for state in (*STEPS[1:], JobState.COMPLETED):
        when = "after" if state in (JobState.TRAINING, JobState.UPLOADING, JobState.DESTROYING) else "before"
        world.run_killed(str(state), when, *world.argv())
        world.vast.lying_listings, world.vast.lying_share = LIES.get(str(state), (0, 0.0))
        if state is JobState.TRAINING:
            interrupt(world)
    world.run(*world.argv())
    for number in (5, 6, 7):
        del world.vast.instances[number]
    world.check_books()
    [machine] = world.job.work.rentals
    assert world.vast.gone == [machine.instance_id]
    assert world.log().count(f"instance {machine.instance_id} is destroyed") == 1


def interrupt(world: World) -> None:
    """Ctrl-C leaves the training and its machine as they are."""
    with world.start(*world.argv()) as process:
        assert wait_until(lambda: world.job.worker, PATIENCE), world.log()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == -signal.SIGINT, world.log()
    assert world.job.state is JobState.TRAINING and "still costs money" in world.log()
    assert len(world.vast.instances) == 4


def test_a_lost_machine_is_replaced_and_training_resumes_while_a_fifth_of_what_the_market_is_asked_fails(
    world: World,
) -> None:
    world.vast.fail_share = 0.2
    with world.start(*world.argv(step_seconds=0.2)) as process:
        assert wait_until(lambda: world.vast.created and (world.job.work.saved_step or 0) >= 2 * SAVE_EVERY, PATIENCE)
        lose_machine(world)
        assert process.wait(PATIENCE) == 0, world.log()
    world.check_books(machines=None)
    assert len(world.vast.created) > 1
    assert "Resuming from" in (Path(Store().folder) / "jobs" / JOB / "training.log").read_text()


def test_a_hang_with_a_broken_gpu_moves_the_training_to_another_machine(world: World) -> None:
    """The roll call, before the hang is ended, sees what no log says."""
    settings = world.folder / "settings.json"
    service = json.loads(settings.read_text())["service"]
    settings.write_text(json.dumps({"service": {**service, "stagnation_threshold": 2}}))
    tool = world.folder / "machine tools" / "nvidia-smi"
    tool.write_text(f"{tool.read_text()}[ \"$*\" != -q ] || cat <<'END'\n{BROKEN_GPU}END\n")
    assert world.run(*world.argv(crash="--crash-at 0 --hang-at 25")) == 0, world.log()
    world.check_books(machines=2)
    assert world.job.work.bad_machines == (501,)
    assert "SRAM" in world.log() and "explained" in world.log()


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
    with world.start(*world.argv(step_seconds=0.5)) as process:
        assert wait_until(lambda: world.vast.created and (world.job.work.step or 0) > SAVE_EVERY, PATIENCE)
        assert world.run("rent", "queue", JOB, "--cancel") == 0
        assert process.wait(PATIENCE) == 1, world.log()
    job = world.job
    assert (job.state, job.work.reason) == (JobState.CANCELLED, "cancelled by hand")
    assert world.vast.instances == {} and job.work.saved_step
    assert [each.kind for each in Credits(Store()).movements("alice")] == ["deposit", "reserve", "settle"]


def test_an_account_without_credits_rents_nothing(world: World) -> None:
    argv = ["bob" if word == "alice" else word for word in world.argv()]
    assert world.run(*argv) == 1 and world.queue.list_jobs() == []
    assert world.run(*argv, "--force") == 1
    assert world.job.state is JobState.FAILED and "bob has only $0.00" in (world.job.work.reason or "")
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


def test_the_example_trains_a_lora_by_ai_toolkit_and_uploads_it_to_the_hub(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit, images = world.folder / "toolkit", world.folder / "images"
    toolkit.mkdir()
    images.mkdir()
    (toolkit / "run.py").write_text(AI_TOOLKIT)
    for number in range(10):
        write_png(images / f"{number}.png", number)
        (images / f"{number}.txt").write_text("mylora, a red wall")
    monkeypatch.setenv("HF_TOKEN", TOKEN)  # of this side alone: the machine gets it with the training and the upload
    example = str(ROOT / "examples" / "rent_and_train.py")
    with Hub() as hub:
        world.sshd.set_environment({"AI_TOOLKIT": str(toolkit), **hub.environ, "HOME": str(world.folder)})
        words = (example, str(images), "my-lora", "mylora", "hf:me/my-lora")
        assert world.run(*words, act=run_script) == 0, world.log()
        uploaded = hub.files("me/my-lora")
    [job] = world.queue.list_jobs()
    model = Path(Store().folder) / "jobs" / job.id / "model" / "my-lora.safetensors"
    assert uploaded["my-lora.safetensors"] == model.read_bytes() and job.work.model_url == "hf://me/my-lora"
    assert (job.work.step, job.work.saved_step) == (
        4000,
        4000,
    ) and "COMPLETED: completed; the model is at" in world.log()
    assert world.vast.instances == {}
    assert not [path for path in world.folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
