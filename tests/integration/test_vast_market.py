"""What is for rent, the account's money and its ssh keys, by the real vastai CLI and a loopback REST API."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import WRONG_KEY, Surroundings, WatchedTransport, failures_of
from tests.loopback.vast import ADD_SSH_KEY, KEY, SEARCH, VastApi, failure
from tests.requirements import require
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    SettingsError,
    TargetUnreachable,
)
from training_monitor.vast.account import Balance, account_balance, check_ssh_keys, list_ssh_keys, setup_ssh_key
from training_monitor.vast.offers import OfferQuery, search_offers

ANY = OfferQuery(preferred_gpus=())


def search(transport: WatchedTransport, query: OfferQuery = ANY) -> list[int]:
    return [offer.id for offer in search_offers(query, transport=transport)]


def failures(transport: WatchedTransport) -> list[CommandError]:
    """What asking raises."""
    return failures_of(lambda: search(transport), lambda: account_balance(transport=transport), lambda: keys(transport))


def keys(transport: WatchedTransport) -> list[str]:
    return [*list_ssh_keys(transport=transport).values()]


def make_key(path: Path, passphrase: str = "") -> str:
    """Make a pair with the real ssh-keygen; the text of its public key."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "by hand", "-f", str(path)]
    subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return Path(f"{path}.pub").read_text().strip()


# ---------------------------------------------------------------- offers


def test_offers_come_best_first_with_the_price_of_the_disk_that_was_asked_for(
    vast: VastApi, transport: WatchedTransport
) -> None:
    vast.add_offer(1, "RTX 3090", 0.1, gpu_ram=24576)
    vast.add_offer(2, "A100 SXM4", 0.9, gpu_ram=81920)
    vast.add_offer(3, "RTX 4090", 0.5)
    vast.add_offer(4, "RTX 4090", 0.4)
    found = search_offers(OfferQuery(("4090", "A100"), disk_gb=480), transport=transport)
    assert [offer.id for offer in found] == [4, 3, 2, 1]
    assert found[0].price_per_hour == 0.5
    assert (found[0].country, found[0].vram_gb, found[0].max_days) == ("SE", 24.564, 10.0)
    assert vast.searches[0]["allocated_storage"] == 480


def test_the_service_is_asked_for_all_that_is_wanted(vast: VastApi, transport: WatchedTransport) -> None:
    search(transport, OfferQuery((), 2.5, 48, 128, 2, 0.9, 12.4, 100, ("CN", "RU"), "bid"))
    assert vast.searches == [
        {
            "num_gpus": {"eq": "2"},
            "gpu_ram": {"gte": 48000.0},
            "disk_space": {"gte": "128"},
            "reliability": {"gte": "0.9"},
            "cuda_max_good": {"gte": "12.4"},
            "inet_down": {"gte": "100"},
            "dph_total": {"lte": "2.5"},
            "geolocation": {"notin": ["CN", "RU"]},
            "rentable": {"eq": True},
            "verified": {"eq": True},
            "external": {"eq": False},
            "order": [["dph_total", "asc"]],
            "type": "bid",
            "allocated_storage": 128.0,
            "limit": 1000,
        }
    ]


LACKS = [
    {"price": 4.6},
    {"gpu_ram": 16_376},
    {"disk_space": 32.0},
    {"num_gpus": 2},
    {"reliability": 0.9},
    {"cuda_max_good": 11.8},
    {"geolocation": "China, CN"},
    {"geolocation": None},
    {"verified": False, "verification": "unverified"},
    {"rentable": False},
]


@pytest.mark.parametrize("obeys", [True, False], ids=["and asks the service", "and does not trust the answer"])
def test_what_is_not_good_enough_is_not_chosen(vast: VastApi, transport: WatchedTransport, obeys: bool) -> None:
    for number, lack in enumerate(LACKS, 2):
        vast.add_offer(number, **lack)  # type: ignore[arg-type]
    if not obeys:
        vast.add_offer(1)
        rows = [{"dph_total": row["dph_base"], **row} for row in vast.offers.values()]
        vast.answers[SEARCH] = (200, {"offers": [None, *rows, {"id": "x"}]})
    assert search(transport) == ([] if obeys else [1])


def test_a_bid_is_priced_at_what_it_must_beat(vast: VastApi, transport: WatchedTransport) -> None:
    vast.add_offer(1, price=8.0, storage_cost=0.0)
    assert search(transport) == []
    (found,) = search_offers(OfferQuery((), kind="bid"), transport=transport)
    assert (found.price_per_hour, found.min_bid) == (4.0, 4.0)


# ---------------------------------------------------------------- everything


