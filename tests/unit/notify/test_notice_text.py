"""Rendering: whatever a text holds, it stays text, and fits."""

from __future__ import annotations

import html
import re

import pytest

from training_monitor.core.values import Notice
from training_monitor.notify.channels import CHANNELS, classes_of
from training_monitor.notify.notice_text import PLAIN, Markup, one_line, render, render_body

MARKUPS = {"plain": PLAIN, **{name: classes_of(name)[0].markup for name in CHANNELS}}
TELEGRAM, DISCORD, SLACK, NTFY = (MARKUPS[name] for name in ("telegram", "discord", "slack", "ntfy"))


def say(text: str, title: str = "Title") -> Notice:
    return Notice("failed", title, (("Job", "run"),), text)


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_a_notice_is_its_title_its_fields_and_its_text() -> None:
    assert render(say("first\nsecond"), PLAIN) == "Title\n\nJob: run\n\nfirst\nsecond"
    assert render(Notice("message", "", text="hello"), TELEGRAM) == "hello"
    assert render(Notice("failed", "Title"), TELEGRAM) == "<b>Title</b>"


def test_what_means_something_to_a_channel_is_escaped(subtests: pytest.Subtests) -> None:
    for markup, text, expected in [
        (TELEGRAM, "<b>x & y</b>", "&lt;b&gt;x &amp; y&lt;/b&gt;"),
        (SLACK, "<!channel> & <@U1>", "&lt;!channel&gt; &amp; &lt;@U1&gt;"),
        (DISCORD, "**a** _b_ ~c~ `d` ||e||", r"\*\*a\*\* \_b\_ \~c\~ \`d\` \|\|e\|\|"),
        (DISCORD, "[a](b) # <@1>", "\\[a\\]\\(b\\) \\# \\<@\u200b1\\>"),
        (DISCORD, "@everyone @here", "@\u200beveryone @\u200bhere"),
        (DISCORD, r"\*", r"\\\*"),
        (DISCORD, "see https://x.example/a_b", "see https://x.example/a_b"),
        (PLAIN, "<b> & `x` @everyone", "<b> & `x` @everyone"),
    ]:
        with subtests.test(markup=markup, text=text, expected=expected):
            assert render(Notice("message", "", text=text), markup) == expected


def test_the_end_of_a_log_is_a_block_before_the_command(subtests: pytest.Subtests) -> None:
    notice = Notice("failed", "T", log="a <b>\n``` @everyone\n", command="training-monitor check local")
    for markup, block in (
        (TELEGRAM, "<pre>a &lt;b&gt;\n``` @everyone</pre>"),
        (SLACK, "```\na &lt;b&gt;\n`\u200b`` @everyone\n```"),
        (DISCORD, "```\na <b>\n`\u200b`` @everyone\n```"),
        (PLAIN, "a <b>\n``` @everyone"),
    ):
        with subtests.test(block=block):
            assert f"Last lines of the log:\n{block}\n\nNext: " in render(notice, markup)


def test_of_a_long_log_the_last_lines_fit_below_the_limit(subtests: pytest.Subtests) -> None:
    log = "\n".join(f"{number} <&> {'x' * 90}" for number in range(200))
    for name, markup in MARKUPS.items():
        with subtests.test(name):
            notice = Notice("failed", "T", (("Reason", "r"),), "text", log=log, command="training-monitor check")
            said = render(notice, markup)
            assert units(said) <= markup.limit and "\n199 " in said.replace("<pre>", "\n") and "check" in said
            assert "\n100 " not in said
    assert len(Notice("failed", "T", log="y" * 9000).log) == 500
    masked = Notice("failed", "T", log="\n".join(["password=hunter2hunter2"] * 60 + [""]))
    assert masked.log == "\n".join(["password=***"] * 50), "secrets are masked before it is cut"


def test_titles_and_fields_are_escaped_too() -> None:
    notice = Notice("failed", "<i>&", (("a<b", "c\n`d`\n"),))
    assert render(notice, TELEGRAM) == "<b>&lt;i&gt;&amp;</b>\n\na&lt;b: c `d`"
    assert render(notice, DISCORD) == "**\\<i\\>&**\n\na\\<b: c \\`d\\`"
    assert render(Notice("failed", "2 * 3"), SLACK) == "2 * 3"  # bold would end at the star


