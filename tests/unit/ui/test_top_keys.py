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


def after(*keys: str, view: TopView = START, snapshot: RunsSnapshot = SNAPSHOT) -> TopView:
    return press(view, *keys, snapshot=snapshot)[0]


def on(name: str) -> TopView:
    return replace(START, selected=next(Place(each.run.path) for each in ROWS if each.run.name == name))


def names(view: TopView) -> list[str]:
    return [each.run.name for each in shown_runs(SNAPSHOT, view)]


# ---------------------------------------------------------------- any key


def test_every_key_of_every_table_is_answered_with_any_snapshot(subtests: pytest.Subtests) -> None:
    for screen in TABLES:
        with subtests.test(screen=screen):
            bare = replace(SNAPSHOT, rows=(RunRow(run("bare", process=None, variables=(), stdout_path=None), UNKNOWN),))
            for snapshot in (SNAPSHOT, EMPTY, bare):
                for key in TABLES[screen]:
                    for name in key.names:
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


def test_no_key_has_two_meanings_on_a_screen(subtests: pytest.Subtests) -> None:
    for screen in TABLES:
        with subtests.test(screen=screen):
            every = [name for key in TABLES[screen] for name in key.names]
            assert len(every) == len({*every})


@pytest.mark.parametrize(("key", "name"), [("q", "quit"), ("r", "refresh"), ("ctrl-l", "redraw")])
def test_a_key_asks_for_what_it_is_documented_to_do(key: str, name: str) -> None:
    assert press(START, key)[1] == [Do(name)]


def test_quit_works_on_every_screen_where_nothing_is_typed(subtests: pytest.Subtests) -> None:
    for screen in ["main", "columns", "detail", "editor", "output", "messages", "help"]:
        with subtests.test(screen=screen):
            assert Do("quit") in press(replace(START, screen=screen), "q")[1]


# ---------------------------------------------------------------- the table


def test_s_goes_through_the_statuses_and_back_to_all() -> None:
    view, seen = START, []
    for _ in STATUS_FILTERS:
        seen.append(view.status)
        assert all(view.status in (None, each.status) for each in shown_runs(SNAPSHOT, view))
        view = after("s", view=view)
    assert seen == [None, "RUNNING", "FINISHED", "CANCELED", "FAILED", "KILLED", "UNKNOWN"]
    assert view.status is None and len(names(view)) == len(ROWS)


def test_f_filters_while_typing_and_esc_restores() -> None:
    view = after("f", *"LLAMA")
    assert names(view) == ["llama-val", "llama"]
    assert names(after("backspace", "ctrl-u", view=view)) == names(START)
    kept = after("enter", view=view)
    assert (kept.screen, kept.words) == ("main", "LLAMA")
    assert after("f", *"zzz", "escape", view=kept).words == "LLAMA"
    assert after("f", "s", "q", "k", view=START).words == "sqk"


def test_esc_takes_filters_sorting_and_scrolling_away_and_leaves_the_trees() -> None:
    view = after("t", "f", *"ll", "enter", "s", "S", "R", "right", "escape")
    assert (view.words, view.status, view.sort, view.reverse, view.across) == ("", None, "", False, 0)
    assert view.expanded == {ROWS[0].run.path}


def test_the_filters_outlive_pages_and_snapshots() -> None:
    view = after(
        "s", "f", *"ll", "enter", "enter", "escape", "?", "escape", "e", "escape", "o", "escape", "m", "escape"
    )
    assert (view.screen, view.status, view.words) == ("main", RUNNING, "ll")
    assert render_top(EMPTY, view, 80, 24).view.words == "ll"


def test_sorting_goes_through_every_column_in_both_directions() -> None:
    view, seen = START, []
    for _ in SORTS:
        view = after("S", view=view)
        seen.append(view.sort)
        assert len(names(view)) == len(names(after("R", view=view))) == len(ROWS)
    assert tuple(seen) == SORTS and after(">", view=view).sort == "" and after("<").sort == SORTS[-1]


