"""A real Slurm on loopback, without systemd: one slurmctld, and nodes that are slurmd programs of this machine.

Debian's slurm-wlm and munge. The nodes have names of their own (`slurmd -N`), each with its port; all run as this user,
who must be root. Sources: slurm.conf(5), slurmd(8).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

CONF = """
ClusterName=loop
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobRequeue=1
KillWait=2
SlurmctldTimeout=30
SlurmdTimeout=5
MinJobAge=300
FirstJobId={first}
MessageTimeout=3
SchedulerParameters=batch_sched_delay=0,sched_interval=2
{nodes}
"""


TWO_NODES: Mapping[str, Sequence[str]] = {"p": ("n1", "n2")}


class Slurm:
    """A cluster; `partitions` are the nodes of each, that of the default first. Its commands need `environment`."""

    def __init__(self, folder: Path, partitions: Mapping[str, Sequence[str]]) -> None:
        self.folder, self.nodes = folder, [node for nodes in partitions.values() for node in nodes]
        self.conf = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.conf)}
        self._surroundings = {**os.environ, **self.environment}  # not those of the test that starts it again
        for name in ("state", "spool", "run"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        port, *ports = free_ports(len(self.nodes) + 1)
        host = socket.gethostname().partition(".")[0]
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={each} CPUs=64 RealMemory=2000"
            for name, each in zip(self.nodes, ports)
        ]
        for name, nodes in partitions.items():
            more = "MaxTime=INFINITE State=UP OverSubscribe=FORCE:20"
            default = "YES" if name == next(iter(partitions)) else "NO"
            lines.append(f"PartitionName={name} Nodes={','.join(nodes)} Default={default} {more}")
        first = 1000 * random.randrange(1, 900)  # the jobs of another cluster on this machine have other numbers
        self.conf.write_text(CONF.format(host=host, port=port, folder=folder, first=first, nodes="\n".join(lines)))

    def start(self) -> None:
        start_munge()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        end = time.monotonic() + 60
        while self.ask("sinfo", "-h", "-o", "%t", "-N", check=False).split().count("idle") < len(self.nodes):
            assert time.monotonic() < end, (self.folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.2)

    def start_controller(self) -> None:
        self.ask("slurmctld", "-f", str(self.conf))

    def start_node(self, node: str) -> None:
        self.ask("slurmd", "-N", node, "-f", str(self.conf))

    def kill(self, name: str) -> None:
        """End slurmctld or the slurmd of a node by SIGKILL."""
        os.kill(int((self.folder / "run" / f"{name}.pid").read_text()), signal.SIGKILL)

    def kill_node(self, node: str) -> None:
        """End by SIGKILL all that runs on a node."""
        self.kill(node)
        self._kill_tasks(f"SLURMD_NODENAME={node}")

    def _kill_tasks(self, *also: str) -> None:
        """End by SIGKILL what jobs of this cluster have started, and the programs of Slurm above it."""
        marks = {f"SLURM_CONF={self.conf}", *also}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
                if marks <= {*variables} and any(each.startswith("SLURM_JOB_ID=") for each in variables):
                    above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                    is_slurms = "slurmstepd" in Path(f"/proc/{above}/comm").read_text()
                    for pid in ([above] if is_slurms else []) + [int(folder.name)]:
                        os.kill(pid, signal.SIGKILL)

    def ask(self, *words: str, check: bool = True) -> str:
        """Return what one of its commands prints."""
        done = subprocess.run(words, env=self._surroundings, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Return the number of a new job."""
        file = self.folder / f"job-{time.monotonic_ns()}.sh"
        file.write_text(f"#!/bin/sh\n{script}\n")
        output = f"--output={self.folder}/out-%A_%a.log" if any("array" in each for each in options) else ""
        words = ["--parsable", output or f"--output={self.folder}/out-%j.log", *options, str(file)]
        return self.ask("sbatch", *words).strip()

    def state(self, job: str) -> str:
        """Return the state of a job."""
        line = self.ask("scontrol", "show", "job", job, "-o")
        return line.partition("JobState=")[2].partition(" ")[0]

    def stop(self) -> None:
        self.ask("scancel", "--user=root", check=False)
        for file in (self.folder / "run").glob("*.pid"):
            with suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        self._kill_tasks()


def free_ports(count: int) -> list[int]:
    """Return ports that no connection is given by chance while a program that listens there is down."""
    sockets = list[socket.socket]()
    for port in random.sample(range(20000, 32000), 200):
        sockets.append(socket.socket())
        try:
            sockets[-1].bind(("127.0.0.1", port))
        except OSError:
            sockets.pop().close()
        if len(sockets) == count:
            break
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_munge() -> None:
    """Start the daemon by which the programs of Slurm know one another, if none runs."""
    key = Path("/etc/munge/munge.key")
    if not key.exists() or not key.stat().st_size:
        key.write_bytes(os.urandom(1024))
        shutil.chown(key, "munge", "munge")
        key.chmod(0o400)
    for folder in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.chown(folder, "munge", "munge")
    if subprocess.run(["munge", "-n"], capture_output=True).returncode:
        subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", "/usr/sbin/munged --force"], check=True)


@contextmanager
def running_slurm(folder: Path, partitions: Mapping[str, Sequence[str]] = TWO_NODES) -> Iterator[Slurm]:
    cluster = Slurm(folder, partitions)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
