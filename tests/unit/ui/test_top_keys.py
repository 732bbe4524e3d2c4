"""Every key of every screen of `top`, by `update`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.ui.top_runs import EMPTY, ROWS, SNAPSHOT, drawn, ended, identity, row, run
from tests.unit.ui.top_screens import TABLES, is_change, render_top, update
from training_monitor.runs.progress_file import MAX_VALUE
from training_monitor.runs.values import FINISHED, RUNNING, UNKNOWN, RunRow, RunsSnapshot, Variable
from training_monitor.ui.fleet.app import APP as FLEET
from training_monitor.ui.fleet.view import FleetView
from training_monitor.ui.kit.keys import update as answered
from training_monitor.ui.kit.view import Do
from training_monitor.ui.top.acts import SIGNALS, describe_leap
from training_monitor.ui.top.app import APP
from training_monitor.ui.top.table import SORTS
from training_monitor.ui.top.view import (
    STATUS_FILTERS,
    Command,
    EditVariable,
    Pane,
    Place,
    Searching,
    SendSignal,
    TopView,
    expanded_pids,
    shown_items,
    shown_runs,
)
from training_monitor.ui.watch.app import APP as WATCH
from training_monitor.ui.watch.view import WatchView

START = TopView(selected=Place(ROWS[0].run.path), page=3)
READ_ONLY = replace(START, read_only=True)


def press(view: TopView, *keys: str, snapshot: RunsSnapshot = SNAPSHOT) -> tuple[TopView, list[Command]]:
    commands: list[Command] = []
    for key in keys:
        view, more = update(view, key, snapshot)
        commands += more
    return view, commands


def rows_now(*rows: RunRow) -> RunsSnapshot:
    return replace(SNAPSHOT, rows=rows)


def of_signal(command: Command) -> tuple[str, list[int]]:
    """The signal that is sent, and to whom."""
    assert isinstance(command, SendSignal)
    return command.signal, [target.pid for target in command.targets]


def after(*keys: str, view: TopView = START, snapshot: RunsSnapshot = SNAPSHOT) -> TopView:
    return press(view, *keys, snapshot=snapshot)[0]


def on(name: str) -> TopView:
    return replace(START, selected=next(Place(each.run.path) for each in ROWS if each.run.name == name))


def names(view: TopView) -> list[str]:
    return [each.run.name for each in shown_runs(SNAPSHOT, view)]


def test_every_key_of_every_table_is_answered_with_any_snapshot(subtests: pytest.Subtests) -> None:
    bare = rows_now(RunRow(run("bare", process=None, variables=(), stdout_path=None), UNKNOWN))
    for screen in TABLES:
        with subtests.test(screen=screen):
            every = [name for key in TABLES[screen] for name in key.names]
            assert len(every) == len({*every})
            for snapshot in (SNAPSHOT, EMPTY, bare):
                for name in every:
                    view, _ = update(replace(START, screen=screen), name, snapshot)
                    assert len(render_top(snapshot, view, 80, 24).lines) == 24


def test_an_unknown_key_changes_nothing_and_is_reported(subtests: pytest.Subtests) -> None:
    for screen in TABLES:
        with subtests.test(screen=screen):
            view = replace(START, screen=screen)
            for key in ("f12", "ctrl-z", "insert", "", "\x01"):
                is_typed = screen in ("filter", "search", "search-back", "position", "edit", "confirm")
                said = "" if is_typed else f"{key} has no function on this screen"
                assert press(view, key) == (replace(view, message=said), [])


def test_p_keeps_the_screen_and_quit_works_where_nothing_is_typed() -> None:
    for screen in ["main", "columns", "detail", "editor", "output", "messages", "help"]:
        assert Do("quit") in press(replace(START, screen=screen), "q")[1], screen
    assert press(START, "r", "ctrl-l")[1] == [Do("refresh"), Do("redraw")]
    assert after("p").paused and not after("p", "p").paused


# ---------------------------------------------------------------- the table


def test_s_goes_through_the_statuses_and_back_to_all() -> None:
    view, seen = START, []
    for _ in STATUS_FILTERS:
        seen.append(view.status)
        assert all(view.status in (None, each.status) for each in shown_runs(SNAPSHOT, view))
        view = after("s", view=view)
    assert seen == [None, "RUNNING", "FINISHED", "CANCELED", "FAILED", "KILLED", "UNKNOWN"]
    assert view.status is None and len(names(view)) == len(ROWS)


def test_f_filters_while_typing_and_the_filter_outlives_pages_and_snapshots() -> None:
    view = after("f", *"LLAMA")
    assert names(view) == ["llama-val", "llama"]
    assert names(after("backspace", "ctrl-u", view=view)) == names(START)
    kept = after("enter", view=view)
    assert (kept.screen, kept.words) == ("main", "LLAMA")
    assert after("f", *"zzz", "escape", view=kept).words == "LLAMA"
    assert after("f", "s", "q", "k", view=START).words == "sqk"
    view = after(
        "s", "f", *"ll", "enter", "enter", "escape", "?", "escape", "e", "escape", "o", "escape", "m", "escape"
    )
    assert (view.screen, view.status, view.words) == ("main", RUNNING, "ll")
    assert render_top(EMPTY, view, 80, 24).view.words == "ll"


def test_esc_takes_filters_sorting_and_scrolling_away_and_leaves_the_trees() -> None:
    view = after("t", "f", *"ll", "enter", "s", "S", "R", "right", "escape")
    assert (view.words, view.status, view.sort, view.reverse, view.across) == ("", None, "", False, 0)
    assert view.expanded == {ROWS[0].run.path}


def test_sorting_goes_through_every_column_and_the_unknown_comes_last() -> None:
    view, seen = START, []
    for _ in SORTS:
        view = after("S", view=view)
        seen.append(view.sort)
        assert len(names(view)) == len(names(after("R", view=view))) == len(ROWS)
    assert tuple(seen) == SORTS and after(">", view=view).sort == "" and after("<").sort == SORTS[-1]
    by_rate, reverse = names(replace(START, sort="Rate")), names(replace(START, sort="Rate", reverse=True))
    assert by_rate[0] == "llama-val" != reverse[0]
    assert {by_rate[-1], reverse[-1]} <= {each.run.name for each in ROWS if each.rate is None}


def test_the_worst_runs_come_first_and_the_names_are_one_key_away() -> None:
    first = ["stalled-one", "oom", "gone", "llama-val", "elsewhere", "llama", "starting", "done", "stopped"]
    assert names(START) == first and names(after("R")) == first[::-1]
    assert names(after("S")) == sorted(first) and after("S").message == "sorted by Run Name"
    assert names(after("S", "<")) == first and after("S", "<").message == "the worst first"
    assert names(replace(START, sort="Status"))[-5:] == ["llama", "llama-val", "stalled-one", "starting", "elsewhere"]


def test_t_shows_the_tree_of_the_selected_run_and_capital_t_all() -> None:
    view = after("t")
    kinds = [item.node.kind for item in shown_items(SNAPSHOT, view) if item.node]
    assert kinds == ["P", "T", "T", "P", "T", "P"]
    assert expanded_pids(SNAPSHOT, view) == {4711, 4720, 4730} and expanded_pids(SNAPSHOT, START) == frozenset()
    closed = after("down", "t", view=view)
    assert (closed.expanded, closed.selected) == (frozenset(), START.selected)
    for name, said in (("done", "it has ended"), ("elsewhere", "its processes are not visible")):
        without = after("t", view=on(name))
        assert without.expanded == frozenset() and without.message.startswith(f"{name}: {said}")
    view = after("T")
    assert view.expanded == {each.run.path for each in ROWS if each.tree}
    assert after("T", view=view).expanded == frozenset()


def test_the_cursor_moves_and_stays_in_the_table() -> None:
    for keys, index in {
        "down": 1, "down down up": 1, "up": 0, "page-down": 3, "end": 8, "end down": 8, "end page-up": 5, "end home": 0,
        "wheel-down wheel-down wheel-up": 3, "j": 0,
    }.items():  # fmt: skip
        assert after(*keys.split(), view=on(names(START)[0])).selected == on(names(START)[index]).selected, keys


def test_v_chooses_columns_that_enter_keeps_and_esc_leaves_as_they_were() -> None:
    view = after("v", "down", " ", "end", " ")
    assert view.screen == "columns" and view.hidden == frozenset() and view.draft == {"Done", "Wandb URL"}
    assert after(" ", view=view).draft == {"Done"}
    kept, commands = press(view, "enter")
    assert commands == [Do("keep-columns", view.draft)] and (kept.screen, kept.hidden) == ("main", view.draft)
    left, commands = press(after("v", " ", view=kept), "escape")
    assert commands == [] and (left.screen, left.hidden) == ("main", view.draft)
    assert after("v", view=kept).draft == view.draft
    assert press(replace(READ_ONLY, screen="main"), "v", " ", "enter")[1] == [Do("keep-columns", {"Status"})]


def click(across: int, line: int, view: TopView = START) -> TopView:
    return after(f"click {across} {line}", view=render_top(SNAPSHOT, view, 80, 24).view)


def test_a_click_selects_the_row_that_is_drawn_there_also_scrolled() -> None:
    assert click(5, 3).selected == on("oom").selected
    assert click(79, 10).selected == on("stopped").selected
    assert click(5, 4, after("t", view=on("stalled-one"))).selected == on("gone").selected
    assert click(5, 9, after("t")).selected == Place(START.selected.path, "T", 4711)
    for line in [0, 11, 20, 23, 500]:
        assert click(5, line).selected == START.selected
    for screen in ("confirm", "signals", "edit", "help", "output"):
        view = replace(START, screen=screen, heading_line=1)
        assert press(view, "click 3 2") == (view, [])
    many = rows_now(*(row(f"run-{number}", tree=()) for number in range(100)))
    view = render_top(many, after("end", snapshot=many), 80, 24).view
    clicked = after("click 4 2", view=view, snapshot=many)
    assert clicked.selected.path == many.rows[view.top].run.path
    assert render_top(many, clicked, 80, 24).view.top == view.top


def test_a_click_on_a_title_sorts_by_it_and_a_second_one_the_other_way_round() -> None:
    view = click(14, 1)
    assert (view.sort, view.reverse) == ("Status", False)
    view = click(14, 1, view)
    assert (view.sort, view.reverse) == ("Status", True)
    assert click(3, 1, view).sort == "Run Name"
    assert click(79, 1).sort == ""


# ---------------------------------------------------------------- signals


def test_k_asks_which_signal_then_for_yes_and_hits_what_was_shown_then() -> None:
    view, [command] = press(START, "k", "down", "down", "enter", *"yes", "enter")
    assert of_signal(command) == ("KILL", [4711, 4720, 4730]) and isinstance(command, SendSignal)
    assert command.targets[0] == identity(4711)
    assert {run.process for runs in command.runs for run in runs} == {identity(4711)} and len(command.runs) == 3
    assert (view.screen, view.message) == ("main", "sending SIGKILL to 3 processes")
    view = after("k", "down", "down", "enter", *"yes")
    [command] = press(view, "enter", snapshot=rows_now(row("llama", {"process": identity(999)}, tree=())))[1]
    assert of_signal(command)[1] == [4711, 4720, 4730]


def test_a_signal_goes_to_the_runs_own_process_or_the_selected_one_alone() -> None:
    for number, (name, _) in enumerate(SIGNALS):
        [command] = press(START, "k", *["down"] * number, "enter", *"yes", "enter")[1]
        assert of_signal(command) == (name, [4711, 4720, 4730] if name in ("KILL", "STOP", "CONT") else [4711])
    assert after("k", *["down"] * 99).choice == len(SIGNALS) - 1 and after("k", "up").choice == 0
    for downs, pid in [(1, 4711), (3, 4711), (4, 4720), (5, 4720), (6, 4730)]:
        [command] = press(START, "t", *["down"] * downs, "k", "enter", *"yes", "enter")[1]
        assert of_signal(command)[1] == [pid], downs


def test_nothing_is_sent_unless_yes_was_typed() -> None:
    for typed in ["", "y", "no", "yess", "Yes", "YES"]:
        view, commands = press(START, "k", "enter", *typed, "enter")
        assert commands == [] and view.message == "cancelled: nothing was done" and view.screen == "main"
    for view, *keys in ((START, "k", "escape"), (START, "k", "enter", *"yes", "escape"), (on("done"), "c", "escape")):
        left, commands = press(view, *keys)
        assert not any(map(is_change, commands)) and (left.screen, left.request) == ("main", None)


def test_a_run_without_visible_processes_has_its_own_and_one_that_ended_has_none() -> None:
    view = after("k", view=on("elsewhere"))
    assert isinstance(view.request, SendSignal) and view.request.targets == (identity(4711),)
    for name in ("done", "oom", "stopped", "gone"):
        view = after("k", view=on(name))
        assert view.screen == "main" and "no process" in view.message


def test_l_hits_all_running_runs_that_are_shown_once_their_number_was_typed() -> None:
    view = after("l")
    assert isinstance(view.request, SendSignal) and view.request.what == "4 RUNNING runs"
    assert {target.pid for target in view.request.targets} == {4711, 4720, 4730, 5000, 6000}
    some = after("f", *"val", "enter", "l")
    assert isinstance(some.request, SendSignal)
    assert some.request.what == "1 RUNNING run (3 more, hidden by the filter, receive no signal)"
    assert [target.pid for target in some.request.targets] == [5000]
    view = after("l", snapshot=rows_now(ended("done", FINISHED)))
    assert view.screen == "main" and "none of the RUNNING runs shown has a process to signal" in view.message
    view = after("l", "enter")
    assert (view.screen, view.phrase) == ("confirm", "signal 4")
    assert press(view, *"yes", "enter")[1] == []
    assert len(press(view, *"signal 4", "enter")[1]) == 1
    assert after("k", "enter").phrase == "yes"


def test_c_deletes_a_run_that_has_ended_once_yes_was_typed_and_no_other() -> None:
    view, commands = press(on("done"), "c", *"yes", "enter")
    assert commands == [Do("measure", ROWS[4].run), Do("delete", ROWS[4].run)] and view.message == "deleting done"
    assert press(on("done"), "c", "enter")[1] == [Do("measure", ROWS[4].run)]
    view, commands = press(START, "c", *"yes", "enter")
    assert commands == [] and view.screen != "confirm"
    assert after("c").message == "not deleted: llama: it is running; terminate it first (key k)"
    alive = rows_now(replace(ended("done", FINISHED), is_alive=True))
    assert after("c", view=on("done"), snapshot=alive).screen == "main"
    view, commands = press(after("c", *"yes", view=on("done")), "enter", snapshot=rows_now(row("done")))
    assert commands == [] and "not deleted: done: " in view.message


# ---------------------------------------------------------------- variables


def test_enter_in_the_editor_edits_the_selected_variable_from_what_it_is() -> None:
    view = after("e", "enter")
    assert (view.screen, view.typed) == ("edit", "0.0003")
    view, commands = press(view, "ctrl-u", *"1e-4", "enter")
    assert commands == [EditVariable(ROWS[0].run, "learning_rate", "1e-4")]
    assert (view.screen, view.message) == ("editor", "sending learning_rate = 1e-4 to llama")
    assert after("e", "down", "enter").typed == "64"  # the pending edit
    assert press(START, "e", "end", "enter", "ctrl-u", "enter")[1] == [EditVariable(ROWS[0].run, "stage", "")]
    view, commands = press(START, "e", "enter", "9", "escape")
    assert commands == [] and view.screen == "editor" and "nothing was changed" in view.message


def test_what_is_not_of_the_type_is_not_sent_and_can_be_corrected() -> None:
    wrong = (
        ("fast", "expected a finite number"),
        ("1.5", "expected a whole number"),
        ("maybe", "expected true or false"),
    )
    for downs, (typed, said) in enumerate(wrong):
        view, commands = press(START, "e", *["down"] * downs, "enter", "ctrl-u", *typed, "enter")
        assert commands == [] and (view.screen, view.message, view.typed) == ("edit", said, typed)


def test_what_leaps_by_a_factor_of_ten_over_0_or_to_it_is_far() -> None:
    far = (
        (3e-4, 3e-3, "10 times its old value"),
        (3e-3, 3e-4, "0.1 times its old value"),
        (32, 320, "10 times its old value"),
        (1.0, 1e300, "1e+300 times its old value"),
        (-2.0, -40.0, "20 times its old value"),
        (1.0, -1.0, "its sign changes"),
        (0.1, 0.0, "it becomes 0"),
        (0, 5, "it was 0"),
    )
    near = ((3e-4, 2.9e-3), (3e-4, 3.1e-5), (0.0, 0.0), (True, False), ("a", "b"), (None, 5.0))
    for old, new, told in (*far, *((old, new, "") for old, new in near)):
        assert describe_leap(old, new) == told, old


def test_a_value_that_is_far_from_the_present_one_is_sent_once_yes_was_typed() -> None:
    view, commands = press(START, "e", "enter", "ctrl-u", *"0.03", "enter")
    assert commands == [] and (view.screen, view.phrase) == ("confirm", "yes")
    text = drawn(render_top(SNAPSHOT, view, 80, 24))
    assert "set learning_rate of llama?" in text
    assert re.search(r"\nnow +0.0003\nnew +0.03  \(100 times its old value\)\n", text)
    view, commands = press(view, *"yes", "enter")
    assert commands == [EditVariable(ROWS[0].run, "learning_rate", "0.03")]
    assert (view.screen, view.message) == ("editor", "sending learning_rate = 0.03 to llama")
    for answer in (["n", "enter"], ["escape"]):
        view, commands = press(START, "e", "enter", "ctrl-u", *"0.03", "enter", *answer)
        assert commands == [] and (view.screen, view.message) == ("editor", "cancelled: nothing was done")


@pytest.mark.parametrize("later", [(ended("llama", FINISHED),), (), (row("llama", {"started_at": 5.0}),)])
def test_a_far_value_is_not_sent_to_another_attempt_or_to_one_that_has_ended(later: tuple[RunRow, ...]) -> None:
    view = after("e", "enter", "ctrl-u", *"0.03", "enter", *"yes")
    view, commands = press(view, "enter", snapshot=rows_now(*later))
    assert commands == [] and re.search("no process would read|not changed: llama", view.message)


def variable(*given: Any) -> RunsSnapshot:
    return rows_now(row("llama", {"variables": (Variable(*given),)}))


@pytest.mark.parametrize(
    ("view", "snapshot", "said"),
    [
        (on("done"), SNAPSHOT, "no process would read"),
        (START, variable("prompt", "x" * MAX_VALUE, "str"), "the value of prompt is too long to edit here"),
        (
            START,
            variable("betas", "(0.9, 0.999)", "tuple"),
            "betas is of type tuple: only float, int, bool, str can be edited",
        ),
        (after("e", "enter", "1"), variable("learning_rate", "[1, 2]", "list"), "of type list"),
    ],
)
def test_what_cannot_be_edited_is_refused_before_it_is_sent(view: TopView, snapshot: RunsSnapshot, said: str) -> None:
    view, commands = press(view, *(["enter"] if view.screen == "edit" else ["e", "enter"]), snapshot=snapshot)
    assert commands == [] and view.screen == "editor" and said in view.message


def test_the_cursor_of_the_editor_stays_on_its_variable() -> None:
    view = after("e", "down", "down")
    assert view.variable == "shuffle"
    fewer, gone = (
        rows_now(row("llama", {"variables": ROWS[0].run.variables[part]})) for part in (slice(2, 4), slice(1))
    )
    assert render_top(fewer, view, 80, 24).view.variable == "shuffle"
    assert "no variables to edit" in after("enter", view=view, snapshot=gone).message


# ---------------------------------------------------------------- outputs


def test_o_opens_the_outputs_and_esc_ends_a_search_and_then_closes_them() -> None:
    view, commands = press(START, "o")
    assert commands == [Do("open", ROWS[0].run)] and view.screen == "output"
    busy = replace(view, panes=(Pane("stdout", "/out", searching=Searching("nan", 5, 10)),))
    view, commands = press(busy, "escape")
    assert commands == [Do("stop-search")] and (view.screen, view.message) == ("output", "search cancelled")
    for panes in ((Pane("stdout", "/out"),), ()):
        left, commands = press(replace(view, panes=panes), "escape")
        assert commands == [Do("close")] and left.screen == "main"


def test_the_keys_of_the_viewer_move_its_window_and_break_its_lines() -> None:
    for key, lines in {"up": -1, "down": 1, "page-up": -3, "page-down": 3, "wheel-up": -3}.items():
        assert press(after("o"), key)[1] == [Do("move", lines)]
    for key, name in {"g": "start", "home": "start", "G": "end", "end": "end", "F": "end"}.items():
        assert press(after("o"), key)[1] == [Do(name)]
    assert [after("o", *["tab"] * count).shown for count in range(4)] == ["stdout", "stderr", "both", "stdout"]
    view = after("o", "right", "right", "left")
    assert view.aside == 10 and after("left", "left", view=view).aside == 0
    assert after("w", view=view).wraps and after("w", view=view).aside == 0 and not after("w", "w", view=view).wraps


def test_a_search_goes_forwards_or_backwards_n_repeats_it_and_capital_n_turns_round() -> None:
    for begin, same, other in (("/", "search-on", "search-back"), ("b", "search-back", "search-on")):
        view, commands = press(after("o"), begin, *"nan", "enter")
        assert commands == [Do(same, "nan")] and view.screen == "output"
        assert press(view, "n", "N", "n")[1] == [Do(same, "nan"), Do(other, "nan"), Do(same, "nan")]
        assert press(view, "/", "enter")[1] == [Do("search-on", "nan")]
    assert press(after("o"), "n")[1] == [] and "no search yet" in after("o", "n").message


def test_the_key_of_the_help_closes_it(subtests: pytest.Subtests) -> None:
    apps: Any = ((APP, START), (FLEET, FleetView()), (WATCH, WatchView()))
    for app, view in apps:
        with subtests.test(title=view.title):
            opened, _ = answered(app, view, "?", SNAPSHOT)
            assert opened.screen == "help" and answered(app, opened, "?", SNAPSHOT)[0].screen == "main"
            assert answered(app, opened, "escape", SNAPSHOT)[0].screen == "main"


def test_output_and_variables_open_in_a_pane_of_tmux_and_without_it_here() -> None:
    for key, screen in (("O", "output"), ("E", "editor")):
        view, commands = press(replace(START, has_tmux=True), key)
        assert commands == [Do("pane", (screen, ROWS[0].run.path))] and view.screen == "main"
        here = after(key)
        assert here.screen == screen
        assert here.message == "opened on this screen; inside tmux, it would open in a separate pane"


def test_a_place_is_typed_in_per_cent(subtests: pytest.Subtests) -> None:
    for typed, percent in (("50", 50.0), ("12.5%", 12.5), (" 0 % ", 0.0), ("100", 100.0)):
        with subtests.test(typed=typed):
            view, commands = press(after("o"), ":", *typed, "enter")
            assert commands == [Do("percent", percent)] and (view.screen, view.typed) == ("output", "")
    for typed in ("", "x", "-1", "100.5", "nan", "inf", "1e400", "9" * 400):
        with subtests.test(typed=typed):
            view, commands = press(after("o"), ":", *typed, "enter")
            assert commands == [] and view.message.startswith("not moved: ") and view.screen == "output"
    view, commands = press(after("o"), ":", "5", "escape")
    assert commands == [] and (view.screen, view.typed, view.message) == ("output", "", "")


def test_read_only_refuses_every_key_that_changes_a_run(subtests: pytest.Subtests) -> None:
    for screen in TABLES:
        with subtests.test(screen=screen):
            for key in TABLES[screen]:
                if key.changes:
                    view, commands = press(replace(READ_ONLY, screen=screen), key.names[0])
                    assert commands == [] and view.message == f"read-only: {key.shown} would {key.help}"
    for typed in (["k", "enter", *"yes", "enter"], ["l", "enter", *"signal 4", "enter"], ["e", "enter", "1", "enter"]):
        assert press(READ_ONLY, *typed)[1] == []
    view = replace(READ_ONLY, selected=on("done").selected)
    assert press(view, "c", *"yes", "enter")[1] == []
    assert after("e", view=READ_ONLY).screen == "editor"