def test_the_worst_runs_come_first_and_the_names_are_one_key_away() -> None:
    first = ["stalled-one", "oom", "gone", "llama-val", "elsewhere", "llama", "starting", "done", "stopped"]
    assert names(START) == first and names(after("R")) == first[::-1]
    assert names(after("S")) == sorted(first) and after("S").message == "sorted by Run Name"
    assert names(after("S", "<")) == first and after("S", "<").message == "the worst first"


def test_sorting_by_status_puts_runs_of_one_shown_status_together() -> None:
    assert names(replace(START, sort="Status"))[-5:] == ["llama", "llama-val", "stalled-one", "starting", "elsewhere"]


def test_what_is_not_known_comes_last_however_it_is_sorted() -> None:
    by_rate = replace(START, sort="Rate")
    assert names(by_rate)[0] == "llama-val" and names(replace(by_rate, reverse=True))[0] != "llama-val"
    assert {names(by_rate)[-1], names(replace(by_rate, reverse=True))[-1]} <= {
        each.run.name for each in ROWS if each.rate is None
    }


def test_t_shows_the_tree_of_the_selected_run_and_its_threads_are_asked_for() -> None:
    view = after("t")
    kinds = [item.node.kind for item in shown_items(SNAPSHOT, view) if item.node]
    assert kinds == ["P", "T", "T", "P", "T", "P"]
    assert expanded_pids(SNAPSHOT, view) == {4711, 4720, 4730} and expanded_pids(SNAPSHOT, START) == frozenset()
    assert after("down", "t", view=view).expanded == frozenset()
    assert after("down", "t", view=view).selected == START.selected


@pytest.mark.parametrize(
    ("name", "said"), [("done", "done: it has ended"), ("elsewhere", "elsewhere: its processes are not visible")]
)
def test_t_on_a_run_without_processes_says_why_none_is_shown(name: str, said: str) -> None:
    view = after("t", view=on(name))
    assert view.expanded == frozenset() and view.message.startswith(said)


def test_capital_t_shows_all_trees_and_hides_them() -> None:
    view = after("T")
    assert view.expanded == {each.run.path for each in ROWS if each.tree}
    assert after("T", view=view).expanded == frozenset()


def test_p_keeps_the_screen_and_lets_it_go_on() -> None:
    assert after("p").paused and not after("p", "p").paused


def test_the_cursor_moves_and_stays_in_the_table(subtests: pytest.Subtests) -> None:
    for keys, index in [
        (["down"], 1),
        (["down", "down", "up"], 1),
        (["up"], 0),
        (["page-down"], 3),
        (["end"], 8),
        (["end", "down"], 8),
        (["end", "page-up"], 5),
        (["end", "home"], 0),
        (["wheel-down", "wheel-down", "wheel-up"], 3),
    ]:
        with subtests.test(keys=keys, index=index):
            first = on(names(START)[0])
            assert after(*keys, view=first).selected == on(names(START)[index]).selected


def test_j_and_other_letters_do_not_move_the_cursor() -> None:
    assert after("j").selected == START.selected


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


# ---------------------------------------------------------------- the mouse


def click(across: int, line: int, view: TopView = START) -> TopView:
    return after(f"click {across} {line}", view=render_top(SNAPSHOT, view, 80, 24).view)


def test_a_click_selects_the_row_that_is_drawn_there() -> None:
    assert click(5, 3).selected == on("oom").selected
    assert click(79, 10).selected == on("stopped").selected
    tree = click(5, 4, after("t", view=on("stalled-one")))
    assert tree.selected == on("gone").selected
    tree = click(5, 9, after("t"))
    assert tree.selected == Place(START.selected.path, "T", 4711)


def test_a_click_beside_the_rows_selects_nothing_else(subtests: pytest.Subtests) -> None:
    for line in [0, 11, 20, 23, 500]:
        with subtests.test(line=line):
            assert click(5, line).selected == START.selected


def test_a_click_on_a_title_sorts_by_it_and_a_second_one_the_other_way_round() -> None:
    view = click(14, 1)
    assert (view.sort, view.reverse) == ("Status", False)
    view = click(14, 1, view)
    assert (view.sort, view.reverse) == ("Status", True)
    assert click(3, 1, view).sort == "Run Name"
    assert click(79, 1).sort == ""


