"""Whole screens of `watch`, compared with recorded frames; hostile text and every size never break one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.ui.snapshots import HOSTILE, drawn, misfits, recorded_frame
from tests.unit.ui.watched import (
    CHECKPOINTS,
    GPUS,
    NOW,
    PROGRESS,
    RUNNING,
    RUNS,
    SILENT,
    SNAPSHOTS,
    STALLED,
    START,
    STATUS,
    UNKNOWN,
    after,
    gpu,
    render,
    update,
)
from training_monitor.core.models import Checkpoint, Event, Progress
from training_monitor.core.values import LossAnalysis, Verdict
from training_monitor.ui.kit.text import ASCII, UNICODE, Line
from training_monitor.ui.kit.view import Do
from training_monitor.ui.watch.app import APP
from training_monitor.ui.watch.view import ProcessFacts, WatchSnapshot, WatchView

PAGES = {"log": after(START, "l"), "events": after(START, "e"), "help": after(START, "?")}
PLAIN = replace(START, glyphs=ASCII)
SIZES = [(width, height) for width in (1, 39, 40, 41, 59, 60, 80, 99, 118, 300) for height in (1, 9, 10, 16, 24, 100)]


def shown(snapshot: WatchSnapshot, view: WatchView = START, width: int = 80, height: int = 24) -> str:
    return drawn(render(snapshot, view, width, height))


def lines_with(text: str, snapshot: WatchSnapshot, width: int = 118, height: int = 60) -> list[Line]:
    """The lines in which a text stands."""
    lines = render(snapshot, START, width, height).lines
    return [line for line in lines if text in "".join(part for part, _ in line)]


def styles_of(text: str, snapshot: WatchSnapshot) -> set[str]:
    """The styles of the pieces that hold a text."""
    return {style for line in lines_with(text, snapshot) for part, style in line if text in part}


def frames() -> Iterator[tuple[str, str]]:
    """Yield each recorded frame: its name, and what is drawn now."""
    for size in ["40x10", "80x24", "118x40", "200x60"]:
        for name, snapshot in SNAPSHOTS.items():
            yield f"watch_{name}_{size}", shown(snapshot, START, *map(int, size.split("x")))
    for name, view in PAGES.items():
        yield f"watch_{name}_80x24", shown(STALLED, view)
    yield "watch_ascii_80x24", shown(STALLED, PLAIN)


def test_a_screen_is_drawn_as_recorded(subtests: pytest.Subtests) -> None:
    for name, drawn_now in frames():
        with subtests.test(name=name):
            assert drawn_now == recorded_frame(name)


def test_without_unicode_the_screen_is_drawn_in_ascii() -> None:
    assert all(shown(each, PLAIN, 200, 60).isascii() for each in SNAPSHOTS.values())


def test_a_silence_goes_on_between_two_looks_and_its_end_is_announced() -> None:
    assert "8m53s ago, limit 7m30s" in shown(STALLED._replace(now=NOW + 60))
    assert "5s ago, limit 7m30s" in shown(STALLED._replace(step_at=NOW - 5)), "a line came after the look"
    later = shown(SILENT._replace(now=NOW + 600))
    assert "1s before the last response, limit 7m30s" in later and "no response for 12m10s, trying again" in later
    assert "it will be stopped after the next check unless" in shown(STALLED._replace(ends_at=NOW - 1))
    assert "it will be stopped" not in shown(STALLED._replace(ends_at=None))


def test_a_log_that_is_not_there_is_said_before_the_reason_of_the_verdict() -> None:
    missing = RUNNING._replace(missing_log="/nonexist/x.log")
    [line] = lines_with("log /nonexist/x.log does not exist yet; step 1500 of 3000", missing)
    assert line[0][0].startswith("verdict") and "RUNNING" in shown(missing)
    assert "warn" in styles_of("does not exist yet", missing) and "does not exist yet" not in shown(RUNNING)


def test_a_target_without_an_answer_is_grey_and_a_termination_shown_step_by_step() -> None:
    for text in ("step 1500/3000", "pid 4711", "GPU 0", "checkpoint-1400", "evaluating"):
        assert styles_of(text, SILENT) == {"dim"}, text
    assert styles_of("no response for", SILENT) == {"bad"}
    ending = SNAPSHOTS["ending"]
    assert styles_of("stopping", ending) >= {"good"} and styles_of("> uploading", ending) == {"bold"}
    assert styles_of("> destroying", ending) == {"dim"}


def test_only_the_cells_of_a_gpu_that_are_wrong_are_coloured() -> None:
    def cells_of(**changes: Any) -> dict[str, str]:
        [line] = lines_with("GPU 0", RUNNING._replace(gpus=(gpu(0, **changes),)))
        return {text.strip(): style for text, style in line if style in ("warn", "bad")}

    assert cells_of() == {}
    assert cells_of(utilization=3.0) == {"3 %": "warn"}
    assert cells_of(memory_used_mb=81_000.0) == {"79.1/79.6 GiB": "warn"}
    assert cells_of(utilization=100.0, power_draw_watts=120.0) == {"120/700 W": "warn"}
    assert cells_of(temperature_celsius=86.0) == {"86 C": "warn"}
    assert cells_of(temperature_celsius=95.0) == {"95 C": "bad"}
    assert cells_of(error="GPU is lost") == {"GPU is lost": "bad"}


def test_gpus_with_a_problem_come_first_if_not_all_fit() -> None:
    many = RUNNING._replace(gpus=tuple(gpu(number, utilization=0.0 if number == 50 else 90.0) for number in range(64)))
    assert "GPU 50" in shown(many) and "more GPUs: 90 % used" in shown(many)
    numbers = [int(line.split()[1]) for line in shown(many).splitlines() if line.startswith("GPU ")]
    assert numbers == sorted(numbers)
    bad = RUNNING._replace(gpus=tuple(gpu(number, error="lost") for number in range(64)))
    assert "of them with a problem" in shown(bad)


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    gpus = (gpu(0, utilization=None, memory_used_mb=None, power_draw_watts=None, temperature_celsius=None),)
    bare = replace(STATUS, verdict=replace(RUNS, seconds_without_step=None), is_running=None, checkpoints=None)
    text = shown(UNKNOWN._replace(status=bare, gpus=gpus, folder="/data/out"))
    for line in (
        "last step   -",
        "] - %  step -",
        "pace        - steps/s  ETA -",
        "loss        -",
        "- %      -/79.6 GiB    -/700 W   - C",
        "pid -  unknown whether it is running  CPU -  memory -  since -",
        "checkpoint  -",
    ):
        assert line in text, line
    assert "0 %" not in text
    why = "nvidia-smi was not found"
    assert f"GPU         -  {why}" in shown(RUNNING._replace(gpus=(), gpu_error=why))
    status = replace(STATUS, verdict=replace(RUNS, limit_seconds=None))
    assert "1s ago; the limit is not yet known" in shown(RUNNING._replace(status=status))


def test_the_newest_complete_checkpoint_is_named_or_that_there_is_none() -> None:
    for checkpoints, words in [
        ((), "none yet"),
        (CHECKPOINTS[2:], "none of 1 checkpoint is known to be complete"),
        (CHECKPOINTS[:2], "step 1400, 2m07s old, 12.1 GiB, complete"),
        ((Checkpoint("/o/1", 1, None, None, "not inspected"),), "unknown whether complete: not inspected"),
    ]:
        assert words in shown(RUNNING._replace(status=replace(STATUS, checkpoints=checkpoints)), width=118, height=60)


def test_a_rate_has_its_unit() -> None:
    def pace(speed: float) -> str:
        return shown(RUNNING._replace(progress=replace(PROGRESS, steps_per_second=speed)))

    assert "pace        12.3 steps/s" in pace(12.3) and "pace        4 s/step" in pace(0.25)
    assert "pace        1 s/step" in pace(1.0)  # as the verdict


def test_a_loss_that_is_no_number_stands_out() -> None:
    nan = float("nan")
    status = replace(STATUS, loss=LossAnalysis("nan", "the loss is nan", nan, 0.4))
    odd = RUNNING._replace(progress=replace(PROGRESS, loss=nan), losses=(1.0, 0.5, nan), status=status)
    assert styles_of("nan", odd) == {"bad", "warn"} and "nan: the loss is nan" in shown(odd)
    judged = replace(status, verdict=replace(STATUS.verdict, verdict="failed", reason="the loss is nan; step 9"))
    assert shown(odd._replace(status=judged)).count("the loss is nan") == 1


def test_the_log_follows_its_end_until_it_is_scrolled_and_stays_at_its_line_then() -> None:
    view = render(RUNNING, PAGES["log"], 80, 24).view
    assert "evaluating" in shown(RUNNING, view) and "following" in shown(RUNNING, view)
    up = after(view, "up", "up")
    longer = RUNNING._replace(lines=(*RUNNING.lines, *(f"line {number}" for number in range(50))))
    assert shown(RUNNING, up).splitlines()[2:22] == shown(longer, up).splitlines()[2:22], "what is read stays"
    assert "following" not in shown(longer, up)
    assert "following" in shown(longer, after(up, "end", snapshot=longer))
    assert "step 1301/3000" in shown(longer, after(up, "home", snapshot=longer)).splitlines()[2]
    up = after(PAGES["log"], "page-up", "page-up")
    top = shown(RUNNING, up).splitlines()[2]
    dropped = RUNNING._replace(lines=RUNNING.lines[100:], first_line=RUNNING.first_line + 100)
    assert shown(dropped, up).splitlines()[2] == top
    all_gone = RUNNING._replace(lines=RUNNING.lines[-5:], first_line=RUNNING.first_line + 195)
    assert "step 1496/3000" in shown(all_gone, up)


def test_long_lines_of_the_log_are_broken_and_all_of_them_can_be_reached() -> None:
    long = RUNNING._replace(lines=tuple(f"{number} " + "x" * 200 for number in range(30)), first_line=1, partial="")
    view, seen = after(PAGES["log"], "home", snapshot=long), set()
    for _ in range(40):
        seen |= {line.split()[0] for line in shown(long, view).splitlines()[2:22] if line[:1].isdigit()}
        view = after(view, "down", snapshot=long)
    assert seen == {str(number) for number in range(30)} and "following" in shown(long, view)
    long = RUNNING._replace(lines=("y" * 900, "z" * 900, "last"), first_line=1, partial="")
    view = render(long, PAGES["log"], 40, 10).view
    for key in ("home", "down", "down", "down"):
        view, _ = update(render(long, view, 40, 10).view, key, long)
    assert "last" in shown(long, view, 40, 10)


def test_q_quits_r_looks_and_esc_leads_to_the_main_page_from_every_page() -> None:
    for view in (START, *PAGES.values()):
        assert update(view, "q")[1] == (Do("quit"),) and update(view, "r")[1] == (Do("refresh"),)
    assert update(START, "click 3 3") == (START, ())
    for keys in ("l", "e", "?", "le", "el?", "??l", "lee?l", "l?"):
        assert after(START, *keys, "escape").screen == "main", keys
    view = START
    for _ in range(60):
        view, _ = update(render(STALLED, view, 40, 10).view, "down", STALLED)
    assert "step 1500/3000 loss" in shown(STALLED, view, 40, 10)
    assert shown(STALLED, START, 40, 10).splitlines()[1].startswith("── STALLED ")


def hostile(text: str) -> WatchSnapshot:
    verdict = Verdict(text, text, text, NOW - 5, text, text, 5.0, 50.0, (text, text))
    checkpoints = (Checkpoint(text, 1, None, True), Checkpoint(text, 2, None, None, text))
    loss = LossAnalysis(text or "x", text, None, None)
    status = replace(STATUS, verdict=verdict, errors=(text, text), checkpoints=checkpoints, loss=loss)
    said: dict[str, Any] = dict.fromkeys("training target gpu_error partial missing_log error phase".split(), text)
    said |= {"lines": (text, text * 3), "events": ((NOW, Event(text, text)),) * 3, "failing_since": NOW - 5}
    gpus = (gpu(0, name=text), gpu(1, error=text))
    return RUNNING._replace(status=status, gpus=gpus, process=ProcessFacts(command=text), **said)


def test_no_text_from_outside_breaks_a_frame(subtests: pytest.Subtests) -> None:
    for glyphs in [UNICODE, ASCII]:
        for text in HOSTILE:
            with subtests.test(glyphs=glyphs, text=text):
                snapshots = (hostile(text), hostile(text)._replace(failing_since=None, phase=None, gpus=()))
                for screen in APP.screens:
                    view = WatchView(text, glyphs=glyphs, screen=screen, message=text)
                    for width, height in ((200, 60), (80, 24), (40, 10)):
                        for snapshot in snapshots:
                            lines = render(snapshot, view, width, height).lines
                            assert len(lines) == height and misfits(lines, width) == []


def test_a_frame_has_exactly_the_size_of_the_terminal(subtests: pytest.Subtests) -> None:
    for width, height in SIZES:
        for name, snapshot in SNAPSHOTS.items():
            with subtests.test(width=width, height=height, name=name):
                for view in (START, *PAGES.values()):
                    for message in ("", "m" * 500):
                        lines = render(snapshot, replace(view, message=message), width, height).lines
                        assert len(lines) == height and misfits(lines, width) == []


def test_no_number_breaks_a_frame(subtests: pytest.Subtests) -> None:
    names = (
        "loss learning_rate grad_norm steps_per_second tokens_per_second samples_per_second eta_seconds epoch "
        "epochs_done"
    )
    of_a_gpu = "utilization memory_used_mb memory_total_mb power_draw_watts power_limit_watts temperature_celsius"
    for value in [float("nan"), float("inf"), -1.0, 0.0, 1e300]:
        with subtests.test(value=value):
            progress = Progress(step=5, **dict.fromkeys(names.split(), value))  # type: ignore[arg-type]
            verdict = replace(RUNS, since=value, seconds_without_step=value, limit_seconds=value)
            status = replace(STATUS, verdict=verdict, checkpoints=(Checkpoint("/o", 1, 5, True, age=value),))
            times: dict[str, Any] = dict.fromkeys(("progress_at", "step_at", "next_look_at", "ends_at"), value)
            gpus = (gpu(0, **dict.fromkeys(of_a_gpu.split(), value)), *GPUS)
            process = ProcessFacts(1, value, 5, 1, 0, value)
            odd = RUNNING._replace(status=status, progress=progress, gpus=gpus, process=process, **times)
            odd = odd._replace(losses=(value, 1.0, value))
            for width, height in ((118, 60), (80, 24), (40, 10)):
                for snapshot in (odd, odd._replace(failing_since=value, stale_since=value, error="x")):
                    lines = render(snapshot, START, width, height).lines
                    assert len(lines) == height and misfits(lines, width) == []
