"""What is seen beside the ranks of a training: real processes, files, disks and the kernel, on every kind of target.

`ncclras` and `nvidia-smi` need GPUs: in their place stand programs that print what those print.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Place, kill_sessions, wait_until
from tests.loopback.kubernetes import ContainerState, KubernetesApi, Pod
from tests.requirements import miss, require_package
from training_monitor.core.models import Question, Reply
from training_monitor.look.evidence import pids_of
from training_monitor.targets.asking import Site, ask
from training_monitor.why.flight_recorder import MOST_FILE_BYTES, MOST_FILES
from training_monitor.why.surroundings import (
    Surroundings,
    pod_findings,
    read_surroundings,
    surroundings_questions,
)

RECORDED = Path(__file__).parents[1] / "recorded" / "torch" / "2.13.0"
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]
TOOLS = "sh head cat sleep sed grep ls stat date sort tr getconf gzip base64 od cut tail df"
# Its child waits to open a pipe before it begins with its program, and the kernel holds the parent until then (vfork).
HELD = """
import os, sys
os.mkfifo(sys.argv[1])
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
"""
TRAINING = """
import os, threading, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

def write_dump():
    time.sleep(3)
    data, path = _dump_fr_trace(), os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"]
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)

dist.init_process_group("gloo")
threading.Thread(target=write_dump, daemon=True).start()
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(1))
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs in sessions of their own, in a folder with a quote and a space in its name; ends them."""
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, **environment: str) -> subprocess.Popen[bytes]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_", "XDG_"))}
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True, env=given | environment
        )
        started.append(process)
        return process

    yield begin
    kill_sessions(started)


def question(name: str, *pids: int) -> Question[Any]:
    """A question about the trainings of these pids; about all processes without any."""
    roots = pids_of(*pids) if pids else ""
    [found] = [each for each in surroundings_questions(30.0, roots) if each.name == name]
    return found


def look(place: Place, name: str, *pids: int) -> Surroundings:
    [answer] = ask(place.address, question(name, *pids))
    found = answer.get()
    assert isinstance(found, Surroundings)
    return found


def run_in(shell: str, name: str, folder: Path, *pids: int, tools: str = TOOLS) -> Surroundings:
    """Run the script of a question in a shell that has these tools only, all of busybox where that is the shell."""
    folder.mkdir(exist_ok=True)
    for tool in tools.split():
        program = shutil.which(shell if tool == "sh" or shell == "busybox" else tool, path="/usr/bin:/bin")
        assert program, tool
        (folder / tool).symlink_to(program)
    asked = question(name, *pids)
    environ = {"PATH": str(folder), "HOME": "/root", "LC_ALL": "C"}
    done = subprocess.run(
        [str(folder / "sh"), "-s"], input=asked.script, capture_output=True, text=True, env=environ, timeout=60
    )
    found = asked.parse(Reply(done.stdout, done.returncode, 0.1))
    assert isinstance(found, Surroundings)
    return found


def put_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_everything_is_answered_on_every_kind_of_target(target: Place) -> None:
    answers = ask(target.address, *surroundings_questions(30.0))
    assert [str(answer.failure) for answer in answers if not answer.known] == []
    seen = read_surroundings(answers, target.address, "node-7")
    assert {(each.host, each.node) for each in seen.findings} <= {(target.address, "node-7")}


# ---------------------------------------------------------------- flight recorder


def copy_dumps(folder: Path) -> None:
    folder.mkdir()
    for rank in range(4):
        shutil.copyfile(RECORDED / f"trace_rank_{rank}", folder / f"trace_{rank}")


def start_rank(start: Start, prefix: str, **environment: str) -> subprocess.Popen[bytes]:
    process = start("sleep", "600", RANK="0", LOCAL_RANK="0", TORCH_FR_DUMP_TEMP_FILE=prefix, **environment)
    assert wait_until(lambda: b"LOCAL_RANK" in Path(f"/proc/{process.pid}/environ").read_bytes())
    return process


def sequences(seen: Surroundings) -> dict[int, int]:
    return {each.rank: each.sequence for each in seen.collectives if each.group == "0 default_pg"}


BEHIND = {0: 4, 1: 4, 2: 3, 3: 4}


def test_dumps_are_found_by_the_environment_of_a_rank(target: Place, start: Start, tmp_path: Path) -> None:
    rank = start_rank(start, str(tmp_path / "it's a folder" / "dumps" / "trace_"))
    copy_dumps(tmp_path / "it's a folder" / "dumps")
    assert sequences(look(target, "flight recorder", rank.pid)) == BEHIND


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("without", ["", "gzip", "base64", "gzip base64"])
def test_dumps_are_read_by_every_shell(shell: str, without: str, start: Start, tmp_path: Path) -> None:
    rank = start_rank(start, "dumps/trace_")
    copy_dumps(tmp_path / "it's a folder" / "dumps")
    tools = " ".join(each for each in TOOLS.split() if each not in without.split())
    assert sequences(run_in(shell, "flight recorder", tmp_path / "tools", rank.pid, tools=tools)) == BEHIND


@pytest.mark.parametrize("shell", SHELLS)
def test_a_dump_that_is_too_large_is_told_and_the_others_are_read(shell: str, start: Start, tmp_path: Path) -> None:
    rank = start_rank(start, str(tmp_path / "dumps" / "trace_"))
    copy_dumps(tmp_path / "dumps")
    os.truncate(tmp_path / "dumps" / "trace_1", MOST_FILE_BYTES + 1)
    seen = run_in(shell, "flight recorder", tmp_path / "tools", rank.pid)
    assert sorted(sequences(seen)) == [0, 2, 3]
    [said] = seen.unread
    assert "trace_1" in said and "trace_2" not in said


@pytest.mark.parametrize("shell", SHELLS)
def test_dumps_for_which_the_reply_has_no_room_are_told(shell: str, start: Start, tmp_path: Path) -> None:
    rank = start_rank(start, str(tmp_path / "dumps" / "trace_"))
    copy_dumps(tmp_path / "dumps")
    (tmp_path / "dumps" / "trace_2").write_bytes(os.urandom(1 << 20))  # that cannot be compressed
    now = time.time()
    for number in range(4):
        os.utime(tmp_path / "dumps" / f"trace_{number}", (now, now + 9 - number))  # the newest come first
    seen = run_in(shell, "flight recorder", tmp_path / "tools", rank.pid)
    assert sorted(sequences(seen)) == [0, 1]
    [said] = seen.unread
    assert "trace_2" in said and "trace_3" in said


@pytest.mark.parametrize("shell", SHELLS)
def test_more_dumps_than_are_sent_are_told(shell: str, start: Start, tmp_path: Path) -> None:
    rank = start_rank(start, str(tmp_path / "dumps" / "trace_"))
    copy_dumps(tmp_path / "dumps")
    later = time.time() + 5
    for number in range(10, 10 + MOST_FILES):
        (tmp_path / "dumps" / f"trace_{number}").write_bytes(b'{"entries": []}')
        os.utime(tmp_path / "dumps" / f"trace_{number}", (later, later))
    seen = run_in(shell, "flight recorder", tmp_path / "tools", rank.pid)
    [said] = seen.unread
    assert all(f"trace_{each}" in said for each in range(4)) and sequences(seen) == {}


def test_dumps_of_another_training_are_left_out(local: Place, start: Start, tmp_path: Path) -> None:
    ours = start("sh", "-c", "sleep 600 & wait")
    other = start_rank(start, str(tmp_path / "dumps" / "trace_"))
    copy_dumps(tmp_path / "dumps")
    assert sequences(look(local, "flight recorder", ours.pid)) == {}
    assert sequences(look(local, "flight recorder", 0)) == {}, "a training that has no process"
    assert sequences(look(local, "flight recorder", other.pid)) == BEHIND


def test_the_ranks_may_descend_from_what_is_known(local: Place, start: Start, tmp_path: Path) -> None:
    prefix = str(tmp_path / "dumps" / "trace_")
    launcher = start("sh", "-c", f"RANK=0 LOCAL_RANK=0 TORCH_FR_DUMP_TEMP_FILE={prefix} sleep 600 & wait")
    copy_dumps(tmp_path / "dumps")
    assert wait_until(lambda: sequences(look(local, "flight recorder", launcher.pid)) == BEHIND)


def test_dumps_are_found_where_pytorch_writes_them_by_itself(local: Place, start: Start, tmp_path: Path) -> None:
    rank = start("sleep", "600", RANK="0", LOCAL_RANK="0", HOME=str(tmp_path / "home"))
    (tmp_path / "home" / ".cache").mkdir(parents=True)
    copy_dumps(tmp_path / "home" / ".cache" / "torch")
    for file in (tmp_path / "home" / ".cache" / "torch").iterdir():
        file.rename(file.with_name(file.name.replace("trace_", "comm_lib_trace_rank_")))
    assert wait_until(lambda: sequences(look(local, "flight recorder", rank.pid)) == BEHIND)


def test_what_is_older_than_the_ranks_or_no_file_is_left_out(local: Place, start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    copy_dumps(folder)
    hour_ago = time.time() - 3600
    os.utime(folder / "trace_0", (hour_ago, hour_ago))
    os.mkfifo(folder / "trace_7")
    (folder / "trace_8").mkdir()
    (folder / "trace_9").symlink_to(folder / "nowhere")
    later = time.time() + 5  # the clock of the kernel's ticks is a coarse one
    for rank in (1, 2, 3):
        os.utime(folder / f"trace_{rank}", (later, later))
    pid = start_rank(start, str(folder / "trace_")).pid
    assert sorted(sequences(look(local, "flight recorder", pid))) == [1, 2, 3]


def test_the_dumps_of_a_real_training_that_hangs(local: Place, start: Start, tmp_path: Path) -> None:
    require_package("torch.distributed.run")
    (tmp_path / "train.py").write_text(TRAINING)
    script = str(tmp_path / "train.py")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    launcher = start(
        *words, TORCH_FR_BUFFER_SIZE="100", TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "trace_"), OMP_NUM_THREADS="1"
    )
    assert wait_until(lambda: all((tmp_path / f"trace_{rank}").exists() for rank in (0, 1)), 240)
    seen = look(local, "flight recorder", launcher.pid)
    assert [(each.rank, each.sequence, each.state) for each in seen.collectives] == [
        (0, 2, "scheduled"),
        (1, 1, "completed"),
    ]
    called = [each.called_at for each in seen.collectives]
    assert [(at and at.file, at and at.line) for at in called] == [(script, 18), (script, 15)]


# ---------------------------------------------------------------- the kernel


def test_a_process_that_the_kernel_holds_is_named(target: Place, start: Start, tmp_path: Path) -> None:
    process = start(sys.executable, "-c", HELD, str(tmp_path / "pipe"))
    assert wait_until(lambda: "\nState:\tD" in Path(f"/proc/{process.pid}/status").read_text())
    [found] = look(target, "waits for disks", process.pid).findings
    name = Path(f"/proc/{process.pid}/comm").read_text().strip()
    assert (found.kind, found.pids) == ("blocked", (process.pid,))
    assert found.text.startswith(f"pid {process.pid} ({name}) has been waiting for ")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_sees_who_is_held(shell: str, start: Start, tmp_path: Path) -> None:
    process = start(sys.executable, "-c", HELD, str(tmp_path / "pipe"))
    assert wait_until(lambda: "\nState:\tD" in Path(f"/proc/{process.pid}/status").read_text())
    assert (process.pid,) in [each.pids for each in run_in(shell, "waits for disks", tmp_path / "tools").findings]


def test_a_busy_process_is_not_held(local: Place, start: Start) -> None:
    process = start("sh", "-c", "while :; do :; done")
    assert look(local, "waits for disks", process.pid).findings == ()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_kernel_log_that_may_not_be_read_says_which_right_is_missing(shell: str, tmp_path: Path) -> None:
    seen = run_in(shell, "kernel log", tmp_path / "tools")  # neither dmesg nor dd nor journalctl
    assert seen.findings == () and "CAP_SYSLOG" in seen.unread[0]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_lines_of_dmesg_that_matter_are_taken(shell: str, tmp_path: Path) -> None:
    up = Path("/proc/uptime").read_text().split()[0]
    line = f"[{up}] NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    noise = f"[{up}] eth0: link up"
    put_program(tmp_path / "tools", "dmesg", f'echo "{noise}"; echo "{line}"; echo "{noise}"')
    [found] = run_in(shell, "kernel log", tmp_path / "tools").findings
    assert (found.kind, found.is_hardware) == ("xid", True)


# ---------------------------------------------------------------- disks


@pytest.mark.parametrize(
    ("options", "fill", "said"),
    [("size=16m", "x", "is full: "), ("size=16m,nr_inodes=4", "", "has no free inodes")],
)
def test_a_full_disk_is_named(local: Place, tmp_path: Path, options: str, fill: str, said: str) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        miss("mount", "file systems may not be mounted here")
    try:
        local.set_environment({"HOME": str(folder)})
        assert look(local, "df ~/").findings == ()
        with pytest.raises(OSError):
            for number in range(100):
                (folder / str(number)).write_text(fill * 1_000_000)
        [found] = look(local, "df ~/").findings
        assert found.kind == "disk_full" and str(folder) in found.text and said in found.text
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("hanging", ["/tmp", "/dev/shm"])
def test_a_disk_that_hangs_is_unknown_alone(local: Place, tmp_path: Path, hanging: str) -> None:
    df = shutil.which("df", path=os.defpath)
    put_program(tmp_path / "tools", "df", f'[ "$2" != {hanging} ] || sleep 600\nexec {df} "$@"')
    local.set_environment({"PATH": f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}"})
    answers = ask("local", *surroundings_questions(4.0))
    assert f"df {hanging}" in [answer.name for answer in answers if not answer.known]
    others = [answer for answer in answers if answer.name.startswith("df ") and hanging not in answer.name]
    assert len(others) == 3 and all(answer.known for answer in others)
    assert any(hanging in said for said in read_surroundings(answers, "local", None).unread)


# ---------------------------------------------------------------- Kubernetes


def warning(kube: KubernetesApi, pod: Pod, reason: str, kind: str = "Warning") -> None:
    metadata = {"name": f"{pod.name}.{len(kube.events)}", "namespace": pod.namespace}
    about = {"kind": "Pod", "name": pod.name, "namespace": pod.namespace}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, "type": kind}
    kube.events.append({**event, "reason": reason, "message": f"because of {reason}", "count": 3})


def test_kubernetes_tells_restarts_and_warnings_of_the_pods(in_pod: Place, kube: KubernetesApi, pod: Pod) -> None:
    pod.states["main"] = ContainerState(restart_count=2, last_terminated="OOMKilled")
    warning(kube, pod, "FailedMount")
    warning(kube, pod, "Pulled", "Normal")
    site = Site.of(in_pod.address)
    found = pod_findings(site, site.target.list_pods(pod.name, transport=site.transport), 30.0).findings
    assert [(each.kind, each.host, each.node) for each in found] == [("pod", in_pod.address, pod.node)] * 2
    assert [each.text for each in found] == [
        f"pod {pod.name} has restarted 2 times (OOMKilled, exit code 137)",
        f"pod {pod.name}: FailedMount 3 times: because of FailedMount",
    ]
    kube.forbidden.add("list events")
    unknown = pod_findings(site, site.target.list_pods(pod.name, transport=site.transport), 30.0)
    assert [each.text for each in unknown.findings] == [each.text for each in found[:1]]
    [unread] = unknown.unread
    assert unread.startswith("the events of the pods could not be read: ") and "Forbidden" in unread


# ---------------------------------------------------------------- tools of GPUs


def ras(count: int) -> str:
    members = [
        {"rank": rank, "host": "10.0.0.7", "pid": 70 + rank, "cuda_dev": rank, "collective_counts": {"AllReduce": made}}
        for rank, made in ((0, 9), (1, count))
    ]
    return json.dumps({"communicators": [{"hash": "0xae", "secondary_hash": "0x1:0x2", "size": 2, "ranks": members}]})


@pytest.mark.parametrize("shell", SHELLS)
def test_ncclras_is_asked_twice_for_json_at_the_address_of_the_training(
    shell: str, start: Start, tmp_path: Path
) -> None:
    rank = start("sleep", "600", NCCL_RAS_ADDR="[::1]:28031")
    assert wait_until(lambda: b"NCCL_RAS_ADDR" in Path(f"/proc/{rank.pid}/environ").read_bytes())
    put_program(tmp_path / "tools", "ncclras", f"echo \"$*\" >>'{tmp_path}/calls'; echo '{ras(8)}'")
    seen = run_in(shell, "ncclras", tmp_path / "tools")
    assert [(each.rank, each.sequence) for each in seen.collectives] == [(0, 9), (1, 8)]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["-f json -t 2 -h ::1 -p 28031"] * 2


def test_ncclras_is_told_no_address_where_no_training_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_program(tmp_path / "tools", "ncclras", f"echo \"$*\" >>'{tmp_path}/calls'; echo '{ras(8)}'")
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:{os.environ['PATH']}")
    [answer] = ask("local", question("ncclras"))
    assert answer.known and (tmp_path / "calls").read_text().splitlines() == ["-f json -t 2"] * 2


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", ["echo 'Usage: ncclras' >&2; exit 1", "echo 'Job summary'"])
def test_an_older_ncclras_or_none_says_nothing(shell: str, script: str, tmp_path: Path) -> None:
    assert run_in(shell, "ncclras", tmp_path / "without") == Surroundings()
    put_program(tmp_path / "tools", "ncclras", script)
    assert run_in(shell, "ncclras", tmp_path / "tools") == Surroundings()


@pytest.mark.parametrize("shell", SHELLS)
def test_nvidia_smi_is_asked_for_everything(shell: str, tmp_path: Path) -> None:
    assert run_in(shell, "nvidia-smi -q", tmp_path / "without") == Surroundings()
    said = "GPU 00000000:18:00.0\n    GPU Recovery Action : Reset"
    put_program(tmp_path / "tools", "nvidia-smi", f"[ \"$*\" = -q ] && printf '%s\\n' '{said}'")
    [found] = run_in(shell, "nvidia-smi -q", tmp_path / "tools").findings
    assert (found.kind, found.is_hardware) == ("gpu", True)
