"""What a rented machine gets of the user through ssh: only what is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakes import FakeTransport
from tests.integration.conftest import require
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
