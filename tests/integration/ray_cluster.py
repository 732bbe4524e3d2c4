"""A real Ray head on this machine, private to a test session, and the pod of the loopback Kubernetes API it lives in.

Its processes carry a mark in their environment, so that they and their jobs can be ended without `ray stop`, which
would also end the clusters of others.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.integration.conftest import kill, pids, wait_until
from tests.requirements import require
from training_monitor import auto_restart
from training_monitor.cli import demo_training
from training_monitor.core.errors import CommandTimedOut
from training_monitor.core.models import Event
from training_monitor.core.results import CommandResult
from training_monitor.jobs.jobs import start_job
from training_monitor.targets.asking import Site
from training_monitor.targets.transport import LocalTransport

HEAD = "train-head-x7k2p"
LABELS = {"ray.io/cluster": "train", "ray.io/node-type": "head"}
PATH = os.environ.get("PATH", os.defpath)  # before a test hides the `ray` command
CLUSTER_MARK = "TRAINING_MONITOR_RAY_TEST"
NEEDED = ("sh", "cat", "head", "tail", "stat", "date", "sleep", "setsid")  # what a target has, but no curl, no python3

LIES = "Job 'liar' succeeded; Status for job 'liar': STOPPED; SUCCEEDED RUNNING; ConnectionError: Connection refused"
CRASH = "RuntimeError: CUDA error: an illegal memory access was encountered"
ACTORS = """
import os, sys, time, ray
ray.init(logging_level="ERROR")
@ray.remote(num_gpus=1, num_cpus=0)
class Trainer:
    def train(self):
        for step in range(1, 41):
            print(f"step: {step}/40 loss: 0.5 speed: 12.5 it/s", flush=True)
            time.sleep(0.02)
        time.sleep(1.5)  # Ray shows what two of them say once a second, when something more is said
        print("rank is through", flush=True)
