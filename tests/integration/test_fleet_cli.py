"""`vast` and `fleet` as people use them: keys in a terminal (tmux); behind it the real vastai CLI, ssh and kubectl."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import SshServer, Surroundings, wait_until
from tests.integration.screens import PATIENCE, Screen
from tests.loopback.vast import LIST, VastApi
from tests.loopback.vast_rows import KEY
from training_monitor.ui.fleet.app import SORTS

COMMAND = (sys.executable, "-m", "training_monitor")
FIRST = 30007001
NEVER = "100000"  # seconds between two refreshes: there is one at the start, and those that r asks for
Keys = Sequence[tuple[str, str]]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    found = Screen(tmp_path)
    yield found
    found.tmux("kill-server")


class Account:
    """Rented instances that are all this ssh server, and their one log."""

    def __init__(self, api: VastApi, sshd: SshServer, surroundings: Surroundings) -> None:
        self.api, self.sshd, self.surroundings = api, sshd, surroundings
        self.log = surroundings.folder / "out put" / "run's 1" / "training.log"
        self.pattern = str(self.log).replace("run's 1", "*")
        self.log.parent.mkdir(parents=True)
        self.write("step 10/100 loss 0.5\n")

    def rent(self, count: int, running: int = 3) -> None:
        """Rent instances, of which the first ones run and the others are loading."""
        for number in range(FIRST, FIRST + count):
            self.add(number, actual_status="running" if number < FIRST + running else "loading")

    def add(self, number: int, **details: Any) -> None:
        self.api.add_instance(number, **{"ssh_host": "127.0.0.1", "ssh_port": self.sshd.port, **details})

    def write(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(text)

    def settings(self, fleet: dict[str, Any]) -> None:
        file = self.surroundings.folder / "config" / "training_monitor" / "settings.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"fleet": fleet}))

    def vast(self, *words: str, interval: str = NEVER) -> tuple[str, ...]:
        """The command that shows it."""
        return (*COMMAND, "vast", "--interval", interval, "--log-path", self.pattern, *words)

    def listings(self) -> int:
        return self.api.requests.count(LIST)

    def leaves_nothing(self) -> bool:
        return wait_until(lambda: not self.surroundings.processes(), PATIENCE)

    def leaves_the_listing_that_hangs(self) -> bool:
        """Nothing else is left, and it ends with the answer; without one, an alarm of its own ends it."""
        left = list(self.surroundings.processes().values())
        self.api.hang = None
        self.api.released.set()
        return len(left) <= 1 and all("vastai show instances" in line for line in left) and self.leaves_nothing()


@pytest.fixture
def account(vast: VastApi, sshd: SshServer, surroundings: Surroundings) -> Account:
    if sshd.user != "root":
        pytest.skip("an instance's user is root, and this server's is not: nothing here was tested")
    return Account(vast, sshd, surroundings)


def run(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal. No secret and no traceback is ever on a stream."""
    done = run_command(*argv, **changes)
    assert KEY not in done.stdout + done.stderr and "Traceback" not in done.stderr, done
    return done


def ask(*argv: str, status: int) -> Any:
    """What --json prints: one line."""
    done = run(*argv, "--json")
    assert done.returncode == status, done
    [line] = done.stdout.splitlines()
    return json.loads(line)


# ---------------------------------------------------------------- every key


def row(number: int) -> str:
    """The line of a member that the cursor is on."""
    return rf"^>.{called(number)} "


def called(number: int) -> str:
    """An instance as the screen names it: by its id, or by the name of the mock."""
    return rf"(?:{number}|\w+-{number - FIRST:02d})"


IN_ORDER: Keys = (("s", "i ID"), ("i", "▲ ID"), ("g", row(FIRST)))


def moves(last: int) -> Keys:
    return (
        ("Down", row(FIRST + 1)),
        ("j", row(FIRST + 2)),
        ("Up", row(FIRST + 1)),
        ("k", row(FIRST)),
        ("k", row(FIRST)),
        ("NPage", rf"^> (?!{called(FIRST)} |{called(FIRST + 1)} )\S+ "),
        ("PPage", row(FIRST)),
        ("End", row(last)),
        ("Down", row(last)),
        ("Home", row(FIRST)),
        ("G", row(last)),
        ("g", row(FIRST)),
    )


