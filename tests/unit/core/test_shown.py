from __future__ import annotations

from training_monitor.core.shown import shown, shown_cell, shown_lines

CASES = [
    ("step 5/10", "step 5/10"),
    ("\x1b[1;31mred\x1b[0m\x1b(B end", "red end"),
    ("\x1b]0;title\x07x", "?]0;title?x"),
    ("a\tb\nc\rd\x85e\u2028f\xa0g", "a b c d e f g"),
    ("a\x00b\x08c\x7fd\x9be", "a?b?c?d?e"),
    ("\ud800 \ue000 \U0010ffff", "? ? ?"),
    ("\u202etxt.exe\u2066 zero\u200bwidth \ufeffx\u00ad", "txt.exe zerowidth x"),
    ("👩\u200d🔬 ⚠\ufe0f a\ufe0f", "👩🔬 ⚠\ufe0f a"),
    ("x\u0301\u0302\u0303\u0304y", "x\u0301\u0302\u0303y"),
    ("\u0301x", "x"),
]


def test_one_line_is_shown_of_a_text_and_lines_stay_lines() -> None:
    for text, expected in CASES:
        assert shown(text) == expected
    assert shown_lines("a\r\nb\rc\u2028d\n\te\x07\n") == "a\nb\nc\nd\n        e?\n"


def test_only_a_cell_that_looks_like_a_formula_gets_an_apostrophe() -> None:
    for text in ["=1", "+1", "-1", "@x", "  =1", "\t=1", "\r=1", "\u200b=1", "＝1", "'=1", "'x"]:
        assert shown_cell(text) == f"'{shown(text)}"
    for text in ["", "x=1", "a-b", "it's", "1.5"]:
        assert shown_cell(text) == text