def test_clicks_hit_the_scrolled_table_where_it_is_drawn() -> None:
    many = replace(SNAPSHOT, rows=tuple(row(f"run-{number}", tree=()) for number in range(100)))
    view = render_top(many, after("end", snapshot=many), 80, 24).view
    clicked = after("click 4 2", view=view, snapshot=many)
    assert clicked.selected.path == many.rows[view.top].run.path
    assert render_top(many, clicked, 80, 24).view.top == view.top


def test_a_click_on_a_page_does_nothing() -> None:
    for screen in ("confirm", "signals", "edit", "help", "output"):
        view = replace(START, screen=screen, heading_line=1)
        assert press(view, "click 3 2") == (view, [])


# ---------------------------------------------------------------- signals


def test_k_asks_which_signal_then_for_yes_and_hits_the_whole_tree_from_the_top() -> None:
    view, commands = press(START, "k", "down", "down", "enter", *"yes", "enter")
    (command,) = commands
    assert isinstance(command, SendSignal)
    assert (command.signal, [target.pid for target in command.targets]) == ("KILL", [4711, 4720, 4730])
    assert command.targets[0] == identity(4711)
    assert {run.process for runs in command.runs for run in runs} == {identity(4711)} and len(command.runs) == 3
    assert (view.screen, view.message) == ("main", "sending SIGKILL to 3 processes")


def test_a_signal_that_asks_goes_to_the_runs_own_process_alone(subtests: pytest.Subtests) -> None:
    for name in [name for name, _ in SIGNALS if name not in ("KILL", "STOP", "CONT")]:
        with subtests.test(name=name):
            number = [each for each, _ in SIGNALS].index(name)
            _, commands = press(START, "k", *["down"] * number, "enter", *"yes", "enter")
            assert [command.targets for command in commands if isinstance(command, SendSignal)] == [(identity(4711),)]


def test_nothing_is_sent_unless_yes_was_typed(subtests: pytest.Subtests) -> None:
    for typed in ["", "y", "no", "yess", "Yes", "YES"]:
        with subtests.test(typed=typed):
            view, commands = press(START, "k", "enter", *typed, "enter")
            assert commands == [] and view.message == "cancelled: nothing was done" and view.screen == "main"


@pytest.mark.parametrize("keys", [["k", "escape"], ["k", "enter", *"yes", "escape"], ["c", "escape"]])
def test_esc_cancels_every_question(keys: list[str]) -> None:
    view, commands = press(on("llama") if keys[0] == "k" else on("done"), *keys)
    assert not any(map(is_change, commands)) and (view.screen, view.request) == ("main", None)


def test_on_a_process_or_a_thread_only_that_process_is_hit(subtests: pytest.Subtests) -> None:
    for downs, pid in [(1, 4711), (3, 4711), (4, 4720), (5, 4720), (6, 4730)]:
        with subtests.test(downs=downs, pid=pid):
            _, commands = press(START, "t", *["down"] * downs, "k", "enter", *"yes", "enter")
            (command,) = commands
            assert isinstance(command, SendSignal) and [target.pid for target in command.targets] == [pid]


def test_the_processes_are_those_that_were_shown_when_it_was_asked_for() -> None:
    view = after("k", "down", "down", "enter", *"yes")
    other = replace(SNAPSHOT, rows=(row("llama", {"process": identity(999)}, tree=()),))
    _, commands = press(view, "enter", snapshot=other)
    assert [target.pid for command in commands if isinstance(command, SendSignal) for target in command.targets] == [
        4711,
        4720,
        4730,
    ]


def test_without_visible_processes_the_runs_own_values_count() -> None:
    view = after("k", view=on("elsewhere"))
    assert isinstance(view.request, SendSignal) and view.request.targets == (identity(4711),)


