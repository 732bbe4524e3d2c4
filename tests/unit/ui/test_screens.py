"""Whole screens, compared with recorded frames; hostile text and every size never break one."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import pytest

from tests.unit.ui.fleet_screens import TABLES, keys_of, render, update
from tests.unit.ui.hundred import HUNDRED
from tests.unit.ui.snapshots import HOSTILE, NOW, ROWS, SNAPSHOT, drawn, member, misfits, recent, recorded_frame, unseen
from training_monitor.core.models import Gpu
from training_monitor.core.values import KeptRollCall, LossAnalysis, Verdict
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSnapshot, FleetSummary
from training_monitor.ui.fleet import view as views
from training_monitor.ui.fleet.view import FleetView, Recent, follow
from training_monitor.ui.kit.text import ASCII, UNICODE

START = follow(FleetView("vast"), ROWS)
MARKED = replace(START, marked=frozenset(row.key for row in ROWS[:3] + ROWS[7:]))
VIEWS = {
    "main": START,
    "detail": replace(START, screen="detail", selected=ROWS[5].key),
    "comparison": replace(MARKED, screen="comparison"),
    "confirm": update(replace(MARKED, selected=ROWS[0].key), "D", SNAPSHOT)[0],
    "alerts": replace(START, screen="alerts"),
    "totals": replace(START, screen="totals"),
    "help": replace(START, screen="help"),
}
SIZES = [
    (width, height) for width in (1, 12, 39, 40, 41, 60, 80, 81, 120, 200) for height in (1, 9, 10, 11, 14, 24, 60)
]


def text_of(view: FleetView, snapshot: FleetSnapshot = SNAPSHOT, width: int = 80, height: int = 24) -> str:
    return drawn(render(snapshot, view, width, height, recent))


def frames() -> Iterator[tuple[str, str]]:
    """Yield each recorded frame: its name, and what is drawn now."""
    for size in ["80x24", "200x60"]:
        for name, view in VIEWS.items():
            yield f"{name}_{size}", text_of(view, SNAPSHOT, *map(int, size.split("x")))
    yield "main_ascii_80x24", text_of(replace(START, glyphs=ASCII))
    for size in ["80x24", "118x40", "200x60"]:
        view = follow(FleetView("vast"), HUNDRED.rows)
        yield f"hundred_{size}", text_of(view, HUNDRED, *map(int, size.split("x")))


def test_a_screen_is_drawn_as_recorded(subtests: pytest.Subtests) -> None:
    for name, drawn_now in frames():
        with subtests.test(name=name):
            assert drawn_now == recorded_frame(name)


def test_without_unicode_the_screen_is_drawn_in_ascii() -> None:
    assert text_of(replace(START, glyphs=ASCII), width=200, height=60).isascii()


def hostile(text: str) -> FleetSnapshot:
    said: dict[str, Any] = dict.fromkeys("name gpu_type status job_status message error".split(), text)
    said |= {"stale_since": NOW, "groups": (text,), "extra": {text: 1.0}, "recent_logs": deque([text] * 10, maxlen=10)}
    said["explained"] = KeptRollCall(NOW, text, job_id=text, suspect_nodes=(text,), faulty_nodes=(text, "node-b"))
    keys = [{"instance_id": text if number else 5, "key": f"{text}#{number}"} for number in range(3)]
    rows = tuple(member(number, **said, **each) for number, each in enumerate(keys))
    alert = FleetAlert(NOW, rows[0].key, text, text, text)
    return replace(SNAPSHOT, rows=rows, alerts=(alert,) * 5, groups=(text,), error=text, stale_since=NOW)


def test_no_text_from_outside_breaks_a_frame(subtests: pytest.Subtests) -> None:
    for glyphs in [UNICODE, ASCII]:
        for text in HOSTILE:
            with subtests.test(glyphs=glyphs, text=text):
                snapshot = hostile(text)
                keys = [row.key for row in snapshot.rows]
                start = follow(FleetView(text, glyphs=glyphs, group=text, message=text), snapshot.rows)
                start = replace(start, marked=frozenset(keys), selected=keys[0])
                for screen in TABLES:
                    view = replace(start, screen=screen, typed=text, words=text if screen == "main" else "")
                    view = update(replace(view, screen="main"), "D", snapshot)[0] if screen == "confirm" else view
                    for all_logs in (True, False):
                        lines = render(snapshot, replace(view, all_logs=all_logs), 80, 24, recent).lines
                        assert misfits(lines, 80) == []


def test_a_frame_has_exactly_the_size_of_the_terminal(subtests: pytest.Subtests) -> None:
    failed = replace(SNAPSHOT, error="x" * 300, stale_since=NOW - 60)
    for width, height in SIZES:
        for name in VIEWS:
            with subtests.test(width=width, height=height, name=name):
                for snapshot in (SNAPSHOT, FleetSnapshot(NOW), failed):
                    lines = render(snapshot, VIEWS[name], width, height, recent).lines
                    assert len(lines) == height
                    assert misfits(lines, width) == []


def test_no_number_breaks_a_frame(subtests: pytest.Subtests) -> None:
    names = (
        "epoch loss gpu_util memory_util disk_util cost_per_hour total_cost runtime_seconds started_at last_updated "
        "ram_util gpu_power gpu_temperature steps_per_second eta_seconds learning_rate grad_norm stale_since"
    )
    for value in [float("nan"), float("inf"), -1.0, 0.0, 1e300]:
        with subtests.test(value=value):
            row = member(1, **dict.fromkeys(names.split(), value), extra={"x": value}, error="e")
            summary = FleetSummary({"healthy": 1}, value, 1, value, value, value, value, value, 1, 1, value)
            snapshot = replace(SNAPSHOT, rows=(row,), summary=summary, listed_at=value, stale_since=value, error="e")
            values = dict.fromkeys(("loss", "step", "gpu_utilization"), value)
            samples = [FleetSample(NOW + second, values) for second in (0, 9)]
            for screen in ("main", "detail", "comparison"):
                view = replace(START, screen=screen, selected=row.key, marked=frozenset([row.key]))
                assert misfits(render(snapshot, view, 200, 60, lambda key, samples=samples: samples).lines, 200) == []


# ---------------------------------------------------------------- what a screen says


def test_a_failed_listing_and_an_empty_table_say_why(subtests: pytest.Subtests) -> None:
    frame = render(replace(SNAPSHOT, error="vastai: no answer", stale_since=NOW - 61), START, 80, 24, recent)
    assert frame.lines[1][0] == ("stale since 02:38:59: vastai: no answer", "bad")
    assert "run-1 " in drawn(frame)
    for snapshot, view, said in [
        (FleetSnapshot(NOW), START, "querying ..."),
        (FleetSnapshot(NOW, listed_at=NOW), START, "no instances to show"),
        (FleetSnapshot(NOW, error="401", stale_since=NOW), START, "no data yet"),
        (SNAPSHOT, replace(START, words="zzz"), "no member matches zzz"),
        (SNAPSHOT, replace(START, group="gone"), "group gone has no members"),
    ]:
        with subtests.test(snapshot=snapshot, view=view, said=said):
            assert said in text_of(view, snapshot)
    assert "? members" in text_of(START, FleetSnapshot(NOW, error="401", stale_since=NOW))
    assert "0 members" in text_of(START, FleetSnapshot(NOW, listed_at=NOW))
    nobody = text_of(replace(START, words="zzz"))
    assert "\n0 of 8 members  credit" in nobody and "no log lines yet" not in nobody


def test_the_header_tells_what_is_paused_late_filtered_and_sorted() -> None:
    snapshot = replace(SNAPSHOT, paused=True, refreshing=True)
    first = text_of(replace(START, group="odd", words="rtx", sort="LOSS", reverse=True), snapshot, 130).splitlines()[0]
    asked = " vast   group odd, 3 of 8 members  PAUSED  filter: rtx  ▼ LOSS"
    assert first == f"{asked}  refreshed 02:39:57, 3s ago  refreshing"

    def first(late: float | None) -> str:
        return text_of(START, replace(SNAPSHOT, interval=10.0, late=late), 100).splitlines()[0]

    assert "checks are 40s late: too many members to check every 10s" in first(40.4)
    assert first(None) == first(0.0) == first(4.9) and "late" not in first(4.9)
    first = text_of(replace(START, words="train llama"), replace(SNAPSHOT, refreshing=True)).splitlines()[0]
    assert first.endswith("filter: train llama  refreshed 02:39:57, 3s ago")


def test_gpu_name_is_cut_between_words() -> None:
    for name, width, said in [
        ("8x H100 80GB HBM3", 80, "8x H100"),
        ("8x NVIDIA GeForce RTX 4090", 200, "8x 4090"),
        ("8x InstinctMI300X", 80, "8x Inst…"),
    ]:
        assert f" {said} " in text_of(START, replace(SNAPSHOT, rows=(member(1, gpu_type=name), *ROWS[1:])), width)


def test_help_and_totals_stand_side_by_side_on_a_wide_screen() -> None:
    lines = text_of(replace(START, screen="help"), width=200, height=50).splitlines()
    assert re.fullmatch(r"the table +on every screen +the sort order: press s first", lines[2])
    assert "more lines below" not in lines[1]
    wide = text_of(replace(START, screen="totals"), width=200)
    assert max(len(line) for line in wide.splitlines()[2:8]) <= 80 and wide.count("DONE IN") == 1


def test_totals_and_the_summary_are_of_what_is_shown_and_costs() -> None:
    free = [replace(row, instance_id="local", cost_per_hour=None, total_cost=None, groups=()) for row in ROWS]
    text = text_of(replace(START, screen="totals"), replace(SNAPSHOT, rows=tuple(free)))
    assert "$" not in text and "TO GO" not in text and "\nin no group  " in text and "DONE IN" in text
    known = tuple(member(number, groups=()) for number in (1, 2))
    assert "at least this much" not in text_of(replace(START, screen="totals"), replace(SNAPSHOT, rows=known))
    lines = text_of(replace(START, group="odd"), width=118).splitlines()
    assert "4 of 8 members:  1 ok, 1 warn, 1 error, 1 unknown  $4.658/h  spent at least $1554" in "\n".join(lines)


def test_comparison_shows_whole_names_and_explains_only_its_columns() -> None:
    assert "\nrun-1  " in text_of(VIEWS["comparison"])
    assert "\nrun-1 30007001  " in text_of(VIEWS["comparison"], width=200)
    alike = replace(SNAPSHOT, rows=tuple(replace(row, name="run") for row in ROWS))
    lines = text_of(VIEWS["comparison"], alike).splitlines()
    assert "run 30007001" in lines[3] and "run 30007002" in lines[4]
    for width in (60, 80, 120, 200):
        text = " ".join(text_of(VIEWS["comparison"], SNAPSHOT, width, 30).split())
        for title in ("TOTAL", "LOSS SO FAR", "SAME STEP"):
            assert text.count(title) in (0, 2), (width, title, text)


def test_the_log_panel_shows_the_last_lines_of_the_selected_member_or_of_all() -> None:
    one = text_of(replace(START, selected=ROWS[6].key))
    assert "── run-7 30007007 stalled: no step for 15m, limit 7m30s: GPUs idle ─" in one
    assert "\nstep 700/1000 loss=0.7\n" in one
    every = text_of(replace(START, all_logs=True))
    assert "── logs of all ─" in every and "\nrun-7        step 700/1000 loss=0.7\n" in every
    shown = text_of(replace(START, all_logs=True, words="run-5"), width=100, height=40)
    assert "run-5        step 700" in shown and "run-1        step" not in shown
    rows = tuple(member(number, name=f"runs/train_llama_seed{number}.log") for number in (1, 2))
    text = text_of(replace(follow(FleetView("fleet"), rows), all_logs=True), replace(SNAPSHOT, rows=rows), 80, 30)
    assert "\nruns/trai…_seed1.log " in text and "\nruns/trai…_seed2.log " in text


def test_help_names_every_key_and_in_read_only_none_that_changes_the_fleet() -> None:
    view = replace(START, screen="help")
    everything = text_of(view, height=100)
    common = everything.partition("on every screen\n")[2].partition("while you type the filter")[0]
    for screen in TABLES:
        for key in TABLES[screen]:
            is_told_there = f"  {key.shown:<9} {key.help}\n" in everything
            assert is_told_there or key.help == "back" or key.shown in common.replace("wheel", "Wheel")
    assert "k j g G   same as up, down, home, end\n" in common
    read_only = replace(view, read_only=True)
    assert "destroy" not in text_of(read_only, height=100) and "read-only" in text_of(read_only)
    assert "destroy" not in text_of(replace(read_only, screen="main"), width=200)
    assert all(not key.changes for screen in TABLES for key in keys_of(replace(read_only, screen=screen)))


def test_the_question_tells_what_is_known_of_the_cost() -> None:
    assert "at least" not in text_of(update(replace(START, selected=ROWS[0].key), "x", SNAPSHOT)[0])
    unknown = text_of(update(replace(START, selected=ROWS[3].key), "D", SNAPSHOT)[0])
    assert "The cost of the machine is unknown." in " ".join(unknown.split())
    twin = replace(ROWS[0], key=f"{ROWS[0].key}#process:train")
    view = replace(START, marked=frozenset((ROWS[0].key, twin.key)))
    text = text_of(update(view, "x", both := replace(SNAPSHOT, rows=(ROWS[0], twin)))[0], both)
    assert "type   stop 2   and" in text and "The machine costs $0.467/h" in text


def test_only_rows_on_the_screen_are_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    health_of = views.health_of
    rows = tuple(member(number) for number in range(500))

    def counted(row, snapshot, view):  # type: ignore[no-untyped-def]
        judged.append(row.key)
        return health_of(row, snapshot, view)

    monkeypatch.setattr("training_monitor.ui.fleet.view.health_of", counted)
    render(replace(SNAPSHOT, rows=rows), START, 80, 24, recent)
    assert len(judged) < 24


def test_one_look_is_no_curve() -> None:
    def one(key: str) -> Sequence[FleetSample]:
        return recent(key)[-1:]

    view = replace(START, selected=ROWS[0].key)
    for width in (80, 200):
        detail = drawn(render(SNAPSHOT, replace(view, screen="detail"), width, 60, one))
        assert "only one sample so far: no curve yet" in detail
        assert not set("▁▂▃▄▅▆▇") & set(detail + drawn(render(SNAPSHOT, view, width, 60, one)))
    compared = drawn(render(SNAPSHOT, VIEWS["comparison"], 120, 24, one))
    assert "fewer than two samples with a loss" in compared and not set("▁▄█") & set(compared)
    two = drawn(render(SNAPSHOT, replace(view, screen="detail"), 80, 60, lambda key: recent(key)[-2:]))
    assert "the last 1m" in two and "one look" not in two


def page_of(row: TrainingMetrics, width: int = 120, recent: Recent = recent) -> str:
    view = replace(START, screen="detail", selected=row.key)
    return drawn(render(replace(SNAPSHOT, rows=(row,)), view, width, 60, recent))


def told(*alerts: FleetAlert, screen: str = "alerts") -> list[str]:
    """The lines of the alerts on a screen."""
    lines = text_of(replace(START, screen=screen), replace(SNAPSHOT, alerts=alerts), 120, 40).splitlines()
    return [line.strip() for line in lines if re.search(r"^[> ]*[0-9:-]+ ?[0-9:]+ +(info|warn|error)", line)]


def alert(number: int, text: str, kind: str = "rule:idle", ago: float = 60.0, **more: object) -> FleetAlert:
    return FleetAlert(NOW - ago, f"vast://{30007000 + number}", kind, text, **more)  # type: ignore[arg-type]


def test_alerts_of_one_kind_about_several_members_are_one_line() -> None:
    alike = [alert(number, "it idles", ago=60.0 - number) for number in range(1, 5)]
    names = ", ".join(f"run-{number} 3000700{number}" for number in range(1, 4))
    assert told(*alike) == [f"> 02:39:01 warning {names} and 1 more: it idles"]
    unlike = [alert(1, "GPU at 3 %"), alert(2, "GPU at 4 %")]
    assert told(*unlike) == ["> 02:39:00 warning 2 members: run-1 30007001: GPU at 3 %; run-2 30007002: GPU at 4 %"]
    assert len(told(alert(1, "a"), alert(1, "a", ago=50))) == 2  # of one member, twice
    assert len(told(alert(1, "a", ago=200), alert(2, "a"))) == 2  # at another time
    assert len(told(alert(1, "a"), alert(2, "a", kind="disk"))) == 2
    assert len(told(alert(1, "a"), alert(2, "a", ended=NOW - 30))) == 2


def test_an_alert_that_is_old_over_or_acknowledged_says_so() -> None:
    assert told(alert(1, "it idles", ago=200_000)) == ["> 01-30 19:06 warning run-1 30007001: it idles"]
    assert told(alert(2, "b", ago=200_000), alert(1, "a"))[0].startswith("> 02:39:00    warning")
    over = alert(1, "it idles", ago=700.0, ended=NOW - 100)
    assert told(over) == ["> 02:28:20 warning run-1 30007001: resolved after 10m: it idles"]
    noted = FleetAlert(NOW - 400, ROWS[1].key, "nan", "the loss is nan", "error", acknowledged=True)
    assert told(noted) == ["> 02:33:20 error   run-2 30007002: acknowledged: the loss is nan"]
    assert told(noted, screen="main") == []
    assert "\n> run-7 " in text_of(START, replace(SNAPSHOT, alerts=(noted,)))


def test_the_page_of_a_member_shows_the_last_roll_call() -> None:
    said = "3 of 4 ranks wait in all_reduce, called at train.py:88; rank 1 (pod w-2) is in data.py:41: look there."
    told = KeptRollCall(NOW - 300, said, suspect_nodes=("node-a",), faulty_nodes=("node-b",))
    text = page_of(member(1, explained=replace(told, job_id="process:train-attempt-1")), 100)
    assert "why       5m ago, before process:train-attempt-1 was terminated: 3 of 4 ranks wait in all_reduce" in text
    assert "nodes     node-b (hardware fault), node-a (other ranks waited for its rank)" in text
    assert said in " ".join(text.split())


def test_each_of_several_gpus_has_a_line_with_its_bar_on_the_page_of_its_member() -> None:
    known = {"memory_total_mb": 144_384.0, "power_draw_watts": 1200.0, "power_limit_watts": 1400.0}
    known |= {"memory_used_mb": 144_000.0, "temperature_celsius": 66.0}
    row = member(1, gpus=tuple(Gpu(number, utilization=10.0 * number, **known) for number in range(8)))
    for width in (80, 200):
        lines = [line for line in page_of(row, width).splitlines() if line.startswith("GPU ") and "GiB" in line]
        assert len(lines) == 8 and lines[3].startswith("GPU 3") and " 0 %" in lines[0] and " 40 %" in lines[4]
        assert all(" W " in line and line.rstrip().endswith("66 C") for line in lines)
        if width == 80:
            assert [line.count("█") for line in lines] == [2 * number for number in range(8)]
    assert not any("GiB" in line for line in page_of(member(1), 80).splitlines())


def test_what_is_not_known_of_a_member_is_left_out_with_its_curves() -> None:
    row = unseen(9, "running", instance_id="local", key="local", name="train.py (pid 7)", gpu_type=None, groups=())
    row = replace(row, cost_per_hour=None, started_at=None, eta_seconds=None, runtime_seconds=None)
    text = page_of(row, recent=lambda key: ())
    assert "── train.py (pid 7) ─" in text and "GPU" not in text and "price" not in text and " -" not in text
    row = member(1, loss=nan, loss_analysis=LossAnalysis("nan", "the loss is nan", nan, None))
    samples = [replace(each, values={**each.values, "loss": nan}) for each in recent(row.key)]
    text = page_of(row, recent=lambda key: samples)
    assert text.count("the loss is nan") == 1 and "not known" not in text
    assert "no longer in the fleet" in text_of(replace(START, screen="detail", selected="vast://1"))

    def some(key: str) -> list[FleetSample]:
        return [replace(each, values={"loss": each.values["loss"]}) for each in recent(key)]

    for width in (80, 200):
        text = page_of(ROWS[0], width, some).partition("the last 1h00m")[2]
        assert "loss" in text and "GPU %" not in text and "steps/s" not in text
    text = page_of(ROWS[0], 200, lambda key: [replace(each, values={}) for each in recent(key)])
    assert "the last 1h00m: GPU use, loss and speed are unknown" in text


def test_a_member_shows_what_to_try_and_no_code_word() -> None:
    def tried(recommendation: str, *remedies: str) -> list[str]:
        verdict = Verdict("stalled", "failed", "no step for 15m", recommendation=recommendation, remedies=remedies)
        text = page_of(member(1, verdict=verdict))
        assert "advice" not in text
        return [line.split(maxsplit=1)[1].strip() for line in text.splitlines() if line.startswith("try ")]

    assert tried("alert") == []
    assert tried("alert", "check again in 1m") == ["check again in 1m"]
    assert tried("terminate", "run `why`") == ["run `why`; end the training, unless you expect such a pause"]


def test_a_comparison_says_why_a_value_is_not_known_or_leaves_its_column_out() -> None:
    def some(key: str) -> list[FleetSample]:
        left_out = ("gpu_utilization", "loss") if key == ROWS[1].key else ("gpu_utilization",)
        return [replace(each, values={**each.values, **dict.fromkeys(left_out)}) for each in recent(key)]

    view = replace(START, screen="comparison", marked=frozenset(row.key for row in ROWS[:2]))
    text = drawn(render(SNAPSHOT, view, 200, 30, some))
    assert "GPU%" not in text.splitlines()[2]
    assert "empty columns: GPU% (GPU use during the compared steps unknown)" in text
    assert "run-2 30007002: LAST LOSS (no loss known); BEST, AT STEP (no loss in the compared steps); " in text
    assert "SAME STEP (no samples near that step); TREND/1K (too few losses in the compared steps)" in text