trainers = [Trainer.remote() for _ in range(2)]
ray.get([trainer.train.remote() for trainer in trainers])
time.sleep(1)
print("all " + "trained", flush=True)
time.sleep(600)
"""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that Linux gives to other tests before Ray takes them."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)


class RayHead:
    """`ray start --head` with its own ports, folder and home; 2 CPUs and 4 GPUs that nobody looks for.

    Args:
        command: the `ray` command that starts it and that its pods have, when not the one that is installed.
        environment: what its processes and pods get to see.
    """

    def __init__(self, command: Path | None = None, **environment: str) -> None:
        installed = Path(require("ray", PATH))
        self.ray = command or installed
        self.folder = Path(
            tempfile.mkdtemp(prefix="tmray", dir="/tmp")
        )  # a socket's path may hold about 100 characters
        self.mark = uuid.uuid4().hex
        self.port, self._agent_port, *self._more_ports = free_ports(4)
        self.address = f"http://127.0.0.1:{self.port}"
        self.home, self.temporary = self.folder / "home", self.folder / "ray"
        self.home.mkdir()
        self.headers: dict[str, str] = {}
        self.prepared: set[str] = set()
        self.environment = {
            "PATH": os.pathsep.join([str(self.ray.parent), str(installed.parent), os.environ.get("PATH", os.defpath)]),
            "HOME": str(self.home),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_LOG_TO_DRIVER": "1",
            "RAY_prestart_worker_first_driver": "0",  # no workers for nobody
            "PYTHONUNBUFFERED": "1",
            **environment,
        }

    @property
    def pod_environment(self) -> dict[str, str]:
        """The environment of a shell in the head's pod."""
        own = {"RAY_API_SERVER_ADDRESS": self.address, "RAY_TMPDIR": str(self.folder)}
        return {**self.environment, **own}

    def bare_path(self) -> str:
        """A PATH with the `ray` command, but neither curl nor python3."""
        folder = self.folder / "bare"
        if not folder.exists():
            folder.mkdir()
            for name in NEEDED:
                (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
            (folder / "ray").symlink_to(self.ray)
        return str(folder)

    @property
    def command(self) -> list[str]:
        """What starts it."""
        metrics, client = self._more_ports
        command = [
            str(self.ray),
            "start",
            "--head",
            "--port=0",
            "--num-cpus=2",
            "--num-gpus=4",
            "--disable-usage-stats",
        ]
        command += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={self.port}"]
        command += [f"--dashboard-agent-listen-port={self._agent_port}", f"--metrics-export-port={metrics}"]
        command += [f"--ray-client-server-port={client}", "--min-worker-port=0", "--max-worker-port=0"]
        command += [f"--temp-dir={self.temporary}", "--node-ip-address=127.0.0.1", "--object-store-memory=100000000"]
        return command

    def start(self) -> None:
        environment = {**self.environment, CLUSTER_MARK: self.mark}
        log = self.folder / "start.log"
        with log.open("wb") as output:  # no pipe: Ray's processes would hold it open
            subprocess.run(self.command, env=environment, stdout=output, stderr=output, timeout=90, check=False)
        if not wait_until(lambda: self._answers() and self._takes_jobs(), 120):
            raise RuntimeError(f"Ray does not start:\n{log.read_text()[-3000:]}")

    def crash(self) -> None:
        """End the core of Ray by SIGKILL, see its workers end by themselves, and end the rest of it.

        What jobs have started is left alone; Ray's workers end some of it, and lose sight of the rest.
        """
        core = rb"raylet/raylet|gcs_server"
        own = rb"raylet|gcs_server|^ray|/ray/(dashboard|core|_private|autoscaler)/|ray\.util\.client"
        workers = rb"^ray::(?!DashboardAgent|RuntimeEnvAgent)"  # those two outlive the core for long
        self._kill(core)
        wait_until(lambda: not self._running(workers), 10)
        while self._running(own):
            self._kill(own)
            time.sleep(0.05)

    def _running(self, pattern: bytes) -> list[int]:
        return [pid for pid in self.processes() if re.search(pattern, command_of(pid))]

    def _kill(self, pattern: bytes) -> None:
        for pid in self._running(pattern):
            kill(pid)

    def stop(self) -> None:
        while running := self.processes():
            for pid in running:
                kill(pid)
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_anew(self) -> None:
        """Begin again with no job and an empty home."""
        self.stop()
        self.home.mkdir(parents=True)
        self.prepared.clear()
        self.start()

    def processes(self) -> list[int]:
        """By the mark, or by the files it has open: a process that gives itself a title overwrites its environment."""
        found = []
        for pid in pids():
            with suppress(OSError):
                folder = Path(f"/proc/{pid}")
                is_ours = self.mark.encode() in (folder / "environ").read_bytes() or self._is_used(folder / "fd")
                if is_ours and (folder / "cmdline").read_bytes():
                    found.append(pid)
        return found

    def _is_used(self, descriptors: Path) -> bool:
        return any(os.readlink(each).startswith(f"{self.folder}/") for each in descriptors.iterdir())

    # --- what Ray itself says, past the package

    def jobs(self) -> dict[str, dict[str, Any]]:
        """All jobs by submission id."""
        return {job["submission_id"]: job for job in self._rest("/api/jobs/") if job["submission_id"]}

    def named(self, name: str) -> dict[str, str]:
        """The status of every job NAME-attempt-N."""
        return {key: job["status"] for key, job in sorted(self.jobs().items()) if key.startswith(f"{name}-attempt-")}

    def status(self, job_id: str) -> str:
        return str(self._rest(f"/api/jobs/{quote(job_id, safe='')}")["status"])

    def log(self, job_id: str) -> str:
        return str(self._rest(f"/api/jobs/{quote(job_id, safe='')}/logs")["logs"])

    def ended(self, job_id: str, seconds: float = 120) -> str:
        """Wait for a job's end; the status it ended with."""
        assert wait_until(lambda: self.status(job_id) not in ("PENDING", "RUNNING"), seconds), self.log(job_id)
        return self.status(job_id)

    def says(self, job_id: str, text: str, seconds: float = 120) -> None:
        """Wait until a job's log has a text."""
        entrypoint = self.jobs()[job_id][
            "entrypoint"
        ]  # which Ray writes into the log, sometimes behind the first output
        assert wait_until(lambda: text in self.log(job_id).replace(entrypoint, ""), seconds), self.log(job_id)

    def submit(self, job_id: str, entrypoint: str, **more: Any) -> None:
        """Submit as somebody else would."""
        self._rest("/api/jobs/", {"submission_id": job_id, "entrypoint": entrypoint, **more})

    def ask_to_stop(self, job_id: str) -> None:
        """`ray job stop`, as a person types it."""
        self._rest(f"/api/jobs/{quote(job_id, safe='')}/stop", {})

    def forget(self, job_id: str) -> None:
        """`ray job delete`: of a job that has ended."""
        self._rest(f"/api/jobs/{quote(job_id, safe='')}", method="DELETE")

    def _answers(self) -> bool:
        with suppress(OSError, ValueError):
            return isinstance(self._rest("/api/jobs/"), list)
        return False

    def _takes_jobs(self) -> bool:
        """Whether the agent, by which Ray starts jobs, listens."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._agent_port), timeout=5):
            return True
        return False

    def _rest(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as reply:
            return json.load(reply)


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def environment_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def trainings_of(text: str) -> list[int]:
    """The pids of what runs in Python with a text in its command."""
    commands = {pid: command_of(pid) for pid in pids()}
    return [pid for pid, each in commands.items() if each.startswith(b"python3\0") and text.encode() in each]


def kill_trainings(text: str) -> None:
    for pid in trainings_of(text):
        kill(pid)


def record_calls(folder: Path, path: str, *programs: str) -> Path:
    """Put programs before those of `path` that note their arguments and go on as the real ones; returns the notes."""
    folder.mkdir()
    notes = folder / "notes"
    notes.touch()
    for program in programs:
        real = shutil.which(program, path=path)
        (folder / program).write_text(f"#!/bin/sh\nprintf '%s\\n' {program} \"$@\" >>'{notes}'\nexec '{real}' \"$@\"\n")
        (folder / program).chmod(0o755)
    return notes


class LosesAnswers:
    """Runs everything, and for the next commands whose input has a text then says that the time was up."""

    def __init__(self, text: str, times: int = 1) -> None:
        self.text, self.left, self.inner = text, times, LocalTransport()

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        result = self.inner.run(argv, timeout=timeout, input=input)
        if self.left and self.text in (input or ""):
            self.left -= 1
            raise CommandTimedOut("the connection was lost")
        return result

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Any:
        return self.inner.stream(argv, input=input)


class Census(threading.Thread):
    """Asks Ray every 0.5 s how many jobs of a name it runs."""

    def __init__(self, head: RayHead, name: str) -> None:
        super().__init__(daemon=True)
        self._head, self._name, self._over, self.most = head, name, threading.Event(), 0

    def run(self) -> None:
        while not self._over.wait(0.5):
            statuses = list(self._head.named(self._name).values())
            self.most = max(self.most, statuses.count("RUNNING") + statuses.count("PENDING"))

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.most


class ProcessCensus(threading.Thread):
    """Counts every 0.5 s the processes that have a text in their command, the most there were at once."""

    def __init__(self, text: str) -> None:
        super().__init__(daemon=True)
        self._text, self._over, self.most = text, threading.Event(), 0

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, len(trainings_of(self._text)))

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.most


class Supervised(threading.Thread):
    """Runs `supervise` in a daemon thread, so that a run that never ends does not block the test."""

    def __init__(self, name: str, folder: Path, **more: Any) -> None:
        super().__init__(daemon=True)
        self._call, self.events, self.result = (name, folder, more), list[Event](), dict[str, Any]()
        self.start()

    def run(self) -> None:
        name, folder, more = self._call
        self.result = supervise(name, folder, on_event=self.events.append, **more)

    def end(self, seconds: float) -> dict[str, Any]:
        self.join(seconds)
        assert self.result, self.texts()
        return self.result

    def texts(self) -> list[str]:
        """What was told, but for progress."""
        return [f"{event.kind}: {event.text[:300]}" for event in self.events if event.kind != "progress"]


def training(folder: Path, **options: object) -> str:
    """The entrypoint of a small real training run."""
    words = "".join(f" --{name.replace('_', '-')} {value}" for name, value in options.items())
    return f"python3 '{demo_training.__file__}' --output '{folder}'{words}"


TRAIN = f"""
import os, re, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(demo_training.__file__).parent)!r})
from demo_training import load_checkpoint, new_weights, save_checkpoint, train_step
output, made = Path(sys.argv[1]), Path(sys.argv[2])
job = re.search(r'"job_submission_id": *"([^"]+)"', os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])[1]
resume = os.environ.get("RESUME_FROM_CHECKPOINT")
weights, step = load_checkpoint(Path(resume)) if resume else (new_weights(), 0)
with open(made / f"{{job}}.{{step}}", "a") as log:
    while not (made / "enough").exists():
        step += 1
        print(f"step {{step}}/100000 loss={{train_step(weights, step):.4f}}", flush=True)
        print(step, file=log, flush=True)
        if step % 20 == 0:
            save_checkpoint(output, weights, step)
        time.sleep(0.05)
