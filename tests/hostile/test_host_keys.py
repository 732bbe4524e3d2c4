"""Hosts whose key differs from the key in the user's files: refused, and no file is overwritten."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.integration.conftest import SshServer, Surroundings, plain
from training_monitor.core.errors import AccessDenied
from training_monitor.core.results import CommandResult
from training_monitor.core.settings import runtime_dir
from training_monitor.targets.asking import ask
from training_monitor.targets.target import parse_target
from training_monitor.targets.transport import SshTransport, explain_failure


class Client:
    """The user's ssh, whose configuration and files of host keys a test writes."""

    def __init__(self, sshd: SshServer, surroundings: Surroundings) -> None:
        self.sshd, self.surroundings = sshd, surroundings
        self.folder = surroundings.folder / "own files"
        self.folder.mkdir()
        self.file, self.ours = self.folder / "known hosts", surroundings.folder / "state" / "known_hosts"
        self.config = (sshd.folder / "ssh_config").read_text()
        self.name = f"[127.0.0.1]:{sshd.port}"
        self.configure(f'UserKnownHostsFile "{self.file}"')

    def configure(self, *settings: str) -> None:
        given = "\n  ".join(settings)
        kept = self.config if "Global" not in given else self.config.replace("GlobalKnownHostsFile none", "")
        (self.sshd.folder / "ssh_config").write_text(f"Host *\n  {given}\n{kept}")

    def key(self, kind: str) -> str:
        """The server's key, another of the same type, or one of another type."""
        if kind == "right":
            return " ".join((self.sshd.folder / "host_key.pub").read_text().split()[:2])
        path = self.folder / kind
        if not path.exists():
            words = ["-t", "ecdsa"] if kind == "another type" else ["-t", "ed25519"]
            subprocess.run(
                ["ssh-keygen", "-q", *words, "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
            )
        return " ".join(path.with_name(f"{kind}.pub").read_text().split()[:2])

    def write(self, *lines: str, file: Path | None = None) -> None:
        (file or self.file).write_text("".join(f"{line}\n" for line in lines))

    def reach(self) -> str | None:
        """Connect anew; None if that works, else the error."""
        self.surroundings.disconnect()
        try:
            [answer] = ask(self.sshd.address, plain("echo hello"))
            assert answer.get().output == "hello\n"
        except AccessDenied as error:
            return str(error)
        return None


@pytest.fixture
def client(sshd: SshServer, surroundings: Surroundings) -> Client:
    return Client(sshd, surroundings)


def by_name(client: Client, key: str) -> None:
    client.write(f"{client.name} {key}")


def hashed(client: Client, key: str) -> None:
    by_name(client, key)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(client.file)], check=True, capture_output=True)


def by_pattern(client: Client, key: str) -> None:
    client.write("# a comment", f"other,[127.0.0.*]:{client.sshd.port} {key}")


def beside_others(client: Client, key: str) -> None:
    client.write(
        f"elsewhere {client.key('of another host')}", f"@revoked * {client.key('stolen')}", f"{client.name} {key}"
    )


def by_alias(client: Client, key: str) -> None:
    client.configure(f'UserKnownHostsFile "{client.file}"', "HostKeyAlias the-cluster")
    client.write(f"the-cluster {key}")


def in_second_file(client: Client, key: str) -> None:
    second = client.folder / "second"
    client.configure(f'UserKnownHostsFile "{client.file}" {shlex.quote(str(second))}'.replace("'", '"'))
    client.write(f"{client.name} {key}", file=second)


def in_global_file(client: Client, key: str) -> None:
    client.configure(f'UserKnownHostsFile "{client.file}"', f'GlobalKnownHostsFile "{client.folder}/everybodys"')
    client.write(f"{client.name} {key}", file=client.folder / "everybodys")


def by_token(client: Client, key: str) -> None:
    client.configure(f'UserKnownHostsFile "{client.folder}/of-%h"')
    client.write(f"{client.name} {key}", file=client.folder / "of-127.0.0.1")


