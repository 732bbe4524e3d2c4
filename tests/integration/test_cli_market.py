"""`instances`, `offers`, `dataset`, `keys` and `credits` as people and scripts run them, with the real vastai CLI."""

from __future__ import annotations

import json
import re
import stat
import struct
import time
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command as cli
from tests.integration.conftest import Surroundings
from tests.loopback.vast import LIST, SEARCH, SSH_KEYS, USER, VastApi
from training_monitor.rent.credits import Credits
from training_monitor.vast.rows import format_label

AMOUNTS = ("0", "-5", "nan", "inf", "1e400", "ten", "", "0.0000015", "1e-9", "9" * 400, "1e308")
HOSTILE = 'x\x1b[31m"; rm -rf /\n{id}\u202e 日本'


def ask(*argv: str, status: int = 0) -> Any:
    """What --json prints; one line of it."""
    done = cli(*argv, "--json")
    assert done.returncode == status, done
    [line] = done.stdout.splitlines()
    return json.loads(line)


def fits(text: str, columns: int = 80) -> bool:
    return all(len(line) <= columns and line.isprintable() for line in text.splitlines())


# ---------------------------------------------------------------- instances


def test_instances_are_listed_with_what_they_cost_together(vast: VastApi) -> None:
    vast.add_instance(7, label=format_label("anna", "portrait-1", 2), start_date=time.time() - 3900)
    vast.add_instance(12345678, gpu_name="RTX 6000Ada", num_gpus=8, dph_total=2.25, label="web server of somebody else")
    vast.add_instance(9, actual_status="stopped", intended_status="stopped", storage_total_cost=0.01, ssh_host=None)
    done = cli("rent", "instances")
    assert done.returncode == 0 and fits(done.stdout)
    header, seven, nine, big, total, legend = done.stdout.splitlines()
    assert header.split() == ["ID", "STATUS", "GPU", "$/H", "UPTIME", "LABEL/JOB", "SSH"]
    assert seven.split()[:6] == ["7", "running", "RTX", "4090", "0.500", "1h05m"]
    assert "* anna/" in seven and seven.endswith("ssh5.vast.ai:10007")
    assert nine.split()[1] == "stopped" and "0.010" in nine.split() and nine.endswith("-")
    assert "8x RTX" in big and "web" in big and "*" not in big
    assert total == "3 instances: $2.760 per hour, of which 1 stopped (disk cost only)"
    assert legend.startswith("* 1 rented by training_monitor")


def test_instances_as_json_say_whose_they_are_and_keep_secrets(vast: VastApi) -> None:
    label = format_label("anna", "portrait-1", 2)
    vast.add_instance(7, label=label, extra_env=[["HF_TOKEN", "hf_secret123"]], jupyter_token="jupytersecret")
    vast.add_instance(8, dph_total=None)
    answer = ask("rent", "instances")
    assert (answer["cost_per_hour"], answer["cost_unknown"]) == (0.5, 1)
    seven, eight = answer["instances"]
    assert seven["job"] == {"owner": "anna", "job_id": "portrait-1", "attempt": 2} and seven["label"] == label
    assert (eight["job"], eight["cost_per_hour"], eight["num_gpus"]) == (None, None, 1)
    for words in ((), ("7",), ("--json",), ("7", "--json")):
        assert not re.search("hf_secret123|jupytersecret", cli("rent", "instances", *words).stdout)


def test_an_instance_that_is_being_created_is_not_stopped(vast: VastApi) -> None:
    vast.add_instance(7, actual_status=None, cur_state="stopped", next_state="running")
    vast.add_instance(8, actual_status=None, cur_state="stopped", intended_status="stopped")
    assert [each["status"] for each in ask("rent", "instances")["instances"]] == ["created", "stopped"]


def test_no_instances_are_no_instances(vast: VastApi) -> None:
    done = cli("rent", "instances")
    assert (done.returncode, done.stdout) == (0, "no instances\n")
    assert ask("rent", "instances")["instances"] == []


@pytest.mark.parametrize("status", [401, 500])
def test_a_listing_that_cannot_be_had_is_unknown_and_no_empty_table(vast: VastApi, status: int) -> None:
    vast.fail_with = status
    done = cli("rent", "instances")
    assert (done.returncode, done.stdout) == (3, "") and "the rented instances could not be listed" in done.stderr
    assert set(ask("rent", "instances", status=3)) == {"schema", "error", "kind", "hint"}


