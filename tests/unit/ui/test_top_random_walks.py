"""What holds on the screens of `top` whatever is pressed while runs, processes and the terminal's size change."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.sweeps import READ_ONLY, WALK_SEEDS, Press
from tests.unit.ui.random_runs import walk
from tests.unit.ui.test_random_walks import every_walk, text_of
from tests.unit.ui.top_screens import TABLES, TYPING, is_change, update
from training_monitor.runs.values import PROCESS, RUNNING, UNKNOWN, RunRow
from training_monitor.targets.proc_stat import Identity
from training_monitor.ui.kit.text import safe
from training_monitor.ui.kit.view import Do, Frame
from training_monitor.ui.top.acts import SIGNALS
from training_monitor.ui.top.table import TABLE
from training_monitor.ui.top.view import EditVariable, Item, SendSignal, TopView, run_row, shown_items, shown_runs

QUESTIONS = {"signals", "confirm", "edit"}


def cursors(frame: Frame[TopView]) -> list[int]:
    """The lines of the table or list with the cursor."""
    marks = ((">+", "selected"), (">-", "selected"), ("> ", "selected"))
    return [number for number, line in enumerate(frame.lines) if line[0] in marks]


@every_walk
def test_a_screen_that_is_too_small_ignores_clicks_and_names_a_key(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        if shot.is_large_enough:
            continue
        said = " ".join(text_of(line).strip() for line in frame.lines)
        if "q quits" in said:
            assert Do("quit") in update(frame.view, "q", shot.snapshot)[1]
        elif "Esc" in said:
            assert update(frame.view, "escape", shot.snapshot)[0].screen != frame.view.screen
        assert update(frame.view, "click 3 3", shot.snapshot)[0] == replace(frame.view, message="")


@every_walk
def test_the_cursor_is_on_one_row_that_is_there_and_stays_on_it(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        if frame.view.screen not in ("main", "filter") or not shot.is_large_enough:
            continue
        items, lines = shown_items(shot.snapshot, frame.view), cursors(frame)
        assert len(lines) == min(1, len(items))
        item = TABLE.selected(shot.snapshot, frame.view)
        if item is not None:
            assert is_drawn(item, text_of(frame.lines[lines[0]]), frame.view)
            assert run_row(shot.snapshot, frame.view.selected.path) is not None
            assert item.place == shot.view.selected or shot.view.selected not in {each.place for each in items}


def is_drawn(item: Item, line: str, view: TopView) -> bool:
    """Whether that row stands in a line of the table."""
    name = item.row.run.name if item.node is None else f"[{item.node.kind}]"
    return safe(name, view.glyphs)[:2].strip() in line


@every_walk
def test_a_click_selects_the_row_that_is_drawn_there_and_does_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    for shot, frame in walk(seed)[1][::2]:
        line = rng.randrange(shot.size[1])
        view, commands = update(frame.view, f"click {rng.randrange(shot.size[0])} {line}", shot.snapshot)
        assert commands == () and view.screen == frame.view.screen
        if view.sort == frame.view.sort and view.selected != frame.view.selected:
            assert cursors(shot.draw(view)) == [line]


@every_walk
def test_the_editor_has_its_cursor_on_a_variable_that_is_there(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        found = run_row(shot.snapshot, frame.view.selected.path)
        if frame.view.screen != "editor" or not shot.is_large_enough or found is None or not found.run.variables:
            continue
        assert frame.view.variable in {each.name for each in found.run.variables}
        (line,) = cursors(frame)
        assert text_of(frame.lines[line]).split()[1][:8] == frame.view.variable[:8]


@every_walk
def test_a_question_names_all_that_it_concerns(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        request = frame.view.request
        if frame.view.screen != "confirm" or not shot.is_large_enough:
            continue
        pages = [shot.draw(replace(frame.view, scroll=at)).lines for at in range(0, 200, shot.size[1] - 5)]
        text = "".join(text_of(line) for lines in pages for line in lines)
        assert f"type {frame.view.phrase} and press Enter.".replace(" ", "") in "".join(text.split())
        if isinstance(request, SendSignal):
            assert len(request.targets) == len(request.names) == len({*request.targets}) > 0
            assert all(str(target.pid) in name for target, name in zip(request.targets, request.names))
            count = len(request.targets)
            assert f"The signal goes to {count} process{'es' if count > 1 else ''}" in text


# Keys of which the last one takes back what the first did.
BACK_AGAIN = {
    "main": ["RR", "S<", "pp", ["?", "escape"], ["m", "enter"], ["enter", "escape"], ["e", "escape"], ["k", "escape"]],
    "detail": [["?", "escape"], ["e", "escape"], ["k", "escape"], ["c", "escape"]],
    "editor": [["?", "escape"], ["down", "escape", "e"]],
    "messages": [["?", "enter"]],
    "output": [["?", "escape"], ["tab", "tab", "tab"], "ww"],
}


@every_walk
def test_what_is_taken_back_leaves_the_screen_as_it_was(seed: int) -> None:
    for shot, frame in walk(seed)[1][::5]:
        was = shot.draw(replace(frame.view, message="", aside=0)).lines
        for first, *others in BACK_AGAIN.get(frame.view.screen, []):
            view, _ = update(replace(frame.view, aside=0), first, shot.snapshot)
            if others in (["escape"], ["escape", "e"]) and view.screen == frame.view.screen:
                continue  # there is nothing to open it on
            if first == "S" and frame.view.reverse:
                continue  # another order begins at its worst end
            for key in others:
                view, _ = update(shot.draw(view).view if len(key) > 1 else view, key, shot.snapshot)
            assert shot.draw(replace(view, message="")).lines == was, [first, *others]


@every_walk
def test_only_what_a_question_named_is_done_once_yes_was_typed(seed: int) -> None:
    """By a person's own memory of whom the question named and what was typed since."""
    named: set[Identity] | str | None = None
    typed = value = ""
    for press in walk(seed)[0]:
        before, after, key = press.before, press.after, press.key
        if before.screen not in QUESTIONS and after.screen in QUESTIONS:
            named, typed = whom(press), "" if after.screen != "edit" else after.typed
            assert not isinstance(after.request, SendSignal) or {*after.request.targets} == named
        elif before.screen == "edit" and after.screen == "confirm":
            typed, value = "", typed
        elif before.screen in ("confirm", "edit") and key not in ("enter", "escape"):
            typed = {"backspace": typed[:-1], "ctrl-u": ""}.get(
                key, typed + key * (len(key) == 1 and key.isprintable())
            )
        done = [command for command in press.commands if is_change(command)]
        assert not done or (key == "enter" and before.screen in ("confirm", "edit"))
        for command in done:
            if isinstance(command, EditVariable):
                found = run_row(press.snapshot, command.run.path)
                assert before.screen == "edit" or typed == "yes"
                text = typed if before.screen == "edit" else value
                assert (command.text, f"{command.run.path} {command.variable}") == (text, named)
                assert found is not None and found.run is command.run and found.status in (RUNNING, UNKNOWN)
            else:
                assert typed.strip() == before.phrase and command == before.request
                check_deleted(press, command, named) if isinstance(command, Do) else check_sent(command, named)