def sorts(last: int) -> Keys:
    """Through all columns, one way and the other, back to the worst first, and at last by id again."""
    by_id = (("s", r"n NAME +i ID"), ("i", "▲ ID"))
    shown = [(("s", "i ID"), (letter, f"[▲▼] {re.escape(title)}")) for title, letter in SORTS.items()]
    turned = (("g", row(FIRST)), ("S", "▼ ID"), ("g", row(last)))
    return (*chain.from_iterable(shown), *by_id, *turned, ("s", "i ID"), ("o", "worst first"), *IN_ORDER)


def groups(names: Sequence[str], total: int) -> Keys:
    """Through all groups, forth and back."""
    everybody = rf"  all, {total} members"
    shown = [rf"group {name}, \d+ of {total} members" for name in names]
    there = [("Tab", each) for each in (*shown, everybody)]
    return (*there, *(("BTab", each) for each in (*reversed(shown), everybody)))


PAGES: Keys = (
    ("Enter", "^state +"),
    ("Right", rf"^── {called(FIRST + 1)} "),
    ("Left", rf"^── {called(FIRST)} "),
    ("Escape", r"^ +NAME "),
    ("l", "logs of all"),
    ("l", rf"^── {called(FIRST)} "),
    ("!", r"alerts?, newest first"),
    ("Escape", r"^ +NAME "),
    ("?", "^  PgUp +move one page|clear the log lines"),
    ("G", r"  Esc +cancel"),
    ("g", "^the table"),
    ("Down", "^  c +clear the log"),
    ("Escape", r"^ +NAME "),
)
MARKS: Keys = (
    ("m", "mark two or more"),
    ("Space", rf"^ \*{called(FIRST)} "),
    ("v", "mark two or more"),
    ("Space", rf"^ \*{called(FIRST + 1)} "),
    ("m", "SAME STEP"),
    ("Escape", row(FIRST + 2)),
    ("v", "SAME STEP"),
    ("Escape", row(FIRST + 2)),
    ("D", "type   destroy 2   "),
    ("Escape", "cancelled: nothing was done"),
    ("x", "type   stop 2   "),
    ("Enter", "cancelled: nothing was done"),
)


def press_each(screen: Screen, keys: Keys) -> None:
    for key, shown in keys:
        screen.press(key)
        screen.shows(shown)


def press_all_keys(screen: Screen, total: int, named: Sequence[str]) -> None:
    """Press every key that needs nobody to answer, and see on the screen what it does; all are back where they were."""
    last = FIRST + total - 1
    screen.shows(rf"  all, {total} members  worst first  refreshed", r"q quit +r refresh")
    press_each(screen, (*IN_ORDER, *moves(last), *sorts(last), *groups(named, total), *PAGES, *MARKS))
    screen.press("Escape")
    screen.hides(r"^.\*\S")
    press_filter(screen, total)
    press_each(screen, [("g", row(FIRST)), ("p", "PAUSED"), ("c", "cleared the log lines shown so far")])
    screen.shows("no log lines yet")
    screen.press("p")
    screen.hides("PAUSED")


def press_filter(screen: Screen, total: int) -> None:
    screen.press("/")
    screen.type("zzq")
    screen.shows("^/zzq_", "no member matches zzq", f" 0 of {total} members")
    press_each(screen, [("BSpace", "^/zz_"), ("C-u", "^/_")])
    screen.shows(f"all, {total} members")
    screen.type("0007003")
    screen.shows("^/0007003_", f" 1 of {total} members", row(FIRST + 2))
    press_each(screen, [("Enter", "filter: 0007003"), ("Escape", f"all, {total} members"), ("/", "^/_")])
    screen.type("q?!")
    screen.shows(r"^/q\?!_")
    press_each(screen, [("Escape", f"all, {total} members")])