def test_a_broken_listing_is_unknown(vast: VastApi) -> None:
    for answer in ({"success": False}, {"instances": [{"id": None}]}, [], b"<html>"):
        vast.answers[LIST] = (200, answer)
        assert cli("rent", "instances").returncode == 3, answer


def test_rows_with_nulls_and_wrong_types_are_shown_as_far_as_they_are_known(vast: VastApi) -> None:
    vast.add_instance(7, **dict.fromkeys(("actual_status", "gpu_name", "num_gpus", "dph_total", "ssh_port", "label")))
    vast.add_instance(8, actual_status=3, gpu_name=["x"], num_gpus="2", dph_total="free", label={}, ssh_host=5)
    done = cli("rent", "instances")
    assert done.returncode == 0 and done.stdout.splitlines()[1].split()[:3] == ["7", "?", "?"]
    assert "the price of 2 is unknown" in done.stdout
    assert cli("rent", "instances", "7").returncode == cli("rent", "instances", "8").returncode == 0


def test_hostile_labels_reach_no_terminal(vast: VastApi) -> None:
    vast.add_instance(7, label=HOSTILE, gpu_name="G\x1b]0;x\x07PU\r\n", status_msg=HOSTILE)
    for argv in (["rent", "instances"], ["rent", "instances", "7"]):
        done = cli(*argv)
        assert done.returncode == 0 and done.stdout.replace("\n", "").isprintable()
        assert len(done.stdout.splitlines()) == (3 if len(argv) == 2 else 12)


def test_one_instance_is_described(vast: VastApi) -> None:
    vast.add_instance(7, label=format_label("anna", "portrait-1", 2), status_msg="success, running")
    done = cli("rent", "instances", "7")
    assert done.returncode == 0
    for told in (
        "vast://7",
        "success, running",
        "portrait-1, machine 2 of this job, queued by anna",
        "ssh5.vast.ai:10007",
    ):
        assert told in done.stdout
    assert ask("rent", "instances", "7")["instances"][0]["job"]["job_id"] == "portrait-1"


def test_an_instance_that_is_not_there_is_a_definite_no(vast: VastApi) -> None:
    assert cli("rent", "instances", "99").returncode == 1
    assert ask("rent", "instances", "99", status=1)["kind"] == "InstanceNotFound"
    assert cli("rent", "instances", "seven").returncode == 2
    vast.fail_with = 500
    assert cli("rent", "instances", "99").returncode == 3


# ---------------------------------------------------------------- offers


def test_offers_come_best_first_in_80_columns(vast: VastApi) -> None:
    vast.add_offer(1, "RTX 4090", 0.4)
    vast.add_offer(30111222, "A100 SXM4", 1.2, gpu_ram=81920, machine_id=123456, geolocation=None)
    vast.add_offer(3, "RTX 3090", 0.1, gpu_ram=24576)
    done = cli("rent", "offers", "--country-not")
    assert done.returncode == 0 and fits(done.stdout)
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["ID", "GPU", "N", "VRAM", "$/H", "RELIABILITY", "COUNTRY", "DOWN", "MACHINE"]
    assert [row.split()[0] for row in rows] == ["1", "30111222", "3"]
    assert rows[0].split() == ["1", "RTX", "4090", "1", "24.5", "0.413", "99.0%", "SE", "700", "500"]
    assert rows[1].split()[-3:] == ["?", "700", "123456"]


def test_wishes_are_kept(vast: VastApi) -> None:
    vast.add_offer(1, "RTX 4090", 0.4)
    vast.add_offer(2, "H100 SXM", 2.0, gpu_ram=81559, geolocation="Japan, JP")
    vast.add_offer(3, "H100 NVL", 1.9, gpu_ram=95830, geolocation="Norway, NO")
    answer = ask(
        "rent", "offers", "--gpu", "H100", "4090", "--country-not", "no", "us", "--max-price", "3", "--disk", "100"
    )
    assert [each["id"] for each in answer["offers"]] == [2, 1]
    assert answer["query"]["blocked_countries"] == ["NO", "US"] and answer["query"]["disk_gb"] == 100
    assert [each["id"] for each in ask("rent", "offers", "--gpu", "h100")["offers"]] == [3, 2]
    assert [each["id"] for each in ask("rent", "offers", "--min-vram", "90", "--reliability", "0.5")["offers"]] == [3]
    assert vast.searches[-1]["gpu_ram"] == {"gte": 90000.0}
    assert ask("rent", "offers", "--bid", "--limit", "1")["query"]["kind"] == "bid"