def test_control_characters_are_not_sent(subtests: pytest.Subtests) -> None:
    for text, expected in [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "?]0;title?x"),
        ("a\x00b\x08c\x7fd\x9be", "a?b?c?d?e"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("\u202eevil\u2066", "evil"),
        ("half \ud83d of one", "half ? of one"),
        ("a\ttab", "a       tab"),
    ]:
        with subtests.test(text=text, expected=expected):
            assert render_body(Notice("message", "", text=text), PLAIN) == expected
            assert one_line(Notice("message", text)) == " ".join(expected.split())


COMMAND = "training-monitor check ssh://root@gpu-7:22 '/runs/a b/<x>&y_*.log'"


def test_where_it_is_and_what_to_type_next_stand_in_every_notice_however_long(subtests: pytest.Subtests) -> None:
    for markup, shown in [
        (PLAIN, COMMAND),
        (TELEGRAM, f"<code>{html.escape(COMMAND, quote=False)}</code>"),
        (DISCORD, f"```\n{COMMAND}\n```"),
        (SLACK, f"`{html.escape(COMMAND, quote=False)}`"),
    ]:
        for text in ["", "x" * 50_000, "<*@" * 20_000]:
            with subtests.test(markup=markup, shown=shown, text=text):
                place = {"training": "llama", "target": "vast://7", "command": COMMAND, "host": "desk"}
                sent = render(Notice("failed", "Title", (("Log", text),), text, **place), markup)
                assert "Training: llama\nTarget: vast://7\n" in sent and units(sent) <= markup.limit
                assert sent.endswith(f"Next, on desk: {shown}")


def test_a_command_that_breaks_out_is_escaped_and_one_too_long_left_out() -> None:
    notice = Notice("failed", "Title", command="training-monitor check local '```@everyone`'")
    assert "\\`\\`\\`@\u200beveryone" in render(notice, DISCORD)
    assert render(notice, SLACK).endswith("'```@everyone`'") and "Next: `" not in render(notice, SLACK)
    notice = Notice("failed", "Title", text="text", command="training-monitor check local " + "x" * 3000)
    assert render(notice, DISCORD) == "**Title**\n\ntext"


def test_a_long_text_is_cut_to_the_limit_and_says_so(subtests: pytest.Subtests) -> None:
    for text in ["x" * 10_000, "<" * 10_000, "*`" * 5_000, "🧨" * 5_000, "https://x/" + "y" * 9_000]:
        for name in MARKUPS:
            with subtests.test(text=text, name=name):
                markup = MARKUPS[name]
                cut = render(say(text * 3, "⚠️" * 400), markup)
                assert cut.endswith("…") and units(cut) <= markup.limit
                cut.encode()  # no half of a character


def test_no_entity_tag_or_escape_is_broken_by_the_cut() -> None:
    for padding in range(8):
        notice = say("x" * padding + "&<>_" * 3000, "x" * padding + "<&>" * 200)
        sent = render(notice, TELEGRAM)
        assert re.fullmatch(r"<b>[^<>]*</b>\n\n[^<>]*", sent)
        assert html.unescape(re.sub(r"&(lt|gt|amp);", "", sent)).count("&") == 0
        assert "&" not in re.sub(r"&(lt|gt|amp);", "", render(notice, SLACK))
        assert not re.search(r"(?<!\\)(\\\\)*\\…", render(notice, DISCORD))


@pytest.mark.parametrize("character", ["👍🏽", "e\u0301", "⚠️"])
def test_a_text_that_just_fits_is_not_cut_and_no_character_of_several_is_halved(character: str) -> None:
    assert render(Notice("message", "", text="x" * 10), Markup(10)) == "x" * 10
    assert render(Notice("message", "", text="x" * 11), Markup(10)) == "x" * 9 + "…"
    for limit in range(1, 40):
        cut = render(Notice("message", "", text=character * 20), Markup(limit))
        assert units(cut) <= limit and cut == character * ((len(cut) - 1) // len(character)) + "…"


def test_what_ntfy_gets_fits_its_bytes() -> None:
    for text in ("x", "€", "🧨"):
        assert len(render_body(say(text * 10_000), NTFY).encode()) <= 4096


def test_one_line_is_the_title_or_how_the_text_begins() -> None:
    assert one_line(say("text", "a\n\tb")) == "a b"
    assert one_line(Notice("message", " ", text="first\nsecond")) == "first second"
    assert one_line(say("", "x" * 500)) == "x" * 119 + "…"