@pytest.mark.parametrize("name", ["done", "oom", "stopped", "gone"])
def test_a_run_that_has_ended_gets_no_signal(name: str) -> None:
    view = after("k", view=on(name))
    assert view.screen == "main" and "no process" in view.message


def test_every_signal_can_be_chosen() -> None:
    for number, (name, _) in enumerate(SIGNALS):
        _, commands = press(START, "k", *["down"] * number, "enter", *"yes", "enter")
        assert [command.signal for command in commands if isinstance(command, SendSignal)] == [name]
    assert after("k", *["down"] * 99).choice == len(SIGNALS) - 1 and after("k", "up").choice == 0


def test_l_hits_all_running_runs_that_are_shown_and_names_those_that_are_not() -> None:
    view = after("l")
    assert isinstance(view.request, SendSignal) and view.request.what == "4 RUNNING runs"
    assert {target.pid for target in view.request.targets} == {4711, 4720, 4730, 5000, 6000}
    some = after("f", *"val", "enter", "l")
    assert isinstance(some.request, SendSignal)
    assert some.request.what == "1 RUNNING run (3 more, hidden by the filter, receive no signal)"
    assert [target.pid for target in some.request.targets] == [5000]


def test_l_without_running_runs_says_so() -> None:
    view = after("l", snapshot=replace(SNAPSHOT, rows=(ended("done", FINISHED),)))
    assert view.screen == "main" and "none of the RUNNING runs shown has a process to signal" in view.message


# ---------------------------------------------------------------- deleting


def test_c_deletes_a_run_that_has_ended_once_yes_was_typed() -> None:
    view, commands = press(on("done"), "c", *"yes", "enter")
    assert commands == [Do("measure", ROWS[4].run), Do("delete", ROWS[4].run)] and view.message == "deleting done"
    assert press(on("done"), "c", "enter")[1] == [Do("measure", ROWS[4].run)]


def test_a_run_that_is_running_is_never_deleted() -> None:
    view, commands = press(START, "c", *"yes", "enter")
    assert commands == [] and view.screen != "confirm"
    assert after("c").message == "not deleted: llama: it is running; terminate it first (key k)"


def test_a_finished_run_with_a_living_process_is_not_deleted() -> None:
    alive = replace(SNAPSHOT, rows=(replace(ended("done", FINISHED), is_alive=True),))
    assert after("c", view=on("done"), snapshot=alive).screen == "main"


def test_a_run_that_began_again_while_the_question_was_asked_is_not_deleted() -> None:
    view = after("c", *"yes", view=on("done"))
    again = replace(SNAPSHOT, rows=(row("done"),))
    view, commands = press(view, "enter", snapshot=again)
    assert commands == [] and "not deleted: done: " in view.message


# ---------------------------------------------------------------- variables


def test_enter_in_the_editor_edits_the_selected_variable_from_what_it_is() -> None:
    view = after("e", "enter")
    assert (view.screen, view.typed) == ("edit", "0.0003")
    view, commands = press(view, "ctrl-u", *"1e-4", "enter")
    assert commands == [EditVariable(ROWS[0].run, "learning_rate", "1e-4")]
    assert (view.screen, view.message) == ("editor", "sending learning_rate = 1e-4 to llama")


def test_an_edit_that_is_pending_is_what_the_next_one_begins_with() -> None:
    assert after("e", "down", "enter").typed == "64"


@pytest.mark.parametrize(
    ("downs", "typed", "said"),
    [
        (0, "fast", "expected a finite number"),
        (1, "1.5", "expected a whole number"),
        (2, "maybe", "expected true or false"),
    ],
)
def test_what_is_not_of_the_type_is_not_sent_and_can_be_corrected(downs: int, typed: str, said: str) -> None:
    view, commands = press(START, "e", *["down"] * downs, "enter", "ctrl-u", *typed, "enter")
    assert commands == [] and (view.screen, view.message, view.typed) == ("edit", said, typed)