def test_a_limit_says_how_many_more_there_are(vast: VastApi) -> None:
    for number in range(1, 31):
        vast.add_offer(number)
    done = cli("rent", "offers", "--limit", "3")
    assert len(done.stdout.splitlines()) == 4 and "27 more" in done.stderr
    assert len(cli("rent", "offers").stdout.splitlines()) == 21


def test_without_offers_it_says_which_wish_to_loosen(vast: VastApi) -> None:
    vast.add_offer(1, "RTX 4090", 6.0)
    vast.add_offer(2, "RTX 3060", 0.1, gpu_ram=12288)
    vast.add_offer(3, "RTX 4090", 0.2, disk_space=30.0)
    done = cli("rent", "offers")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"without --max-price: 1 offer, from \$6\.013", done.stderr)
    assert re.search(r"without --min-vram: 1 offer, from \$0\.113", done.stderr)
    assert re.search(r"without --disk: 1 offer, from \$0\.200", done.stderr)
    assert "--reliability" not in done.stderr
    assert set(ask("rent", "offers", status=1)["loosen"]) == {"--max-price", "--min-vram", "--disk"}


def test_where_no_single_wish_is_in_the_way_it_says_that(vast: VastApi) -> None:
    vast.add_offer(1, "RTX 3060", 9.0, gpu_ram=12288)
    done = cli("rent", "offers")
    assert done.returncode == 1 and "dropping a single requirement" in done.stderr


@pytest.mark.parametrize("status", [401, 500])
def test_a_market_that_cannot_be_asked_is_unknown(vast: VastApi, status: int) -> None:
    vast.fail_with = status
    done = cli("rent", "offers")
    assert (done.returncode, done.stdout) == (3, "") and "the offers could not be listed" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["--max-price", "0"],
        ["--max-price", "nan"],
        ["--min-vram", "-1"],
        ["--reliability", "95"],
        ["--country-not", "Sweden"],
        ["--gpu", "x; rm"],
        ["--limit", "0"],
        ["--disk", "many"],
    ],
)
def test_wishes_that_make_no_sense_are_wrong_use_and_nobody_is_asked(vast: VastApi, wrong: list[str]) -> None:
    assert cli("rent", "offers", *wrong).returncode == 2
    assert SEARCH not in vast.requests


# ---------------------------------------------------------------- dataset


def add_image(folder: Path, name: str, side: int = 1024, caption: str | None = "ohwx person") -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    rows = b"".join(b"\0" + bytes([zlib.crc32(name.encode()) % 256]) * 3 * side for _ in range(side))
    pixels = chunk(b"IDAT", zlib.compress(rows + name.encode(), 1))
    (folder / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b""))
    if caption is not None:
        (folder / f"{name}.txt").write_text(caption)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "my images"
    folder.mkdir()
    for number in range(12):
        add_image(folder, f"image {number}")
    return folder


def test_a_good_dataset_is_valid(images: Path) -> None:
    done = cli("rent", "dataset", str(images), "--trigger", "ohwx", "--require-captions")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "valid"), done.stdout
    assert "12 images (12 png)" in done.stdout and "12 captions" in done.stdout and "1024" in done.stdout
    assert ask("rent", "dataset", str(images))["images"] == 12


def test_a_dataset_that_is_not_good_enough_says_why(images: Path) -> None:
    add_image(images, "small", 300, caption=None)
    (images / f"odd{HOSTILE.replace('/', '')}.png").write_bytes(b"")
    (images / "broken.png").write_bytes(b"")
    done = cli("rent", "dataset", str(images), "--min-images", "50", "--trigger", "sks")
    assert done.returncode == 1 and "NOT valid: 4 errors" in done.stdout
    for told in ("at least 50", "sks", "0 bytes", "a newline in its name", "warning: small.png has 300x300"):
        assert told in done.stdout, told
    assert done.stdout.replace("\n", "").isprintable()
    report = ask("rent", "dataset", str(images), "--require-captions", status=1)
    assert not report["is_valid"] and any("small" in each for each in report["errors"])


def test_a_dataset_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    assert cli("rent", "dataset", str(tmp_path / "nowhere")).returncode == 2
    assert cli("rent", "dataset", str(tmp_path), "--min-images", "-3").returncode == 2
    assert cli("rent", "dataset").returncode == 2


# ---------------------------------------------------------------- keys


