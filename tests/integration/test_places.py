"""Wherever a training runs, the first command answers: the table of docs/verdicts.md, row by row, with real programs.

Each training of this machine runs in a process namespace of its own, in which `check local` is the first command; those
of pods are asked by the real kubectl. A training is healthy until it crashes, or hung until it finishes. Hung ones are
looked at by a clock that is ten minutes ahead. Places that are read alike share the states, unless
TRAINING_MONITOR_FUZZ is set.

Where TRAINING_MONITOR_TIMES names a file, one place is tried after the other in all states, and a line for each tells
how long its command took: see bench/places.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import PYTHON, run_command
from tests.integration.conftest import SshServer, Surroundings, free_port, wait_until
from tests.integration.ray_cluster import RayHead
from tests.integration.test_journal import START_UNIT
from tests.loopback.kubernetes import KubernetesApi, Pod, nanoseconds
from tests.requirements import require, require_installed

ROOT = Path(__file__).parents[2]
TIMES = os.environ.get("TRAINING_MONITOR_TIMES")
EVERYTHING = bool(TIMES or os.environ.get("TRAINING_MONITOR_FUZZ"))
STATES = ("healthy", "hung", "crashed", "finished")
BEFORE = {"crashed": "healthy", "finished": "hung"}  # how it is before it ends, by how it ends
BOTH = " ".join(BEFORE)
AHEAD = 600  # seconds
LATER = f"#!/bin/sh\nexec /bin/date -d '{AHEAD} seconds' \"$@\"\n"
ERROR = "mat1 and mat2 shapes cannot be multiplied (4x8 and 9x2)"

BEGIN = f"""
import pathlib, sys, time
ready, end, hangs = pathlib.Path("ready"), pathlib.Path("end"), sys.argv[-1] == "finished"
last = 60 if hangs else 100000
def make_step(step):
    if step < 40 or not hangs:
        time.sleep(0.1)
    if step == (40 if hangs else 30):
        ready.touch()
    while step == 40 and hangs and not end.exists():
        time.sleep(0.5)
    if not hangs and end.exists():
        raise RuntimeError("{ERROR}")
"""
TRAIN = f"""{BEGIN}
for step in range(1, last + 1):
    print(f"step {{step}}/{{last}} loss: {{1 / step:.4f}}", flush=True)
    make_step(step)
print("Training completed", flush=True)
"""
MONITORED = f"""{BEGIN}
from training_monitor import TrainingMonitor
with TrainingMonitor("progress/llama", tee_outputs=True) as monitor:
    monitor.start_epoch(1, total_batches=last, total_epochs=1)
    for step in range(1, last + 1):
        monitor.start_batch()
        monitor.update_metrics(loss=1 / step)
        make_step(step)
"""
SERVER = """
import sys, time
from jupyter_client import KernelManager
manager = KernelManager(kernel_name="python3")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=120)
open("kernel", "w").write(str(manager.provisioner.pid))
client.execute(f"import sys; sys.argv = [{sys.argv[-1]!r}]\\n" + open("train.py").read(), reply=True, timeout=900)
time.sleep(900)
"""
LIGHTNING = f"""{BEGIN}
import lightning, torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        make_step(index)
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
data = DataLoader(TensorDataset(torch.randn(4 * last, 4)), batch_size=4)
logger = CSVLogger(".", flush_logs_every_n_steps=1)
trainer = lightning.Trainer(
    max_epochs=1, logger=logger, enable_checkpointing=False, accelerator="cpu", log_every_n_steps=1
)
trainer.fit(Module(), data)
"""
WANDB = 'import wandb\nwandb.init(mode="offline", project="p")\nexec(open("train.py").read())\n'
SCRIPTS = {
    "unit.sh": START_UNIT,
    "train.py": TRAIN,
    "train_monitored.py": MONITORED,
    "jupyter_server.py": SERVER,
    "train_lightning.py": LIGHTNING,
    "train_wandb.py": WANDB,
}
HIDDEN = ("TMUX", "PYTEST_CURRENT_TEST")  # under pytest, a kernel leaves its outputs as they are
CHECK = "$PY -m training_monitor check"
OTHERS = "another user's"
NOBODY = 65534
ANOTHER = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
# A folder that every user can read, and is gone with the namespace of the training.
OPEN = f"mount -t tmpfs -o mode=755 none /mnt; cp train.py $(command -v date) /mnt; chown -R {NOBODY} /mnt; "
# An ssh server that the user nobody can log in to.
LOG_IN = f"""
sed 's,^nobody:.*,nobody:x:{NOBODY}:{NOBODY}::/mnt:/bin/sh,' /etc/passwd >/mnt/passwd
mount --bind /mnt/passwd /etc/passwd
cp "$KEYS/host_key" "$KEYS/user_key.pub" /mnt; chmod 644 /mnt/user_key.pub
"$SSHD" -f /dev/null -h /mnt/host_key -p "$PORT" -o ListenAddress=127.0.0.1 -o PidFile=none -o StrictModes=no \\
  -o AuthorizedKeysFile=/mnt/user_key.pub -o SetEnv=PATH=/mnt:/usr/bin:/bin
