"""Data sent to a proxy that is set in the environment: hosts queried by https, and nothing that is sent by http."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest

from tests.hostile.tries import tried
from tests.integration.conftest import Place, gate, moto, ray_command  # noqa: F401
from tests.integration.test_uploads import give, hf_path, hub, model_file, send, send_parts, use_hub  # noqa: F401
from tests.loopback.hub import Hub
from tests.loopback.messaging import Services
from tests.loopback.storage import StorageGate
from tests.loopback.vast import VastApi
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.rest import request
from training_monitor.jobs.ray_jobs import submit_question
from training_monitor.targets.asking import Site
from training_monitor.vast.instances import list_instances

VARIABLES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
SIGNATURE = "0123456789abcdef" * 4


class _Handler(BaseHTTPRequestHandler):
    """Notes the whole request, and refuses it."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cast("Proxy", self.server).seen.append(f"{self.requestline}\n{self.headers}\n{body!r}")
        self.send_error(502)

    do_POST = do_PUT = do_HEAD = do_DELETE = do_CONNECT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        return None


class Proxy(ThreadingHTTPServer):
    """A proxy that keeps what it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        yield proxy
        proxy.shutdown()


@pytest.fixture
def of_all(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The proxy of everything that this machine, which is the target too, asks."""
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in VARIABLES:
        monkeypatch.setenv(name, proxy.address)
    return proxy


def test_uploads_to_storage_by_http(local: Place, gate: StorageGate, of_all: Proxy) -> None:  # noqa: F811
    path = model_file(local)
    assert send(local, path, gate.storage("k")).verified
    assert send(local, path, gate.storage("other").sign("PUT")).verified
    assert send_parts(local, model_file(local, 6_000_000), gate.storage("parts")).verified
    tried(3)
    assert of_all.seen == []


def test_an_upload_to_a_hub_by_http(
    local: Place,
    hub: Hub,  # noqa: F811
    use_hub: Callable[..., None],  # noqa: F811
    of_all: Proxy,
) -> None:
    use_hub(local)
    report = give(local, model_file(local))
    assert (report.verified, of_all.seen) == (True, [])


def test_by_https_it_is_told_the_host_alone(local: Place, of_all: Proxy) -> None:
    url = f"https://storage.invalid/bucket/key?X-Amz-Signature={SIGNATURE}"
    report = send(local, model_file(local), url)
    assert not report.verified and of_all.seen
    assert {each.partition("\n")[0] for each in of_all.seen} == {"CONNECT storage.invalid:443 HTTP/1.1"}
    assert not [each for each in of_all.seen if SIGNATURE in each]


def test_requests_from_here_by_http(of_all: Proxy) -> None:
    with Services() as services:
        request("POST", services.webhook, headers={"Authorization": "Bearer canary"}, json_body={})
        assert len(services.asked) == 1
    assert of_all.seen == []


def test_the_vastai_command_by_http(vast: VastApi, of_all: Proxy) -> None:
    assert list_instances() == [] and vast.requests
    assert of_all.seen == []


def test_the_ray_command_where_no_dashboard_answers(
    ray_command: Path,  # noqa: F811
    local: Place,
    of_all: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{ray_command.parent}:/usr/bin:/bin")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "canary-of-ray")
    # Only the command packs folders.
    submit = submit_question("job-1", "true", {"working_dir": str(local.folder)}, {}, {})
    with pytest.raises(TrainingMonitorError, match="the ray command reports"):
        Site.of("local").ask(submit)[0].get()
    assert of_all.seen == []
