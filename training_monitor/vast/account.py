"""The money and the ssh keys of a vast.ai account, through the vastai CLI.

Measured with vastai 1.9.1 (tests/recorded/vastai): `show user --raw` drops the API key from its output.
`create ssh-key` takes the text of a key, registers a path as if it were a key, and without an argument replaces
~/.ssh/id_ed25519; like every other command it exits 0 when refused, so only the list tells what is registered.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from training_monitor.core.errors import (
    CommandError,
    CommandFailed,
    LocalFailure,
    SettingsError,
    TargetUnreachable,
    last_lines,
)
from training_monitor.core.regex import regex
from training_monitor.core.settings import vast_key_path
from training_monitor.core.units import known_number
from training_monitor.targets.kinds.vast import VAST_TIMEOUT
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.vast.asking import ask_vastai, find_denial, last_words

_WHAT = "ssh key"
KEYGEN_TIMEOUT = 30.0
_KEY_TEXT = regex(r"((?:ssh|ecdsa|sk)-[\w@.-]+)\s+([A-Za-z0-9+/]{16,}={0,2})(?:\s.*)?")
_KEY_NAMES = ("public_key", "ssh_key", "key")
_LISTS = ("ssh_keys", "results", "keys")  # in case the list ever comes wrapped


@dataclass(frozen=True, slots=True)
class Balance:
    """The account's money in dollars, under the names of the API; None means unknown.

    Attributes:
        credit: the prepaid money that is left, from which instances are paid. At 0 they are stopped.
        balance: what the account owes or is owed at the next settlement; 0 for a prepaid account.
        balance_threshold: the credit at which the service warns, or charges the card.
        can_pay: whether a valid means of payment is on file.
    """

    credit: float
    balance: float | None = None
    balance_threshold: float | None = None
    can_pay: bool | None = None


@dataclass(frozen=True, slots=True)
class SshKeyReport:
    """Whether instances will accept this key.

    Attributes:
        private_key: its file.
        public_key: the text of the public key.
        registered: the account has it: each new instance gets it.
        key_id: its id in the account.
        open_to_others: others may read the file, so ssh refuses to use it (chmod 600).
        made: the pair was made by this call.
    """

    private_key: str
    public_key: str
    registered: bool
    key_id: int | None = None
    open_to_others: bool = False
    made: bool = False

    @property
    def usable(self) -> bool:
        return self.registered and not self.open_to_others


def account_balance(*, transport: Transport | None = None) -> Balance:
    """Return the account's balance. Raises CommandError if it could not be queried: an unknown credit is never 0."""
    user = ask_vastai("show", "user", transport=transport)
    credit = known_number(user.get("credit")) if isinstance(user, dict) else None
    if credit is None:
        raise TargetUnreachable("the response does not contain the account's credit", target="vast.ai")
    can_pay = user.get("can_pay")
    return Balance(
        credit,
        known_number(user.get("balance")),
        known_number(user.get("balance_threshold")),
        can_pay if isinstance(can_pay, bool) else None,
    )


# ---------------------------------------------------------------- ssh keys


def list_ssh_keys(*, transport: Transport | None = None) -> dict[int, str]:
    """Return the public keys of the account, by their IDs. Raises CommandError if they could not be listed."""
    answer = ask_vastai("show", "ssh-keys", transport=transport)
    rows = next((answer[name] for name in _LISTS if name in answer), None) if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise TargetUnreachable("the response is not a list of ssh keys", target="vast.ai")
    keys: dict[int, str] = {}
    for row in rows:
        texts = [row[name].strip() for name in _KEY_NAMES if isinstance(row, dict) and isinstance(row.get(name), str)]
        if not texts or type(row.get("id")) is not int:
            raise TargetUnreachable("the response contains an unreadable ssh key", target="vast.ai")
        if not row.get("deleted_at"):
            keys[row["id"]] = texts[0]
    return keys


def check_ssh_keys(private_key_path: str | None = None, *, transport: Transport | None = None) -> SshKeyReport:
    """Check whether the account has the public key of a private key.

    Args:
        private_key_path: the private key; default: VASTAI_SSH_KEY_PATH, otherwise ~/.ssh/vastai/vastai_ed25519.

    Raises:
        SettingsError: there is no such key, or its public part cannot be found.
        CommandError: the account's keys could not be listed.
    """
    runner = transport or LocalTransport()
    path = _private_key(private_key_path)
    return _report(path, _public_key(path, runner), runner)