LEAPS = (
    (3e-4, 3e-3, "10 times its old value"),
    (3e-3, 3e-4, "0.1 times its old value"),
    (32, 320, "10 times its old value"),
    (1.0, 1e300, "1e+300 times its old value"),
    (-2.0, -40.0, "20 times its old value"),
    (1.0, -1.0, "its sign changes"),
    (0.1, 0.0, "it becomes 0"),
    (0, 5, "it was 0"),
    (3e-4, 2.9e-3, ""),
    (3e-4, 3.1e-5, ""),
    (0.0, 0.0, ""),
    (True, False, ""),
    ("a", "b", ""),
    (None, 5.0, ""),
)


def test_what_leaps_by_a_factor_of_ten_over_0_or_to_it_is_far(subtests: pytest.Subtests) -> None:
    for old, new, told in LEAPS:
        with subtests.test(old=old, new=new):
            assert describe_leap(old, new) == told


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
    view, commands = press(view, "enter", snapshot=replace(SNAPSHOT, rows=later))
    assert commands == [] and re.search("no process would read|not changed: llama", view.message)


def test_a_text_may_be_anything_also_empty() -> None:
    assert press(START, "e", "end", "enter", "ctrl-u", "enter")[1] == [EditVariable(ROWS[0].run, "stage", "")]


def test_esc_changes_nothing() -> None:
    view, commands = press(START, "e", "enter", "9", "escape")
    assert commands == [] and view.screen == "editor" and "nothing was changed" in view.message


def test_a_run_that_has_ended_is_not_edited() -> None:
    view, commands = press(on("done"), "e", "enter")
    assert commands == [] and view.screen == "editor" and "no process would read" in view.message


def test_a_value_that_was_cut_when_it_was_read_is_not_edited() -> None:
    long = row("llama-70b", {"variables": (Variable("prompt", "x" * MAX_VALUE, "str"),)})
    view, commands = press(START, "e", "enter", snapshot=replace(SNAPSHOT, rows=(long,)))
    assert commands == [] and (view.screen, view.message) == ("editor", "the value of prompt is too long to edit here")


def test_a_variable_that_cannot_be_edited_is_refused_before_anything_is_typed() -> None:
    fixed = row("llama", {"variables": (Variable("betas", "(0.9, 0.999)", "tuple"),)})
    view, commands = press(START, "e", "enter", snapshot=replace(SNAPSHOT, rows=(fixed,)))
    assert commands == [] and view.screen == "editor"
    assert view.message == "betas is of type tuple: only float, int, bool, str can be edited"


def test_an_edit_is_refused_if_its_variable_became_read_only() -> None:
    view = after("e", "enter", "1")
    fixed = row("llama", {"variables": (Variable("learning_rate", "[1, 2]", "list"),)})
    view, commands = press(view, "enter", snapshot=replace(SNAPSHOT, rows=(fixed,)))
    assert commands == [] and (view.screen, "of type list" in view.message) == ("editor", True)


def test_the_cursor_of_the_editor_stays_on_its_variable() -> None:
    view = after("e", "down", "down")
    assert view.variable == "shuffle"
    fewer = replace(SNAPSHOT, rows=(row("llama", {"variables": ROWS[0].run.variables[2:]}),))
    assert render_top(fewer, view, 80, 24).view.variable == "shuffle"
    gone = replace(SNAPSHOT, rows=(row("llama", {"variables": ROWS[0].run.variables[:1]}),))
    assert "no variables to edit" in after("enter", view=view, snapshot=gone).message


# ---------------------------------------------------------------- outputs


def test_o_opens_the_outputs_and_esc_closes_them() -> None:
    view, commands = press(START, "o")
    assert commands == [Do("open", ROWS[0].run)] and view.screen == "output"
    view, commands = press(view, "escape")
    assert commands == [Do("close")] and view.screen == "main"


def test_tab_goes_from_stdout_to_stderr_to_both() -> None:
    assert [after("o", *["tab"] * count).shown for count in range(4)] == ["stdout", "stderr", "both", "stdout"]


