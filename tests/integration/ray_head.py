"""A real Ray head for the tests of one session: 2 CPUs, 4 pretended GPUs, its own folder and ports."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.integration.conftest import free_port, kill, pids, wait_until
from tests.requirements import require


class RayHead:
    def __init__(self, folder: Path, changes: Mapping[str, str]) -> None:
        self.folder, self.ray, self.changes = folder, Path(require("ray")), dict(changes)
        self.address = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """What a head pod's environment has."""
        path = f"{self.ray.parent}{os.pathsep}{os.defpath}"
        return {"PATH": path, "RAY_TMPDIR": str(self.folder), "RAY_API_SERVER_ADDRESS": self.address, **self.changes}

    def start(self) -> None:
        port, gcs, agent = self.address.rpartition(":")[2], free_port(), free_port()
        command = [str(self.ray), "start", "--head", "--block", "--disable-usage-stats", "--temp-dir", str(self.folder)]
        command += ["--port", str(gcs), "--dashboard-port", port, "--dashboard-agent-listen-port", str(agent)]
        command += ["--num-cpus", "2", "--num-gpus", "4", "--object-store-memory", "100000000"]
        environ = {"HOME": str(self.folder), **self.environ, "RAY_gcs_server_request_timeout_seconds": "5"}
        log = (self.folder / "start.log").open("wb")
        self._process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        assert wait_until(self._answers, 90), (self.folder / "start.log").read_text()

    def _answers(self) -> bool:
        token = self.changes.get("RAY_AUTH_TOKEN")
        request = urllib.request.Request(f"{self.address}/api/jobs/")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with suppress(OSError), urllib.request.urlopen(request, timeout=2) as reply:
            return bool(reply.status == 200)
        return False

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        mark = str(self.folder).encode()
        for pid in pids():
            with suppress(OSError):
                if (
                    mark in Path(f"/proc/{pid}/cmdline").read_bytes()
                    or mark in Path(f"/proc/{pid}/environ").read_bytes()
                ):
                    kill(pid)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running_ray(**changes: str) -> Iterator[RayHead]:
    head = RayHead(Path(tempfile.mkdtemp(prefix="ray", dir="/tmp")), changes)
    try:
        head.start()
        yield head
    finally:
        head.stop()