def check_deleted(press: Press, command: Do, named: object) -> None:
    found = run_row(press.snapshot, command.about.path)
    assert command.name == "delete" and command.about.path == named
    if found is not None:
        assert found.status != RUNNING and not found.is_alive
        assert (found.run.process, found.run.started_at) == (command.about.process, command.about.started_at)


def check_sent(command: SendSignal, named: object) -> None:
    assert isinstance(named, set) and {*command.targets} <= named
    if command.signal in ("KILL", "STOP", "CONT"):
        assert {*command.targets} == named


def whom(press: Press) -> set[Identity] | str:
    """Whom a key concerns that signals, deletes or edits: processes, the path of a run, or that and a variable."""
    before, snapshot = press.before, press.snapshot
    if press.key == "l":
        return {each for found in shown_runs(snapshot, before) if found.status == RUNNING for each in processes(found)}
    item = TABLE.selected(snapshot, before) if before.screen == "main" else None
    found = item.row if item is not None else run_row(snapshot, before.selected.path)
    assert found is not None
    if press.after.screen == "edit":
        return f"{found.run.path} {before.variable}"
    if press.after.screen == "confirm":
        return found.run.path
    if item is None or item.node is None:
        return processes(found)
    above = found.tree[: next(at for at, each in enumerate(found.tree) if each is item.node) + 1]
    return {[each for each in above if each.kind == PROCESS][-1].identity}


