"""What each command prints with `--json`, by real calls: documents of docs/schemas.json and nothing else on stdout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import MARK, Place, Surroundings, kill, wait_until
from tests.integration.roll_call_training import Plan, Training, running
from tests.integration.test_cli_market import add_image
from tests.integration.web_pages import command as web_command
from tests.json_documents import check_document, read_documents
from tests.loopback.kubernetes import KubernetesApi
from tests.loopback.messaging import Services
from tests.loopback.ray_dashboard import RayDashboard
from tests.loopback.vast import LIST, VastApi
from training_monitor import TrainingMonitor, start_process_job
from training_monitor.cli.command_table import list_commands
from training_monitor.core.store import Store
from training_monitor.jobs import look_at_job
from training_monitor.rent.queue import TrainingQueue, load_owner
from training_monitor.vast.rows import format_label
from training_monitor.vast.training_request import TrainingRequest

ROOT = Path(__file__).parents[2]
STEPS = "".join(f"step {step}/200 loss 0.5\n" for step in range(1, 41))
LAUNCH = ("--name", "demo", "--command", "true")


def schema_of(command: str) -> str:
    """The schema of a command's document: its last word."""
    return command.split()[-1]


def documents(command: str, *words: str, status: int = 0, **changes: str) -> list[dict[str, Any]]:
    """What a command prints with `--json`, each document checked; errors are checked by the schema of errors."""
    done = run_command(*command.split(), "--json", *words, **changes)
    assert done.returncode == status, done
    found = read_documents(done.stdout)
    for each in found:
        check_document(each, "error" if each["schema"].startswith("training_monitor.error/") else schema_of(command))
    return found


def document(command: str, *words: str, status: int = 0, **changes: str) -> dict[str, Any]:
    """The only document that a command prints, which is no error."""
    [found] = documents(command, *words, status=status, **changes)
    assert found["schema"].startswith(f"training_monitor.{schema_of(command)}/"), found
    return found


def error(command: str, *words: str, status: int, **changes: str) -> dict[str, Any]:
    """The only document that a command prints, which is an error."""
    [found] = documents(command, *words, status=status, **changes)
    assert found.keys() == {"schema", "error", "kind", "hint"}, found
    return found


# ---------------------------------------------------------------- one training


@pytest.fixture
def log(local: Place) -> Path:
    """The log of a training that is over or not, nobody knows."""
    file = local.folder / "train.log"
    file.write_text(STEPS)
    return file


@pytest.fixture
def process(local: Place) -> Iterator[tuple[Path, Path]]:
    """A training that stands at step 3: its log, and the file with its PID."""
    log, pid_file = local.folder / "run.log", local.folder / "run.pid"
    script = "for i in 1 2 3; do echo step $i/40 loss 0.$i; done; sleep 300"
    with log.open("wb") as out:
        started = subprocess.Popen(["sh", "-c", script], stdout=out, stderr=out, start_new_session=True)
    pid_file.write_text(str(started.pid))
    assert wait_until(lambda: "step 3" in log.read_text())
    yield log, pid_file
    kill(started.pid)
    started.wait()


def test_a_training_has_the_same_keys_in_all_commands(log: Path) -> None:
    [checked] = document("check", "local", str(log))["jobs"]
    [stalled] = document("check", "local", str(log), "--stall-after", "5m")["jobs"]
    others = [
        document("status", "local", str(log))["jobs"][0],
        document("watch", "local", "--log", str(log), "--once"),
        document("fleet", f"local#{log}", "--once", "--no-history")["members"][0],
    ]
    for each in (checked, stalled, *others):
        assert (each["step"], each["total_steps"], each["progress"], each["loss"]) == (40, 200, 0.2, 0.5), each
    for each in (stalled, *others):
        assert (each["verdict"], each["state"]) == (checked["verdict"], checked["state"]) == ("ok", "running"), each


