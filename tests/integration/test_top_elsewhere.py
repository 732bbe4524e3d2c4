"""`top` as it is typed for a pod and for a rented instance, by the real kubectl, vastai and ssh: the keys that act."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import MARK, SshServer, Surroundings, wait_until
from tests.integration.screens import ROOT, Screen
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.loopback.vast import VastApi

TOP = [sys.executable, "-m", "training_monitor", "top"]
TRAINING = """
    import time
    from training_monitor import TrainingMonitor

    settings = {"learning_rate": 0.1, "batch_size": 32}
    monitor = TrainingMonitor("progress/-llama 'q", tee_outputs=True)
    monitor.track_variables(settings)
    for epoch in range(1, 1000):
        monitor.start_epoch(epoch, 50, 1000)
        for batch in range(50):
            monitor.start_batch()
            monitor.update_metrics(train_loss=0.5)
            time.sleep(0.05)
            if monitor.is_change("learning_rate"):
                print("learning rate", settings["learning_rate"], flush=True)
"""
NAME = "-llama 'q"


@pytest.fixture
def screen(surroundings: Surroundings) -> Iterator[Screen]:
    shown = Screen(surroundings.folder)
    yield shown
    shown.tmux("kill-server")


def train(folder: Path, mark: str) -> subprocess.Popen[bytes]:
    """A training in this folder, with its progress below it."""
    (folder / "train.py").write_text(textwrap.dedent(TRAINING))
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", MARK: mark}
    process = subprocess.Popen([sys.executable, "train.py"], cwd=folder, env=environ, stdout=-3, stderr=-3, stdin=-3)
    assert wait_until(lambda: (folder / "progress" / NAME / "progress.json").exists(), 60)
    return process


def edit_follow_and_kill(screen: Screen, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Type a new learning rate, read what the run printed of it, kill the run and delete it, and leave."""
    own = folder / "progress" / NAME
    screen.shows(rf"{NAME} +(RUNNING|starting)( \d+s)? +\d+% .* 0\.5000 ")
    screen.press("e")
    screen.shows(r"> ?learning_rate +0\.1 +float")
    screen.press("Enter", "C-u")
    screen.type("0.02")
    screen.press("Enter")
    screen.shows(r"learning_rate +0\.02 +float applied")
    screen.press("o")
    screen.shows("learning rate 0.02", "following")
    screen.press("Escape")
    screen.press("Escape")
    screen.shows(rf"{NAME} +RUNNING")
    screen.press("t")
    screen.shows(rf"\[P\] python\S* +PID {process.pid} ", r"\[T\] ", r"\[P\] tee")
    screen.press("k")
    screen.shows("> SIGTERM")
    screen.press("Down", "Down", "Enter")
    screen.shows("send SIGKILL", rf"PID {process.pid} ")
    screen.type("yes")
    screen.press("Enter")
    screen.shows(rf"{NAME} +KILLED", f"its process {process.pid} ")
    assert process.wait(30) == -9
    screen.press("c")
    screen.shows("including all checkpoints in it")
    screen.type("yes")
    screen.press("Enter", "q")
    screen.shows("status=0")
    assert not own.exists()


def test_a_run_in_a_pod_is_edited_followed_killed_and_deleted(
    screen: Screen, kube: KubernetesApi, pod: Pod, surroundings: Surroundings
) -> None:
    process = train(pod.root, surroundings.mark)
    screen.start("118x30", *TOP, "k8s://default/head:~/progress")
    edit_follow_and_kill(screen, process, pod.root)


def test_a_run_on_a_rented_instance_is_edited_followed_killed_and_deleted(
    screen: Screen, vast: VastApi, sshd: SshServer, surroundings: Surroundings
) -> None:
    vast.add_instance(7, ssh_host="127.0.0.1", ssh_port=sshd.port)
    folder = surroundings.folder / "rented"
    folder.mkdir()
    process = train(folder, surroundings.mark)
    screen.start("118x30", *TOP, f"vast://7{folder}/progress")
    edit_follow_and_kill(screen, process, folder)


def test_a_pod_that_goes_away_leaves_its_rows_and_says_why(
    screen: Screen, kube: KubernetesApi, pod: Pod, surroundings: Surroundings
) -> None:
    (pod.root / "progress").mkdir()
    document = {"status": "FINISHED", "start_time": 1.0, "metadata": {"pid": 7}}
    (pod.root / "progress" / "llama.json").write_text(json.dumps(document))
    screen.start("118x30", *TOP, f"head:{pod.root}/progress")
    screen.shows(r"llama +FINISHED")
    kube.remove_pod("head")
    screen.shows(r'pods "head" not found', r"llama +FINISHED")
    screen.press("q")
    screen.shows("status=0")


def test_headless_and_json_see_a_pod_as_the_screen_does(
    kube: KubernetesApi, pod: Pod, surroundings: Surroundings
) -> None:
    process = train(pod.root, surroundings.mark)
    command = [*TOP, "k8s://default/head:~/progress", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    (row,) = json.loads(done.stdout)["runs"]
    assert (row["status"], row["is_alive"], row["run"]["process"]["pid"]) == ("RUNNING", True, process.pid)
    assert row["processes"] == 3 and row["cpu_percent"] is not None
    process.kill()
    process.wait()
