"""User data that a rented machine receives over ssh: only what is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakes import FakeTransport
from tests.hostile.tries import tried
from tests.integration.conftest import require
from training_monitor.targets.kinds.ssh import SshTarget
from training_monitor.targets.kinds.vast import VastTarget
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
    reach = target.connect(FakeTransport(lambda script: ("", 127)))
    assert isinstance(reach, SshTransport)
    require("sshd")  # its package brings the client
    argv = ["ssh", "-F", str(config), "-G", *reach.options, "--", reach.destination]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


RENTED = VastTarget("7", "203.0.113.7", 40022)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without keys, which ssh itself takes from the user database and not from here."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "TRAINING_MONITOR_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("VASTAI_SSH_KEY_PATH", raising=False)
    (tmp_path / "config").write_text(GENEROUS)
    (tmp_path / ".ssh" / "vastai").mkdir(parents=True)
    return tmp_path


def offered(home: Path) -> list[str]:
    """The keys that the real ssh would offer to a rented machine, in its order."""
    lines = effective(RENTED, home / "config")
    assert "identitiesonly yes" in lines
    return [line.partition(" ")[2] for line in lines if line.startswith("identityfile ")]


def test_a_rented_machine_gets_no_forwarding_and_no_variables(home: Path) -> None:
    own = effective(SshTarget("my-own-host"), home / "config")
    assert {"forwardagent yes", "forwardx11 yes", "sendenv WANDB_API_KEY"} <= set(own), "the user's own hosts keep all"
    rented = effective(RENTED, home / "config")
    words = {line.partition(" ")[0] for line in rented}
    assert not words & {"sendenv", "setenv", "remoteforward", "localforward", "dynamicforward", "localcommand"}
    assert {"forwardagent no", "forwardx11 no", "tunnel false", "permitlocalcommand no"} <= set(rented)


def test_a_rented_machine_is_offered_one_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is named, else that for rented machines, else the first of the usual ones, else none."""
    keys = home / ".ssh"
    tries = (*("id_rsa.pub", "id_ed25519.pub"), *("id_rsa", "id_ecdsa", "id_ed25519"), "vastai/vastai_ed25519")
    tried(len(tries) + 2)
    assert offered(home) == ["none"]
    for name in tries:  # each wins over the former
        (keys / name).touch()
        assert offered(home) == [str(keys / name)], name
    (home / "mine").touch()
    monkeypatch.setenv("VASTAI_SSH_KEY_PATH", str(home / "mine"))
    assert offered(home) == [str(home / "mine")]
