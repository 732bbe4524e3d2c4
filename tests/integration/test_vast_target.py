"""vast://ID: the real vastai CLI with a loopback REST API names the ssh address, and real ssh goes there."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SshServer, Surroundings, plain
from tests.loopback.vast import LIST, VastApi
from training_monitor.core.errors import AccessDenied, InstanceNotFound, TargetUnreachable, TrainingMonitorError
from training_monitor.targets.asking import ask, ask_many
from training_monitor.targets.kinds.vast import VastTarget
from training_monitor.targets.target import resolve_target


def failure(target: str) -> TrainingMonitorError:
    with pytest.raises(TrainingMonitorError) as caught:
        resolve_target(target)
    return caught.value


def test_an_instance_becomes_its_ssh_address(vast: VastApi) -> None:
    vast.add_instance(7, ssh_host="ssh7.example", ssh_port=12345)
    target = resolve_target("vast://7")
    assert target == VastTarget("7", "ssh7.example", 12345)
    assert str(target) == "vast://7"
    assert vast.requests[-1] == "GET /api/v0/instances/7/"


def test_an_instance_that_moved_is_found_at_its_new_address(vast: VastApi) -> None:
    vast.add_instance(7, ssh_host="ssh7.example")
    before = resolve_target("vast://7")
    vast.add_instance(7, ssh_host="ssh8.example")
    assert resolve_target(before).address == "ssh8.example"


def test_an_instance_that_is_gone_is_not_found(vast: VastApi) -> None:
    assert type(failure("vast://99")) is InstanceNotFound
    assert vast.requests[-1] == "GET /api/v0/instances/99/"


def test_an_instance_without_an_ssh_address_is_unreachable_and_says_its_status(vast: VastApi) -> None:
    vast.add_instance(7, ssh_host=None, ssh_port=None, actual_status="loading")
    error = failure("vast://7")
    assert type(error) is TargetUnreachable and "loading" in str(error)


def test_an_instance_over_which_the_cli_fails_is_found_in_the_list(vast: VastApi) -> None:
    for number in range(1, 61):
        vast.add_instance(number)
    vast.add_instance(57, ssh_host="ssh57.example", start_date=None)  # the CLI ends with a traceback when it shows it
    assert resolve_target("vast://57").address == "ssh57.example"
    assert vast.about_instances()[-4:] == ["GET /api/v0/instances/57/", LIST, f"{LIST} after 25", f"{LIST} after 50"]


def test_an_instance_is_asked_through_ssh_and_known_by_its_id(
    vast: VastApi, sshd: SshServer, surroundings: Surroundings
) -> None:
    if sshd.user != "root":
        pytest.skip("an instance's user is root, and this server's is not: nothing here was tested")
    vast.add_instance(7, ssh_host="127.0.0.1", ssh_port=sshd.port)
    rows = ask_many(["vast://7", "vast://8"], plain("echo hello"))
    assert rows[0][0].get().output == "hello\n"
    assert isinstance(rows[1][0].failure, InstanceNotFound)
    assert "vast-7 " in (surroundings.folder / "state" / "known_hosts").read_text()
    [answer] = ask("vast://7", plain("exit 3"))
    assert answer.exit_code == 3


def test_a_known_address_is_used_without_the_service(
    vast: VastApi, sshd: SshServer, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sshd.user != "root":
        pytest.skip("an instance's user is root, and this server's is not: nothing here was tested")
    (sshd.folder / "user_key").rename(sshd.folder / "its own key")
    monkeypatch.setenv("VASTAI_SSH_KEY_PATH", str(sshd.folder / "its own key"))
    vast.add_instance(7, ssh_host="127.0.0.1", ssh_port=sshd.port)
    target = resolve_target("vast://7")
    asked = len(vast.requests)
    [answer] = ask(target, plain("echo hello"))
    assert answer.get() and answer.get().output == "hello\n" and len(vast.requests) == asked
    surroundings.disconnect()
    sshd.stop()
    sshd.make_key("host_key")
    sshd.start()
    vast.instances.clear()
    vast.add_instance(8, ssh_host="127.0.0.1", ssh_port=sshd.port)
    assert ask("vast://8", plain("echo hello"))[0].get().output == "hello\n"
    with pytest.raises(AccessDenied, match="Host key verification failed|IDENTIFICATION HAS CHANGED"):
        ask(target, plain("echo hello"))
