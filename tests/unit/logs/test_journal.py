"""What systemd's journal has of a unit: each line once, how old the last one is, and what was deleted.

The entries are those of journalctl 252.38, asked as `targets/sh/journal.sh` does, about a unit that journald of
the same version listened to; a line of 50,000 letters is shortened.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from training_monitor.core.errors import AccessDenied, ParseError
from training_monitor.core.models import LogCursor, NewLog, Reply
from training_monitor.logs.sources import JOURNAL, source_named

RECORDED = Path(__file__).parents[2] / "recorded" / "journalctl" / "252.38" / "entries.jsonl"
ENTRIES = RECORDED.read_text(encoding="utf-8").splitlines()
INVOCATION = "800b3339a0e14c8bba90cc9e18aa6d79"
STEPS = "step 1/100 loss: 0.5\nstep 2/100 loss: 0.5\nstep 3/100 loss: 0.5\n"


def read(
    entries: list[str],
    cursor: LogCursor | None = None,
    *,
    state: str = "read",
    name: str = INVOCATION,
    limit: int = 10_000,
    later: int = 7,
) -> NewLog:
    last = json.loads(ENTRIES[-1])["__REALTIME_TIMESTAMP"]
    head = f"state={state}\nnow={int(last) // 10**6 + later}\nlog\n"
    text = "".join(f"{entry}\n" for entry in entries)
    return source_named(f"{JOURNAL}{name}", "its output").read(cursor, limit).parse(Reply(head + text, 0, 0.1))


def test_of_a_first_read_the_newest_lines_are_kept_as_they_were_printed() -> None:
    new = read(ENTRIES)
    token = "token ***\n"
    assert new.text == f"{STEPS}bar  5%\rbar 10%\n\x1b[31mred\x1b[0m\na\ufffdb\n{token}{'x' * 16}\nno end\n"
    assert (new.path, new.by_lines) == (f"journal:train.service/{INVOCATION}", True)
    assert new.age is not None and 6 <= new.age <= 7
    assert read(ENTRIES, name="train.service").path == "journal:train.service"
    new = read(ENTRIES[:3], limit=50)
    assert (new.text, new.skipped_bytes) == (STEPS[21:], 21)


def test_what_was_read_is_not_read_again_and_what_was_deleted_is_lost() -> None:
    first = read(ENTRIES[:2])
    second = read(ENTRIES[1:3], first.cursor)
    third = read(ENTRIES[2:3], second.cursor)
    assert (second.text, second.reset, third.text, third.reset) == ("step 3/100 loss: 0.5\n", None, "", None)
    assert third.cursor == second.cursor and third.age is not None
    new = read(ENTRIES[2:3], read(ENTRIES[:1]).cursor)
    assert (new.text, new.reset) == ("step 3/100 loss: 0.5\n", "rotated")
    assert new.lost and 0.3 < new.lost[1] - new.lost[0] < 0.5


def test_entries_that_were_cut_or_have_no_line_are_left_out() -> None:
    others = ["[]", "5", '{"MESSAGE": "step 9"}', '{"__CURSOR": 5}', "text"]
    odd = [json.dumps({**json.loads(ENTRIES[2]), "MESSAGE": text}) for text in (None, ["a", -1, 300, {}], 5)]
    new = read([ENTRIES[0][60:], *others, ENTRIES[1], *odd, ENTRIES[2][:100]])
    assert new.text == "step 2/100 loss: 0.5\n\n\n5\n"


def test_without_entries_nothing_is_known_and_without_its_time_a_reply_is_refused() -> None:
    assert read([]).missing and read([], state="missing").missing
    with pytest.raises(AccessDenied, match=f"no readable entries for {INVOCATION}") as denied:
        read([], state="denied")
    assert "systemd-journal" in str(denied.value)
    assert read(ENTRIES, state="denied").text.startswith(STEPS)  # of the user's own journal
    with pytest.raises(ParseError):
        source_named(f"{JOURNAL}x", "x").read(None, 10).parse(Reply(f"log\n{ENTRIES[0]}\n", 0, 0.1))


def test_it_is_asked_for_by_its_start_or_by_its_unit_and_from_the_position_on() -> None:
    for name in (INVOCATION, f"train.service/{INVOCATION}"):
        assert f"unit={INVOCATION}\n" in source_named(f"{JOURNAL}{name}", "x").read(None, 10).script
    script = source_named(f"{JOURNAL}train.service", "x").read(LogCursor(0, 0, "s=1;i=2"), 10).script
    assert "unit=train.service\n" in script and "position='s=1;i=2'\n" in script


@pytest.mark.parametrize("oldest_first", [False, True])
def test_the_newest_part_is_read_unless_the_oldest_is_wanted(tmp_path: Path, oldest_first: bool) -> None:
    entry = '{"__CURSOR":"c&","__REALTIME_TIMESTAMP":"1","MESSAGE":"step &"}'
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\nseq 1 60000 | sed 's/.*/{entry}/'\n")
    (tmp_path / "journalctl").chmod(0o755)
    question = source_named(f"{JOURNAL}u", "").read(LogCursor(0, 0, "c1"), 10_000, oldest_first=oldest_first)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run(["sh", "-c", question.script], env=environ, capture_output=True, text=True, timeout=60)
    new = question.parse(Reply(said.stdout, 0, 0.1))
    lines = new.text.splitlines()
    assert (lines[0] == "step 2", lines[-1] == "step 60000", new.reset) == (oldest_first, not oldest_first, None)