def processes(found: RunRow) -> set[Identity]:
    """All processes of a run, or its own one where no tree of it is seen."""
    tree = {each.identity for each in found.tree if each.kind == PROCESS}
    return tree or ({found.run.process} if found.run.process is not None else set())


@every_walk
def test_a_signal_to_all_runs_reaches_their_main_processes(seed: int) -> None:
    for press in walk(seed)[0]:
        request = press.after.request
        if press.key != "l" or press.before.screen != "main" or not isinstance(request, SendSignal):
            continue
        for choice, (name, _) in enumerate(SIGNALS):
            asked = update(replace(press.after, choice=choice), "enter", press.snapshot)[0].request
            assert isinstance(asked, SendSignal) and asked.signal == name
            meant = [found for found in shown_runs(press.snapshot, press.before) if found.status == RUNNING]
            own = {found.tree[0].identity if found.tree else found.run.process for found in meant} - {None}
            assert own <= {*asked.targets} and len(asked.targets) == len({*asked.targets})


@every_walk
def test_a_question_keeps_its_processes_until_it_is_answered(seed: int) -> None:
    shots = walk(seed)[1]
    for (shot, frame), (later, _) in zip(shots, shots[1:]):
        for key in {"main": "klc", "detail": "kc"}.get(frame.view.screen, ""):
            view, _ = update(frame.view, key, shot.snapshot)
            if seed in READ_ONLY or view.request is None:
                assert view == replace(frame.view, message=view.message)
                continue
            named = whom(Press(frame.view, key, shot.snapshot, view, ()))
            if isinstance(view.request, SendSignal):
                assert {*view.request.targets} == named
                view, _ = update(view, "enter", shot.snapshot)
            _, commands = update(replace(view, typed=view.phrase), "enter", later.snapshot)
            for command in commands:
                assert command == view.request
                if isinstance(command, Do):
                    check_deleted(Press(view, "enter", later.snapshot, view, commands), command, named)
            assert commands or isinstance(view.request, Do)


@pytest.mark.parametrize("seed", sorted(READ_ONLY))
def test_read_only_asks_no_question_and_changes_nothing(seed: int) -> None:
    for press in walk(seed)[0]:
        assert not any(is_change(command) for command in press.commands)
        assert press.after.request is None and press.after.screen not in QUESTIONS


def test_the_walks_come_to_every_screen_and_do_everything() -> None:
    presses = [press for seed in WALK_SEEDS for press in walk(seed)[0]]
    assert {press.after.screen for press in presses} == {*TABLES}
    commands = [command for press in presses for command in press.commands]
    assert {type(command) for command in commands} == {Do, SendSignal, EditVariable}
    assert {command.name for command in commands if isinstance(command, Do)} >= {"delete", "open", "quit"}


@every_walk
def test_q_quits_where_nothing_is_asked_and_esc_leads_to_the_whole_table(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        view = frame.view
        quits = Do("quit") in update(view, "q", shot.snapshot)[1]
        assert quits is (view.screen not in {*TYPING, "signals"})
        for _ in range(5):
            view, commands = update(view, "escape", shot.snapshot)
            assert {*commands} <= {Do("close")}
        assert (view.screen, view.request, view.typed, view.panes) == ("main", None, "", ())
        assert len(shown_runs(shot.snapshot, view)) == len(shot.snapshot.rows)
