"""Masking of secrets wherever they can appear, and a search of everything that commands produce."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.integration.commands import run_command
from tests.integration.conftest import wait_until
from tests.loopback.messaging import WEBHOOK_SECRET, Services, refuse
from tests.loopback.ray_dashboard import RayDashboard
from tests.unit.core.test_masking import forms
from training_monitor.core import masking

QUIET = "wholly-quiet-words"  # secret by the name of its variable only
ODD = "q7Rw.19-canary"  # the same, of letters, digits and signs
CRASH = """\
import os, sys, time
print("loading", flush=True)
print("it knows", os.environ["QUIET_TOKEN"], os.environ["DB_PASSWORD"], flush=True)
for line in open(sys.argv[1]): print(line, end="", flush=True)
print("Traceback (most recent call last):")
print('  File "train.py", line 5, in <module>')
words = os.environ["QUIET_TOKEN"], os.environ["DB_PASSWORD"], open(sys.argv[2]).read()
raise ModuleNotFoundError(f"No module named {words}")
"""


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """A home of our own, with a webhook for notices."""
    monkeypatch.setattr(masking._Known, "values", ())
    for name in ("STATE_DIR", "JOBS_DIR"):
        monkeypatch.setenv(f"TRAINING_MONITOR_{name}", str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", "0f1e2d3c4b5a69788796a5b4c3d2e1f0deadbeef")
    with Services() as running:
        monkeypatch.setenv("TRAINING_MONITOR_WEBHOOK", running.webhook)
        yield running


def state_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "STATE_DIR").rglob("*") if path.is_file()]


def everything(folder: Path, services: Services, *outputs: str) -> str:
    """All that was produced: outputs, all files of the state folder, and what the services were told."""
    files = [path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]
    told = [f"{each.json} {each.body!r}" if hasattr(each, "body") else f"{each.json}" for each in services.asked]
    return "\n".join([*outputs, *files, *told])


def test_what_a_crashing_script_prints_leaves_without_its_secrets(tmp_path: Path, services: Services) -> None:
    script, printed, last = (tmp_path / name for name in ("train.py", "printed", "last"))
    script.write_text(CRASH)
    made = {name: each for name, each in forms().items() if name != "end of a private key"}
    canaries, texts = ({name: each[at] for name, each in made.items()} for at in (0, 1))
    printed.write_text("\n".join(text for name, text in texts.items() if name != "private key without an end") + "\n")
    last.write_text(" | ".join(text for name, text in texts.items() if "private key" not in name))
    command = [sys.executable, str(script), str(printed), str(last)]
    env = ["--env", f"QUIET_TOKEN={QUIET}", "--env", f"DB_PASSWORD={ODD}"]
    outputs = []
    for number, form in enumerate(([], ["--json"])):
        named = ["--name", f"run{number}", "--interval", "0.2"]
        ran = run_command("run", *named, *env, "--notify", *form, "--", *command)
        assert ran.returncode == 1, ran
        outputs += [ran.stdout, ran.stderr]
    assert services.asked, "nothing was told"
    told = everything(tmp_path / "STATE_DIR", services, *outputs)
    canaries |= {"--env by its name": QUIET, "--env of letters and digits": ODD, "the webhook": WEBHOOK_SECRET}
    canaries |= {"this environment": os.environ["WANDB_API_KEY"]}
    tried(len(canaries))
    assert [name for name, secret in canaries.items() if any(line in told for line in secret.splitlines())] == []
    assert "ModuleNotFoundError" in told and masking.MASK in told


def test_the_variables_of_a_ray_job_are_known_and_not_written_down(tmp_path: Path, services: Services) -> None:
    words = ["restart", "local", "mine", "--interval", "0.2", "--checkpoint-dir", str(tmp_path), "--notify"]
    words += ["--max-retries", "0"]
    with RayDashboard() as dashboard, pytest.MonkeyPatch.context() as patches:
        patches.setenv("RAY_API_SERVER_ADDRESS", dashboard.address)
        crash = f"step 7\nTraceback (most recent call last):\nModuleNotFoundError: No module named {QUIET}\n"
        dashboard.add_job("mine-attempt-1", "RUNNING", crash)
        dashboard.jobs["mine-attempt-1"]["runtime_env"] = {"env_vars": {"HF_TOKEN": QUIET, "EPOCHS": "3"}}
        command = [sys.executable, "-m", "training_monitor", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as killed:
            assert killed.stdout
            said = killed.stdout.readline()
            assert wait_until(lambda: any(b'"watching"' in path.read_bytes() for path in state_files(tmp_path)))
            killed.kill()
            said += killed.stdout.read()
        dashboard.jobs["mine-attempt-1"] |= {"status": "FAILED", "driver_exit_code": 1}
        done = run_command(*words, "--json")
        said += done.stdout + done.stderr
        assert done.returncode == 1 and "resuming the supervision of mine" in said and "ModuleNotFoundError" in said, (
            done
        )
    tried()
    assert QUIET not in everything(tmp_path / "STATE_DIR", services, said)


def test_what_other_commands_read_of_such_a_log_shows_no_common_form(tmp_path: Path, services: Services) -> None:
    log = tmp_path / "train.log"
    made = {name: each for name, each in forms().items() if name != "end of a private key"}
    texts = {name: text for name, (_, text) in made.items()}
    steps = "".join(f"step {step}/10 loss 0.5\n" for step in range(5))
    log.write_text(steps + "\n".join(texts.values()) + "\nRuntimeError: CUDA error: " + texts["Hugging Face 0"] + "\n")
    tried(len(made))
    outputs = []
    for words in (
        ("check", "local", str(log)),
        ("logs", "local", str(log)),
        ("check", "local", str(log), "--field", "reason"),
    ):
        for form in ((), ("--json",)):
            done = run_command(*words, *form)
            outputs += [done.stdout, done.stderr]
    watched = run_command("watch", "local", "--log", str(log), "--once", "--json", "--notify")
    told = everything(tmp_path / "STATE_DIR", services, *outputs, watched.stdout, watched.stderr)
    leaked = [name for name, (secret, _) in made.items() if any(line in told for line in secret.splitlines())]
    assert leaked == [] and "step 4" in told


def test_the_variables_of_a_request_are_shown_by_name_only(tmp_path: Path, services: Services) -> None:
    from training_monitor.rent.queue import TrainingQueue
    from training_monitor.vast.training_request import TrainingRequest

    queue = TrainingQueue()
    queue.submit(TrainingRequest(name="x", command="true", env={"PLAIN": "canary", "HF_TOKEN": "env:HF_TOKEN"}))
    shown = run_command("rent", "queue", "--all", "--json").stdout + run_command("rent", "queue", "--all").stdout
    assert "canary" not in shown and json.loads(shown.splitlines()[0])["jobs"][0]["request"]["env"] == {
        "PLAIN": "***",
        "HF_TOKEN": "env:HF_TOKEN",
    }


def test_an_upload_takes_its_url_from_a_variable_and_its_errors_do_not_show_it(
    tmp_path: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "model.safetensors"
    made.write_bytes(b"x" * 100)
    signature = "0123456789abcdef" * 4
    url = f"{services.url}/bucket/model?X-Amz-Credential=AKIDX&X-Amz-Signature={signature}"
    monkeypatch.setenv("PUT_URL", url)
    answer = f"<Error><Code>SignatureDoesNotMatch</Code><Message>{url} is not what was signed</Message></Error>"
    services.faults = [refuse(403, answer)] * 9
    done = run_command("upload", "local", str(made), "env:PUT_URL", "--json")
    assert done.returncode == 1 and "HTTP 403" in json.loads(done.stdout)["error"] and services.asked, done
    assert signature not in done.stdout + done.stderr
    assert run_command("upload", "local", str(made), "env:NOT_SET").returncode == 2


def test_a_defect_of_ours_is_unknown_and_its_traceback_shows_no_secret(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_" + "a1B2c3D4" * 4

    def broken(*_: object, **__: object) -> None:
        raise ValueError(f"no room for {secret} \x1b[2J")

    monkeypatch.setattr("training_monitor.targets.asking.Site.ask", broken)
    done = run_command("gpu", "local", "--json")
    assert done.returncode == 3 and json.loads(done.stdout)["kind"] == "Defect"
    assert "ValueError" in done.stderr and secret not in done.stdout + done.stderr and "\x1b" not in done.stderr
