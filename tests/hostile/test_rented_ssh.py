"""What a rented machine gets of the user through ssh, and a proxy of what is sent by http: only what is needed."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.fakes import FakeTransport
from tests.integration.conftest import require
from training_monitor.core.rest import request
from training_monitor.targets.connect import connect
from training_monitor.targets.target import Target
from training_monitor.targets.transport import SshTransport

GENEROUS = """\
Host *
  ForwardAgent yes
  ForwardX11 yes
  ForwardX11Trusted yes
  SendEnv WANDB_API_KEY HF_TOKEN
  SetEnv SECRET=canary
  RemoteForward 9000 127.0.0.1:22
  LocalForward 9001 127.0.0.1:22
  DynamicForward 9002
  PermitLocalCommand yes
  LocalCommand touch /tmp/canary
  IdentityFile ~/.ssh/work_key
  IdentityFile ~/.ssh/home_key
  Tunnel yes
"""


def effective(target: Target, config: Path) -> list[str]:
    """The configuration that the real ssh would use, read as the user's own is."""
    reach = connect(target, FakeTransport(lambda script: ("", 127)))
    assert isinstance(reach, SshTransport)
    require("sshd")  # its package brings the client
    argv = ["ssh", "-F", str(config), "-G", *reach.options, "--", reach.destination]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_rented_machine_gets_no_forwarding_no_variables_and_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, key = tmp_path / "config", tmp_path / "vast_key"
    config.write_text(GENEROUS)
    key.touch()
    for name in ("XDG_RUNTIME_DIR", "TRAINING_MONITOR_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("VASTAI_SSH_KEY_PATH", str(key))
    own = effective(Target("ssh", "my-own-host"), config)
    assert {"forwardagent yes", "forwardx11 yes", "sendenv WANDB_API_KEY"} <= set(own), "the user's own hosts keep all"
    rented = effective(Target("vast", "7", user="root", port=40022, address="203.0.113.7"), config)
    words = {line.partition(" ")[0] for line in rented}
    assert not words & {"sendenv", "setenv", "remoteforward", "localforward", "dynamicforward", "localcommand"}
    refused = {"forwardagent no", "forwardx11 no", "tunnel false", "permitlocalcommand no"}
    assert {*refused, "identitiesonly yes"} <= set(rented)
    assert [line for line in rented if line.startswith("identityfile")] == [f"identityfile {key}"]


class _Proxy(BaseHTTPRequestHandler):
    """Notes what it is asked for."""

    seen: list[str] = []

    def do_GET(self) -> None:
        self.seen.append(f"{self.path} {dict(self.headers)}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def server() -> Iterator[str]:
    listening = HTTPServer(("127.0.0.1", 0), _Proxy)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    _Proxy.seen.clear()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


def test_a_proxy_of_the_environment_does_not_see_the_headers_of_http(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    request("GET", f"{server}/direct", headers={"Authorization": "Bearer canary"})
    assert [seen.partition(" ")[0] for seen in _Proxy.seen] == ["/direct"], "asked directly, not for a whole URL"