"""
# By the first column of the table: how it is started, what the command is given, and how it ends.
HERE = {
    "`nohup`": ("nohup $PY train.py $STATE >nohup.out 2>&1 &", "local", "crashed"),
    "a file": ("$PY train.py $STATE >run.log 2>&1 &", "local", "finished"),
    "`tee`": ("$PY train.py $STATE 2>&1 | tee train.log >/dev/null &", "local", "crashed"),
    "a pipe": ("$PY train.py $STATE 2>&1 | cat >/dev/null &", "local", "finished"),
    "a terminal": (
        "$PY -c 'import pty, sys; pty.spawn(sys.argv[1:])' $PY train.py $STATE >/dev/null 2>&1 &",
        "local",
        "crashed",
    ),
    "tmux": ('tmux new-session -d "$PY train.py $STATE"', "local", "crashed"),
    "another user's tmux, as root": (
        f'{OPEN} export TMUX_TMPDIR=/mnt; cd /mnt; {ANOTHER} tmux new-session -d "$PLAIN train.py $STATE"',
        "local",
        "finished",
    ),
    "a notebook, by its PID": ("$PY jupyter_server.py $STATE >jupyter.log 2>&1 &", "local $(cat kernel)", "crashed"),
    "TrainingMonitor": ("$PY train_monitored.py $STATE 2>&1 | cat >/dev/null &", "local", BOTH),
    "torchrun": ("$PY -m torch.distributed.run --nproc-per-node 2 train.py $STATE >run.log 2>&1 &", "local", "crashed"),
    "accelerate": (
        "$PY -m accelerate.commands.launch --cpu --num_processes 1 train.py $STATE >run.log 2>&1 &",
        "local",
        "finished",
    ),
    "Lightning": ("$PY train_lightning.py $STATE 2>&1 | cat >/dev/null &", "local", "finished"),
    "W&B": ("$PY train_wandb.py $STATE 2>&1 | cat >/dev/null &", "local", "crashed"),
    "a systemd unit": ("sh unit.sh $PY train.py $STATE", "local", "finished"),
    "over ssh": (
        f"{OPEN} cd /mnt; {ANOTHER} $PLAIN train.py $STATE >run.log 2>&1 & {LOG_IN}",
        "ssh://nobody@127.0.0.1:$PORT",
        "finished",
    ),
    "another user's": ("$PY train.py $STATE >run.log 2>&1 &", "local", "crashed"),
    "another user's, over ssh": (
        f"$PY train.py $STATE >run.log 2>&1 & {OPEN}{LOG_IN}",
        "ssh://nobody@127.0.0.1:$PORT",
        "finished",
    ),
}
# At another port and in another folder than Ray's own, since other clusters may run beside this one.
IN_RAY = (
    'export RAY_API_SERVER_ADDRESS="$RAY_AT" RAY_TMPDIR="$RAY_FOLDER"; exec 5>&1 >/dev/null; $RAY_START;'
    '"$RAY" job submit --no-wait -- env -C "$PWD" $PY train.py $STATE; exec 1>&5 5>&-'
)
WAIT = "n=0; until [ -e ready ] || [ $n -ge 500 ]; do sleep 0.3; n=$((n + 1)); done; sleep 6"
# What was to end has ended, its launcher too.
END = (
    'rm -f "$HOME/later/date" /mnt/date; touch end; sleep 1; '
    "while pgrep -f 'train.*[.]py '$STATE'$' >/dev/null && [ $n -lt 500 ]; do sleep 0.3; n=$((n + 1)); done; sleep 2"
)


def expected() -> dict[str, dict[str, str]]:
    """The table of the page: by place and state, what the first command answers."""
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    lines = page.partition("## Results by place of the training")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {name: dict(zip(STATES, cells, strict=True)) for name, _, _, *cells in rows[2:]}


def note_time(place: str, began: float, bare: float, ended: float) -> None:
    """Note how long the first command took, from `bare` on, and a bare interpreter before it; in seconds."""
    if TIMES:
        with open(TIMES, "a", encoding="utf-8") as file:
            file.write(json.dumps({"place": place, "seconds": ended - bare, "bare": bare - began}) + "\n")


def answer(said: str, status: int) -> str:
    """What a command said, in the words of the table."""
    jobs = json.loads(said)["jobs"]
    if not jobs:
        assert status == 3, said
        return "not found"
    [job] = jobs
    assert status == {"ok": 0, "warning": 0, "failed": 1, "unknown": 3}[job["verdict"]], job
    return f"{job['state']}, step" if job["step"] and job["step"] >= 25 else str(job["state"])


def write_clock(ends: str, tools: Path) -> None:
    """Set the clock of those ahead that are hung, until it is removed."""
    tools.mkdir(exist_ok=True)
    if BEFORE[ends] == "hung":
        (tools / "date").write_text(LATER)
        (tools / "date").chmod(0o755)


def run_here(
    place: str, start: str, check: str, ends: str, folder: Path, tools: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Start a training in a folder; by its state, what the first command said of it, in the words of the table and all.

    Each time is the first: with a state folder of its own.
    """
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    write_clock(ends, folder / "later")
    sockets = tempfile.mkdtemp(dir=os.environ["XDG_RUNTIME_DIR"])
    environment = {**tools, "PY": PYTHON, "STATE": ends, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    environment |= {"PLAIN": shutil.which("python3", path=os.defpath) or PYTHON, "TMUX_TMPDIR": sockets}
    environment |= {"PATH": f"{folder}/later{os.pathsep}{os.environ['PATH']}"}
    # else tmux starts what the passwd file names, which for the user nobody is no shell
    environment |= {"TRAINING_MONITOR_STATE_DIR": str(folder / "state"), "SHELL": "/bin/sh"}
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    now = "/bin/date +%s.%N"
    bare = "$PY -c pass; " if TIMES else ""
    ask = f"a=$({now}); {bare}b=$({now}); {check} --json; echo status=$? $a $b $({now})"
    script = f"cd '{folder}'; {start}\n{WAIT}; {ask}; {END}; TRAINING_MONITOR_STATE_DIR='{folder}/again'; {ask}"
    done = subprocess.run(
        [*words, script],
        env={**{name: value for name, value in os.environ.items() if name not in HIDDEN}, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        stdin=subprocess.DEVNULL,
    )
    found = {}
    asked = re.findall(r"(.*?)status=(\d+) (\S+) (\S+) (\S+)\n", done.stdout, re.DOTALL)
    for state, (body, status, *times) in zip((BEFORE[ends], ends), asked, strict=True):
        note_time(place, *map(float, times))
        found[state] = answer(body, int(status)), body
    return found


def test_the_first_command_answers_for_each_place_on_this_machine(
    surroundings: Surroundings, subtests: pytest.Subtests
) -> None:
    for program in ("unshare", "tmux"):
        require(program)
    require_installed("ipykernel", "torch", "accelerate", "lightning", "wandb")
    server = SshServer(surroundings.folder / "sshd")
    server.write_client(surroundings.tools)
    tools = {"SSHD": require("sshd"), "KEYS": str(server.folder)}
    tools["JOURNALD"] = require("systemd-journald")
    told = {}
    with ThreadPoolExecutor(1 if TIMES else 6) as pool:
        for place, (start, what, shown) in HERE.items():
            check = f"{ANOTHER if place == OTHERS else ''} {CHECK} {what}"
            for ends in (BOTH if EVERYTHING else shown).split():
                folder, more = surroundings.folder / re.sub(r"\W+", "_", f"{ends} {place}"), {"PORT": str(free_port())}
                told[place, ends] = pool.submit(run_here, place, start, check, ends, folder, {**tools, **more})
    for (place, ends), found in told.items():
        for state in (BEFORE[ends], ends):
            with subtests.test(place=place, state=state):
                said, whole = found.result()[state]
                is_hidden = place in (OTHERS, f"{OTHERS}, over ssh") and said != "not found"
                assert ("run this as its user or as root" in whole) is is_hidden, whole
                assert said == expected()[place][state], whole


@pytest.mark.parametrize("ends", BEFORE if EVERYTHING else ["crashed"])
def test_the_first_command_answers_for_a_ray_job(ends: str, surroundings: Surroundings) -> None:
    require("unshare")
    ray = RayHead()
    tools = {"RAY": str(ray.ray), "RAY_START": shlex.join(ray.command), "RAY_AT": ray.address}
    try:
        folder, more = surroundings.folder / "job", {**tools, "RAY_FOLDER": str(ray.folder)}
        found = run_here("a Ray job", IN_RAY, f"{CHECK} local", ends, folder, more)
    finally:
        ray.stop()
    for state, (said, whole) in found.items():
        assert said == expected()["a Ray job"][state], whole


# ---------------------------------------------------------------- pods


def start_pods(kube: KubernetesApi, place: str, ends: str) -> list[Pod]:
    details: dict[str, Any] = {
        "a pod with a log": {},
        "a pod as process 1": {},
        "a pod with a sidecar": {"containers": ["proxy", "trainer"], "gpus": {"trainer": 1}},
        "two pods of a PyTorchJob": {"labels": {"training.kubeflow.org/job-name": "llm"}},
    }[place]
    names = ["llm-master-0", "llm-worker-0"] if place == "two pods of a PyTorchJob" else ["train"]
    pods = [kube.add_pod(name, restart_policy="Never", **details) for name in names]
    for rank, pod in enumerate(pods):
        (pod.root / "train.py").write_text(TRAIN)
        words = [sys.executable, "train.py", ends]
        if len(pods) > 1:
            pod.env |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": names[0], "MASTER_PORT": "23456"}
        if place == "a pod with a log":
            words = ["sh", "-c", f"{' '.join(words)} >run.log 2>&1; exec sleep 900"]
        pod.start(words, container=pod.containers[-1])
    return pods


def ask_pods(place: str, state: str, pods: Sequence[Pod]) -> None:
    for pod in pods:
        words = ["check", pod.name, "--json"]
        changes = {"TRAINING_MONITOR_STATE_DIR": os.environ["TRAINING_MONITOR_STATE_DIR"] + state}
        if TIMES:
            began = time.time()
            subprocess.run([PYTHON, "-c", "pass"], check=True)
            bare = time.time()
            command = [PYTHON, "-m", "training_monitor", *words]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **changes})
            note_time(place, began, bare, time.time())
        else:
            done = run_command(*words, **changes)
        assert answer(done.stdout, done.returncode) == expected()[place][state], done