def step_of(screen: Screen) -> int:
    """The step on the page of one member; what is seen may be half drawn."""
    steps: list[str] = []
    assert wait_until(lambda: steps.extend(re.findall(r"^.*\bstep +(\d+)/", screen.text(), re.M)) or steps, PATIENCE)
    return int(steps[-1])


def test_every_key_of_the_mock_is_answered(screen: Screen, surroundings: Surroundings) -> None:
    screen.start("80x24", *COMMAND, "vast", "--mock", "--interval", NEVER, PATH="/nowhere")
    press_all_keys(screen, 12, ("llama", "vision", "lora"))
    press_each(screen, [("Enter", rf"^── {called(FIRST)} ")])
    before = step_of(screen)
    assert wait_until(lambda: screen.press("r") or step_of(screen) > before, PATIENCE)
    screen.press("q")
    screen.ended(0)
    assert wait_until(lambda: not surroundings.processes(), PATIENCE)


def test_every_key_is_answered_with_500_real_instances(screen: Screen, account: Account) -> None:
    account.rent(500)
    nightly = [f"vast://{FIRST}", f"vast://{FIRST + 1}"]
    account.settings({"groups": {"nightly": nightly, "by day": [f"vast://{FIRST + 4}"]}})
    screen.start("80x24", *account.vast())
    screen.shows("3 ok", r"^step 10/100 loss 0\.5$", rf"^> {FIRST} .* 10%")
    press_each(screen, (*IN_ORDER, *moves(FIRST + 499), *groups(("nightly", "by day"), 500)))
    press_filter(screen, 500)
    press_each(screen, [("g", row(FIRST)), ("c", "cleared the log lines shown so far")])
    screen.hides("refreshing")
    assert account.listings() == 1
    account.write("step 11/100 loss 0.4\n")
    screen.press("r")
    screen.shows(r"^step 11/100 loss 0\.4$", rf"^> {FIRST} .* 11%")
    assert "loss 0.5" not in screen.text()
    screen.hides("refreshing")
    assert account.listings() == 2 and not account.api.destroyed()
    screen.press("q")
    screen.ended(0)
    assert account.leaves_nothing()


def test_while_paused_only_r_asks(screen: Screen, account: Account) -> None:
    account.rent(3)
    screen.start("80x24", *account.vast(interval="1"))
    screen.shows("3 ok")
    assert wait_until(lambda: account.listings() > 2, PATIENCE)
    screen.press("p")
    screen.shows("PAUSED")
    screen.hides("refreshing")
    before = account.listings()
    account.write("step 20/100 loss 0.3\n")
    screen.press("r")
    screen.shows("^step 20/100")
    assert wait_until(lambda: account.listings() > before, PATIENCE)
    screen.hides("refreshing")
    asked = account.listings()
    press_each(screen, PAGES)
    assert account.listings() == asked
    screen.press("p")
    assert wait_until(lambda: account.listings() > asked + 1, PATIENCE)
    screen.press("q")
    screen.ended(0)


# ---------------------------------------------------------------- stop and destroy


