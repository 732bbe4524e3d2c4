"""Folders follow the documented variables and nothing else."""

from __future__ import annotations

import os

import pytest

from training_monitor.core import settings
from training_monitor.core.errors import SettingsError


def test_the_state_folder_follows_its_variable_or_xdg_or_home_and_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    for environ, expected in [
        ({"TRAINING_MONITOR_STATE_DIR": "/data/state", "XDG_STATE_HOME": "/elsewhere"}, "/data/state"),
        ({"TRAINING_MONITOR_STATE_DIR": "~/tm"}, "/home/someone/tm"),
        ({"TRAINING_MONITOR_STATE_DIR": "tm"}, os.path.join(os.getcwd(), "tm")),
        ({"XDG_STATE_HOME": "/xdg"}, "/xdg/training_monitor"),
        ({}, "/home/someone/.local/state/training_monitor"),
        ({"XDG_STATE_HOME": ""}, "/home/someone/.local/state/training_monitor"),
        ({"TRAINING_MONITOR_STATE_DIR": ""}, "/home/someone/.local/state/training_monitor"),
    ]:
        assert settings.state_dir(environ) == expected and not os.path.exists(expected)


def test_the_folder_for_sockets_is_per_user_and_short_enough_for_a_socket() -> None:
    found = settings.runtime_dir({})
    assert found == f"/tmp/training_monitor-{os.getuid()}" and len(found) < 60
    assert settings.runtime_dir({"XDG_RUNTIME_DIR": "/run/user/5"}) == f"/run/user/5/training_monitor-{os.getuid()}"


def test_the_cli_gets_its_variables_from_those_that_people_set() -> None:
    for environ, expected in [
        ({}, {}),
        ({"VASTAI_API_KEY": " abc\n"}, {"VAST_API_KEY": "abc"}),
        ({"VAST_API_KEY": "abc"}, {"VAST_API_KEY": "abc"}),
        ({"VASTAI_API_KEY": "abc", "VAST_API_KEY": "def"}, {"VAST_API_KEY": "abc"}),
        ({"VASTAI_API_KEY": " ", "VAST_API_KEY": "def"}, {"VAST_API_KEY": "def"}),
        ({"VASTAI_API_BASE_URL": "https://console.vast.ai/api/v0"}, {"VAST_URL": "https://console.vast.ai"}),
        ({"VASTAI_API_BASE_URL": "https://console.vast.ai/api/v0/"}, {"VAST_URL": "https://console.vast.ai"}),
        ({"VASTAI_API_BASE_URL": "http://127.0.0.1:8080"}, {"VAST_URL": "http://127.0.0.1:8080"}),
        ({"VASTAI_API_BASE_URL": "https://proxy/vast/api/v0"}, {"VAST_URL": "https://proxy/vast"}),
        ({"VAST_URL": "https://elsewhere"}, {}),
    ]:
        assert settings.vast_environment(environ) == expected


@pytest.mark.parametrize("url", ["console.vast.ai", "file:///etc/passwd", "https://", "https://me:secret1@vast.ai"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.vast_environment({"VASTAI_API_BASE_URL": url})
    assert "secret1" not in str(caught.value)


def test_a_proxy_is_left_for_https_alone() -> None:
    for environ, expected in [
        ({"PATH": "/bin", "no_proxy": "a"}, {"PATH": "/bin", "no_proxy": "a"}),
        ({"http_proxy": "p", "HTTP_PROXY": "q", "https_proxy": "r"}, {"https_proxy": "r"}),
        ({"HTTPS_PROXY": "r", "all_proxy": "s"}, {"HTTPS_PROXY": "r", "https_proxy": "r"}),
        ({"https_proxy": "", "ALL_PROXY": "s"}, {"https_proxy": "s"}),
    ]:
        assert settings.without_http_proxies(environ) == expected


def test_the_key_for_instances_is_the_named_or_the_made_one() -> None:
    home = os.path.expanduser("~")
    assert settings.vast_key_path({"VASTAI_SSH_KEY_PATH": "~/mine"}) == f"{home}/mine"
    assert settings.vast_key_path({"VASTAI_SSH_KEY_PATH": ""}) == f"{home}/.ssh/vastai/vastai_ed25519"