def test_keys_are_made_registered_and_then_known(vast: VastApi, surroundings: Surroundings) -> None:
    path = surroundings.folder / "my keys" / "vast"
    assert cli("rent", "keys", "--path", str(path)).returncode == 2
    done = cli("rent", "keys", "--setup", "--path", str(path))
    assert done.returncode == 0 and f"{path}: made" in done.stdout and "as key 101" in done.stdout
    assert "PRIVATE" not in done.stdout
    done = cli("rent", "keys", "--path", str(path))
    assert done.returncode == 0 and ": made" not in done.stdout
    assert ask("rent", "keys", "--path", str(path))["registered"] is True


def test_a_key_that_is_not_registered_or_open_is_not_good(vast: VastApi, surroundings: Surroundings) -> None:
    path = surroundings.folder / "key"
    cli("rent", "keys", "--setup", "--path", str(path))
    path.chmod(stat.S_IRUSR | stat.S_IRGRP)
    done = cli("rent", "keys", "--path", str(path))
    assert done.returncode == 1 and "chmod 600" in done.stdout
    path.chmod(0o600)
    vast.ssh_keys.clear()
    done = cli("rent", "keys", "--path", str(path))
    assert done.returncode == 1 and "NOT registered" in done.stdout and "--setup" in done.stdout


def test_keys_that_cannot_be_listed_are_unknown(vast: VastApi, surroundings: Surroundings) -> None:
    path = surroundings.folder / "key"
    cli("rent", "keys", "--setup", "--path", str(path))
    vast.answers[SSH_KEYS] = (500, {"success": False})
    assert cli("rent", "keys", "--path", str(path)).returncode == 3


# ---------------------------------------------------------------- credits


def test_the_credit_of_vast_ai_and_how_long_it_lasts(vast: VastApi) -> None:
    vast.add_instance(7, dph_total=2.0)
    vast.add_instance(8, dph_total=0.5)
    done = cli("rent", "credits")
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["vast.ai credit $12.50", "  2 instances: $2.500 per hour", "  lasts 5h00m"]
    answer = ask("rent", "credits")
    assert (answer["credit"], answer["forecast"]["hours_left"], answer["error"]) == (12.5, 5.0, None)
    vast.add_instance(9, dph_total=None)
    assert "lasts at most 5h00m" in cli("rent", "credits").stdout


def test_an_unknown_credit_is_unknown(vast: VastApi) -> None:
    vast.answers[USER] = (200, {"credit": None})
    done = cli("rent", "credits")
    assert (done.returncode, done.stdout) == (3, "") and "is unknown" in done.stderr


def test_a_credit_without_a_listing_says_what_is_known_of_it(vast: VastApi) -> None:
    vast.answers[LIST] = (500, {"success": False})
    done = cli("rent", "credits")
    assert done.returncode == 3 and done.stdout == "vast.ai credit $12.50\n" and "how long" in done.stderr
    answer = ask("rent", "credits", status=3)
    assert answer["credit"] == 12.5 and answer["forecast"] is None and answer["error"]


def test_no_credit_is_bad(vast: VastApi) -> None:
    vast.user["credit"] = -0.2
    assert cli("rent", "credits").returncode == 1


def test_a_payment_into_the_ledger_counts_once(surroundings: Surroundings) -> None:
    pay = ("rent", "credits", "anna", "--deposit", "10", "--reason", f"card {HOSTILE}", "--payment", "p1")
    done = cli(*pay)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "anna has $10.00"
    again = cli(*pay)
    assert again.returncode == 0 and "already counted" in again.stderr and "anna has $10.00" in again.stdout
    Credits().reserve("anna", "job-7", 4.0)
    done = cli("rent", "credits", "anna")
    assert done.returncode == 0 and fits(done.stdout)
    header, deposit, reserve, total = done.stdout.splitlines()
    assert header.split() == ["WHEN", "KIND", "DOLLARS", "JOB/PAYMENT", "REASON"]
    assert "+10.00" in deposit and reserve.split()[2:] == ["reserve", "-4.00", "job-7", "estimate"]
    assert total == "anna has $6.00"
    assert [each["amount"] for each in ask("rent", "credits", "anna")["movements"]] == [10.0, -4.0]


