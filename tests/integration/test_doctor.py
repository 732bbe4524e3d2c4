"""`doctor` with real tools: what it says, that it fits on a screen, and what mends what it finds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import SshServer
from tests.integration.screens import Screen
from tests.integration.service_world import NVIDIA_SMI
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.loopback.vast import VastApi
from tests.requirements import require
from training_monitor.core.store import STATE_FILE, Store

SECRET = "123456:AAAAsecretAAAAsecretAAAAsecretAAAA"


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    """A home folder without anything, and no variables of the package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINING_MONITOR_", "XDG_"))}
    with patch.dict(os.environ, {**kept, "HOME": str(tmp_path), "SHELL": "/bin/bash"}, clear=True):
        yield tmp_path


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    screen = Screen(tmp_path)
    yield screen
    screen.tmux("kill-server")


def checks(*words: str, **environ: str) -> dict[str, dict[str, Any]]:
    done = run_command("doctor", *words, "--json", **environ)
    assert done.returncode in (0, 1) and SECRET not in done.stdout + done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_every_check_has_a_group_a_state_and_what_mends_it() -> None:
    found = checks()
    assert {"python", "settings file", "state folder", "terminal", "completion", "nvidia-smi"} <= {*found}
    assert {"kubectl", "ssh", "rsync", "vastai", "channels"} <= {*found}
    for check in found.values():
        assert check["state"] in ("ok", "missing", "broken") and check["group"] and check["found"]
        assert check["remedy"] or check["state"] == "ok", check


def test_without_any_tool_nothing_is_broken(tmp_path: Path) -> None:
    done = run_command("doctor", PATH=str(tmp_path))
    assert done.returncode == 0 and "✗" not in done.stdout
    for name in ("kubectl", "ssh", "rsync", "vastai", "nvidia-smi"):
        assert re.search(rf"^  – missing {name} +not on PATH.*\n +→ ", done.stdout, re.MULTILINE), name
    assert done.stdout.endswith("missing (only a problem if you need them)\n")