WAYS: tuple[Callable[[Client, str], None], ...] = (
    by_name, hashed, by_pattern, beside_others, by_alias, in_second_file, in_global_file, by_token,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_only_the_users_files_count_where_they_know_the_host(
    client: Client, way: Callable[[Client, str], None]
) -> None:
    for kind, remembered in (("another", True), ("another type", False)):
        tried()
        client.ours.parent.mkdir(exist_ok=True, mode=0o700)
        client.ours.unlink(missing_ok=True)
        if remembered:  # our own file holds what the host shows, from before
            client.write(f"{client.name},the-cluster {client.key('right')}", file=client.ours)
        way(client, client.key(kind))
        files = {path: path.read_text() for path in (*client.folder.iterdir(), client.ours) if path.is_file()}
        error = client.reach()
        assert error and "ssh-keygen -R" in error, (kind, remembered, error)
        now = {path: path.read_text() for path in (*client.folder.iterdir(), client.ours) if path.is_file()}
        assert now == files
    client.ours.unlink(missing_ok=True)
    way(client, client.key("right"))
    before = client.file.read_text() if client.file.exists() else ""
    assert client.reach() is None
    assert not client.ours.exists() and (client.file.read_text() if client.file.exists() else "") == before


def test_a_key_that_the_user_revoked_is_refused_for_a_new_host(client: Client) -> None:
    tried()
    client.write(f"@revoked * {client.key('right')}")
    assert client.reach() and not client.ours.exists()


def test_a_revoked_key_makes_no_host_known(client: Client) -> None:
    tried()
    client.write(f"@revoked * {client.key('stolen')}")
    assert client.reach() is None and client.name in client.ours.read_text()


def test_an_authority_of_the_users_is_not_replaced_by_a_first_key(client: Client) -> None:
    tried()
    client.write(f"@cert-authority {client.name} {client.key('another')}")
    assert client.reach() and not client.ours.exists()


def test_a_new_host_is_remembered_in_our_file_and_then_held_to_it(client: Client) -> None:
    client.write(f"elsewhere {client.key('another')}")
    before = client.file.read_text()
    assert client.reach() is None
    assert client.ours.read_text().startswith(client.name) and client.file.read_text() == before
    client.sshd.stop()
    client.sshd.make_key("host_key")
    client.sshd.start()
    tried()
    assert client.reach()


def test_the_advice_is_the_command_that_helps(client: Client) -> None:
    """For the user's file, whose name holds a space, and for our own."""
    by_name(client, client.key("another"))
    for file in (client.file, client.ours):
        tried()
        error = client.reach()
        assert error
        command = next(part for part in error.split("Try: ")[-1].split("\n") if "ssh-keygen" in part)
        command = command[command.index("ssh-keygen") :]
        assert shlex.split(command) == ["ssh-keygen", "-R", client.name, "-f", str(file)]
        subprocess.run(shlex.split(command), check=True, capture_output=True)
        assert client.reach() is None and client.name in client.ours.read_text()
        client.sshd.stop()
        client.sshd.make_key("host_key")
        client.sshd.start()


def test_the_users_configuration_is_read_once_for_a_shared_connection(client: Client) -> None:
    counted = client.folder / "counted"
    real = (client.surroundings.tools / "ssh").read_text()
    (client.surroundings.tools / "ssh").write_text(real.replace("exec ", f"echo \"$1\" >>'{counted}'; exec ", 1))
    for _ in range(6):
        [answer] = ask(client.sshd.address, plain("echo hello"))
        assert answer.get().output == "hello\n"
    assert counted.read_text().split().count("-G") in (1, 2)


# ---------------------------------------------------------------- the folder of sockets and keys


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
def test_a_folder_to_which_others_can_write_holds_no_sockets_and_no_keys(client: Client, mode: int) -> None:
    tried(2)
    state, sockets = client.ours.parent, Path(runtime_dir())
    assert client.reach() is None
    client.surroundings.disconnect()
    client.ours.unlink()
    for folder in (state, sockets):
        folder.chmod(mode)
    reach = parse_target(client.sshd.address).connect(None)
    assert isinstance(reach, SshTransport)
    assert not [option for option in reach.options if str(state) in option or str(sockets) in option]
    assert client.reach() is None
    assert not client.ours.exists() and not list(sockets.iterdir())


@pytest.mark.parametrize("kind", ["link", "file", "another user's"])
def test_what_is_not_our_own_folder_holds_no_sockets_and_no_keys(client: Client, kind: str, tmp_path: Path) -> None:
    if kind == "another user's" and os.geteuid() != 0:
        pytest.skip("only root can give a folder away: nothing here was tested")
    tried(2)
    state, sockets = client.ours.parent, Path(runtime_dir())
    for number, folder in enumerate((state, sockets)):
        if folder.exists():
            folder.rmdir()
        if kind == "link":
            (tmp_path / f"elsewhere-{number}").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / f"elsewhere-{number}")
        elif kind == "file":
            folder.touch(mode=0o600)
        else:
            folder.mkdir(mode=0o700)
            os.chown(folder, 65534, -1)
    reach = parse_target(client.sshd.address).connect(None)
    assert isinstance(reach, SshTransport)
    assert not [option for option in reach.options if str(state) in option or str(sockets) in option]


def test_no_words_of_a_host_become_a_command_of_the_advice() -> None:
    """A host that was reached can print what ssh would, and end as ssh does."""
    for file, name in (("a'; touch owned; '", "host"), ("file", "h';id;'"), ("a\n", "host"), ("$(id)", "`id`")):
        tried()
        stderr = f"Offending ED25519 key in {file}:1\nHost key for {name} has changed and\n"
        hint = explain_failure(CommandResult(("ssh",), 255, "", stderr, 0.1), "ssh://host").hint or ""
        words = shlex.split(hint.partition(": ")[2]) if "ssh-keygen" in hint else []
        assert words in ([], ["ssh-keygen", "-R", name, "-f", file]), hint
