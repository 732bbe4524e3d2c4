"""What to try after an answer of an outside tool: each row of the table, by a recorded answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docs.write_advice import ADVICE
from training_monitor.core.advice import PROGRAMS, QUESTIONS, find_advice, find_row
from training_monitor.core.errors import CommandError, RestError, TargetUnreachable
from training_monitor.core.results import CommandResult
from training_monitor.notify.channels import classes_of
from training_monitor.targets.transport import explain_failure

FILE = Path(__file__).parents[2] / "recorded" / "advice" / "answers.jsonl"
ANSWERS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
NEW_WORDS = ("something new happened", "panic: runtime error", "Error 0x17", "no", "")


def explain(said: str, program: str = "ssh") -> CommandError:
    return explain_failure(CommandResult((program,), 255 if program == "ssh" else 1, "", said, 0.1), "there")


def test_each_answer_gets_its_own_advice_and_each_row_has_one() -> None:
    for answer in ANSWERS:
        found = find_advice(answer["said"], ADVICE[answer["tool"]])
        assert found and found.hint == answer["hint"] and answer["source"]
        assert (found.kind.__name__ if found.kind else None) == answer["kind"]
        assert found.line and found.line in answer["said"]
    chosen = ((each["tool"], find_row(each["said"], ADVICE[each["tool"]])) for each in ANSWERS)
    used = {(tool, found[0].words.pattern) for tool, found in chosen if found}
    assert used == {(tool, row.words.pattern) for tool, rows in ADVICE.items() for row in rows}


def test_a_program_that_fails_shows_its_words_and_the_advice() -> None:
    for answer in ANSWERS:
        if answer["tool"] not in (PROGRAMS, QUESTIONS, "kubectl", "ssh"):
            continue
        is_plugin = "executable" in answer["said"] and "runc" not in answer["source"]
        program = "kubectl" if answer["tool"] == "kubectl" or is_plugin else "ssh"
        error = explain(answer["said"], program)
        last = answer["said"].splitlines()[-1].strip()
        assert error.hint == answer["hint"] and last[-120:] in str(error)
        assert type(error).__name__ == (answer["kind"] or "TargetUnreachable")


REFUSED = "check the address and the port, and whether the server is running"
CUT = "try again: the connection was lost. If this happens again, check the network and the server"
KEYS = "check the user name, and check that the host has your public key (ssh-add -l lists the keys in your agent)"
UNKNOWN = {program: f"check that {program} works on its own" for program in ("ssh", "kubectl")}
DENIED = "bob@gpu1: Permission denied (publickey)."
CLOSED = "Connection closed by 10.0.0.5 port 22"
NOISE = (
    (
        "This server is monitored. Unauthorized use is a crime.",
        "ssh: connect to host h port 22: Connection refused",
        REFUSED,
    ),
    ("Reauthentication every 12 h is enforced", "Connection to h closed by remote host.", CUT),
    ("NOTE: old certificate has expired for the docs site", DENIED, KEYS),
    ("see https://wiki/ticket not found page", CLOSED, CUT),
    ("There is no route planner", "Killed", UNKNOWN["ssh"]),
    ("idle sessions are timed out.", "sh: 1: cannot create /x: Permission denied", UNKNOWN["ssh"]),
    ("Access is refused to those without a ticket", CLOSED, CUT),
    ("bash: module: command not found", "client_loop: send disconnect: Broken pipe", CUT),
    ("Enter passphrase for key '/home/bob/.ssh/id_rsa': ", DENIED, KEYS),
    ("pam_mkhomedir: cannot create /home/bob: Permission denied (13)", CLOSED, CUT),
    (DENIED, "Connection closed by UNKNOWN port 65535", KEYS),
    ('Load key "/home/me/.ssh/old": invalid format', CLOSED, CUT),
    ("ssh: connect to host h port 22: Connection refused", "Welcome to gpu1, with many rules", REFUSED),
)


def test_notices_around_the_deciding_line_get_no_advice() -> None:
    for first, then, hint in NOISE:
        error = explain(f"{first}\n{then}\n")
        assert error.hint == hint


def test_the_line_that_decides_is_found_and_shown_among_many() -> None:
    said = "\n".join(["ssh: connect to host h port 22: Connection refused", *(f"rule {number}" for number in range(9))])
    error = explain(said)
    assert "Connection refused | rule 5 |" in str(error) and error.hint == REFUSED
    said = "All users must be logged in via VPN.\nssh: connect to host h port 22: Connection timed out"
    hint = explain(said).hint or ""
    assert hint.startswith("check the network, the VPN")
    said = "Unable to connect to the server: something new"
    assert explain(said, "kubectl").hint == UNKNOWN["kubectl"]
    said = f"error: Get {'x' * 900}: the cause"
    assert str(explain(said, "kubectl")).count(": the cause") == 1


def test_an_output_that_merely_names_a_login_asks_nothing() -> None:
    for said in ("devicelogin_step=3 loss 2.0", "Last login:", "Last login: Mon Nov 23 10:00:00 2026 from 10.0.0.1"):
        assert find_advice(said, QUESTIONS) is None


def test_a_channel_that_refuses_gets_the_advice_of_its_words() -> None:
    for answer in ANSWERS:
        if answer["tool"] in (PROGRAMS, QUESTIONS, "kubectl", "ssh", "vastai"):
            continue
        error = RestError("it returned HTTP 400", status=400, body=answer["said"])
        assert classes_of(answer["tool"])[0].advise(error) == answer["hint"]


def test_unknown_words_are_shown_without_advice_of_another_failure() -> None:
    every = {answer["hint"] for answer in ANSWERS}
    for said in NEW_WORDS:
        error = explain(said, "kubectl")
        assert type(error) is TargetUnreachable and said in str(error)
        assert error.hint == "check that kubectl works on its own" and error.hint not in every
        assert not any(find_advice(said, rows) for rows in ADVICE.values())
        assert classes_of("telegram")[0].advise(RestError("it returned HTTP 400", status=400, body=said)) is None


def test_no_advice_names_a_command_or_an_option_of_ours() -> None:
    for rows in ADVICE.values():
        for row in rows:
            assert not re.search(r"training-monitor|(?<!\S)--(?!subresource|me\b)", row.hint), row.hint
            assert row.kind is None or issubclass(row.kind, CommandError)


def test_the_page_has_every_answer() -> None:
    from docs.write_advice import PAGE, write_advice

    assert PAGE.read_text(encoding="utf-8") == write_advice(), "run python3 docs/write_advice.py"
