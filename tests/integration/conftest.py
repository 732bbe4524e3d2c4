"""Three targets to run the same tests on: this machine, a pod of a loopback Kubernetes API, a real ssh server.

What runs on a target carries MARK in its environment, so that a test can see what it left behind and all of it can be
ended with the test.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from getpass import getuser
from pathlib import Path
from typing import Any

import pytest

from tests.integration.roll_call_training import Plan, Training, running
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.loopback.storage import StorageGate
from tests.loopback.vast import VastApi
from tests.loopback.vast_rows import KEY
from tests.requirements import require
from tests.warm_tools import warm_tool
from training_monitor.core.errors import CommandError
from training_monitor.core.models import Question, Reply
from training_monitor.core.results import CommandResult
from training_monitor.targets.transport import LocalTransport

KINDS = ("local", "in_pod", "over_ssh")  # of targets
collect_ignore = ["roll_call_programs"]  # what a training in a test runs
MARK = "TRAINING_MONITOR_TEST"
WRONG_KEY = "wrong-key-of-somebody"
# The command finds any cluster among the processes of this machine: also that of a test which runs beside this one.
NO_RAY = "#!/bin/sh\necho 'ConnectionError: Could not find any running Ray instance.' >&2\nexit 1\n"


def failures_of(*acts: Callable[[], object]) -> list[CommandError]:
    """What these raise; nothing shows a key."""
    errors = []
    for act in acts:
        with pytest.raises(CommandError) as caught:
            act()
        errors.append(caught.value)
    for error in errors:
        assert KEY not in f"{error} {error.result}" and WRONG_KEY not in f"{error} {error.result}"
    return errors


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> bool:
    """Whether the condition was true within that time, which is for a machine with much else to do.

    What is seen once may be gone at the next look. What takes its time is looked at less often.
    """
    begun = time.monotonic()
    while not (found := bool(condition())) and (waited := time.monotonic() - begun) < seconds:
        time.sleep(min(0.02 + waited / 20, 0.1))
    return found


def plain(script: str, limit: float = 10.0) -> Question[Reply]:
    """A question whose answer is what came back, as it is."""
    return Question("plain", script, lambda reply: reply, limit)


def parent_of(pid: int) -> int | None:
    """The parent process; None when there is no such process."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    return None


def pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def kill_sessions(started: Iterable[subprocess.Popen[bytes]]) -> None:
    """End programs that were started in sessions of their own, with all in their groups."""
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


# --- surroundings


@dataclass(frozen=True)
class Surroundings:
    """Private folders on both sides, and a mark that all processes of this test carry."""

    folder: Path
    tools: Path
    sockets: Path
    mark: str

    def processes(self) -> dict[int, str]:
        """What runs with the mark, by process id; not ssh, whose control masters stay on purpose."""
        found = {}
        for pid in pids():
            with suppress(OSError):
                if self.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    found[pid] = (
                        Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    )
        return {pid: line for pid, line in found.items() if line and not line.startswith("ssh")}

    def disconnect(self) -> None:
        """End the ssh control masters."""
        for path in filter(Path.is_socket, self.sockets.glob("training_monitor-*/*")):
            command = [str(self.tools / "ssh"), "-O", "exit", "-o", f"ControlPath={path}", "any"]
            subprocess.run(command, capture_output=True, timeout=10, check=False)


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    sockets = Path(tempfile.mkdtemp(prefix="tm", dir="/tmp"))  # a socket's path may hold about 100 characters
    here = Surroundings(tmp_path, tmp_path / "tools", sockets, uuid.uuid4().hex)
    here.tools.mkdir()
    (here.tools / "ray").write_text(NO_RAY)
    (here.tools / "ray").chmod(0o755)
    monkeypatch.setenv(MARK, here.mark)
    monkeypatch.setenv("PATH", f"{here.tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", str(tmp_path / "jobs local"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sockets))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield here
    here.disconnect()
    while running := here.processes():
        for pid in running:
            kill(pid)
        time.sleep(0.02)
    shutil.rmtree(sockets)


# --- Kubernetes