def test_why_a_training_hangs(local: Place) -> None:
    training = Training(Plan(odd={1: "pipe"}, with_monitor=True), local.folder / "hung")
    with running(training):
        training.wait_until_ready()
        found = document("why", "local", str(training.members[0].pid))
        assert [each["rank"] for each in found["culprits"]] == [1] and found["confidence"] == "high"
    ended = document("why", "local", str(training.folder / "train-0.log"), status=3)
    assert (ended["confidence"], ended["ranks"], ended["culprits"]) == ("none", [], [])
    assert error("why", "local", "nobody", status=2)["kind"] == "JobNotFound"


def test_a_loss_that_is_no_number_is_null(log: Path) -> None:
    log.write_text(f"{STEPS}step 41/200 loss nan\n")
    [job] = document("check", "local", str(log), status=1)["jobs"]
    assert job["loss"] is None and "nan" in job["reason"]
    assert document("watch", "local", "--log", str(log), "--once", status=1)["loss"] is None


def test_a_process_job_from_its_start_to_its_stop(local: Place) -> None:
    job_id = start_process_job("local", "for i in 1 2 3; do echo step $i/9 loss=0.$i; done; sleep 600", "steps")
    assert wait_until(lambda: look_at_job("local", job_id).progress.step == 3)
    [listed] = document("status", "local")["jobs"]
    [shown] = document("status", "local", job_id)["jobs"]
    assert listed["job_id"] == shown["job_id"] == job_id and (listed["metrics"], shown["metrics"]) == (None, {})
    assert document("logs", "local", job_id, "--tail", "1")["text"] == "step 3/9 loss=0.3\n"
    assert document("wait", "local", job_id, "--timeout", "0.5", "--interval", "0.2", status=3)["outcome"] == "timeout"
    assert document("stop", "local", job_id, "--stop-grace", "1")["status"] == "STOPPED"
    assert error("stop", "local", "process:nobody", status=2)["kind"] == "JobNotFound"


def test_a_wait_for_a_condition_and_the_waits_that_are_kept(log: Path) -> None:
    found = document("wait", "local", str(log), "--for", "step=40", "--handle", "first")
    assert (found["outcome"], found["condition"], found["step"], found["verdict"]) == ("met", "step=40", 40, "ok")
    [kept] = document("wait", "--list")["waits"]
    assert kept["handle"] == "first" and kept["result"]["reason"] == found["reason"]
    assert error("wait", "--handle", "nobody", status=2)["kind"] == "JobNotFound"


def test_scripts_that_complete() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "training-monitor" in document("completion", shell)["script"]


def test_a_new_settings_file(tmp_path: Path) -> None:
    path = str(tmp_path / "settings.toml")
    assert document("config", "--init", path)["file"] == path
    assert error("config", "--init", path, status=2)["kind"] == "SettingsError"


def test_the_skill_and_the_tools_for_agents(tmp_path: Path) -> None:
    assert {"check", "restart"} <= set(document("skill")["pages"])
    assert document("skill", "--install", str(tmp_path))["folders"][0]["state"] == "installed"
    assert "check" in {tool["name"] for tool in document("mcp")["tools"]}


def test_a_process_that_is_no_job_is_stopped(process: tuple[Path, Path]) -> None:
    stopped = document("stop", "local", process[1].read_text(), "--stop-grace", "1")
    assert (stopped["job_id"], stopped["status"], stopped["success"]) == (None, "STOPPED", True)


def test_a_watch_that_streams_prints_an_object_each_line(local: Place) -> None:
    log, pid_file = local.folder / "log", local.folder / "pid"
    script = f"echo $$ > {pid_file}; for i in 1 2 3 4; do echo step $i/4 loss 0.$i; sleep 0.3; done"
    with log.open("wb") as out:
        started = subprocess.Popen(["sh", "-c", script], stdout=out, stderr=out)
    assert wait_until(lambda: pid_file.exists() and log.stat().st_size > 0)
    given = ("--log", str(log), "--pid-file", str(pid_file), "--stream", "--interval", "0.5")
    found = documents("watch", "local", *given)
    started.wait()
    assert {"status", "line", "result"} <= {each["kind"] for each in found} and found[-1]["kind"] == "result"
    assert all(each["target"] == "local" for each in found)