"""


def endless_training(folder: Path) -> tuple[str, Path]:
    """The entrypoint of one that saves into `folder/c` and goes on until there is `made/enough`; and the folder `made`.

    There it writes its steps down, in a file for each attempt.
    """
    made = folder / "made"
    for each in (made, folder / "c"):
        each.mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    return f"python3 '{folder}/train.py' '{folder}/c' '{made}'", made


def start_jobs(head: RayHead) -> None:
    """One job of each fate, all at the same time."""
    commands = {
        "good": "for i in 1 2 3; do echo step $i/3 loss=0.5; done",
        "bad": "echo step 5/10; exit 3",
        "silent": "echo step 3/9; sleep 0.5; echo begun; sleep 600",
        "liar": f'echo "{LIES}"; sleep 0.3; echo "{LIES}"; exit 1',
        'a\'b "c"; rm -rf x': "echo step 7/9; sleep 0.5",
        "steady": "i=0; while :; do i=$((i+1)); echo step $i/100000 loss=0.5; sleep 0.2; done",
        "frozen": "echo step 39/200; echo step 40/200; while :; do echo I am alive; sleep 0.2; done",
        "crashed": f"echo step 40/200 loss=0.1; echo '{CRASH}'; exit 1",
    }
    endless = {"silent", "steady", "frozen"}
    for name, command in commands.items():
        assert start_job(Site.of(HEAD), name, {"entrypoint": command}, None) == "started"
    head.submit("waiting", "echo", entrypoint_num_gpus=99)
    for name in set(commands) - endless:
        head.ended(name)
    head.says("silent", "begun")
    head.says("steady", "step 3/")
    head.says("frozen", "alive")


def supervise(name: str, folder: Path, **more: Any) -> Any:
    folder.mkdir(exist_ok=True)
    given = {"retry_delay": 0.2, "stagnation_threshold": 4, "check_interval": 1.0, **more}
    return auto_restart(HEAD, name, str(folder), 5, **given)


def token_pods(head: RayHead, token: str, folder: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The environment of a pod without the token, and of one for each way to have it; `folder/bin` notes calls."""
    (head.home / ".ray").mkdir()
    (head.home / ".ray" / "auth_token").write_text(token + "\n")
    (folder / "token").write_text(token)
    (folder / "no curl").mkdir()
    (folder / "no curl" / "python3").symlink_to(folder / "bin" / "python3")
    noted = f"{folder}/bin:{head.environment['PATH']}"
    plain = {"RAY_API_SERVER_ADDRESS": head.address, "PATH": noted, "HOME": str(folder)}
    pods = {
        "mode-and-file": {"HOME": str(head.home), "RAY_AUTH_MODE": "token"},
        "file-alone": {"HOME": str(head.home)},  # which Ray takes for token mode
        "variable": {"RAY_AUTH_TOKEN": token, "RAY_AUTH_MODE": "TOKEN"},
        "path": {"RAY_AUTH_TOKEN_PATH": f"{folder}/token", "RAY_AUTH_MODE": "token"},
        "python": {"HOME": str(head.home), "PATH": f"{folder}/no curl:{head.bare_path()}"},
        "command": {"HOME": str(head.home), "RAY_AUTH_MODE": "token", "PATH": head.bare_path()},
    }
    return plain, pods
