"""When the script that asks Ray's dashboard asks the `ray` command instead, by a real sh and a server on loopback."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from training_monitor.core.models import RayResources
from training_monitor.jobs.ray_jobs import jobs_question, resources_question
from training_monitor.targets.asking import ask

RECORDED = Path(__file__).parents[2] / "recorded" / "ray" / "2.60.0"
BUSY = RayResources(2, 4, 2, 2, ("{'CPU': 1.0, 'GPU': 1.0}: 4+ pending tasks/actors",))
LOGIN = "<!DOCTYPE html><html><body><form>Sign in</form></body></html>"


class Page(BaseHTTPRequestHandler):
    """Answers everything with one page."""

    code, text = 200, ""

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.send_header("Location", "/login")
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Page]]:
    page = type("OnePage", (Page,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), page) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        ray = tmp_path / "ray"
        ray.write_text(f"#!/bin/sh\nif [ $1 = status ]; then cat {RECORDED}/ray_status_busy.txt; else echo '[]'; fi\n")
        ray.chmod(ray.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://127.0.0.1:{server.server_port}")
        yield page
        server.shutdown()


def resources() -> RayResources:
    return ask("local", resources_question())[0].get()


def test_the_command_is_asked_only_where_the_dashboard_has_no_report(dashboard: type[Page]) -> None:
    second_autoscaler = json.dumps({"result": True, "data": {"autoscalingStatus": None, "clusterStatus": None}})
    for dashboard.code, dashboard.text in [(200, LOGIN), (200, second_autoscaler), (200, ""), (302, LOGIN)]:
        assert resources() == BUSY
    dashboard.code, dashboard.text = 200, (RECORDED / "rest_cluster_status.json").read_text()
    assert resources() == RayResources(0, 4, 0, 2)


def test_a_login_and_an_empty_list_are_no_jobs(dashboard: type[Page]) -> None:
    for dashboard.text in (LOGIN, "[]"):
        assert ask("local", jobs_question())[0].get() == ()