def test_a_training_is_ended_and_cannot_be_saved(process: tuple[Path, Path]) -> None:
    log, pid_file = map(str, process)
    given = (log, "--pid-file", pid_file, "--output-dir", os.path.dirname(log), "--stop-grace", "0.5")
    found = document("stop", "local", *given, "--upload", "hf:me/model", status=1)
    assert (found["success"], found["stopped"], found["status"]) == (False, True, "STOPPED")
    assert "no checkpoint" in found["uploads"][0]["error"]


def test_an_upload_that_fails_is_a_document(local: Place) -> None:
    found = document("upload", "local", str(local.folder / "nothing"), "hf:me/model", status=1)
    assert found["verified"] is False and found["error"]


# ---------------------------------------------------------------- supervised


def test_a_command_that_is_run_again_after_a_failure(local: Place) -> None:
    script = "test -e again || { touch again; echo step 1/2; exit 1; }; echo step 2/2; sleep 1"
    given = ("--target", "local", "--name", "twice", "--retry-delay", "0.1", "--interval", "0.2")
    found = documents("run", *given, "--working-dir", str(local.folder), "--", "sh", "-c", script)
    assert found[-1]["kind"] == "result" and found[-1]["success"] and found[-1]["total_retries"] == 1
    assert {"started", "progress", "finished"} <= {each["kind"] for each in found}
    [*_, moving] = [each for each in found if each["kind"] == "progress" and each["step"] is not None]
    assert moving["total_steps"] == 2


def test_a_ray_job_that_is_adopted(kube: KubernetesApi, surroundings: Surroundings) -> None:
    with RayDashboard() as ray:
        environ = {"RAY_API_SERVER_ADDRESS": ray.address, "RAY_TMPDIR": str(surroundings.folder)}
        kube.add_pod("head", env={**environ, "PATH": os.environ["PATH"], MARK: surroundings.mark})
        ray.add_job("train", "SUCCEEDED", STEPS)
        found = documents("restart", "head", "train", "--interval", "0.2")
        [job] = document("check", "head", "train")["jobs"]
    assert found[-1]["kind"] == "result" and found[-1]["outcome"] == "completed"
    assert (job["job_id"], job["state"]) == ("train", "finished")


def test_the_demo(local: Place) -> None:
    found = documents("demo")
    assert {"started", "progress", "detected", "refused", "result"} <= {each["kind"] for each in found}
    assert found[-1]["success"] and "target" not in found[-1]
    assert [each["status"] for each in found[-1]["attempts"]] == ["FAILED", "STALLED", "SUCCEEDED"]
    for part in ("RuntimeError", "truncated", "step_60", "step_120"):
        assert part in str(found)


# ---------------------------------------------------------------- one reading


def test_readings_of_this_machine(local: Place) -> None:
    def health(schema: str, *words: str) -> dict[str, Any]:
        [found] = read_documents(run_command("health", "local", "--json", *words).stdout)
        check_document(found, schema)
        return found

    readings = [document("gpu", "local", status=3), *(health(only, "--only", only) for only in ("efa", "ray"))]
    assert [each["verdict"] for each in readings] == ["unknown"] * 3
    found = health("health")  # other trainings of this machine may have a verdict
    assert found["target"] == "local" and found["issues"]


def test_gpus_that_answer(local: Place) -> None:
    tool = local.surroundings.tools / "nvidia-smi"
    row = "0, GPU-0, NVIDIA H100 80GB HBM3, 90, 40, 60000, 81559, 500, 700.00, 60, Disabled"
    tool.write_text(f"#!/bin/sh\ncase $1 in --query-gpu*) echo '{row}';; *) echo 4194303, python, GPU-0, 512;; esac\n")
    tool.chmod(0o755)
    found = document("gpu", "local")
    assert (found["target"], found["verdict"], found["gpu_utilizations"]) == ("local", "ok", [90.0])
    job_id = start_process_job("local", "echo step 3/9; sleep 60", "steps")
    [job] = document("check", "local", job_id, status=0)["jobs"]
    assert [gpu["gpu_utilization"] for gpu in job["gpus"]] == [90.0]
    assert document("health", "local", "--job", job_id, status=0)["job"]["job_id"] == job_id


