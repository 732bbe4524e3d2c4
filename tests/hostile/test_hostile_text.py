"""Hostile text from targets in every interface: none deceives or controls it, and no text of ours is hidden."""

from __future__ import annotations

import io
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.hostile.texts import HOSTILE, LEGITIMATE, LIARS, ZALGO, harm_in
from tests.hostile.tries import tried
from tests.unit.ui.snapshots import SNAPSHOT, member
from training_monitor.cli import output
from training_monitor.core.shown import shown, shown_cell, shown_lines
from training_monitor.core.values import Notice
from training_monitor.fleet.rows import clean_text
from training_monitor.notify.channel import as_json
from training_monitor.notify.channels import CHANNELS, classes_of
from training_monitor.notify.notice_text import PLAIN, one_line, render
from training_monitor.ui.fleet.main import table_text
from training_monitor.ui.kit.text import ASCII, UNICODE, cells, safe

MARKUPS = {"plain": PLAIN, **{name: classes_of(name)[0].markup for name in CHANNELS}}
ONE_LINE: dict[str, Callable[[str], str]] = {
    "shown": shown,
    "shown_cell": shown_cell,
    "fleet": clean_text,
    "screen": lambda text: safe(text, UNICODE),
    "ascii screen": lambda text: safe(text, ASCII),
    "table": output.one_line,
    "subject": lambda text: one_line(Notice("x", text), 10_000),
}


def _notice(text: str) -> Notice:
    return Notice("failed", text, ((text, text),), text, text, training=text, target=text, host=text, command=text)


@pytest.mark.parametrize("face", ONE_LINE)
def test_nothing_that_lies_gets_through_a_line(face: str) -> None:
    for text in HOSTILE:
        for around in (text, f"a{text}b", f"漢{text}\u0301{text}", text * 3):
            tried()
            assert not harm_in(ONE_LINE[face](around)), (face, around)


def test_every_character_that_unicode_calls_a_format_is_not_shown() -> None:
    every = [*map(chr, range(sys.maxunicode + 1))]
    formats = [char for char in every if unicodedata.category(char) in ("Cf", "Cc", "Zl")]
    assert {shown(f"a{char}b") for char in formats} <= {"ab", "a?b", "a b"}
    for first in range(0, len(every), 4096):
        assert shown("a".join(every[first : first + 4096])).isprintable(), first
    everything = "".join(LIARS.values())
    assert set(shown(everything)) <= {" ", "?"}


@pytest.mark.parametrize("markup", MARKUPS)
def test_nothing_that_lies_gets_into_a_notice(markup: str) -> None:
    for text in HOSTILE:
        tried()
        said = render(_notice(f"a{text}b"), MARKUPS[markup])
        said = said.replace("@\u200b", "@") if markup == "discord" else said
        assert not harm_in(said.replace("\n", " ")), (markup, text)


def test_nothing_that_lies_gets_into_the_json_of_a_webhook() -> None:
    for text in HOSTILE:
        tried()
        sent = as_json(_notice(f"a{text}b"))
        texts = [each for each in (*sent.values(), *sent["fields"][0].values()) if isinstance(each, str)]
        assert not any(harm_in(each.replace("\n", " ")) for each in texts), text


def test_a_command_that_would_be_shown_differently_is_not_offered() -> None:
    for text in ("ab\u200b", "a\u202eb", "e" + "\u0301" * 9, "a\nb"):
        assert "Next" not in render(Notice("x", "x", command=f"training-monitor check {text}"), PLAIN)


def test_nothing_that_lies_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in HOSTILE:
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        output.say(text)
        output.complain(text)
        output.hint(text)
        output.print_table(["NAME"], [[text], [f"a{text}b"]], gives_way=[0])
        row = member(1, name=text, gpu_type=text, status=text, message=text, error=text, key=text)
        output.put_lines(table_text(replace(SNAPSHOT, rows=(row,), groups=(text,)), 120))
        for written in (out.getvalue(), err.getvalue()):
            assert not harm_in(written.replace("\n", " ")), text


def test_a_row_with_a_hostile_text_is_as_wide_as_any() -> None:
    for text in HOSTILE:
        rows = (member(1, name=text, gpu_type=text, status=text), member(2))
        for line in table_text(replace(SNAPSHOT, rows=rows), 120):
            assert cells("".join(piece for piece, _ in line)) == 120, text


def test_legitimate_text_stays() -> None:
    for text in LEGITIMATE:
        assert shown(text) == text and shown_lines(f"{text}\n{text}") == f"{text}\n{text}"
    assert shown("👩\u200d🔬 \u2067שלום\u2069 می\u200cخواهم") == "👩🔬 שלום میخواهم"
    assert shown("\ufeffstep 1\tloss 2") == "step 1 loss 2"


def test_what_is_shown_is_shown_the_same_again() -> None:
    for text in (*HOSTILE, *LEGITIMATE):
        assert shown(shown(text)) == shown(text) and shown_lines(shown_lines(text)) == shown_lines(text)


def test_a_plain_text_is_returned_itself() -> None:
    plain, lines = "step 5/10 loss 0.5", "step 5/10\nloss 0.5\n"
    assert shown(plain) is plain and shown_lines(lines) is lines


def test_a_pile_of_marks_is_cut_also_across_what_is_invisible() -> None:
    assert shown(ZALGO) == ZALGO[:4]
    assert shown("e" + "\u0301\u200d" * 50) == "e\u0301\u0301\u0301"
    assert shown("\u0301\u0301x") == "x" and shown_lines("a\n\u0301b") == "a\nb"


def test_no_text_of_ours_is_hidden_by_what_is_around_it() -> None:
    for begun in ("\x1b]0;", "\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x9d", "\x1b[", "\x1b[1;", "\x1b"):
        for ended in ("\x07", "\x1b\\", "\x9c", "m"):
            for ours in (" is stalled: no step for 5 min ", ": FAILED (exit 1) ", ", 50% done "):
                for show in (shown, shown_lines, lambda text: safe(text, UNICODE)):
                    tried()
                    assert ours in show(f"x{begun}{ours}{ended}y"), (begun, ours)


def test_a_long_hostile_text_takes_no_time_to_speak_of() -> None:
    for text in (
        "\x1b[" * 200_000,
        "\x1b]" * 200_000,
        "e" + "\u0301\u0323" * 200_000,
        "\u202e" * 400_000,
        "\ud800" * 400_000,
    ):
        assert len(shown(text)) <= len(text)