@pytest.fixture
def kube(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    (surroundings.tools / "kubectl").symlink_to(require("kubectl"))
    with KubernetesApi(surroundings.folder / "kube", {"loopback": "default", "elsewhere": "team"}) as api:
        # kubectl lives too short to collect garbage: a fifth less CPU time for each call
        for name, value in {**api.environ, "GOGC": "off", "GOMAXPROCS": "1"}.items():
            monkeypatch.setenv(name, value)
        yield api


@pytest.fixture
def pod(kube: KubernetesApi, surroundings: Surroundings) -> Pod:
    jobs = surroundings.folder / "jobs pod"
    return kube.add_pod("head", env={MARK: surroundings.mark, "TRAINING_MONITOR_JOBS_DIR": str(jobs)})


# --- ssh


class SshServer:
    """An OpenSSH server of the user who runs the tests, and an `ssh` on PATH that has a key for it.

    `enter` are words before its command, such as nsenter: a host with processes of its own.
    """

    def __init__(self, folder: Path, enter: Sequence[str] = ()) -> None:
        self.folder, self.port, self.enter = folder, 0, enter
        self.user = getuser()
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        folder.mkdir()
        self.make_key("host_key")
        self.make_key("user_key")

    @property
    def address(self) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}"

    def make_key(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    def set_environment(self, changes: Mapping[str, str]) -> None:
        """What the commands of the next connections get to see."""
        self.environment |= changes
        words = ",".join(f'environment="{name}={value}"' for name, value in self.environment.items())
        key = (self.folder / "user_key.pub").read_text()
        (self.folder / "authorized_keys").write_text(f"{words} {key}")

    def write_client(self, tools: Path) -> None:
        """Our own configuration and key for the real ssh; root's ~ is not where HOME says."""
        real = shutil.which("ssh", path=os.environ["PATH"].partition(os.pathsep)[2]) or "/usr/bin/ssh"
        config, key = self.folder / "ssh_config", self.folder / "user_key"
        settings = ["IdentitiesOnly yes", "IdentityAgent none", "GlobalKnownHostsFile none"]
        settings.append("KexAlgorithms curve25519-sha256")  # the default takes 0.15 s of CPU time
        config.write_text("\n  ".join(["Host *", *settings]) + "\n")
        (tools / "ssh").write_text(f"#!/bin/sh\nexec {real} -F '{config}' -i '{key}' \"$@\"\n")
        (tools / "ssh").chmod(0o755)

    def start(self) -> None:
        """Listen on a free port; after a stop, on the same one."""
        config, log = self.folder / "sshd_config", self.folder / "log"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where root's server locks itself in
        for _ in range(5):
            port = self.port or free_port()
            config.write_text(
                f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {self.folder}/host_key\nPidFile none\n"
                f"AuthorizedKeysFile {self.folder}/authorized_keys\nPermitUserEnvironment yes\nStrictModes no\n"
                "UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            )
            command = [*self.enter, require("sshd"), "-D", "-f", str(config), "-E", str(log)]
            self._process = subprocess.Popen(command, env={"PATH": os.defpath})
            if wait_until(lambda port=port: self._process.poll() is not None or answers(port), 10) and answers(port):
                self.port = port
                return
            self.stop()
        pytest.fail(f"sshd does not start: {log.read_text()}")

    def stop(self) -> None:
        """End the server and its connections; it is held meanwhile, so that none begins between the two."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)
            for pid in pids():
                if parent_of(pid) == self._process.pid:
                    kill(pid)
            self._process.kill()
            self._process.wait()
            self._process = None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@pytest.fixture
def sshd(surroundings: Surroundings) -> Iterator[SshServer]:
    for tool in ("sshd", "ssh", "ssh-keygen"):
        require(tool)
    server = SshServer(surroundings.folder / "sshd")
    jobs = surroundings.folder / "jobs ssh"
    # With SHLVL, bash does not take itself for a login shell whose .bashrc would change PATH.
    server.set_environment({MARK: surroundings.mark, "TRAINING_MONITOR_JOBS_DIR": str(jobs), "SHLVL": "2"})
    server.write_client(surroundings.tools)
    server.start()
    yield server
    surroundings.disconnect()
    server.stop()


# --- vast.ai


@dataclass(frozen=True)
class VastCli:
    """The real vastai CLI, whose libraries are imported once for all calls.

    It imports its own modules for each environment anew. So that this happens once for all tests, they have one home,
    a link to the folder of the test, and one port.
    """

    program: Path
    home: Path
    port: int


@pytest.fixture(scope="session")
def vastai() -> Iterator[VastCli]:
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as folder, socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))  # for the server of each test; no other program gets it between two of them
        own = {name: folder for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")}
        nobody = "http://127.0.0.1:9"  # it asks its service when it is imported
        with warm_tool(require("vastai"), Path(folder), "vastai", VAST_URL=nobody, **own) as program:
            yield VastCli(program, Path(folder) / "home", kept.getsockname()[1])


@pytest.fixture
def vast(surroundings: Surroundings, vastai: VastCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[VastApi]:
    """An account without instances, and the vastai CLI that knows it."""
    (surroundings.tools / "vastai").symlink_to(vastai.program)
    vastai.home.unlink(missing_ok=True)
    vastai.home.symlink_to(surroundings.folder)
    for kind in ("CONFIG", "CACHE", "STATE", "DATA"):
        folder = vastai.home / kind.lower()
        (folder / "vastai").mkdir(parents=True)  # two CLIs that start at once on a new machine trip over making it
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(folder))
    (surroundings.folder / "config" / "vastai" / "vast_role").write_text("client")  # else each CLI asks for it first
    monkeypatch.setenv("HOME", str(vastai.home))
    for name in ("VASTAI_API_KEY", "VASTAI_API_BASE_URL", "VASTAI_SSH_KEY_PATH"):
        monkeypatch.delenv(name, raising=False)
    with VastApi(vastai.port) as api:
        for name, value in api.environ.items():
            monkeypatch.setenv(name, value)
        yield api


@pytest.fixture
def ended_2fa_session(vast: VastApi, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CLI has a 2FA session that ended, and the key that it saved before."""
    monkeypatch.delenv("VAST_API_KEY")
    config = surroundings.folder / "config" / "vastai"
    (config / "vast_tfa_key").write_text("a session of yesterday")
    (config / "vast_api_key").write_text(KEY)


@dataclass
class WatchedTransport(LocalTransport):
    """Runs the programs, and remembers with which words."""

    argvs: list[Sequence[str]] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        self.argvs.append(argv)
        return super().run(argv, timeout=timeout, input=input)


@pytest.fixture
def transport() -> Iterator[WatchedTransport]:
    """With it, a key in any argv fails the test."""
    watched = WatchedTransport()
    yield watched
    assert not [argv for argv in watched.argvs if any(KEY in word or WRONG_KEY in word for word in argv)]


# --- Ray

# Its heads have no more than jobs need: no server of Ray Client, no autoscaler, no log monitor, and of the dashboard's
# parts, each a process, three. What is left out takes as long to start as what is left.
LEAN_RAY = """
import sys

from ray._private import node, services
from ray.scripts.scripts import main

start_process = services.start_ray_process


def start_lean_process(command, process_type, *more, **options):
    if process_type == "dashboard" and "--modules-to-load" not in " ".join(command):
        command = [*command, "--modules-to-load=JobHead,NodeHead,ReportHead"]
    return start_process(command, process_type, *more, **options)


services.start_ray_process = start_lean_process
node.Node.start_ray_client_server = lambda self: None
if sys.argv[1:2] == ["start"]:
    sys.argv += ["--no-monitor", "--include-log-monitor=false"]
sys.exit(main())
"""


@pytest.fixture(scope="session")
def ray_command() -> Iterator[Path]:
    """The real `ray` command, whose libraries are imported once for all calls."""
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as folder:
        with warm_tool(require("ray"), Path(folder), "", HOME=folder) as program:
            yield program


@pytest.fixture(scope="session")
def lean_ray() -> Iterator[Path]:
    """The same, whose heads start in half the time."""
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as folder:
        script = Path(folder, "lean", "ray")
        script.parent.mkdir()
        first_line = Path(require("ray")).read_text().splitlines()[0]
        script.write_text(first_line + LEAN_RAY)
        with warm_tool(str(script), Path(folder), "", HOME=folder) as program:
            yield program


# --- S3


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    said = tmp_path_factory.mktemp("moto") / "said"
    command = [require("moto_server"), "-H", "127.0.0.1", "-p", "0"]  # a port that nobody else has: it says which
    environ = {**os.environ, "AWS_ACCESS_KEY_ID": "moto", "AWS_SECRET_ACCESS_KEY": "moto"}
    with said.open("wb") as log, subprocess.Popen(command, env=environ, stdout=log, stderr=log) as server:
        running = r"Running on http://127\.0\.0\.1:(\d+)"
        assert wait_until(lambda: re.search(running, said.read_text()), 60), said.read_text()
        yield int(re.findall(running, said.read_text())[0])
        server.kill()


@pytest.fixture
def gate(moto: int) -> Iterator[StorageGate]:
    with StorageGate(moto) as gate:
        yield gate


# --- targets


@dataclass(frozen=True)
class Place:
    """A target, and what a test can do to it: `address` is its target string, `folder` a folder that it sees."""

    address: str
    folder: Path
    jobs: Path
    surroundings: Surroundings
    set_environment: Callable[[Mapping[str, str]], None]
    disconnect: Callable[[], None]


@pytest.fixture
def local(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Place:
    def set_environment(changes: Mapping[str, str]) -> None:
        for name, value in changes.items():
            monkeypatch.setenv(name, value)

    folder = surroundings.folder
    return Place("local", folder, folder / "jobs local", surroundings, set_environment, lambda: None)


@pytest.fixture
def hung(local: Place) -> Iterator[Training]:
    """Four ranks, of which rank 1 reads a pipe that is never written to."""
    training = Training(Plan(odd={1: "pipe"}, with_monitor=True), local.folder / "hung")
    with running(training):
        training.wait_until_ready()
        yield training


@pytest.fixture
def in_pod(surroundings: Surroundings, kube: KubernetesApi, pod: Pod) -> Place:
    def disconnect() -> None:
        kube.stop()
        kube.start()

    folder = surroundings.folder
    return Place("k8s://default/head", folder, folder / "jobs pod", surroundings, pod.env.update, disconnect)


@pytest.fixture
def over_ssh(surroundings: Surroundings, sshd: SshServer) -> Place:
    def set_environment(changes: Mapping[str, str]) -> None:
        sshd.set_environment(changes)
        surroundings.disconnect()

    folder = surroundings.folder
    return Place(sshd.address, folder, folder / "jobs ssh", surroundings, set_environment, surroundings.disconnect)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of `target` on each kind of them, or on those that it names itself, or KINDS of its module does.

    Every kind runs every script alike, as test_targets.py and test_target_jobs.py show.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    if "target" in metafunc.fixturenames and not any("target" in mark.args[0] for mark in marks):
        metafunc.parametrize("target", getattr(metafunc.module, "KINDS", KINDS), indirect=True)


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    return place


@contextmanager
def counted_programs(place: Place) -> Iterator[Callable[[], list[str]]]:
    """Every program that a script starts by its name is written down."""
    folder, said = place.folder / "counted", place.folder / "programs"
    folder.mkdir(exist_ok=True)
    said.unlink(missing_ok=True)
    for name in ("awk", "cat", "date", "find", "grep", "head", "ls", "mkdir", "mv", "ps", "readlink", "rm", "sed",
                 "sha256sum", "sort", "stat", "tail", "tr", "xargs"):  # fmt: skip
        real = shutil.which(name, path=os.defpath)
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>'{said}'\nexec {real} \"$@\"\n")
        (folder / name).chmod(0o755)
    before = os.environ["PATH"]
    place.set_environment({"PATH": f"{folder}{os.pathsep}{before}"})
    yield lambda: said.read_text().split()
    place.set_environment({"PATH": before})