def test_the_checkpoints_of_a_folder(local: Place) -> None:
    (local.folder / "checkpoint-5").mkdir()
    (local.folder / "checkpoint-5" / "model.safetensors").write_bytes(b"cut off")
    found = document("checkpoints", "local", str(local.folder), status=1)
    assert (found["directory"], found["checkpoint"], len(found["checkpoints"])) == (str(local.folder), None, 1)


# ---------------------------------------------------------------- many trainings


def test_made_up_fleets(local: Place) -> None:
    found = document("vast", "--mock", status=1)
    assert found["verdict"] == "failed" and {each["verdict"] for each in found["members"]} >= {"ok", "failed"}
    assert len(document("history", "--mock")["members"]) == 12
    [member] = document("history", "--mock", "30007006", "--field", "loss")["members"]
    assert member["fields"].keys() == {"loss"} and member["fields"]["loss"]["last"] is None  # it is nan
    assert len(document("history", "--mock", "--compare")["members"]) > 1
    assert document("history", "--mock", "--cost")["all"]["total"] > 0


def test_metrics_are_no_json(local: Place) -> None:
    assert error("metrics", "--mock", status=2)["kind"] == "SettingsError"


def test_a_page_says_where_it_is(tmp_path: Path) -> None:
    with web_command(tmp_path, "--mock", "--port", "0") as (_, said):
        check_document(said, "web")


def test_runs_that_write_progress_files(local: Place) -> None:
    file = local.folder / "progress" / "one" / "progress.json"
    with TrainingMonitor(local.folder / "progress" / "one") as monitor:
        monitor.update_metrics(loss=float("nan"))
        assert wait_until(lambda: file.exists() and "loss" in file.read_text())
        found = document("top", str(local.folder / "progress"), status=1)
    [run] = found["runs"]
    assert (run["run"]["name"], run["run"]["metrics"]) == ("one", {"loss": None})
    assert found["verdict"] == run["verdict"] == "failed" and "nan" in run["reason"]
    assert document("top", "ssh://127.0.0.1:1/runs", status=3)["verdict"] == "unknown"


# ---------------------------------------------------------------- rented machines


def test_what_is_rented_and_for_rent(vast: VastApi) -> None:
    vast.add_instance(7, label=format_label("anna", "portrait-1", 2), start_date=time.time() - 3900)
    vast.add_instance(8, dph_total=None)
    vast.add_offer(1)
    listed = document("rent instances")
    assert ([each["instance_id"] for each in listed["instances"]], listed["cost_unknown"]) == ([7, 8], 1)
    assert document("rent instances", "7")["instances"][0].keys() == listed["instances"][0].keys()
    assert document("rent offers", "--gpu", "RTX 4090")["found"] == 1
    assert document("rent offers", "--max-price", "0.01", status=1)["loosen"]
    assert document("rent credits")["credit"] == 12.5
    assert error("rent instances", "99", status=1)["kind"] == "InstanceNotFound"
    vast.answers[LIST] = (500, {"success": False})
    assert document("rent credits", status=3)["forecast"] is None
    error("rent instances", status=3)


def test_the_ledger_and_the_keys(vast: VastApi, local: Place) -> None:
    paid = document("rent credits", "anna", "--deposit", "10", "--reason", "card")
    assert (paid["account"], paid["credit"], len(paid["movements"])) == ("anna", 10, 1)
    assert document("rent keys", "--setup", "--path", str(local.folder / "key"))["registered"] is True


def test_a_dataset(local: Place) -> None:
    images = local.folder / "images"
    images.mkdir()
    for number in range(12):
        add_image(images, f"image {number}")
    assert document("rent dataset", str(images))["is_valid"] is True
    assert document("rent dataset", str(images), "--min-images", "13", status=1)["errors"]