def test_a_payment_with_another_amount_is_refused(surroundings: Surroundings) -> None:
    pay = ("rent", "credits", "anna", "--reason", "invoice", "--payment", "17", "--deposit")
    assert cli(*pay, "20").returncode == 0
    done = cli(*pay, "200")
    assert (done.returncode, done.stdout) == (1, "")
    assert "payment 17 is already recorded with $20.00 deposited, not $200.00" in done.stderr
    assert "--withdraw" in done.stderr and ask(*pay, "200", status=1)["kind"] == "InvalidTransition"
    assert ask("rent", "credits", "anna")["credit"] == 20


def test_a_wrong_deposit_is_corrected_by_a_counter_entry(surroundings: Surroundings) -> None:
    cli("rent", "credits", "anna", "--deposit", "200", "--reason", "invoice 17", "--payment", "17")
    Credits().reserve("anna", "job-7", 15.0)
    take = ("rent", "credits", "anna", "--reason", "a zero too many", "--payment", "17", "--withdraw")
    done = cli(*take, "186")
    assert (done.returncode, done.stdout) == (1, "") and "anna has only $185.00 available" in done.stderr
    for _ in range(2):
        done = cli(*take, "180")
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "anna has $5.00"
    assert "already counted" in done.stderr and done.stdout.count("-180.00") == 1
    assert cli("rent", "credits", "anna", "--withdraw", "1", "--deposit", "1", "--reason", "x").returncode == 2


def test_what_is_shown_of_a_ledger_adds_up(surroundings: Surroundings) -> None:
    ledger = Credits()
    ledger.deposit("anna", 10.0, "card")
    for number in range(3):
        ledger.reserve("anna", f"job-{number}", 0.005)
        ledger.settle("anna", f"job-{number}", 0.001234, "done")
    *rows, total = cli("rent", "credits", "anna").stdout.splitlines()[1:]
    shown = [Decimal(found[0]) for row in rows if (found := re.search(r"[+-]\d+\.\d+", row))]
    assert len(shown) == 7 and sum(shown) == Decimal("9.996298")
    assert total == "anna has $9.996298"


def test_an_account_that_nobody_knows_is_not_one_with_nothing(surroundings: Surroundings) -> None:
    done = cli("rent", "credits", "nobody")
    assert (done.returncode, done.stdout) == (1, "") and "no such account" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["--deposit", "10", "--reason", "x"],
        ["anna", "--deposit", "10"],
        ["anna", "--deposit", "10", "--reason", " "],
        ["anna", "--reason", "x"],
        ["anna", "--payment", "p1"],
        ["anna", "--withdraw", "10"],
        ["--withdraw", "10", "--reason", "x"],
        ["anna", "--deposit", "10", "--reason", "x", "--payment", " "],
        *(["anna", "--reason", "x", f"--deposit={amount}"] for amount in AMOUNTS),
        *(["anna", "--reason", "x", f"--withdraw={amount}"] for amount in AMOUNTS[-3:]),
    ],
)
def test_a_payment_that_makes_no_sense_is_wrong_use_and_kept_nowhere(
    surroundings: Surroundings, wrong: list[str]
) -> None:
    done = cli("rent", "credits", *wrong)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert Credits().movements("anna") == []


# ---------------------------------------------------------------- all of them


def test_no_colour_and_no_escape_is_printed_into_a_pipe(vast: VastApi) -> None:
    vast.add_instance(7)
    vast.add_offer(1)
    for command in ("instances", "offers", "credits"):
        done = cli("rent", command, NO_COLOR="1")
        assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr


def test_the_key_of_vast_ai_is_in_no_output(vast: VastApi) -> None:
    vast.fail_with = 401
    for command, status in (("instances", 3), ("offers", 3), ("credits", 3), ("keys", 1)):  # there is no ssh key here
        done = cli("rent", command, VASTAI_API_KEY="my-own-secret-key-1")
        assert done.returncode == status and "my-own-secret-key-1" not in done.stdout + done.stderr


def test_doctor_says_whether_rented_machines_let_us_in(vast: VastApi) -> None:
    def key_check() -> tuple[str, str]:
        checks = {check["name"]: check for check in json.loads(cli("doctor", "--json").stdout)["checks"]}
        assert checks["vastai"]["state"] == "ok"
        return checks["vastai ssh key"]["state"], checks["vastai ssh key"]["remedy"]

    assert key_check() == ("missing", "training-monitor rent keys --setup")
    assert cli("rent", "keys", "--setup").returncode == 0
    assert key_check()[0] == "ok"
    vast.ssh_keys.clear()
    assert key_check() == ("broken", "training-monitor rent keys --setup")