def test_a_wrong_key_is_access_denied_and_a_service_that_fails_or_is_down_an_error(
    vast: VastApi, transport: WatchedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        patches.setenv("VAST_API_KEY", WRONG_KEY)
        assert {type(error) for error in failures(transport)} == {AccessDenied}
    vast.fail_with = 500
    for error in failures(transport):
        assert type(error) is TargetUnreachable and "something broke" in str(error)
    vast.stop()
    for error in failures(transport):
        assert type(error) is TargetUnreachable and "refused" in str(error)


def test_the_variables_that_people_set_reach_the_cli_and_win(
    vast: VastApi, transport: WatchedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", WRONG_KEY)
    monkeypatch.setenv("VASTAI_API_KEY", KEY)
    assert account_balance(transport=transport).credit == 12.5
    for name in ("VAST_API_KEY", "VAST_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("VASTAI_API_KEY", KEY)
    monkeypatch.setenv("VASTAI_API_BASE_URL", f"http://127.0.0.1:{vast.port}/api/v0/")
    assert account_balance(transport=transport).credit == 12.5


# ---------------------------------------------------------------- money


def test_the_money_of_the_account_is_told(vast: VastApi, transport: WatchedTransport) -> None:
    assert account_balance(transport=transport) == Balance(12.5, 0.0, 5.0, True)
    vast.user["credit"] = -0.25
    assert account_balance(transport=transport).credit == -0.25


# ---------------------------------------------------------------- ssh keys


def test_a_pair_is_made_registered_and_found_and_a_second_call_changes_nothing(
    vast: VastApi, transport: WatchedTransport
) -> None:
    made = setup_ssh_key(transport=transport)
    path = Path.home() / ".ssh" / "vastai" / "vastai_ed25519"
    assert made.private_key == str(path) and made.made and made.usable
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    before = path.read_bytes()
    again = setup_ssh_key(transport=transport)
    assert not again.made and again.key_id == made.key_id and path.read_bytes() == before
    assert vast.requests.count(ADD_SSH_KEY) == 1
    assert check_ssh_keys(transport=transport) == again
    assert keys(transport) == [made.public_key]


def test_a_key_with_a_passphrase_is_known_by_its_public_file(
    vast: VastApi, transport: WatchedTransport, tmp_path: Path
) -> None:
    vast.add_ssh_key(make_key(tmp_path / "mine", "a passphrase"))
    assert check_ssh_keys(str(tmp_path / "mine"), transport=transport).registered
    (tmp_path / "mine.pub").unlink()
    with pytest.raises(SettingsError, match="passphrase"):
        check_ssh_keys(str(tmp_path / "mine"), transport=transport)


def test_a_key_that_lost_its_public_file_is_derived(vast: VastApi, transport: WatchedTransport, tmp_path: Path) -> None:
    vast.add_ssh_key(make_key(tmp_path / "mine"))
    (tmp_path / "mine.pub").unlink()
    assert check_ssh_keys(str(tmp_path / "mine"), transport=transport).registered


def test_a_path_that_was_registered_for_a_key_is_not_the_key(
    vast: VastApi, transport: WatchedTransport, tmp_path: Path
) -> None:
    make_key(tmp_path / "mine")
    vast.add_ssh_key(str(tmp_path / "mine.pub"))
    assert not check_ssh_keys(str(tmp_path / "mine"), transport=transport).registered


@pytest.mark.parametrize(("code", "kind"), [(200, CommandFailed), (403, AccessDenied)])
def test_a_key_that_the_service_does_not_take_is_a_failure_with_what_it_said(
    vast: VastApi, transport: WatchedTransport, tmp_path: Path, code: int, kind: type[CommandError]
) -> None:
    make_key(tmp_path / "mine")
    vast.answers[ADD_SSH_KEY] = (code, failure("refused", "no more keys"))
    with pytest.raises(kind, match="no more keys") as caught:
        setup_ssh_key(str(tmp_path / "mine"), transport=transport)
    assert type(caught.value) is kind


# ---------------------------------------------------------------- the tool itself


def test_the_cli_started_warm_answers_as_the_cli_started_cold(vast: VastApi, surroundings: Surroundings) -> None:
    def answers(program: str, *words: str) -> tuple[int, str, str]:
        said = subprocess.run([program, *words], capture_output=True, text=True, timeout=120, cwd=surroundings.folder)
        return said.returncode, re.sub(r'"duration": [\d.]+', "", said.stdout), said.stderr

    vast.add_instance(7, label="a \x1b[1mrun")
    calls = [
        ("show", "instances", "--raw"),
        ("show", "instance", "9", "--raw"),
        ("search", "offers", "gpu_name=RTX_4090", "--raw", "--limit", "1"),
        ("destroy", "instance"),
        ("--version",),
        ("no such command",),
    ]
    cold, warm = require("vastai"), str(surroundings.tools / "vastai")
    assert {words: answers(warm, *words) for words in calls} == {words: answers(cold, *words) for words in calls}