def test_stop_and_destroy_reach_the_account_once_the_words_were_typed(screen: Screen, account: Account) -> None:
    account.rent(5)
    screen.start("80x24", *account.vast())
    screen.shows("3 ok")
    press_each(screen, IN_ORDER)
    for key, typed in (("D", f"destroy {FIRST} "), ("D", "y"), ("x", f"Stop {FIRST}"), ("x", "")):
        screen.press(key)
        screen.shows("To confirm, type")
        screen.type(typed)
        screen.press("Enter")
        screen.shows("cancelled: nothing was done")
    assert not [each for each in account.api.about_instances() if not each.startswith(LIST)]
    screen.press("x")
    screen.type(f"stop {FIRST}")
    screen.press("Enter")
    screen.shows(f"{FIRST}: it is stopped")
    assert account.api.instances[FIRST]["intended_status"] == "stopped"
    press_each(screen, [("Down", row(FIRST + 1)), ("Enter", f"^── {FIRST + 1} "), ("D", "destroy 1 member")])
    screen.type(f"destroy {FIRST + 1}")
    screen.press("Enter")
    press_each(screen, [("Escape", f"{FIRST + 1}: it was destroyed")])
    assert account.api.gone == [FIRST + 1] and FIRST + 1 not in account.api.instances
    press_each(screen, [("End", row(FIRST + 4)), ("Space", rf"^>\*{FIRST + 4}"), ("k", row(FIRST + 3))])
    press_each(screen, [("Space", rf"^ \*{FIRST + 3}"), ("D", "type   destroy 2   ")])
    screen.type("destroy 2")
    screen.press("Enter")
    gone = [f"^..{FIRST + number} .*lost" for number in (3, 4)]
    screen.shows(rf"({FIRST + 4}|\d more): it was destroyed", *gone)
    assert sorted(account.api.instances) == [FIRST, FIRST + 2]
    screen.press("q")
    screen.ended(0)
    assert account.leaves_nothing()


def test_whoever_quits_while_an_instance_is_destroyed_is_told_first(screen: Screen, account: Account) -> None:
    account.rent(2)
    screen.start("80x24", *account.vast())
    screen.shows("2 ok", row(FIRST))
    screen.press("D")
    screen.type(f"destroy {FIRST}")
    screen.press("Enter", "q")
    screen.shows("an action is in progress: wait for its result, or press Ctrl-C to quit anyway", row(FIRST))
    screen.shows(f"{FIRST}: it was destroyed")
    assert account.api.gone == [FIRST]
    screen.press("q")
    screen.ended(0)


# ---------------------------------------------------------------- an account that fails, hangs or talks nonsense


def test_an_account_that_fails_makes_the_screen_stale_and_keeps_its_rows(screen: Screen, account: Account) -> None:
    account.rent(3)
    account.api.fail_with = 401
    screen.start("200x60", *account.vast())
    screen.shows(r"^stale since \d\d:\d\d.*401", "no data yet: the last query failed", r"all, \? members")
    account.api.fail_with = 0
    screen.press("r")
    screen.shows("3 ok", row(FIRST))
    screen.hides("refreshing")
    step = 10
    for fail_with, answer in (
        (500, None),
        (0, (200, {"success": True, "instances": [None, {"id": "7"}]})),
    ):
        step += 1
        account.write(f"step {step}/100 loss 0.4\n")
        account.api.fail_with = fail_with
        if answer:
            account.api.answers[LIST] = answer
        screen.press("r")
        screen.shows(r"^stale since \d\d:\d\d", rf"^> {FIRST} .*running .* {step}/100 .* step {step} of 100", "3 ok")
        account.api.fail_with = 0
        account.api.answers.clear()
        screen.hides("refreshing")
        screen.press("r")
        screen.hides("^stale since|refreshing")
    assert KEY not in screen.text()
    screen.press("!")
    screen.shows("alert")
    assert "lost" not in screen.text() and "destroyed" not in screen.text()
    screen.press("q")
    screen.ended(0)


def test_what_fails_is_logged_where_stderr_is_sent(screen: Screen, account: Account) -> None:
    account.rent(1)
    screen.start("80x24", "sh", "-c", shlex.join(account.vast()) + " 2>err.log")
    screen.shows(row(FIRST), "1 ok")
    account.api.fail_with = 500
    screen.press("r")
    screen.shows("^stale since .* it returned HTTP 500: something broke *$")
    screen.press("q")
    screen.ended(0)
    logged = (screen.folder / "err.log").read_text()
    warned = r"^\d{4}-\d\d-\d\d .* WARNING could not list the instances of the account: .* HTTP 500"
    assert re.search(warned, logged, re.M)