def test_the_keys_of_the_viewer_move_its_window(subtests: pytest.Subtests) -> None:
    for key, command in [
        ("up", Do("move", -1)),
        ("down", Do("move", 1)),
        ("page-up", Do("move", -3)),
        ("page-down", Do("move", 3)),
        ("wheel-up", Do("move", -3)),
        ("g", Do("start")),
        ("home", Do("start")),
        ("G", Do("end")),
        ("end", Do("end")),
        ("F", Do("end")),
    ]:
        with subtests.test(key=key, command=command):
            assert press(after("o"), key)[1] == [command]


def test_a_search_goes_forwards_or_backwards_n_repeats_it_and_capital_n_turns_round() -> None:
    for begin, same, other in (("/", "search-on", "search-back"), ("b", "search-back", "search-on")):
        view, commands = press(after("o"), begin, *"nan", "enter")
        assert commands == [Do(same, "nan")] and view.screen == "output"
        assert press(view, "n", "N", "n")[1] == [Do(same, "nan"), Do(other, "nan"), Do(same, "nan")]
        assert press(view, "/", "enter")[1] == [Do("search-on", "nan")]
    assert press(after("o"), "n")[1] == [] and "no search yet" in after("o", "n").message


def test_a_signal_to_all_runs_needs_their_number_typed() -> None:
    view = after("l", "enter")
    assert (view.screen, view.phrase) == ("confirm", "signal 4")
    assert press(view, *"yes", "enter")[1] == []
    assert len(press(view, *"signal 4", "enter")[1]) == 1
    assert after("k", "enter").phrase == "yes"


def test_the_key_of_the_help_closes_it(subtests: pytest.Subtests) -> None:
    apps: Any = ((APP, START), (FLEET, FleetView()), (WATCH, WatchView()))
    for app, view in apps:
        with subtests.test(title=view.title):
            opened, _ = answered(app, view, "?", SNAPSHOT)
            assert opened.screen == "help" and answered(app, opened, "?", SNAPSHOT)[0].screen == "main"
            assert answered(app, opened, "escape", SNAPSHOT)[0].screen == "main"


def test_output_and_variables_open_in_a_pane_of_tmux_and_without_it_here() -> None:
    path = ROWS[0].run.path
    for key, screen in (("O", "output"), ("E", "editor")):
        view, commands = press(replace(START, has_tmux=True), key)
        assert commands == [Do("pane", (screen, path))] and view.screen == "main"
        here = after(key)
        assert (
            here.screen == screen
            and here.message == "opened on this screen; inside tmux, it would open in a separate pane"
        )


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


def test_esc_ends_a_search_and_then_leaves_the_outputs() -> None:
    busy = replace(after("o"), panes=(Pane("stdout", "/out", searching=Searching("nan", 5, 10)),))
    view, commands = press(busy, "escape")
    assert commands == [Do("stop-search")] and (view.screen, view.message) == ("output", "search cancelled")
    view, commands = press(replace(view, panes=(Pane("stdout", "/out"),)), "escape")
    assert commands == [Do("close")] and view.screen == "main"


def test_left_and_right_scroll_long_lines_and_w_breaks_them() -> None:
    view = after("o", "right", "right", "left")
    assert view.aside == 10 and after("left", "left", view=view).aside == 0
    assert after("w", view=view).wraps and after("w", view=view).aside == 0 and not after("w", "w", view=view).wraps


# ---------------------------------------------------------------- read-only


def test_read_only_refuses_every_key_that_changes_a_run(subtests: pytest.Subtests) -> None:
    for screen in TABLES:
        with subtests.test(screen=screen):
            for key in TABLES[screen]:
                if key.changes:
                    view, commands = press(replace(READ_ONLY, screen=screen), key.names[0])
                    assert commands == [] and view.message == f"read-only: {key.shown} would {key.help}"


def test_read_only_has_no_way_to_an_act() -> None:
    for typed in (["k", "enter", *"yes", "enter"], ["l", "enter", *"signal 4", "enter"], ["e", "enter", "1", "enter"]):
        assert press(READ_ONLY, *typed)[1] == []
    view = replace(READ_ONLY, selected=on("done").selected)
    assert press(view, "c", *"yes", "enter")[1] == []
    assert after("e", view=READ_ONLY).screen == "editor"
