"""Metrics on their whole way: the command, node_exporter, Prometheus, its rules, Alertmanager and its messages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.fakes import FakeClock
from tests.hostile.texts import HOSTILE
from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, free_port, wait_until
from tests.integration.scripts import Process
from tests.loopback.vast import VastApi
from tests.loopback.vast_rows import KEY
from tests.metrics_text import Metrics, parse_metrics
from tests.requirements import require
from training_monitor.cli.commands.metrics import write_textfile
from training_monitor.core.errors import SettingsError
from training_monitor.fleet import MockFleet
from training_monitor.fleet.metrics import DEFAULT_THRESHOLDS, TrainingMetrics
from training_monitor.fleet.prometheus import format_metrics
from training_monitor.fleet.values import FleetSnapshot

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "prometheus"
COMMAND = (sys.executable, "-m", "training_monitor", "metrics")
PATIENCE = 120.0  # seconds, for a machine with much else to do
TRAINING = """
import sys, time
step = int(sys.argv[2])
with open(sys.argv[1], "a", buffering=1) as log:
    while True:
        step += 1
        print(f"step {step}/100000 loss 0.5", file=log)
        time.sleep(0.05)
"""
CRASH = "RuntimeError: CUDA error: an illegal memory access was encountered\n"


def check(*argv: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, input=input, cwd=EXAMPLES, capture_output=True, text=True, timeout=120)


# ---------------------------------------------------------------- the checks of the tools


def hostile_text() -> str:
    rows = [TrainingMetrics(text, text, "running", key=text, name=text, groups=(text,)) for text in (*HOSTILE, 'a"\\')]
    return format_metrics(FleetSnapshot(0.0, tuple(rows)), DEFAULT_THRESHOLDS)


def test_promtool_finds_nothing_in_the_metrics() -> None:
    promtool = require("promtool")
    for text in (format_metrics(MockFleet(clock=FakeClock()).snapshot(), DEFAULT_THRESHOLDS), hostile_text()):
        done = check(promtool, "check", "metrics", input=text)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("promtool", "check rules --lint-fatal alerts.yml"),
        ("promtool", "test rules alerts_test.yml"),
        ("promtool", "check rules --lint-fatal sums.yml"),
        ("promtool", "test rules sums_test.yml"),
        ("promtool", "check config prometheus.yml"),
        ("amtool", "check-config alertmanager.yml"),
    ],
)
def test_the_examples_are_valid(tool: str, words: str) -> None:
    done = check(require(tool), *words.split())
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done


def test_every_query_of_the_board_is_valid(tmp_path: Path) -> None:
    board = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(asked)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    done = check(require("promtool"), "check", "rules", str(tmp_path / "rules.yml"))
    assert done.returncode == 0 and f"{len(asked)} rules found" in done.stdout, done


# ---------------------------------------------------------------- the command


def test_metrics_are_printed_once(surroundings: Surroundings) -> None:
    done = run_command("metrics", "--mock")
    assert done.returncode == 1 and not done.stderr  # members are in error, as `vast --mock --once` says
    assert len(parse_metrics(done.stdout)) > 40


def test_a_real_target_is_looked_at(surroundings: Surroundings) -> None:
    log = surroundings.folder / "train.log"
    log.write_text("step 7/100 loss 0.25\n")
    done = run_command("metrics", f"local#{log}", "--no-history")
    found, member = Metrics(done.stdout), f"local#{log}"
    assert done.returncode in (0, 3) and not done.stderr
    assert found.get("up", member=member) == 1.0 and found.get("step", member=member) == 7.0
    assert found.get("loss", member=member) == 0.25 and found.get("price_dollars_per_hour", member=member) is None


def test_metrics_stay_as_they_are_where_a_secret_is_a_part_of_one(surroundings: Surroundings) -> None:
    done = run_command("metrics", "--mock", MY_PASSWORD="training_monitor_step")
    assert "training_monitor_step" in done.stdout and "***" not in done.stdout


def test_a_file_is_written_once_for_all_to_read(surroundings: Surroundings) -> None:
    path, before = surroundings.folder / "fleet.prom", os.umask(0o077)
    try:
        done = run_command("metrics", "--mock", "--once", "--textfile", str(path))
    finally:
        os.umask(before)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert path.stat().st_mode & 0o777 == 0o644 and len(parse_metrics(path.read_text())) > 40


def test_what_contradicts_itself_is_wrong_use(surroundings: Surroundings) -> None:
    for words in (("--json", "--mock"), ("--mock", "local"), ("--mock", "--vast"), ()):
        done = run_command("metrics", *words)
        assert done.returncode == 2 and "error:" in done.stderr, words
        assert ("training_monitor.error/1" in done.stdout) is ("--json" in words) is bool(done.stdout), words


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("folder", "pipe", "link", "missing/x.prom"):
        with pytest.raises(SettingsError, match="--textfile"):
            write_textfile(str(tmp_path / name), "a 1\n")
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe"] and os.path.islink(tmp_path / "link")


def start(*words: str, folder: Path) -> Process:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "stderr").open("w") as errors:
        return Process([*COMMAND, *words], cwd=folder, env=environ, stderr=errors, text=True)


def test_a_signal_ends_it_at_once_and_the_file_says_since_when(surroundings: Surroundings) -> None:
    path = surroundings.folder / "fleet.prom"
    with start("--mock", "--textfile", str(path), "--interval", "3600", folder=surroundings.folder) as process:
        assert wait_until(lambda: path.exists() and "training_monitor_step{" in path.read_text(), PATIENCE)
        last = Metrics(path.read_text()).get("last_look_timestamp_seconds")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == -signal.SIGINT
    left = Metrics(path.read_text())
    assert left.get("last_look_timestamp_seconds") == last and last is not None
    assert not [name for name in left.samples if "member" in name or name == "training_monitor_state"]
    assert not [name for name in os.listdir(surroundings.folder) if name.endswith(".tmp")]


def test_a_signal_ends_it_at_once_while_a_target_hangs(surroundings: Surroundings) -> None:
    (surroundings.tools / "ssh").write_text("#!/bin/sh\ntouch asked; exec sleep 3600\n")
    (surroundings.tools / "ssh").chmod(0o755)
    path = surroundings.folder / "fleet.prom"
    with start("ssh://gpu1", "--textfile", str(path), folder=surroundings.folder) as process:
        assert wait_until(lambda: (surroundings.folder / "asked").exists(), PATIENCE)
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
    assert "no answer" not in (surroundings.folder / "stderr").read_text()  # it did not wait for the look to fail
    assert Metrics(path.read_text()).get("last_look_timestamp_seconds") is None


def test_the_whole_account_is_exported(vast: VastApi) -> None:
    for number in (30007001, 30007002):
        vast.add_instance(number, actual_status="loading", dph_total=0.5)
    done = run_command("metrics", "--vast", "--no-history")
    found = Metrics(done.stdout)
    assert done.returncode == 3 and KEY not in done.stdout + done.stderr
    assert set(found.by("price_dollars_per_hour", "member").values()) == {0.5}
    assert found.get("fleet_dollars_per_hour") == 1.0 and found.get("account_up") == 1.0
    assert found.by("members", "level") == {"healthy": 0.0, "warning": 0.0, "error": 0.0, "unknown": 2.0}
    assert found.by("up", "member") == {}  # nobody asked machines that are loading


def test_nothing_is_known_of_an_account_that_does_not_answer(vast: VastApi) -> None:
    vast.fail_with = 500
    done = run_command("metrics", "--vast", "--no-history")
    found = Metrics(done.stdout)
    assert done.returncode == 3 and "error:" in done.stderr and found.get("account_up") == 0.0
    for name in ("members", "fleet_dollars_per_hour", "credit_dollars", "hidden_machines"):
        assert f"training_monitor_{name}" not in found.samples, name


def test_readers_never_see_half_a_file_and_what_fails_is_said_once(surroundings: Surroundings) -> None:
    folder = surroundings.folder / "collected"
    folder.mkdir()
    path = folder / "fleet.prom"
    with start("--mock", "--textfile", str(path), "--interval", "1", folder=surroundings.folder) as process:
        assert wait_until(lambda: path.exists() and "training_monitor_step{" in path.read_text(), PATIENCE)
        written = set[float]()
        while len(written) < 3:
            assert parse_metrics(path.read_text())
            written.add(path.stat().st_mtime)
            time.sleep(0.05)
        folder.rename(surroundings.folder / "away")
        errors = surroundings.folder / "stderr"
        assert wait_until(lambda: "error:" in errors.read_text(), PATIENCE)
        (surroundings.folder / "away").rename(folder)
        before = path.stat().st_mtime
        assert wait_until(lambda: path.stat().st_mtime > before, PATIENCE)
        assert errors.read_text().count("error:") == 1
        process.terminate()


# ---------------------------------------------------------------- Prometheus and Alertmanager


class Service:
    """A program that serves HTTP on a loopback port, its data and its log in a folder of the test."""

    def __init__(self, tool: str, folder: Path, ready: str, words: Callable[[int], list[str]]) -> None:
        program, self.log = require(tool), folder / f"{tool}.log"
        for _ in range(5):  # until then, another program may have taken the port
            self.port = free_port()
            with self.log.open("w") as log:
                argv = [program, *words(self.port)]
                self._process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
            if wait_until(lambda: self._process.poll() is not None or self.answers(ready), PATIENCE):
                if self._process.poll() is None:
                    return
        self.stop()
        pytest.fail(f"{tool} does not start: {self.log.read_text()[-2000:]}")

    def get(self, path: str, **query: str) -> str:
        address = f"http://127.0.0.1:{self.port}{path}?{urlencode(query)}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=30) as answer:
            return str(answer.read().decode())

    def answers(self, path: str) -> bool:
        try:
            return bool(self.get(path))
        except OSError:
            return False

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Messages:
    """The webhook that Alertmanager calls: who was told of which alert, in which state."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        told = self.told

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for each in message["alerts"]:
                    labels = each["labels"]
                    told.append((labels["alertname"], labels.get("member", ""), each["status"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


class Monitoring:
    """The real services with the configurations of examples/prometheus, only faster, and elsewhere."""

    def __init__(self, folder: Path, watchers: int = 1) -> None:
        self.folders = [folder / f"collected {number}" for number in range(watchers)]
        self.collected = self.folders[0]
        self._started: list[Service] = []
        self.messages = Messages()
        try:
            self.exporters = [self._start_exporter(each) for each in self.folders]
            self._write_alertmanager(folder)
            self.alertmanager = self._start("alertmanager", folder, "/-/ready", self._alertmanager)
            self._write_prometheus(folder)
            self.prometheus = self._start("prometheus", folder, "/-/ready", self._prometheus)
        except BaseException:
            self.close()
            raise

    def _start(self, tool: str, folder: Path, ready: str, words: Callable[[int], list[str]]) -> Service:
        service = Service(tool, folder, ready, words)
        self._started.append(service)
        return service

    def _start_exporter(self, folder: Path) -> Service:
        folder.mkdir()
        chosen = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}"]

        def words(port: int) -> list[str]:
            return [*chosen, f"--web.listen-address=127.0.0.1:{port}"]

        return self._start("node_exporter", folder, "/metrics", words)

    def _write_alertmanager(self, folder: Path) -> None:
        text = (EXAMPLES / "alertmanager.yml").read_text()
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{self.messages.server.server_port}")
        text = re.sub(r"(group_wait|group_interval): \w+", r"\1: 1s", text)
        (folder / "alertmanager.yml").write_text(text)

    def _alertmanager(self, port: int) -> list[str]:
        where = [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
        return ["--config.file=alertmanager.yml", "--storage.path=alertmanager", *where]

    def _write_prometheus(self, folder: Path) -> None:
        for name in ("alerts.yml", "sums.yml"):
            rules = re.sub(r"for: \d+m", "for: 1s", (EXAMPLES / name).read_text())
            (folder / name).write_text(re.sub(r"(> |<= bool )300 \+", r"\g<1>15 +", rules))
        text = (EXAMPLES / "prometheus.yml").read_text()
        text = re.sub(r"(scrape|evaluation)_interval: \w+", r"\1_interval: 1s", text)
        text = text.replace("127.0.0.1:9093", f"127.0.0.1:{self.alertmanager.port}")
        named = "".join(f"          - 127.0.0.1:{each.port}\n" for each in self.exporters)
        text, count = re.subn(r"(?: +- watcher-\d:9100\n)+", named, text)
        assert count == 1
        (folder / "prometheus.yml").write_text(text)

    def _prometheus(self, port: int) -> list[str]:
        where = [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.path=prometheus"]
        return ["--config.file=prometheus.yml", *where]

    def samples(self, query: str) -> list[tuple[dict[str, str], float]]:
        """What Prometheus answers to a query, by its API: labels and values."""
        answer = json.loads(self.prometheus.get("/api/v1/query", query=query))
        return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

    def values(self, query: str) -> list[float]:
        return [value for _, value in self.samples(query)]

    def state_of(self, alert: str) -> str | None:
        """The state of an alert in Alertmanager, by its API: active or suppressed; None where there is no such one."""
        found = json.loads(self.alertmanager.get("/api/v2/alerts", filter=f'alertname="{alert}"'))
        return str(found[0]["status"]["state"]) if found else None

    def close(self) -> None:
        for service in reversed(self._started):
            service.stop()
        self.messages.close()


@pytest.fixture
def monitoring(surroundings: Surroundings) -> Iterator[Monitoring]:
    found = Monitoring(surroundings.folder)
    yield found
    found.close()


def train(log: Path, step: int) -> Process:
    return Process([sys.executable, "-c", TRAINING, str(log), str(step)])


def crash(training: Process, log: Path) -> None:
    training.kill()
    training.wait()
    with log.open("a") as file:
        file.write(CRASH)


def test_an_alert_fires_clears_and_is_silenced_once_nobody_looks(
    monitoring: Monitoring, surroundings: Surroundings
) -> None:
    log, told = surroundings.folder / "train.log", monitoring.messages.told
    member, path = f"local#{log}", monitoring.collected / "fleet.prom"
    words = (member, "--textfile", str(path), "--interval", "1", "--no-history")
    runs = 'training_monitor_state{state="running"}'
    with start(*words, folder=surroundings.folder) as exporter:
        with train(log, 0) as training:
            assert wait_until(lambda: monitoring.values(runs) == [1.0], PATIENCE)
            assert wait_until(lambda: monitoring.values("training_monitor_up") == [1.0], PATIENCE)
            assert wait_until(lambda: monitoring.values("node_textfile_scrape_error") == [0.0], PATIENCE)
            crash(training, log)
            assert wait_until(lambda: monitoring.state_of("TrainingFailed") == "active", PATIENCE)
            assert wait_until(lambda: ("TrainingFailed", member, "firing") in told, PATIENCE)
        with train(log, 5000) as training:
            assert wait_until(lambda: monitoring.state_of("TrainingFailed") is None, PATIENCE)
            assert wait_until(lambda: ("TrainingFailed", member, "resolved") in told, PATIENCE)
            assert wait_until(lambda: monitoring.values(runs) == [1.0], PATIENCE)
            crash(training, log)
            assert wait_until(lambda: monitoring.state_of("TrainingFailed") == "active", PATIENCE)
        exporter.kill()  # it leaves its file, and what that says is old from now on
        assert wait_until(lambda: monitoring.state_of("TrainingMonitorStale") == "active", PATIENCE)
        assert wait_until(lambda: monitoring.state_of("TrainingFailed") == "suppressed", PATIENCE)
        assert "training_monitor_step{" in path.read_text()


def test_hostile_names_go_through_node_exporter_to_prometheus(monitoring: Monitoring) -> None:
    write_textfile(str(monitoring.collected / "fleet.prom"), hostile_text())
    expected = float(len(HOSTILE) + 1)
    assert wait_until(lambda: monitoring.values("count(training_monitor_member_info)") == [expected], PATIENCE)
    assert monitoring.values("node_textfile_scrape_error") == [0.0]