def test_while_the_account_hangs_every_key_is_answered(screen: Screen, account: Account) -> None:
    account.rent(5)
    account.settings({"groups": {"nightly": [f"vast://{FIRST}"], "day": [f"vast://{FIRST + 1}"]}})
    screen.start("80x24", *account.vast())
    screen.shows("3 ok")
    screen.hides("refreshing")
    account.api.hang = LIST
    screen.press("r")
    assert account.api.hanging.wait(PATIENCE)
    press_each(screen, (*IN_ORDER, *groups(("nightly", "day"), 5), *PAGES))
    account.write("step 50/100 loss 0.1\n")
    screen.press("r")
    screen.shows("^step 50/100", "refreshing")
    assert not account.api.released.is_set()
    screen.press("q")
    screen.ended(0)
    assert account.leaves_the_listing_that_hangs()


def test_rows_of_nulls_wrong_types_and_harmful_text_are_shown_a_line_each(screen: Screen, account: Account) -> None:
    keys = ["start_date", "extra_env", "dph_total", "gpu_name", "label", "intended_status", "num_gpus", "status_msg"]
    account.add(FIRST, **dict.fromkeys(keys))
    account.add(FIRST + 1, **dict.fromkeys(keys, {"a": [None]}))
    account.add(FIRST + 2, **dict.fromkeys(keys, -1e308), actual_status=7)
    harm = "-rf\x1b[2J\x1b]0;t\x07 'x\"; $(id)\r\n\t日本\u202e{}%s"
    account.add(FIRST + 3, label=harm, gpu_name=harm, status_msg=harm, actual_status="loading")
    account.add(FIRST + 4, actual_status=None, ssh_host=None, ssh_port=None, gpu_util=float("1e9"))
    account.add(FIRST + 5, ssh_host="-oProxyCommand=touch hit")
    screen.start("200x60", *account.vast())
    screen.shows("all, 6 members", "2 ok")
    press_each(screen, IN_ORDER)
    lines = screen.text().splitlines()
    assert all(f" {FIRST + number} " in lines[2 + number] for number in range(6))
    assert lines[0].startswith(" vast.ai ") and lines[59].startswith("q quit")
    assert not list(account.surroundings.folder.glob("**/hit"))
    for _ in range(6):
        screen.press("Enter", "Escape", "Down")
    screen.shows(row(FIRST + 5), r"^ +NAME ")
    screen.press("q")
    screen.ended(0)


def test_a_machine_that_does_not_answer_keeps_its_row_and_says_for_how_long(screen: Screen, account: Account) -> None:
    account.rent(2)
    screen.start("200x60", *account.vast())
    screen.shows("2 ok")
    account.sshd.stop()
    screen.press("r")
    screen.shows(rf"^> {FIRST} .* 10/100 .*no answer for .*", "2 unknown")
    account.sshd.start()
    account.write("step 12/100 loss 0.4\n")
    screen.press("r")
    screen.shows(rf"^> {FIRST} .* 12/100 .* step 12 of 100", "2 ok")
    screen.press("q")
    screen.ended(0)


# ---------------------------------------------------------------- mixed fleets, groups


def set_groups(account: Account) -> None:
    account.rent(3)
    named = {"target": f"vast://{FIRST + 2}", "name": "llama", "log_paths": [account.pattern]}
    account.settings({"groups": {"nightly": [f"vast://{FIRST}#{account.pattern}", named], "by day": ["local"]}})


def test_a_group_of_the_settings_file_is_shown_by_name(screen: Screen, account: Account) -> None:
    set_groups(account)
    screen.start("200x60", *COMMAND, "fleet", "nightly")
    screen.shows("all, 2 members", "2 ok", "llama")
    screen.press("q")
    screen.ended(0)
    rows = ask("fleet", "--group", "nightly", status=0)["members"]
    assert [(row["instance_id"], row["name"]) for row in rows] == [(FIRST, "*/training.log"), (FIRST + 2, "llama")]


# ---------------------------------------------------------------- without a screen


