"""Whole screens of `top`, compared with recorded frames; hostile text and every size never break one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.ui.snapshots import HOSTILE, misfits, recorded_frame
from tests.unit.ui.top_runs import (
    EMPTY,
    MIB,
    NOW,
    ROWS,
    SNAPSHOT,
    STALLED,
    drawn,
    ended,
    identity,
    node,
    row,
    run,
    text_of,
)
from tests.unit.ui.top_screens import TABLES, keys_of, render_top, update
from training_monitor.core.values import Verdict
from training_monitor.runs.values import (
    FAILED,
    FINISHED,
    UNKNOWN,
    EarlierAttempt,
    Estimate,
    Message,
    MetricHistory,
    RunRow,
    RunSize,
    RunsSnapshot,
    Usage,
    Variable,
)
from training_monitor.ui.kit.text import ASCII, UNICODE, Glyphs
from training_monitor.ui.kit.view import Do
from training_monitor.ui.top.acts import SIGNALS
from training_monitor.ui.top.main import table_text
from training_monitor.ui.top.table import COLUMNS
from training_monitor.ui.top.view import EditVariable, Measured, Pane, Place, Searching, TopView

LONG = "llama-3.1-8b-lora-r16-alpha32-warmup500-seed"
WIDEST: dict[str, Any] = {
    "verdict": replace(STALLED, seconds_without_step=59 * 60.0),
    "rate": 59.9 / 60,
    "eta_seconds": 23 * 3600.0 + 59 * 60,
    "cpu_percent": 12_799.0,
    "rss_bytes": 1023 * 1024 * MIB,
    "gpu_mib": 640.0 * 1024,
}
LONG_NAMES = replace(
    SNAPSHOT, rows=(row(f"{LONG}1"), row(f"{LONG}2", **WIDEST), ended(f"{LONG}3-{'x' * 90}", FINISHED), *ROWS[1:])
)
SEARCHING = Searching("nan", 1_234_567_890, 5_000_000_000)
START = TopView("/data/progress", selected=Place(ROWS[0].run.path))
PANES = (
    Pane("stdout", "/data/out", tuple(f"step {n} loss={1 / n:.4f}" for n in range(1, 101)), 4_999_000, 5_000_000_000),
    Pane("stderr", "/data/err", ("warning: 漢字 " * 12, "done"), 0, 200, follows=False, note="found"),
)


def after(view: TopView, *keys: str, snapshot: RunsSnapshot = SNAPSHOT) -> TopView:
    for key in keys:
        view, _ = update(view, key, snapshot)
    return view


VIEWS = {
    "main": START,
    "tree": after(START, "t", "down", "down"),
    "detail": after(START, "enter"),
    "columns": after(START, "v", *["down"] * 8, " ", "down"),
    "editor": after(START, "e", "down"),
    "edit": after(START, "e", "enter", "4"),
    "leap": after(START, "e", "enter", "ctrl-u", *"0.03", "enter", "y"),
    "output": replace(START, screen="output", panes=PANES, shown="both"),
    "searching": replace(START, screen="output", panes=(PANES[0]._replace(searching=SEARCHING), PANES[1])),
    "signals": after(START, "k", "down", "down"),
    "confirm": after(START, "k", "down", "down", "enter", "y"),
    "delete": replace(
        after(replace(START, selected=Place(ROWS[4].run.path)), "c"),
        measured=Measured(ROWS[4].run.path, RunSize(14, 1_288_490_189, ("/data/logs/done.log",))),
    ),
    "messages": replace(
        START,
        screen="messages",
        messages=(
            Message(NOW - 86_400, "process 4711 (python3): SIGTERM was sent, and the process has ended"),
            Message(NOW - 60, "deleted done: 14 files, 1.2 GiB"),
            Message(NOW - 1, "failed to delete oom: " + "the folder cannot be read " * 5),
        ),
    ),
    "help": after(START, "?"),
}
PLAIN = replace(VIEWS["tree"], title="top", glyphs=ASCII)
SIZES = [(width, height) for width in (1, 39, 40, 41, 80, 300) for height in (1, 9, 10, 16, 100)]


def shown(view: TopView, snapshot: RunsSnapshot = SNAPSHOT, width: int = 80, height: int = 24) -> str:
    return drawn(render_top(snapshot, view, width, height))


def frames() -> Iterator[tuple[str, str]]:
    """Yield each recorded frame: its name, and what is drawn now."""
    for size in ["40x10", "80x24", "118x40", "200x60"]:
        width, height = map(int, size.split("x"))
        for name, view in VIEWS.items():
            yield f"top_{name}_{size}", shown(view, width=width, height=height)
        if size != "40x10":
            yield f"top_long_{size}", shown(after(START, "t", snapshot=LONG_NAMES), LONG_NAMES, width, height)
    yield "top_ascii_80x24", shown(PLAIN)
    yield "top_table_160", text_of(tuple(table_text(SNAPSHOT, 160)))


def test_a_screen_is_drawn_as_recorded(subtests: pytest.Subtests) -> None:
    for name, drawn_now in frames():
        with subtests.test(name=name):
            assert drawn_now == recorded_frame(name)


def test_without_unicode_the_screen_is_drawn_in_ascii() -> None:
    assert shown(PLAIN, width=200, height=60).isascii()


def hostile(text: str) -> RunsSnapshot:
    changed: dict[str, Any] = dict.fromkeys("phase error_message script stdout_path wandb_url error".split(), text)
    changed |= {"metrics": {text: text, "loss": text}, "process": replace(identity(5), hostname=text)}
    changed["variables"] = Variable(text, text, text, text, text, None), Variable("b", text, "str", None, None, text)
    rows = []
    for number, status in enumerate(("RUNNING", FAILED, UNKNOWN, text)):
        found = run(f"{number}{text}", path=str(number), folder=text, **changed)
        rows.append(RunRow(found, status, text, tree=(node("P", 0, 5, text),)))
    return RunsSnapshot(tuple(rows), Usage(), NOW, text, text, NOW, text, text)


def hostile_view(screen: str, text: str, snapshot: RunsSnapshot, glyphs: Glyphs) -> TopView:
    start = TopView(text, glyphs=glyphs, selected=Place(snapshot.rows[0].run.path))
    view = after(start, *{"confirm": ["k", "enter"], "signals": ["k"]}.get(screen, []), snapshot=snapshot)
    panes = (
        Pane("stdout", text, (text, text), 1, 2, note=text, error=text),
        Pane("stderr", text, (text, text), 1, 2, searching=Searching(text, 1, 2)),
    )
    expanded = frozenset(each.run.path for each in snapshot.rows)
    said = {"message": text, "messages": (Message(NOW, text),), "panes": panes, "typed": text, "expanded": expanded}
    return replace(view, screen=screen, variable=text, shown="both", wraps=True, **said)  # type: ignore[arg-type]


def questions(text: str, snapshot: RunsSnapshot) -> Iterator[TopView]:
    asked_of = snapshot.rows[0].run
    start = TopView(text, selected=Place(asked_of.path), screen="confirm", phrase="yes", variable=text)
    delete = replace(start, request=Do("delete", asked_of))
    yield replace(delete, measured=Measured(asked_of.path, RunSize(1, 2**70, (text, text))))
    yield replace(delete, measured=Measured(asked_of.path, error=text))
    for variable in (text, "b"):
        yield replace(start, request=EditVariable(asked_of, variable, text))


def test_no_text_from_outside_breaks_a_frame(subtests: pytest.Subtests) -> None:
    for glyphs in [UNICODE, ASCII]:
        for text in HOSTILE:
            with subtests.test(glyphs=glyphs, text=text):
                snapshot = hostile(text)
                views = [hostile_view(screen, text, snapshot, glyphs) for screen in TABLES]
                for view in [*views, *questions(text, snapshot)]:
                    for width, height in ((80, 24), (40, 10)):
                        assert misfits(render_top(snapshot, view, width, height).lines, width) == []
                assert misfits(table_text(snapshot, 80, glyphs), 80) == []


def test_a_frame_has_exactly_the_size_of_the_terminal(subtests: pytest.Subtests) -> None:
    for width, height in SIZES:
        for name in VIEWS:
            with subtests.test(width=width, height=height, name=name):
                for snapshot in (SNAPSHOT, EMPTY, replace(SNAPSHOT, error="x" * 300, stale_since=NOW - 60)):
                    for message in ("", "m" * 500):
                        lines = render_top(snapshot, replace(VIEWS[name], message=message), width, height).lines
                        assert len(lines) == height
                        assert misfits(lines, width) == []


def test_no_number_breaks_a_frame(subtests: pytest.Subtests) -> None:
    for value in [float("nan"), float("inf"), -1.0, 0.0, 1e300]:
        with subtests.test(value=value):
            times = Estimate(value, value, value, value)
            changed: dict[str, Any] = dict.fromkeys(("run", "epoch_time", "training", "validation"), times)
            changed |= dict.fromkeys(("validation_seconds", "started_at", "ended_at", "updated_at", "step_at"), value)
            changed |= {"metrics": {"loss": value, "x": value}}
            changed |= {"history": {"loss": MetricHistory((1, 2, 3), (value, 1.0, None))}}
            seen: dict[str, Any] = dict.fromkeys("cpu_percent gpu_mib eta_seconds rate quiet_seconds".split(), value)
            tree = (node("P", 0, 5, "p", cpu_percent=value, gpu_mib=value),)
            odd = row("a", changed, tree=tree, **seen)
            snapshot = RunsSnapshot((odd,), Usage(*[value] * 6), value, "w", "e", value)  # type: ignore[arg-type]
            for screen in ("main", "detail", "editor"):
                view = replace(START, screen=screen, selected=Place(odd.run.path), expanded=frozenset([odd.run.path]))
                assert misfits(render_top(snapshot, view, 300, 60).lines, 300) == []


# ---------------------------------------------------------------- what a screen says


def test_a_low_screen_says_what_it_needs_and_cuts_no_count() -> None:
    assert shown(START, width=39, height=24).startswith("too small: 40x10 is needed")
    assert "too small" not in shown(START, width=40, height=10)
    assert shown(START, width=40, height=10).splitlines()[-2] == "1 stalled 1 FAILED 1 KILLED 1 slow 1 ?"
    fine = replace(SNAPSHOT, rows=(ROWS[0], ROWS[2]))
    assert shown(START, fine, 40, 10).splitlines()[-2] == "1 stalled 2 RUNNING CPU 51% RAM 12%"
    assert shown(START, EMPTY, 40, 10).splitlines()[-2] == "CPU ? RAM ? GPU ?"


def test_a_failed_look_is_told_whole_with_since_when() -> None:
    frame = render_top(replace(SNAPSHOT, error="ssh: no answer", stale_since=NOW - 61), START, 80, 24)
    assert frame.lines[1][0] == ("stale since 02:38:59: ssh: no answer", "bad")
    assert "llama" in drawn(frame)
    words = "ssh://me@gpu1: " + "the key was refused by " * 4 + "the server"
    lines = shown(START, replace(EMPTY, error=words, stale_since=NOW)).splitlines()
    assert lines[0].startswith(" /data/progress   ? runs")
    assert " ".join(lines[1:3]) == f"stale since 02:40:00: {words}"


def test_the_header_tells_what_is_filtered_sorted_and_paused() -> None:
    view = replace(START, title="top", read_only=True, status="RUNNING", words="llama")
    view = replace(view, sort="Loss", reverse=True, paused=True)
    assert shown(view, width=120).splitlines()[0] == (
        " top   2 of 9 runs  PAUSED  RUNNING  name: llama  ▼ Loss  read-only  02:40:00  /data/progress"
    )


def test_an_empty_table_says_why(subtests: pytest.Subtests) -> None:
    hint = "no runs found yet: a training script creates one with TrainingMonitor("
    assert hint in text_of(tuple(table_text(EMPTY, 100)))
    for snapshot, view, said in [
        (EMPTY, START, hint),
        (replace(EMPTY, is_refreshing=True), START, "looking ..."),
        (replace(EMPTY, error="no such folder", stale_since=NOW), START, "no data yet"),
        (SNAPSHOT, replace(START, words="zzz"), "no run matches zzz: Esc shows all"),
        (SNAPSHOT, replace(START, status="FAILED", words="zzz"), "no run matches FAILED zzz"),
    ]:
        with subtests.test(said=said):
            assert said in shown(view, snapshot)


def place_of(name: str) -> Place:
    return next(Place(each.run.path) for each in ROWS if each.run.name == name)


def test_the_line_below_the_table_says_what_is_wrong_with_the_selected_run(subtests: pytest.Subtests) -> None:
    for said in [
        "llama: train.py, PID 4711 on gpu-1",
        "oom: FAILED: torch.OutOfMemoryError: CUDA out of memory.",
        "gone: KILLED: its process is gone, and it said nothing before",
        "elsewhere: UNKNOWN: it runs on gpu-7 and is not visible from here",
        "stalled-one: stalled: no step for 5m20s, limit 2m45s: its processes use no CPU",
        "llama-val: slow: 12s a step, 3.1 times its own past",
    ]:
        with subtests.test(said=said):
            assert f"\n{said}" in shown(replace(START, selected=place_of(said.partition(":")[0])), width=100)


def test_what_is_selected_is_described_below_the_table() -> None:
    broken = RunRow(run("broken", error="no JSON (line 1)"), UNKNOWN, "no JSON (line 1)")
    line = shown(replace(START, selected=Place()), replace(EMPTY, rows=(broken,)), width=200)
    assert "\nbroken: its file cannot be read: no JSON (line 1)\n" in line
    text = shown(after(START, "t", "down"), width=120)
    assert "\nllama: process 4711 python3, sleeping  CPU 99.5%  RAM 2.0 GiB  GPU 39.3 GiB  12 threads" in text
    busy = row("a", tree=(node("P", 0, 7, "python3"), node("T", 1, 8, "loader", cpu_percent=61.5, state="R")))
    snapshot = replace(SNAPSHOT, rows=(busy,))
    text = shown(after(replace(START, selected=Place()), "t", "down", "down", snapshot=snapshot), snapshot)
    assert re.search(r"\[P\] python3 +PID 7 +CPU  99.5%  RAM  2.0 GiB  GPU 39.3 GiB\n", text)
    assert re.search(r"\[T\] loader +TID 8 +CPU  61.5%\n", text)
    assert "\na: thread 8 loader, running  CPU 61.5%\n" in text


def test_unknown_is_a_question_mark_and_stalled_or_slow_a_warning() -> None:
    lines = render_top(SNAPSHOT, START, 200, 40).lines
    (unknown,) = [line for line in lines if any("elsewhere" in text for text, _ in line)]
    assert [style for text, style in unknown if text.strip() == "?"] == ["warn"]
    for name, state, style in (("stalled-one", "stalled 5m", "bad"), ("llama-val", "slow", "warn")):
        (line,) = [line for line in lines if any(text.strip() == name for text, _ in line)]
        assert [its for text, its in line if text.strip() == state] == [style]
    assert "1 stalled, 1 FAILED, 1 KILLED, 1 slow" in drawn(render_top(SNAPSHOT, START, 200, 40))


def test_the_page_of_a_run_says_the_verdict_once_and_what_to_try() -> None:
    text = shown(replace(START, screen="detail", selected=place_of("stalled-one")), width=120, height=40)
    assert text.count("no step for 5m20s, limit 2m45s") == 1 and "try         py-spy dump --pid 6000" in text


def test_each_state_has_a_style_and_another_one_when_it_is_selected(subtests: pytest.Subtests) -> None:
    styles = {0: "batch", 1: "validation", 3: "loading", 4: "finished", 5: "failed", 6: "canceled", 7: "killed"}
    for number, style in styles.items():
        with subtests.test(number=number, style=style):
            for selected, wanted in ((8, style), (number, f"selected {style}")):
                lines = render_top(SNAPSHOT, replace(START, selected=Place(ROWS[selected].run.path)), 80, 24).lines
                found = [its for line in lines for text, its in line if text.strip() == ROWS[number].run.name]
                assert found[0] == wanted


def test_every_column_of_the_table_is_seen_while_it_is_scrolled_to_the_right() -> None:
    view, seen = START, set()
    for _ in COLUMNS:
        frame = render_top(SNAPSHOT, view, 80, 24)
        seen |= {title for title, _, _ in frame.view.headings}
        assert frame.view.headings[0][0] == "Run Name" and "llama" in drawn(frame)
        view = after(frame.view, "right")
    assert seen == {"Run Name", *(column.title for column in COLUMNS)}
    end = render_top(SNAPSHOT, after(view, *["right"] * 99), 80, 24)
    assert end.view.across == render_top(SNAPSHOT, view, 80, 24).view.across
    assert render_top(SNAPSHOT, after(end.view, "left"), 80, 24).view.across == end.view.across - 1


def test_hidden_columns_leave_their_room_to_others_and_the_name_stays() -> None:
    view = after(START, "v", " ", "down", " ", "enter")
    assert view.hidden == {"Status", "Done"}
    titles = shown(view).splitlines()[1]
    assert titles.split()[:3] == ["Run", "Name", "Rate"] and "Phase" in titles
    nothing = replace(START, hidden=frozenset(column.title for column in COLUMNS))
    for view in (nothing, after(nothing, "right", "right")):
        for width in (40, 80, 300):
            frame = render_top(SNAPSHOT, view, width, 24)
            assert [title for title, _, _ in frame.view.headings] == ["Run Name"]
            assert misfits(frame.lines, width) == [] and "llama" in drawn(frame)


def test_what_is_used_is_told_in_parts_of_what_may_be_used() -> None:
    wide = shown(START, width=400, height=20)
    assert re.search("CPU Share RAM Share GPU Share", wide) and re.search(r" 26% +6% +25% ", wide)
    assert "820% of 16 cores 51%" in wide and "8.0 GiB of 64.0 GiB 12%" in wide and "78.5 GiB of 160.0 GiB 49%" in wide


def test_what_is_not_known_is_no_zero() -> None:
    bare = RunRow(run("bare", epoch=None, batch=None, process=None, metrics={}, history={}, script=None), UNKNOWN)
    unknown = replace(EMPTY, rows=(bare,), gpu_error="nvidia-smi is not installed here", machine_error="no /proc here")
    text = shown(START, unknown, width=300, height=20)
    assert "0%" not in text and "CPU ? no /proc here" in text and "GPU ? nvidia-smi is not installed here" in text
    assert "bare: cannot tell whether it is running" in text
    none = replace(unknown, rows=(), usage=Usage(cpu_percent=0.0, gpu_mib=0.0))
    assert "GPU ? nvidia-smi is not installed here" in shown(START, none)


def test_a_long_name_is_shown_where_there_is_room_and_99_5_per_cent_are_not_all() -> None:
    lines = shown(START, replace(SNAPSHOT, rows=(row(LONG[:40]),)), width=118).splitlines()
    assert lines[2].startswith(f">+{LONG[:40]} RUNNING") and "Phase" in lines[1]
    for step, shown_part in ((9_999, " 99% "), (10_000, " 100% ")):
        near = row("a", {"step": step, "total_steps": 10_000})
        assert shown_part in shown(START, replace(SNAPSHOT, rows=(near,))).splitlines()[2]


def test_columns_right_of_the_screen_are_pointed_at(subtests: pytest.Subtests) -> None:
    for width in range(40, 320, 7):
        with subtests.test(width=width):
            frame = render_top(SNAPSHOT, START, width, 24)
            is_all = frame.view.headings[-1][0] == COLUMNS[-1].title
            assert drawn(frame).splitlines()[1].endswith(">") is not is_all


def test_settings_are_compared_with_those_of_other_runs() -> None:
    names = {"a": {"lr": 0.1, "batch": 8}, "b": {"lr": 0.2, "batch": 8}, "c": {"lr": 0.3}, "d": {}}
    rows = tuple(row(name, {"config": config}) for name, config in names.items())
    view = replace(START, screen="detail", selected=Place(rows[0].run.path))
    text = shown(view, replace(SNAPSHOT, rows=rows), height=60)
    assert "config      lr=0.1, batch=8\n" in text and "differs     lr=0.1 (others: 0.2, 0.3)\n" in text
    alone = shown(view, replace(SNAPSHOT, rows=(rows[0], rows[3])), height=60)
    assert "config" in alone and "differs" not in alone


def page_of(shown_row: RunRow, width: int = 80) -> str:
    view = replace(START, screen="detail", selected=Place(shown_row.run.path))
    return shown(view, replace(EMPTY, rows=(shown_row,)), width, 99)


def test_the_page_of_a_run_breaks_long_texts_and_tells_a_reason_once() -> None:
    words = "CUDA error: " + "device-side assert triggered, " * 9
    text = page_of(RunRow(run("bad", status=FAILED, error_message=words, stdout_path="/x" * 90), FAILED), 40)
    assert "".join(words.split()) in "".join(text.split()) and "/x" * 90 in "".join(text.split())
    assert not any("…" in line for line in text.splitlines()[1:])
    failed = run("bad", status=FAILED, error_message="CUDA error")
    verdict = Verdict("failed", "failed", "failed at step 9: CUDA error")
    for reason, count in (("", 1), ("its host restarted", 2)):
        text = page_of(RunRow(failed, FAILED, reason, verdict=verdict))
        assert text.count("CUDA error") == count and "failed: failed" not in text


def test_the_page_of_a_run_aligns_metrics_and_tells_ages_and_attempts() -> None:
    before = (EarlierAttempt("KILLED", step=700), EarlierAttempt("FAILED"))
    metrics = {"loss": 0.5, "eval/accuracy": 0.25, "samples": 123456}
    measured = run("a", metrics=metrics, history={}, step_at=NOW - 90, attempt=3, earlier=before)
    text = page_of(RunRow(measured, "RUNNING", processes=3, threads=15), 64)
    assert "\n  loss          0.5000\n  eval/accuracy 0.2500\n  samples       123456\n" in text
    assert "  3 processes\n            15 threads\n" in text
    assert "attempt     3, after KILLED at step 700, FAILED\n" in text
    assert "last batch  2026-02-02 02:38, 1m30s ago\n" in text
    one = row("a", {"history": {"loss": MetricHistory((1,), (1.5,))}})
    table = shown(replace(START, selected=Place(one.run.path)), replace(EMPTY, rows=(one,)), width=300)
    assert not set("▁▂▃▄▅▆▇") & set(page_of(one) + table.partition("\na: ")[0])
    text = page_of(ended("bad", FAILED, run=Estimate(elapsed=7.0, rate=2.0)))
    resources, times = (next(line for line in text.splitlines() if line.startswith(name)) for name in ("res", "run "))
    assert resources.split()[1] == "PID" and len(resources.split()) == 3
    assert times.split() == ["run", "elapsed", "7s", "rate", "2.00/s"]
    assert not [line for line in text.splitlines() if line.startswith("progress") and "ETA" in line]


def test_the_cursor_and_the_chosen_variable_are_always_on_the_screen() -> None:
    many = replace(SNAPSHOT, rows=tuple(row(f"run-{number}", tree=()) for number in range(300)))
    view = START
    for key in ["down"] * 30 + ["page-down"] * 40 + ["up"] * 5 + ["home", "wheel-down", "end", "page-up"]:
        view = render_top(many, after(view, key, snapshot=many), 80, 24).view
        (line,) = [line for line in shown(view, many).splitlines() if line.startswith(">")]
        assert view.selected.path == f"/data/progress/{line.split()[1]}/progress.json"
    variables = tuple(Variable(f"v{number}", number, "int") for number in range(50))
    many = replace(SNAPSHOT, rows=(row("llama", {"variables": variables}),))
    view = after(START, "e", snapshot=many)
    for _ in range(50):
        frame = render_top(many, view, 40, 10)
        (line,) = [line for line in drawn(frame).splitlines() if line.startswith("> ")]
        assert line.split()[1] == frame.view.variable
        view = after(frame.view, "down", snapshot=many)


def test_the_cursor_follows_its_run_through_changes_and_filters() -> None:
    view = render_top(SNAPSHOT, replace(START, selected=Place(ROWS[3].run.path)), 80, 24).view
    more = replace(SNAPSHOT, rows=(ended("aaa", FAILED), *ROWS))
    assert render_top(more, view, 80, 24).view.selected == Place(ROWS[3].run.path)
    gone = replace(SNAPSHOT, rows=(*ROWS[:3], *ROWS[4:]))
    assert render_top(gone, view, 80, 24).view.selected == Place(ROWS[4].run.path)
    view = render_top(SNAPSHOT, START, 80, 24).view
    view = render_top(SNAPSHOT, after(view, "f", *"done", "enter"), 80, 24).view
    assert render_top(SNAPSHOT, after(view, "escape"), 80, 24).view.selected == START.selected


# ---------------------------------------------------------------- pages


def test_a_message_stands_above_the_keys_and_on_a_low_screen_in_their_place() -> None:
    view = replace(START, message="something\x1b[2J was done")
    assert shown(view).splitlines()[-2] == "something was done"
    assert shown(view).splitlines()[-1].startswith("q quit  ? help")
    assert shown(view, width=40, height=10).splitlines()[-1] == "something was done"


def test_help_names_every_key_once_and_in_read_only_none_that_changes_a_run() -> None:
    everything = shown(VIEWS["help"], height=120)
    common = everything.partition("on every screen\n")[2].partition("while you type the name")[0]
    for screen in TABLES:
        for key in TABLES[screen]:
            is_told_there = f"  {key.shown:<9} {key.help}\n" in everything
            assert is_told_there or key.shown in common.replace("wheel", "Wheel")
    read_only = replace(VIEWS["help"], read_only=True)
    assert "delete" not in shown(read_only, height=120) and "signal" not in shown(read_only, height=120)
    assert "signal" not in shown(replace(read_only, screen="main"), width=200)
    assert all(not key.changes for screen in TABLES for key in keys_of(replace(read_only, screen=screen)))
    lines = [line for line in shown(VIEWS["help"], height=120).splitlines()[2:-1] if line.strip()]
    assert len(lines) == len(set(lines)) < 80
    narrow = " ".join(shown(VIEWS["help"], width=40, height=200).split())
    assert "KILL, STOP and CONT go to all processes of a run, the other signals only to its main process" in narrow


def test_the_menu_shows_the_chosen_signal_also_on_the_least_screen() -> None:
    view = VIEWS["signals"]
    for _ in SIGNALS:
        view = after(view, "down")
        (line,) = [line for line in shown(view, width=40, height=10).splitlines() if line.startswith(">")]
        assert line.startswith(f"> SIG{SIGNALS[view.choice][0]}")


def test_the_question_before_a_signal_or_a_deletion_names_what_goes() -> None:
    folder = "/data/" + "very-long-name-" * 8 + "end"
    gone = replace(EMPTY, rows=(RunRow(run("old", folder=folder, status=FINISHED, process=None), FINISHED),))
    view = after(replace(START, selected=Place()), "c", snapshot=gone)
    assert folder in "".join(shown(view, gone, 40, 30).split())
    assert "The signal goes to 1 process:\n" in shown(after(START, "k"))
    view = after(replace(START, selected=Place(ROWS[8].run.path)), "c")
    assert "It is unknown whether the run has ended. it runs on gpu-7" in shown(view)


def test_the_question_before_deleting_says_what_goes_and_what_stays(subtests: pytest.Subtests) -> None:
    path = ROWS[4].run.path
    for measured, told in (
        (None, "counting its files ..."),
        (Measured("/data/progress/other.json", RunSize(1, 1)), "counting its files ..."),
        (Measured(path, RunSize(1, 4096)), "\n  4.0 KiB in 1 file\n"),
        (Measured(path, error="no answer"), "size unknown: no answer"),
    ):
        with subtests.test(measured=measured):
            text = shown(replace(VIEWS["delete"], measured=measured))
            assert told in text and "Files elsewhere are kept." in text
    flat = replace(EMPTY, rows=(RunRow(run("old", folder=None, status=FINISHED, process=None), FINISHED),))
    assert "All other files are kept, including checkpoints." in shown(after(START, "c", snapshot=flat), flat)


def test_the_editor_shows_long_fixed_and_present_values() -> None:
    later = replace(SNAPSHOT, rows=(row("llama", cpu_percent=12.5), *ROWS[1:]))
    assert "CPU 12.5%" in shown(VIEWS["editor"], later)
    path = "s3://bucket/" + "checkpoints/" * 4
    variables = (Variable("data", path, "str", None, None, f"{path}new"), Variable("n", 1, "int"))
    wide = editor(*variables, width=180)
    assert f"{path} " in wide and f"{path}new " in wide and "pending" in editor(*variables, width=60)
    assert "x" * 30 in editor(Variable("note", "x" * 30, "str"))  # nothing is pending: its column is narrow
    [line] = [line for line in editor(Variable("betas", "(0.9, 0.999)", "tuple")).splitlines() if "betas" in line]
    assert line.split() == [">", "betas", "(0.9,", "0.999)", "tuple", "read-only"]


def editor(*variables: Variable, width: int = 80) -> str:
    snapshot = replace(EMPTY, rows=(RunRow(run("a", variables=variables), "RUNNING"),))
    return shown(after(replace(START, selected=Place()), "e", snapshot=snapshot), snapshot, width)


def test_a_run_that_left_is_said_to_be_gone_on_its_pages() -> None:
    for screen in ("detail", "editor", "output"):
        view = replace(START, screen=screen, selected=Place("/gone"), panes=PANES)
        assert "this run no longer exists" in shown(view, width=200)


# ---------------------------------------------------------------- outputs


def output(**changes: Any) -> TopView:
    return replace(VIEWS["output"], **{"shown": "stdout", **changes})


def test_the_viewer_shows_the_end_of_the_window_or_how_to_get_a_file() -> None:
    text = shown(output())
    assert "\nstep 100 loss=0.0100\n" in text
    assert "── llama stdout  100% of 4.7 GiB  following  hidden: stderr (Tab)" in text
    assert "tee_outputs=True" in shown(output(panes=(Pane("stdout"), Pane("stderr"))), width=40, height=10)


def test_long_lines_are_cut_and_scrolled_or_broken_and_nothing_of_them_is_lost() -> None:
    long = "".join(f"{number:05d}" for number in range(500))
    view = output()
    view = replace(view, panes=(Pane("stdout", "/data/out", (long,), 0, 2500),))
    assert long[:79] in shown(view) and long[:81] not in shown(view)
    assert long[2420:] in shown(replace(view, aside=2420))
    broken = shown(replace(view, wraps=True), height=60).splitlines()
    assert "".join(broken[2:34]) == long


def test_what_was_searched_for_stands_out_and_what_came_of_it_is_seen() -> None:
    lines = ("a (Loss) b (loss)", "nothing here")
    view = output(panes=(Pane("stdout", "/data/out", lines, 0, 8),), searched="(loss)")
    marked = [text for line in render_top(SNAPSHOT, view, 80, 24).lines for text, style in line if style == "selected"]
    assert marked == ["(Loss)", "(loss)"]
    snapshot = replace(SNAPSHOT, rows=(row(LONG),))
    for pane, told in (
        (PANES[0]._replace(note="no nan before here; n searches from the end"), "no nan before here; n searches from"),
        (PANES[0]._replace(searching=SEARCHING), "24%, 1.1 GiB of 4.7 GiB searched for nan; Esc"),
    ):
        view = replace(output(), selected=Place(snapshot.rows[0].run.path), panes=(pane,))
        assert told in shown(view, snapshot).splitlines()[1]


def test_half_a_wide_character_is_a_blank_and_an_accent_goes_with_its_letter() -> None:
    for line, rest in (("漢字ab", " 字ab"), ("x\u0301yz", "yz")):
        assert f"\n{rest}\n" in shown(output(panes=(Pane("stdout", "/data/out", (line,), 0, 9),), aside=1))