def test_nvidia_smi_is_found_where_images_have_it(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    mount = 'mount -t tmpfs none /opt && mkdir /opt/bin && cp -p "$0"/nvidia-smi /opt/bin && exec "$@"'
    words = [require("unshare"), "--mount", "sh", "-c", mount, tmp_path, sys.executable, "-m", "training_monitor"]
    done = subprocess.run([*words, "doctor", "--json"], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    [found] = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "nvidia-smi"]
    assert found["state"] == "ok", found


def test_the_suggested_command_makes_a_valid_settings_file(home: Path) -> None:
    found = checks()["settings file"]
    assert (found["state"], found["remedy"]) == ("missing", "training-monitor config --init")
    if sys.version_info >= (3, 11):
        assert run_command("config", "--init").returncode == 0
        assert checks()["settings file"]["state"] == "ok"
    file = home / "x.json"
    file.write_text(json.dumps({"fleet": {"interval": 0}, "notifications": {"telegram": {"token": SECRET}}}, indent=1))
    broken = checks(TRAINING_MONITOR_SETTINGS=str(file))
    assert broken["settings file"]["state"] == broken["channels"]["state"] == "broken", "others can read the token"
    assert broken["settings file"]["remedy"] == "training-monitor config --check"
    assert "line 3" in broken["settings file"]["found"]


def test_channels_are_looked_at_without_sending(home: Path) -> None:
    file = home / "x.json"
    channels = {"command": {"argv": ["/no/such/program"]}, "desktop": {}, "ntfy": {"url": "http://127.0.0.1:9/x"}}
    file.write_text(json.dumps({"notifications": {**channels, "telegram": {"token": SECRET}}}))
    file.chmod(0o600)
    found = checks(TRAINING_MONITOR_SETTINGS=str(file), PATH="/nowhere")
    assert found["command"]["state"] == "broken" and "/no/such/program is not on PATH" in found["command"]["found"]
    assert found["desktop"]["state"] == "broken" and "notify-send" in found["desktop"]["found"]
    assert found["telegram"]["state"] == "broken" and "chat_id" in found["telegram"]["found"]
    assert found["channels"]["state"] == "ok" and found["channels"]["found"].startswith("ntfy;")
    assert checks()["channels"]["state"] == "missing"


def test_a_state_file_others_can_read_is_reported_until_fixed(home: Path) -> None:
    folder = home / ".local" / "state" / "training_monitor"
    Store(str(folder))
    assert "free" in checks()["state folder"]["found"]
    (folder / STATE_FILE).chmod(0o644)
    found = checks()["state folder"]
    assert found["state"] == "broken" and "(mode 0644)" in found["found"]
    subprocess.run(["sh", "-c", found["remedy"]], check=True)
    assert checks()["state folder"]["state"] == "ok"
    folder.chmod(0o777)
    found = checks()["state folder"]
    assert found["state"] == "broken" and "writable by other users" in found["found"]
    assert "chmod go-w" in found["remedy"]


@pytest.mark.parametrize(
    ("shell", "rc"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish/config.fish")]
)
def test_completion_is_set_up_by_what_it_says(shell: str, rc: str, home: Path) -> None:
    (home / ".config" / "fish").mkdir(parents=True)
    found = checks(SHELL=f"/usr/bin/{shell}")["completion"]
    assert found["state"] == "missing"
    subprocess.run(["sh", "-c", found["remedy"]], check=True)
    found = checks(SHELL=f"/usr/bin/{shell}")["completion"]
    assert found["state"] == "ok" and found["found"].endswith(rc)
    assert checks(SHELL="/bin/dash")["completion"]["state"] == "missing"


def test_a_target_says_what_it_is_and_how_far_its_clock_is_off(sshd: SshServer, home: Path) -> None:
    (home / "bin").mkdir()
    date = home / "bin" / "date"
    date.write_text('#!/bin/sh\n[ "$*" = +%s ] || exec /bin/date "$@"\necho $(($(/bin/date +%s) - 7200))\n')
    date.chmod(0o755)
    found = checks("local", sshd.address)
    assert found["local"]["found"].startswith("Linux ") and "clock" not in found["local"]["found"]
    assert found[sshd.address]["state"] == "ok" and found["local"]["group"] == "targets"
    off = checks("local", PATH=f"{home / 'bin'}:{os.environ['PATH']}")["local"]["found"]
    assert re.search(r", its clock is (2h00m|1h59m) behind$", off)


def test_a_target_that_was_mistyped_is_answered_with_the_one_that_was_meant() -> None:
    found = checks("lcoal", "shh://x")
    assert found["lcoal"]["state"] == "broken" and found["lcoal"]["remedy"] == "did you mean local?"
    assert "did you mean ssh://?" in found["shh://x"]["found"]


def test_keys_are_named_by_their_files_and_a_hostile_name_steers_no_terminal(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id\x1b[31m\nbad.pub").touch()
    assert checks()["ssh keys"]["state"] == "ok"
    done = run_command("doctor")
    assert all(line.isprintable() for line in done.stdout.splitlines()) and "files: id bad;" in done.stdout


def test_when_all_is_well_it_fits_on_a_screen(kube: KubernetesApi, pod: Pod, vast: VastApi, screen: Screen) -> None:
    home = Path(os.environ["HOME"])  # of the fixtures
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "id_ed25519.pub").touch()
    (home / ".bashrc").write_text('eval "$(training-monitor completion bash)"\n')
    settings = home / "settings.json"
    settings.write_text(json.dumps({"notifications": {"ntfy": {"url": "http://127.0.0.1:9/x"}}}))
    settings.chmod(0o600)
    (home / "bin").mkdir()
    smi = home / "bin" / "nvidia-smi"
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
    assert run_command("rent", "keys", "--setup").returncode == 0
    names = ("PATH", "HOME", "SHELL", "KUBECONFIG", *(name for name in os.environ if name.startswith("VAST")))
    environ = {name: os.environ[name] for name in names if name in os.environ}
    environ |= {"TRAINING_MONITOR_SETTINGS": str(settings), "TERM": "xterm-256color"}
    environ["PATH"] = f"{home / 'bin'}:{environ['PATH']}"
    screen.start("80x24", sys.executable, "-m", "training_monitor", "doctor", **environ)
    screen.shows(r"status=\d")
    shown = screen.text()
    assert "status=0" in shown and re.search(r"^this machine\n  ✓ ok      python", shown, re.MULTILINE), shown
    assert "all checks passed" in shown and "→" not in shown, shown


def test_a_terminal_without_utf8_gets_plain_marks() -> None:
    environ = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "COLUMNS": "80"}
    environ.pop("PYTHONIOENCODING", None)
    words = [sys.executable, "-m", "training_monitor", "doctor"]
    done = subprocess.run(words, capture_output=True, env=environ, cwd=Path(__file__).parents[2])
    assert done.returncode in (0, 1) and done.stdout.isascii() and b"  + ok      python" in done.stdout, done