def test_json_tells_all_of_every_row(account: Account) -> None:
    account.rent(2, running=1)
    account.add(FIRST + 2, actual_status="exited", intended_status="running", status_msg="OOM")
    told = ask("vast", "--log-path", account.pattern, status=1)
    assert {"timestamp", "members", "summary", "groups", "listed_at", "error", "stale_since", "alerts"} <= told.keys()
    assert told["schema"] == "training_monitor.vast/1" and told["verdict"] == "failed"
    first, second, third = told["members"]
    assert (first["key"], first["status"], first["verdict"], first["reason"]) == (
        f"vast://{FIRST}",
        "running",
        "ok",
        "step 10 of 100",
    )
    assert (first["progress"], first["loss"], first["recent_logs"]) == (0.1, 0.5, ["step 10/100 loss 0.5"])
    assert (second["verdict"], second["progress"], second["loss"]) == ("unknown", None, None)
    assert (third["status"], third["verdict"]) == ("exited", "failed") and "OOM" in third["reason"]
    assert told["error"] is None and told["summary"]["cost_per_hour"] == 1.5
    account.write("step 11/100 loss nan\n")
    assert ask("vast", "--log-path", account.pattern, status=1)["members"][0]["loss"] is None


def test_the_exit_status_says_how_the_fleet_is(account: Account) -> None:
    account.rent(1)
    healthy = run("vast", "--log-path", account.pattern)
    assert healthy.returncode == 0 and re.search(rf"^  {FIRST} .* 10/100 .* step 10 of 100", healthy.stdout, re.M)
    assert not healthy.stderr and "\x1b" not in healthy.stdout
    no_log = run("vast", "--once", "--log-path", "/nowhere/*.log")
    assert no_log.returncode == 3, no_log
    gone = run("vast", "--instances", "999")
    assert gone.returncode == 1 and "no such inst" in gone.stdout
    account.api.fail_with = 500
    failed = run("vast", "--json")
    assert failed.returncode == 3 and failed.stderr.startswith("error: ") and json.loads(failed.stdout)["error"]
    account.api.fail_with = 0
    account.api.instances.clear()
    nobody = run("vast")
    assert nobody.returncode == 0 and "none is running" in nobody.stdout


def test_a_log_that_no_process_writes_is_neither_healthy_nor_stalled(account: Account) -> None:
    days_ago = account.log.stat().st_mtime - 3 * 86_400
    os.utime(account.log, (days_ago, days_ago))
    told = run("fleet", f"local#{account.log}", "--once")
    assert told.returncode == 3
    assert " step 10 of 100: its log has not changed for 3d00h, and none of its processes is visible\n" in told.stdout
    assert " run's 1/training.log " in told.stdout


def test_a_table_that_is_not_for_a_terminal_is_not_cut(account: Account) -> None:
    reason = "Error: " + "the container was killed, " * 7
    account.add(FIRST, actual_status="exited", status_msg=reason)
    lines = run("vast", "--once").stdout.splitlines()
    assert f" {reason[:150]}" in lines[1] and lines[-1].startswith("1 error")


def test_without_the_cli_it_is_unknown_and_says_what_to_install(surroundings: Surroundings) -> None:
    done = run("vast", "--once", PATH="/nowhere")
    assert done.returncode == 3 and "vastai" in done.stderr and "install" in done.stderr


def test_the_mock_needs_nothing_and_shows_every_state(surroundings: Surroundings) -> None:
    done = run("vast", "--mock", PATH="/nowhere", HOME="/nowhere")
    assert done.returncode == 1 and not done.stderr
    rows = ask("vast", "--mock", status=1)["members"]
    assert {row["verdict"] for row in rows} == {"ok", "warning", "failed", "unknown"}
    some = ask("vast", "--mock", "--group", "lora", status=1)["members"]
    assert [row["key"] for row in some] == [row["key"] for row in rows if "lora" in row["groups"]] != []
    named = run("vast", "--mock", "--instances", "7,8,7", "--json")
    assert [row["instance_id"] for row in json.loads(named.stdout)["members"]] == [7, 8]