def test_a_job_for_a_rented_machine(vast: VastApi) -> None:
    vast.add_offer(1)
    given = (*LAUNCH, "--id", "one", "--env", "HF_TOKEN")
    launched = document("rent launch", *given, HF_TOKEN="hf_of_nobody")["job"]
    assert (launched["job_id"], launched["state"], launched["total_cost"]) == ("one", "QUEUED", 0.0)
    assert document("rent queue")["jobs"] == document("rent queue", "one")["jobs"] == [launched]
    assert error("rent queue", "two", status=2)["kind"] == "JobNotFound"
    assert document("rent queue", "one", "--cancel")["jobs"][0]["state"] == "CANCELLED"
    assert document("rent launch", *given, status=1, HF_TOKEN="hf_of_nobody")["job"]["state"] == "CANCELLED"
    vast.add_instance(7, label=format_label(load_owner(Store()), "ghost", 1), start_date=time.time() - 7200)
    [kept] = document("rent sweep")["kept"]
    assert (kept["instance_id"], kept["job_id"], kept["cost_per_hour"]) == (7, "ghost", 0.5)


def lines_of(command: str, *words: str, until: int) -> tuple[list[dict[str, Any]], int]:
    """The documents of a command that is interrupted after so many lines, and its exit code."""
    argv = [sys.executable, "-m", "training_monitor", *command.split(), "--json", *words]
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert running.stdout
    lines = [running.stdout.readline() for _ in range(until)]
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    found = read_documents("".join(lines) + rest)
    for each in found:
        check_document(each, schema_of(command))
    return found, running.returncode


def test_a_worker_and_a_watched_launch(vast: VastApi) -> None:
    [waiting, *_], status = lines_of("rent worker", "--no-sweep", until=1)
    assert (waiting["kind"], status) == ("waiting", -signal.SIGTERM)
    TrainingQueue().submit(TrainingRequest("demo", command="true"), "one")
    assert TrainingQueue().claim("host-1", 600, "one")
    found, status = lines_of("rent launch", *LAUNCH, "--id", "one", "--watch", until=1)
    assert (found[-1]["kind"], found[-1]["job"]["job_id"], status) == ("interrupted", "one", -signal.SIGTERM)


# ---------------------------------------------------------------- setting up


def test_the_settings_and_the_tools(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = local.folder / "settings.json"
    file.write_text('{"fleet": {"interval": -1}}')
    assert document("config", "--file", str(file))["tables"] == {"fleet": ["interval"]}
    assert document("config", "--check", "--file", str(file), status=1)["problems"][0]["key"] == "fleet.interval"
    monkeypatch.setenv("HOME", str(local.folder))
    names = {each["name"] for each in document("doctor", "local", status=0)["checks"]}
    assert {"python", "state folder", "local"} <= names


def test_notices(local: Place) -> None:
    with Services() as services:
        webhook = {"TRAINING_MONITOR_SLACK_WEBHOOK": services.slack_webhook}
        assert document("notify", "--test", **webhook)["channels"][0]["success"] is True
        assert document("notify", "hello", "--job", "run", **webhook)["channel"] == "slack"
    [kept] = document("notify", "--list")["notices"]
    assert (kept["state"], kept["notice"]["job_id"]) == ("sent", "run")


# ---------------------------------------------------------------- wrong use, and defects


def test_wrong_use_is_a_document_too(surroundings: Surroundings, subtests: pytest.Subtests) -> None:
    wrong = ["", "chekc", "check a b c", "logs local x --tail many", "watch local --stream --poll"]
    wrong += ["notify x --priority huge", "top x --headless --once --csv-interval 1"]
    wrong += [f"{name} --no-such-option" for name in ("", *list_commands())]
    for words in wrong:
        with subtests.test(words):
            done = run_command(*words.split(), "--json")
            [found] = read_documents(done.stdout)
            check_document(found, "error")
            assert (done.returncode, found["kind"]) == (2, "SettingsError") and found["hint"].endswith("--help")
            assert found["error"] in done.stderr.replace("\n", " "), done.stderr


def test_the_json_of_a_supervised_command_is_not_ours(surroundings: Surroundings) -> None:
    done = run_command("run", "--no-such-option", "--", "python3", "train.py", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_defect_is_a_document_and_unknown(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr("training_monitor.look.check_gpu_utilization", fail)
    found = error("gpu", "local", status=3)
    assert found["kind"] == "Defect" and "nobody expected this" in found["error"]