def setup_ssh_key(path: str | None = None, *, transport: Transport | None = None) -> SshKeyReport:
    """Make sure that there is a key pair that instances accept: create it if missing, and register it if necessary.

    Nothing is overwritten, and you can call this function again. The private key has no passphrase, because it is used
    unattended.

    Args:
        path: the private key; default: VASTAI_SSH_KEY_PATH, otherwise ~/.ssh/vastai/vastai_ed25519.

    Raises:
        SettingsError: the existing file is not a key pair.
        AccessDenied: the vast.ai API key lacks a permission.
        CommandFailed: ssh-keygen did not create a key, or the account does not list the key afterwards.
        CommandError: the account's keys could not be listed.
    """
    runner = transport or LocalTransport()
    path = _private_key(path)
    made = not os.path.lexists(path)
    if made:
        _make_pair(path, runner)
    public = _public_key(path, runner)
    report = _report(path, public, runner, made)
    if report.registered:
        return report
    result = runner.run(["vastai", "create", "ssh-key", public], timeout=VAST_TIMEOUT)
    report = _report(path, public, runner, made)
    if report.registered:
        return report
    if denial := find_denial(result):
        raise denial
    said = last_words(result)
    raise CommandFailed(
        f"{path}.pub could not be registered: the account's ssh keys do not include it "
        f"(vastai printed: {said or 'nothing'})",
        target="vast.ai",
        argv=result.argv,
        result=result,
        hint="add it at https://cloud.vast.ai/manage-keys/",
    )


def _private_key(path: str | None) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else vast_key_path()


def _report(path: str, public: str, runner: Transport, made: bool = False) -> SshKeyReport:
    wanted = _body(public)
    number = next((each for each, text in list_ssh_keys(transport=runner).items() if _body(text) == wanted), None)
    others = bool(stat.S_IMODE(os.stat(path).st_mode) & 0o077)
    return SshKeyReport(path, public, number is not None, number, others, made)


def _body(public_key: str) -> tuple[str, str] | None:
    """Return what identifies a key: its kind and its number, not the comment behind them."""
    found = _KEY_TEXT.fullmatch(public_key.strip())
    return found and (found[1], found[2].rstrip("="))


def _make_pair(path: str, runner: Transport) -> None:
    if os.path.lexists(f"{path}.pub"):
        raise SettingsError(_WHAT, path, f"a private key file (only {path}.pub exists, and it is not overwritten)")
    folder = os.path.dirname(path)
    try:
        for each in (os.path.dirname(folder), folder):  # makedirs applies the mode only to the last one
            os.makedirs(each, mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsError(_WHAT, path, f"a path whose folder can be created ({error.strerror})") from None
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "training_monitor", "-f", path]
    result = runner.run(argv, timeout=KEYGEN_TIMEOUT, input="n\n")
    if not os.path.isfile(path):
        raise LocalFailure(
            f"ssh-keygen did not create a key at {path}: {last_lines(result.stderr, 2) or 'it printed nothing'}",
            argv=result.argv,
            result=result,
        )


def _public_key(path: str, runner: Transport) -> str:
    """Read the public key from the private key; if that fails (a passphrase, open to others), from PATH.pub."""
    if not os.path.isfile(path):
        raise SettingsError(_WHAT, path, "a private key file (setup_ssh_key creates one)")
    said = "ssh-keygen is not installed"
    try:
        result = runner.run(["ssh-keygen", "-y", "-P", "", "-f", path], timeout=KEYGEN_TIMEOUT)
        said = last_lines(result.stderr, 1)
        if not result.exit_code and _body(result.stdout):
            return result.stdout.strip()
    except CommandError as error:
        said = error.what
    try:
        with open(f"{path}.pub", encoding="utf-8", errors="replace") as file:
            text = file.read(16_384).strip()
    except OSError:
        text = ""
    if not _body(text):
        raise SettingsError(_WHAT, path, f"a readable private key, or {os.path.basename(path)}.pub beside it ({said})")
    return text