def test_a_mistake_is_an_error_that_says_what_was_expected(surroundings: Surroundings, tmp_path: Path) -> None:
    for words, said in (
        (["vast", "--instances", "30007001,x"], "expected comma-separated numbers"),
        (["vast", "--instances", "7", "--all"], "not allowed with"),
        (["vast", "--interval", "0"], "expected seconds (at least 1)"),
        (["vast", "30007001"], "unrecognized arguments: 30007001"),
        (["vast", "--group", "nobody"], "a group"),
        (["vast", "--mock", "--group", "nobody"], "llama"),
        (["vast", "--log-path", " "], "a list of paths or shell patterns"),
        (["fleet"], "groups in the settings file"),
        (["fleet", ""], "expected TARGET"),
        (["fleet", "nope://x"], "ssh://[user@]host[:port]"),
        (["fleet", "local#process:"], "TARGET#JOB, where JOB"),
        (["fleet", "vast://12x"], "vast://ID"),
        (["fleet", "ssh://-oProxyCommand=x"], "ssh://[user@]host[:port]"),
        (["fleet", "head", "-n", "Not A Namespace"], "k8s://"),
        (["fleet", "a\x1b[31mb\n"], "a pod name"),
    ):
        done = run(*words, XDG_CONFIG_HOME=str(tmp_path))
        assert done.returncode == 2 and said in done.stderr and not done.stdout, done
        assert "\x1b" not in done.stderr and len(done.stderr.splitlines()) < 12


def test_a_settings_file_that_is_wrong_is_an_error_before_anything_is_asked(account: Account) -> None:
    account.settings({"groups": {"nightly": ["nope://x"]}})
    for words in (["vast"], ["fleet", "nightly"]):
        done = run(*words)
        assert done.returncode == 2 and "nightly" in done.stderr and "nope://x" in done.stderr
    assert not account.api.requests
    assert run("vast", "--mock", "--instances", "7").returncode in (0, 1, 3)


def test_a_mistyped_group_is_no_pod(account: Account) -> None:
    account.settings({"groups": {"nightly": [f"vast://{FIRST}"]}})
    done = run("fleet", "nigthly")
    assert done.returncode == 2 and "no group or member has this name; did you mean nightly?" in done.stderr
    assert not account.api.requests
    other = run("fleet", "weekly")
    assert other.returncode == 3 and "weekly, assumed to be a pod: " in other.stdout


# ---------------------------------------------------------------- ends


def test_a_dumb_terminal_gets_a_table(screen: Screen, surroundings: Surroundings) -> None:
    screen.start("200x60", *COMMAND, "vast", "--mock", TERM="dumb")
    screen.shows(r"^  NAME +", "^  llama-00 ", "status=1$")


def test_ctrl_c_gives_the_terminal_back_and_leaves_nothing(screen: Screen, account: Account) -> None:
    account.rent(2)
    account.api.hang = LIST
    screen.start("80x24", *account.vast(), before="trap : INT;")
    assert account.api.hanging.wait(PATIENCE)
    screen.shows(r"^ vast\.ai .*refreshing", "querying")
    screen.press("C-c")
    screen.ended(130)
    screen.shows("interrupted; nothing was stopped")
    assert account.leaves_the_listing_that_hangs()


def test_the_terminal_may_go_and_nothing_stays(screen: Screen, account: Account) -> None:
    account.rent(2)
    screen.start("80x24", *account.vast(interval="1"))
    screen.shows("2 ok")
    screen.tmux("kill-server")
    assert account.leaves_nothing()


def test_samples_are_kept_for_the_history_and_not_where_nobody_wants_them(account: Account) -> None:
    account.rent(1)
    assert run("vast", "--no-history", "--log-path", account.pattern).returncode == 0
    assert str(FIRST) not in run("history").stdout
    assert run("vast", "--log-path", account.pattern).returncode == 0
    told = ask("history", status=0)
    assert str(FIRST) in json.dumps(told)


def test_a_name_that_no_training_has_is_absent_where_there_is_no_ray(surroundings: Surroundings) -> None:
    done = run_command("fleet", "local#no-such-training", "--once", "--json", RAY_API_SERVER_ADDRESS="")
    [member] = json.loads(done.stdout)["members"]
    assert done.returncode == 3 and "no training 'no-such-training'" in str(member), done
    assert member["error"] is None, done
