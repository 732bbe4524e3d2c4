from __future__ import annotations

import pytest

from tests.unit.ui.snapshots import HOSTILE
from training_monitor.ui.kit.text import (
    ASCII,
    MOST_CHARACTERS,
    UNICODE,
    cells,
    clip,
    clip_middle,
    fit,
    fit_line,
    flow,
    format_bar,
    rule,
    safe,
    wrap,
)


def test_outside_text_cannot_steer_a_terminal() -> None:
    for text, shown in [
        ("plain text", "plain text"),
        ("\x1b[1;31mred\x1b[0m end", "red end"),
        ("\x1b]0;owned\x07title", "?]0;owned?title"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("bell\x07 and nul\x00", "bell? and nul?"),
        ("a\x1b", "a?"),
        ("\x9b31mC1", "?31mC1"),
        ("\u202etxt.exe", "txt.exe"),
        ("zero\u200bwidth", "zerowidth"),
        ("👩\u200d🔬", "👩🔬"),
        ("✌🏽 ⚠\ufe0f", "✌ ⚠"),
        ("🇩🇪", "DE"),
        ("\ud800", "?"),
        ("e\u0301", "é"),
        ("x\u0301\u0302\u0303\u0304", "x\u0301\u0302\u0303"),
        ("\u0301x", "x"),
        ("\u1100\u1161\u11a8", "각"),
        ("\u1161", "?"),
        ("\ud7b0", "?"),
    ]:
        assert safe(text, UNICODE) == shown, text


@pytest.mark.parametrize(("text", "shown"), [("Zoë", "Zoe"), ("漢 字", "? ?"), ("✅ ok", "? ok"), ("\x1b[1mb", "b")])
def test_without_unicode_all_text_is_ascii(text: str, shown: str) -> None:
    assert safe(text, ASCII) == shown


def test_outside_text_of_any_kind_and_length_is_shown_as_text() -> None:
    assert safe(30007012, UNICODE) == "30007012"
    assert len(safe("x" * 10_000_000, UNICODE)) == MOST_CHARACTERS
    assert [cells(text) for text in ("ab", "漢字", "✅", "x\u0301", "é", "")] == [2, 4, 2, 1, 1, 0]


def test_any_text_fits_exactly_into_its_cells(subtests: pytest.Subtests) -> None:
    for glyphs in [UNICODE, ASCII]:
        for text in HOSTILE:
            for width in [0, 1, 2, 3, 7, 80]:
                with subtests.test(glyphs=glyphs, text=text, width=width):
                    assert cells(fit(safe(text, glyphs), width, glyphs)) == width
                    assert cells(fit(safe(text, glyphs), width, glyphs, ">")) == width
                    assert all(cells(line) <= max(1, width) for line in wrap(safe(text, glyphs), max(1, width), glyphs))


def test_a_text_that_is_cut_at_its_end_or_in_its_middle_says_so() -> None:
    for text, width, shown in [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("漢字漢字", 5, "漢字…"),
        ("漢字漢字", 4, "漢…"),
        ("long", 1, "…"),
    ]:
        assert clip(text, width, UNICODE) == shown, text
    for text, width, shown in [
        ("llama-seed1", 11, "llama-seed1"),
        ("llama-seed1", 10, "llam…seed1"),
        ("llama-seed1", 3, "l…1"),
        ("llama-seed1", 2, "l…"),
        ("llama-seed1", 1, "…"),
        ("llama-seed1", 0, ""),
        ("漢字漢字漢字", 7, "漢…漢字"),
    ]:
        assert clip_middle(text, width, UNICODE) == shown and cells(shown) <= width, text
    for text in HOSTILE:
        for width in range(12):
            assert cells(clip_middle(safe(text, UNICODE), width, UNICODE)) <= width


def test_a_line_ends_where_a_piece_was_cut_or_is_filled_with_blanks() -> None:
    assert fit_line([("漢字漢字", "bold"), ("x", "")], 6, UNICODE) == (("漢字…", "bold"), (" ", ""))
    assert fit_line([("ab", "bad")], 4, UNICODE, "selected") == (("ab", "bad"), ("  ", "selected"))
    assert wrap("at /data/progress/run now", 8, UNICODE) == ["at", "/data/pr", "ogress/r", "un now"]
    assert "".join(text for text, _ in rule([("log", "bold")], 12, ASCII)) == "-- log -----"


def test_segments_flow_over_lines_and_are_never_broken() -> None:
    lines = flow([[("aaaa", "")], [("bbbb", "")], [("cc", "")], [("dddddd", "")]], 10, 2, UNICODE)
    assert ["".join(text for text, _ in line) for line in lines] == ["aaaa  bbbb", "cc  dddddd"]
    lines = flow([[("aaaa", "")], [("bbbb", "")], [("cc", "")]], 8, 1, UNICODE)
    assert ["".join(text for text, _ in line) for line in lines] == ["aaaa    "]


def test_a_bar_shows_how_much_is_done_and_nothing_when_nobody_knows() -> None:
    for percent, glyphs, bar in [
        (0.0, UNICODE, "░░░░"),
        (50.0, UNICODE, "██░░"),
        (55.0, UNICODE, "██▏░"),
        (100.0, UNICODE, "████"),
        (1e9, UNICODE, "████"),
        (-5.0, UNICODE, "░░░░"),
        (50.0, ASCII, "##.."),
        (99.9, ASCII, "###."),
        (None, UNICODE, "    "),
        (float("nan"), ASCII, "    "),
    ]:
        assert format_bar(percent, 4, glyphs) == bar, percent
