"""The words that reach a target: an instance by its own host key and socket, and what the vastai CLI is given."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeTransport, Program
from training_monitor import check_training
from training_monitor.core.errors import (
    CommandError,
    CommandTimedOut,
    InstanceNotFound,
    SettingsError,
    TargetUnreachable,
    ToolNotFound,
)
from training_monitor.core.results import CommandResult
from training_monitor.targets.kinds.ssh import SshTarget
from training_monitor.targets.kinds.vast import VastTarget
from training_monitor.targets.target import Target, resolve_target
from training_monitor.targets.transport import LocalTransport, SshTransport

INSTANCE = VastTarget("7", "ssh5.vast.ai", 40022)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_RUNTIME_DIR", "TRAINING_MONITOR_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("VASTAI_SSH_KEY_PATH", "VASTAI_API_KEY", "VAST_API_KEY", "VASTAI_API_BASE_URL", "VAST_URL"):
        monkeypatch.delenv(name, raising=False)


def programs(**answers: Program) -> FakeTransport:
    transport = FakeTransport(lambda script: ("", 127))
    for name, answer in answers.items():
        transport.register([name], answer)
    return transport


def vastai(stdout: str, exit_code: int = 0) -> FakeTransport:
    return programs(vastai=lambda words, said: CommandResult(words, exit_code, stdout, "", 0.1))


def options(target: Target) -> list[str]:
    reach = target.connect(FakeTransport(lambda script: ("", 127)))
    assert isinstance(reach, SshTransport)
    return [*reach.options, reach.destination]


def test_an_address_that_is_known_belongs_to_the_instance_and_shares_nothing(tmp_path: Path) -> None:
    words = options(INSTANCE)
    assert words[-3:] == ["-p", "40022", "root@ssh5.vast.ai"] and "-i" not in words
    assert "HostKeyAlias=vast-7" in words
    assert f"ControlPath={tmp_path}/training_monitor-{os.getuid()}/vast-7-40022" in words
    first, second = options(INSTANCE), options(replace(INSTANCE, name="8"))
    differ = {one.partition("=")[0] for one, other in zip(first, second, strict=True) if one != other}
    assert differ == {"HostKeyAlias", "ControlPath"}


def test_a_check_asks_once_where_an_instance_is() -> None:
    there = {"id": 7, "ssh_host": "ssh5.vast.ai", "ssh_port": 40022, "actual_status": "running"}
    asked = list[tuple[str, ...]]()

    def answer(words: tuple[str, ...], said: str | None) -> CommandResult:
        asked.append(words[1:3])
        return CommandResult(words, 0, json.dumps(there), "", 0.1)

    transport = programs(vastai=answer)
    transport.register(["ssh"], lambda words, said: CommandResult(words, 255, "", "Connection refused", 0.1))
    with pytest.raises(CommandError):
        check_training("vast://7", transport=transport)
    assert asked == [("show", "instance")]


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o770, 0o1777])
def test_a_folder_to_which_others_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    sockets = tmp_path / f"training_monitor-{os.getuid()}"
    sockets.mkdir(mode=0o700)
    assert [word for word in options(INSTANCE) if str(sockets) in word]
    sockets.chmod(mode)
    tmp_path.chmod(mode)  # the state folder
    try:
        assert not [word for word in options(INSTANCE) if str(tmp_path) in word]
    finally:
        tmp_path.chmod(0o700)


def test_an_ssh_host_has_no_alias_and_no_key_of_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VASTAI_SSH_KEY_PATH", str(tmp_path / "key"))
    words = options(SshTarget("host"))
    assert words[-1] == "host" and "-i" not in words and not [word for word in words if "HostKeyAlias" in word]


def test_an_instance_is_looked_up_when_its_address_is_not_known() -> None:
    transport = vastai(json.dumps({"id": 7, "ssh_host": "ssh5.vast.ai", "ssh_port": 40022}))
    assert resolve_target("vast://7", transport=transport) == INSTANCE
    reach = VastTarget("7").connect(transport)
    assert isinstance(reach, SshTransport) and reach.destination == "root@ssh5.vast.ai"


def test_an_answer_or_a_list_that_is_none_does_not_make_an_instance_missing() -> None:
    for stdout in ["", "[]", "null", "7", '{"instances": []}', '{"success": false}', "[" * 100_000]:
        with pytest.raises(TargetUnreachable):
            resolve_target("vast://7", transport=vastai(stdout))
    with pytest.raises(InstanceNotFound):
        resolve_target("vast://7", transport=vastai('{"instances": null}'))
    for page in ["", "[]", "null", '{"instances": 7}', '{"instances": [], "next_token": {}}']:

        def answer(words: tuple[str, ...], said: str | None, page: str = page) -> CommandResult:
            failed = words[2] == "instance"
            return CommandResult(words, int(failed), "" if failed else page, "TypeError", 0.1)

        with pytest.raises(TargetUnreachable, match="TypeError"):
            resolve_target("vast://7", transport=programs(vastai=answer))


def test_if_show_fails_the_instance_is_looked_up_in_the_list() -> None:
    there = {"id": 7, "ssh_host": "ssh5.vast.ai", "ssh_port": 40022}
    first, second = {"instances": [None, {"id": "7"}], "next_token": "t"}, {"instances": [{"id": 8}, there]}

    def answer(words: tuple[str, ...], said: str | None) -> CommandResult:
        if words[2] == "instance":
            return CommandResult(words, 1, "", "TypeError: no start date", 0.1)
        return CommandResult(words, 0, json.dumps(second if words[-1] == "--next-token=t" else first), "", 0.1)

    transport = programs(vastai=answer)
    assert resolve_target("vast://7", transport=transport) == INSTANCE
    with pytest.raises(TargetUnreachable, match="no start date"):
        resolve_target("vast://9", transport=transport)


def test_an_address_that_is_none_is_refused_in_few_words() -> None:
    for row in [
        {},
        {"ssh_host": "h", "ssh_port": None},
        {"ssh_host": "-oProxyCommand=id", "ssh_port": 22},
        {"ssh_host": "a b", "ssh_port": 22},
        {"ssh_host": "h\n", "ssh_port": 22},
        {"ssh_host": "h", "ssh_port": 70000},
        {"ssh_host": "h", "ssh_port": "22 -o x"},
        {"ssh_host": ["h"], "ssh_port": {"a": 1}},
        {"ssh_host": "h" * 9000 + "/", "ssh_port": 22, "actual_status": "x" * 9000},
        {"ssh_host": None, "actual_status": "x" * 9000},
        {"public_ipaddr": "-oProxyCommand=id", "ports": {"22/tcp": [{"HostPort": "22 -o x"}]}},
    ]:
        with pytest.raises(TargetUnreachable) as caught:
            VastTarget("7").at_address(row)
        assert len(str(caught.value)) < 300


RUNNING = {"ssh_host": "ssh5.vast.ai", "ssh_port": 40022, "actual_status": "running"}
OPEN = {"public_ipaddr": " 192.0.2.1\n", "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "41234"}]}}
REFUSED = "ssh: connect to host ssh5.vast.ai port 40022: Connection refused"


def reach(row: dict[str, Any], **answers: str) -> str:
    """Return where an instance of this row is reached; `answers` has what ssh says of a host that does not answer."""

    def answer(words: tuple[str, ...], said: str | None) -> CommandResult:
        host = words[words.index("--") + 1].partition("@")[2].replace(".", "_")
        return CommandResult(words, 255 if host in answers else 0, "", answers.get(host, ""), 0.1)

    found = VastTarget("7").at_address(row).connect(programs(ssh=answer))
    assert isinstance(found, SshTransport)
    return f"{found.destination}:{found.options[-1]}"


def test_an_instance_is_reached_by_its_proxy_while_that_answers_else_directly() -> None:
    assert reach({**RUNNING, **OPEN}) == "root@ssh5.vast.ai:40022"
    denied = "root@ssh5.vast.ai: Permission denied (publickey)."
    assert reach({**RUNNING, **OPEN}, ssh5_vast_ai=denied) == "root@ssh5.vast.ai:40022"
    for said in [
        REFUSED,
        "ssh: Could not resolve hostname ssh5.vast.ai: Name or service not known",
        "kex_exchange_identification: Connection closed by remote host",
    ]:
        assert reach({**RUNNING, **OPEN}, ssh5_vast_ai=said) == "root@192.0.2.1:41234"
    assert reach({**RUNNING, **OPEN, "ssh_host": None}) == "root@192.0.2.1:41234"
    assert reach({**RUNNING, "ssh_host": None, "ports": {"22/tcp": None}, **OPEN}) == "root@192.0.2.1:41234"
    for ports in (None, {}, {"22/tcp": None}, {"22/tcp": []}, {"22/tcp": [None]}, {"22/tcp": [{}]}, {"22/tcp": "x"}):
        with pytest.raises(TargetUnreachable, match="no usable ssh address.*rented without ssh"):
            reach({**RUNNING, **OPEN, "ssh_host": None, "ports": ports})


def test_an_instance_that_cannot_start_says_why() -> None:
    said = "Error response from daemon: OCI runtime create failed\nnvidia-container-cli: driver not loaded"
    row = {**RUNNING, "actual_status": "created", "status_msg": said}
    for message, hint in ((said, "another machine"), ("pulling layers", "wait until")):
        with pytest.raises(TargetUnreachable) as caught:
            reach({**row, "status_msg": message}, ssh5_vast_ai=REFUSED)
        assert hint in (caught.value.hint or "")
    with pytest.raises(TargetUnreachable, match="no response over ssh .status not known yet"):
        reach({**RUNNING, "actual_status": None}, ssh5_vast_ai=REFUSED)
    for address in ("ssh5.vast.ai", None):
        with pytest.raises(TargetUnreachable, match=r"\(status created: Error .* driver not loaded\)"):
            reach({**row, "ssh_host": address}, ssh5_vast_ai=REFUSED)
    for former in "success, running vastai/pytorch", "Success, running vastai/pytorch", " \n":
        with pytest.raises(TargetUnreachable, match=r"\(status exited\)"):
            reach({**row, "actual_status": "exited", "status_msg": former}, ssh5_vast_ai=REFUSED)
    pulling = VastTarget("7").at_address({**row, "status_msg": "layer 3 of 9"})
    assert pulling == VastTarget("7").at_address({**row, "status_msg": "layer 4 of 9"})


def test_an_instance_that_does_not_run_is_said_not_to() -> None:
    down, to_stop = {"cur_state": "stopped"}, {"intended_status": "stopped"}
    for status, hint, more in [
        ("exited", "vastai start instance 7", {}),
        ("offline", "lost the connection to vast.ai", to_stop),
        ("loading", "wait until", {}),
        ("scheduled", "raise the bid", {"actual_status": "exited", "intended_status": "running", **down}),
        ("stopping", "vastai start instance 7", {"actual_status": "running", **to_stop}),
        ("stopped", "vastai start instance 7", {"actual_status": "created", **to_stop, **down}),  # it has never run
    ]:
        row = {**RUNNING, "actual_status": status, **more}
        assert reach(row) == "root@ssh5.vast.ai:40022"  # what answers is there, whatever was said of it
        with pytest.raises(TargetUnreachable, match=f"status {status}") as caught:
            reach({**row, **OPEN}, ssh5_vast_ai=REFUSED, **{"192_0_2_1": "ssh: connect to host 192.0.2.1: timed out"})
        assert hint in (caught.value.hint or "")
    for odd in ({"actual_status": ["running"]}, {"actual_status": "exited", "cur_state": {}}):
        assert reach({**RUNNING, **odd}) == "root@ssh5.vast.ai:40022"


def tool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "vastai").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "vastai").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_cli_alone_gets_its_variables_and_its_words_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, 'printf "%s|" "$VAST_API_KEY" "$VAST_URL" "$@"', monkeypatch)
    monkeypatch.setenv("VASTAI_API_KEY", "abc")
    monkeypatch.setenv("VASTAI_API_BASE_URL", "https://console.vast.ai/api/v0/")
    monkeypatch.setenv("VAST_URL", "https://elsewhere")
    result = LocalTransport().run(["vastai", "a b", "-c", "it's\n"], timeout=10)
    assert result.stdout == "abc|https://console.vast.ai|a b|-c|it's\n|"
    assert result.argv == ("vastai", "a b", "-c", "it's\n")
    monkeypatch.setenv("VASTAI_API_KEY", "abc")
    result = LocalTransport().run(["sh", "-c", "echo $VAST_API_KEY"], timeout=10)
    assert result.stdout == "\n"
    monkeypatch.setenv("VASTAI_API_BASE_URL", "console.vast.ai")
    with pytest.raises(SettingsError, match="VASTAI_API_BASE_URL"):
        LocalTransport().run(["vastai", "show"], timeout=10)


def test_its_exit_status_time_limit_and_absence_are_told_like_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, 'case $1 in hang) exec sleep 60;; esac; cat; echo "no" >&2; exit 3', monkeypatch)
    result = LocalTransport().run(["vastai", "x"], timeout=10, input="y\n")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "y\n", "no\n")
    with pytest.raises(CommandTimedOut, match="vastai did not respond within"):
        LocalTransport().run(["vastai", "hang"], timeout=0.3)
    (tmp_path / "vastai").unlink()
    with pytest.raises(ToolNotFound, match="vastai is not installed"):
        LocalTransport().run(["vastai", "x"], timeout=10)
