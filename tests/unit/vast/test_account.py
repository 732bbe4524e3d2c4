"""The account's money, its ssh keys and the variables of the CLI, out of what vastai and ssh-keygen say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes import FakeTransport
from tests.unit.vast.test_instances import Said, recorded
from training_monitor.core.errors import AccessDenied, CommandError, CommandFailed, SettingsError, ToolNotFound
from training_monitor.core.results import CommandResult
from training_monitor.vast.account import Balance, account_balance, check_ssh_keys, list_ssh_keys, setup_ssh_key

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJmyQ1Zc0mQ0P2Nn0Yd0r0E9yTqXq5B0bq8m2f0a1b2c training_monitor"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtherOtherOtherOtherOtherOtherOtherOther someone"


@dataclass
class Tools:
    """vastai with an account, and ssh-keygen; what either says can be set."""

    keys: list[object] = field(default_factory=list)
    says: dict[str, Said] = field(default_factory=dict)  # by the words after vastai
    derived: str = PUBLIC  # what ssh-keygen -y says; nothing: it fails
    no_keygen: bool = False
    keygen_fails: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def transport(self) -> FakeTransport:
        transport = FakeTransport(lambda script: ("", 127))
        transport.register(["vastai"], self._vastai)
        transport.register(["ssh-keygen"], self._keygen)
        return transport

    def _vastai(self, words: tuple[str, ...], said: str | None) -> CommandResult:
        self.calls.append(words)
        what = " ".join(words[1:3])
        if what in self.says:
            return CommandResult(words, *self.says[what], 0.1)
        if what == "create ssh-key":
            self.keys.append({"id": 101 + len(self.keys), "public_key": words[3]})
            return CommandResult(words, 0, "ssh-key created\n", "", 0.1)
        return CommandResult(words, 0, json.dumps(self.keys), "", 0.1)

    def _keygen(self, words: tuple[str, ...], said: str | None) -> CommandResult:
        self.calls.append(words)
        if self.no_keygen:
            raise ToolNotFound("ssh-keygen is not installed here")
        if words[1] == "-y":
            bad = "Load key: incorrect passphrase supplied to decrypt private key\n"
            code = 0 if self.derived and not self.keygen_fails else 255
            return CommandResult(words, code, self.derived, "" if self.derived else bad, 0.1)
        Path(words[-1]).write_text("private")
        Path(words[-1]).chmod(0o600)
        Path(f"{words[-1]}.pub").write_text(PUBLIC)
        return CommandResult(words, 0, "", "", 0.1)

    def created(self) -> list[tuple[str, ...]]:
        return [words for words in self.calls if words[1:3] == ("create", "ssh-key")]

    def made(self) -> list[tuple[str, ...]]:
        return [words for words in self.calls if words[0] == "ssh-keygen" and words[1] != "-y"]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("private")
    path.chmod(0o600)
    return path


def balance(said: Said) -> Balance:
    return account_balance(transport=Tools(says={"show user": said}).transport)


# ---------------------------------------------------------------- money


def test_the_money_is_named_as_by_the_service_and_may_be_negative_or_unknown() -> None:
    assert balance(recorded("user")) == Balance(credit=12.5, balance=0.0, balance_threshold=5.0, can_pay=True)
    said = {"credit": -0.25, "balance": None, "balance_threshold": "5", "can_pay": 1}
    assert balance((0, json.dumps(said), "")) == Balance(-0.25)


@pytest.mark.parametrize("name", ["refused", "html", "list", "500", "no_credit"])
def test_an_answer_that_is_none_is_an_error_not_an_account_without_money(name: str) -> None:
    with pytest.raises(CommandError) as caught:
        balance(recorded(f"user_answer_{name}"))
    assert type(caught.value) is not AccessDenied


CREDITS = ["", "{}", "[]", "0", '{"credit": "12"}', '{"credit": true}', '{"credit": NaN}']


@pytest.mark.parametrize("text", [*CREDITS, '{"success": false, "credit": 0}', '{"success": null, "credit": 0}'])
def test_a_credit_that_is_no_number_or_beside_a_refusal_is_an_error(text: str) -> None:
    with pytest.raises(CommandError):
        balance((0, text, ""))


def test_a_wrong_key_is_access_denied() -> None:
    with pytest.raises(AccessDenied):
        balance(recorded("user_wrong_key"))
    with pytest.raises(AccessDenied):
        list_ssh_keys(transport=Tools(says={"show ssh-keys": recorded("ssh_keys_wrong_key")}).transport)


def test_keys_are_listed_under_any_name_and_deleted_ones_are_not() -> None:
    rows: list[object] = [
        {"id": 1, "public_key": PUBLIC},
        {"id": 2, "ssh_key": f"{OTHER}\n"},
        {"id": 3, "key": "/home/me/.ssh/id.pub"},
        {"id": 4, "public_key": PUBLIC, "deleted_at": "2026-01-01"},
    ]
    expected = {1: PUBLIC, 2: OTHER, 3: "/home/me/.ssh/id.pub"}
    assert list_ssh_keys(transport=Tools(rows).transport) == expected
    wrapped = (0, json.dumps({"success": True, "ssh_keys": rows}), "")
    assert list_ssh_keys(transport=Tools(says={"show ssh-keys": wrapped}).transport) == expected
    assert list_ssh_keys(transport=Tools(says={"show ssh-keys": recorded("ssh_keys_none")}).transport) == {}


def test_what_cannot_be_read_is_an_error_not_an_account_without_keys(subtests: pytest.Subtests) -> None:
    for answer in [None, 1, {}, {"ssh_keys": None}, [None], [{"id": 1}], [{"public_key": PUBLIC}]]:
        with subtests.test(answer=answer):
            tools = Tools(says={"show ssh-keys": (0, json.dumps(answer), "")})
            with pytest.raises(CommandError):
                list_ssh_keys(transport=tools.transport)


# ---------------------------------------------------------------- a key of ours


def test_a_registered_key_is_found_whatever_its_comment(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, number, _ = PUBLIC.split()
    report = check_ssh_keys(str(key), transport=Tools([{"id": 5, "key": f"{kind} {number} of my laptop"}]).transport)
    assert report.registered and report.key_id == 5 and report.usable and report.public_key == PUBLIC
    report = check_ssh_keys(str(key), transport=Tools([{"id": 5, "key": OTHER}]).transport)
    assert not report.registered and report.key_id is None and not report.usable
    monkeypatch.setenv("VASTAI_SSH_KEY_PATH", str(key))
    assert check_ssh_keys(transport=Tools().transport).private_key == str(key)


def test_a_public_key_that_belongs_to_another_private_key_is_not_believed(key: Path) -> None:
    Path(f"{key}.pub").write_text(OTHER)
    assert not check_ssh_keys(str(key), transport=Tools([{"id": 5, "key": OTHER}]).transport).registered


@pytest.mark.parametrize(
    "tools",
    [Tools(derived=""), Tools(derived=OTHER, keygen_fails=True), Tools(no_keygen=True)],
    ids=["passphrase", "fails", "no ssh-keygen"],
)
def test_a_private_key_that_does_not_tell_is_known_by_its_public_file(key: Path, tools: Tools) -> None:
    Path(f"{key}.pub").write_text(f"{PUBLIC}\n")
    assert check_ssh_keys(str(key), transport=tools.transport).public_key == PUBLIC


@pytest.mark.parametrize("public", [None, "", "no key", "-----BEGIN OPENSSH PRIVATE KEY-----"])
def test_a_private_key_that_nobody_can_tell_is_refused_before_anything_is_asked(key: Path, public: str | None) -> None:
    if public is not None:
        Path(f"{key}.pub").write_text(public)
    tools = Tools(derived="")
    with pytest.raises(SettingsError, match="incorrect passphrase"):
        check_ssh_keys(str(key), transport=tools.transport)
    assert [words[0] for words in tools.calls] == ["ssh-keygen"]


def test_a_file_that_is_not_there_or_cannot_be_made_is_refused(key: Path) -> None:
    with pytest.raises(SettingsError):
        check_ssh_keys(str(key.with_name("none")), transport=Tools().transport)
    with pytest.raises(SettingsError):
        setup_ssh_key(str(key / "below a file" / "key"), transport=Tools().transport)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_reported(key: Path, mode: int) -> None:
    key.chmod(mode)
    report = check_ssh_keys(str(key), transport=Tools([{"id": 5, "key": PUBLIC}]).transport)
    assert report.registered and report.open_to_others and not report.usable


# ---------------------------------------------------------------- a new key


def test_a_pair_is_made_and_registered_once(tmp_path: Path) -> None:
    tools, path = Tools([{"id": 5, "key": OTHER}]), tmp_path / "ssh" / "vastai" / "key"
    first = setup_ssh_key(str(path), transport=tools.transport)
    second = setup_ssh_key(str(path), transport=tools.transport)
    assert first.made and first.usable and first.key_id == 102
    assert not second.made and second.usable
    assert len(tools.made()) == 1 and tools.created() == [("vastai", "create", "ssh-key", PUBLIC)]
    assert [folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]


def test_neither_a_pair_nor_a_public_key_alone_is_overwritten(key: Path) -> None:
    tools = Tools()
    report = setup_ssh_key(str(key), transport=tools.transport)
    assert report.registered and not report.made and not tools.made() and key.read_text() == "private"
    tools, public = Tools(), key.with_name("other.pub")
    public.write_text(OTHER)
    with pytest.raises(SettingsError, match="not overwritten"):
        setup_ssh_key(str(key.with_name("other")), transport=tools.transport)
    assert public.read_text() == OTHER and tools.calls == []


@pytest.mark.parametrize("name", ["ssh_key_refused", "ssh_key_created"])
def test_a_key_that_is_not_listed_afterwards_is_a_failure_with_what_vastai_said(key: Path, name: str) -> None:
    tools = Tools(says={"create ssh-key": recorded(name)})
    with pytest.raises(CommandFailed, match="Note: You may need"):
        setup_ssh_key(str(key), transport=tools.transport)


def test_nothing_is_registered_without_permission_or_a_list(key: Path) -> None:
    tools = Tools(says={"create ssh-key": recorded("ssh_key_wrong_key")})
    with pytest.raises(AccessDenied):
        setup_ssh_key(str(key), transport=tools.transport)
    tools = Tools(says={"show ssh-keys": recorded("ssh_keys_refused")})
    with pytest.raises(CommandError):
        setup_ssh_key(str(key), transport=tools.transport)
    assert tools.created() == []