PODS = {  # and how each ends
    "a pod with a log": "crashed",
    "a pod as process 1": "finished",
    "a pod with a sidecar": "finished",
    "two pods of a PyTorchJob": "crashed",
}


@pytest.mark.parametrize(
    ("place", "ends"),
    [(place, ends) for place, shown in PODS.items() for ends in (BOTH if EVERYTHING else shown).split()],
)
def test_the_first_command_answers_for_each_kind_of_pod(
    place: str, ends: str, surroundings: Surroundings, kube: KubernetesApi
) -> None:
    require("unshare")
    write_clock(ends, surroundings.tools)
    pods = start_pods(kube, place, ends)
    container, logs = pods[0].containers[-1], [pod.logs for pod in pods]
    try:
        assert wait_until(lambda: all((pod.root / "ready").exists() for pod in pods), 60)
        for pod in pods:
            if BEFORE[ends] == "hung":
                lines = pod.logs.get(container, [])
                pod.logs = {container: [nanoseconds(time.time() - AHEAD) + line[30:] for line in lines]}
        ask_pods(place, BEFORE[ends], pods)
        (surroundings.tools / "date").unlink(missing_ok=True)
        for pod, log in zip(pods, logs):
            pod.logs = log
            (pod.root / "end").touch()
        time.sleep(2)
        for pod in pods:
            if place != "a pod with a log":
                pod.end(*(("Failed", 1, "Error") if ends == "crashed" else ("Succeeded", 0, "Completed")), container)
        ask_pods(place, ends, pods)
    finally:
        for pod in pods:
            pod.stop()
