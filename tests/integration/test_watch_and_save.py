"""A training that hangs on a real ssh server: alerted, ended with its children, its checkpoint saved and verified;
the watching process is killed with SIGKILL at every step of it, and what it does is done once."""

from __future__ import annotations

import hashlib
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.conftest import Place, kill, wait_until
from tests.loopback.hub import TOKEN, Hub
from tests.loopback.messaging import DISCORD_TOKEN, TELEGRAM_TOKEN, Services
from tests.requirements import require

ROOT = Path(__file__).parents[2]

# It makes a hundred steps of four hundred, saves at the fiftieth and hundredth (the last file is cut short), and hangs.
# TERM does not end its second child.
TRAINING = """
import os, signal, subprocess, time
from pathlib import Path
folder = Path({folder!r})
(folder / "out").mkdir()
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
(folder / "pid").write_text(str(os.getpid()))
weights = bytes.fromhex({weights!r})
for step in range(1, 101):
    print(f"step {{step}}/400 loss {{1 / step:.4f}}", flush=True)
    if step in (50, 90, 100):
        checkpoint = folder / "out" / f"model-{{step:06}}.safetensors"
        checkpoint.write_bytes(weights if step < 100 else weights[:-10])
        os.utime(checkpoint, (time.time() - 200 + step,) * 2)  # one of the last minute is a sign of work
    time.sleep(0.02)
time.sleep(1000)
"""

# The watch of the command line, killed just before or after the state of a given number is written.
WATCH = """
import os, signal, sys
from training_monitor.cli.main import main
from training_monitor.core.store import Store
step, when = sys.argv.pop(1), sys.argv.pop(1)
for name in ("save_run", "add_notice", "mark_notice"):
    def watched(self, *args, _do=getattr(Store, name), _name=name, **more):
        here = _name if _name != "save_run" else args[0].split()[0] + " " + str(getattr(args[1], "phase", None))
        if here == step and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = _do(self, *args, **more)
        if here == step and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(Store, name, watched)
sys.exit(main())
"""
STEPS = (
    ("add_notice", "after"),
    ("terminate stopping", "after"),
    ("terminate inventory", "before"),
    ("terminate uploading", "after"),
    ("terminate destroying", "before"),
    ("mark_notice", "after"),  # last: the sender is a thread of its own and may be as late as it likes
)


def safetensors() -> bytes:
    """A small complete file of one tensor."""
    data = hashlib.sha256(b"weights").digest() * 64
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


@dataclass
class Hanging:
    """A training that hangs, and everything around it."""

    place: Place
    folder: Path
    process: subprocess.Popen[bytes]
    services: Services
    hub: Hub

    def command(self, *more: str) -> list[str]:
        return [
            *("watch", self.place.address, "--log", str(self.folder / "log"), "--pid-file", str(self.folder / "pid")),
            *("--output-dir", str(self.folder / "out"), "--name", "my <training>", "--poll", "--json"),
            *("--terminate", "--upload", "hf:me/model", "--notify"),
            *("--interval", "0.3", "--stall-after", "1.5", "--grace-period", "1", "--stop-grace", "0.5", *more),
        ]

    def family(self) -> list[str]:
        return [line for line in self.place.surroundings.processes().values() if "sleep 1" in line or "trap" in line]

    def told(self) -> list[str]:
        """What arrived in Discord."""
        direct = [asked for asked in self.services.asked if "/channels/" in asked.path and "messages" in asked.path]
        return [str(asked.json["content"]) for asked in direct]


@pytest.fixture
def hanging(over_ssh: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    home = tmp_path / "home"
    home.mkdir()
    with Services() as services, Hub() as hub:
        path = f"{Path(require('hf')).parent}:/usr/bin:/bin"
        over_ssh.set_environment({**hub.environ, "PATH": path, "HF_TOKEN": TOKEN, "HOME": str(home)})
        for name, value in {
            "TELEGRAM_TOKEN": TELEGRAM_TOKEN,
            "TELEGRAM_CHAT_ID": "1",
            "TELEGRAM_API": "http://127.0.0.1:9",
            "DISCORD_TOKEN": DISCORD_TOKEN,
            "DISCORD_USER_ID": "2",
            "DISCORD_API": services.discord_api,
        }.items():
            monkeypatch.setenv(f"TRAINING_MONITOR_{name}", value)
        script = TRAINING.format(folder=str(tmp_path), weights=safetensors().hex())
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        assert wait_until(lambda: (tmp_path / "pid").exists())
        hanging = Hanging(over_ssh, tmp_path, process, services, hub)
        yield hanging
        kill(process.pid)
        process.wait()


def check(hanging: Hanging, result: dict[str, object]) -> None:
    """The run is gone, its newest complete checkpoint is on the hub as an incomplete model, and who cares was told."""
    termination = result["termination"]
    assert isinstance(termination, dict)
    assert result["end"] == "terminated" and termination["success"] is True, json.dumps(termination, indent=1)
    assert hanging.process.wait(10) == -signal.SIGTERM
    assert wait_until(lambda: not hanging.family())
    assert [each["step"] for each in termination["checkpoints"]] == [50, 90, 100]
    assert termination["checkpoint"]["step"] == 90
    [upload] = termination["uploads"]
    assert upload["verified"] and upload["destination"].startswith("hf://me/model")
    held = hanging.hub.files("me/model")
    assert held["model-000090.safetensors"] == safetensors()
    assert "- Target steps: 400\n- Completed steps: 90 (22.5%)" in held["README.md"].decode()
    assert len(hanging.hub.puts) == 1
    told = hanging.told()
    assert [title for title in told if "Stall" in title] and [title for title in told if "Terminated" in title]
    assert told.index(next(each for each in told if "Stall" in each)) < len(told) - 1
    written = b"".join(file.read_bytes() for file in (hanging.folder / "state").rglob("*") if file.is_file())
    assert TELEGRAM_TOKEN.encode() not in written and DISCORD_TOKEN.encode() not in written


def test_a_watcher_killed_at_every_step_goes_on_and_does_nothing_twice(hanging: Hanging) -> None:
    reached, others = [], list[str]()
    for step, when in STEPS:
        done = subprocess.run(
            [sys.executable, "-c", WATCH, step, when, *hanging.command()],
            capture_output=True, text=True, timeout=120, cwd=ROOT,
        )  # fmt: skip
        if done.returncode == -signal.SIGKILL:
            reached.append((step, when))
        else:
            others.append(f"{step} {when}: {done.returncode} {done.stdout[-600:]} {done.stderr}")
    assert set(STEPS) - set(reached) <= {("mark_notice", "after")}, "\n".join(others)
    last = subprocess.run(
        [sys.executable, "-m", "training_monitor", *hanging.command()],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert last.returncode == 1 and TELEGRAM_TOKEN not in last.stdout + last.stderr, last.stderr
    check(hanging, json.loads(last.stdout.splitlines()[-1]))
    told = hanging.told()
    assert sorted(set(told)) == sorted(told) or len(told) - len(set(told)) <= 1, told  # at most the one sent as it died
