"""What holds on the screens of a fleet, some of it on all, whatever is pressed while all changes, also the size."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from tests.sweeps import READ_ONLY, WALK_SEEDS, WITH_NAN, Press
from tests.unit.ui import random_runs, top_screens
from tests.unit.ui.fleet_screens import TABLES, a_command, render, update
from tests.unit.ui.random_fleet import ACTIONS, ANSWERS, walk
from tests.unit.ui.snapshots import SNAPSHOT, member, misfits
from training_monitor.fleet.values import FleetSnapshot
from training_monitor.ui.fleet.view import TABLE, FleetView, member_of, table_columns, visible_rows
from training_monitor.ui.kit.text import Line, cells, safe
from training_monitor.ui.kit.view import Do, Frame

WalkOf = Callable[[int], Any]  # the walk of a seed


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def cursor_lines(frame: Frame[FleetView]) -> list[str]:
    """The lines of the table with the cursor."""
    return [text_of(line) for line in frame.lines if line[0] in (("> ", "selected"), (">*", "selected"))]


def every_walk(test: Callable[[int], None]) -> Callable[[int], None]:
    return pytest.mark.parametrize("seed", WALK_SEEDS)(test)


# Words of Python that no screen shows, those that a NaN may show too, and what may stand around a word.
FLEET = (walk, {"True", "False"}, {"nan", "inf", "-inf", "nanC", "infC"}, "$%,;:/")
TOP = (random_runs.walk, set(), {"nan%", "inf%", "nans", "infs"}, "$,;:/")


@pytest.mark.parametrize("walk_of", [FLEET[0], TOP[0]], ids=["fleet", "top"])
@every_walk
def test_every_frame_has_the_size_of_the_terminal_and_no_escape(seed: int, walk_of: WalkOf) -> None:
    for number, (shot, frame) in enumerate(walk_of(seed)[1]):
        assert len(frame.lines) == shot.size[1]
        assert misfits(frame.lines, shot.size[0]) == []
        assert all(cells(text_of(line)[0]) for line in frame.lines if line), "an accent without a letter"
        assert number % 2 or shot.draw(frame.view) == frame, "drawn again, it differs"


@pytest.mark.parametrize(("walk_of", "words", "of_nan", "around"), [FLEET, TOP], ids=["fleet", "top"])
@every_walk
def test_unknown_values_are_not_drawn_as_words_of_python(
    seed: int, walk_of: WalkOf, words: set[str], of_nan: set[str], around: str
) -> None:
    for _, frame in walk_of(seed)[1]:
        texts = [text_of(line) for line in frame.lines]
        assert not any(re.search("Non[e…~]", text) for text in texts)
        shown = {word.strip(around) for text in texts for word in text.split()}
        assert not shown & (words if seed in WITH_NAN else words | of_nan)


@pytest.mark.parametrize(
    ("walk_of", "typing"), [(walk, {"filter", "confirm"}), (random_runs.walk, top_screens.TYPING)], ids=["fleet", "top"]
)
@every_walk
def test_the_end_of_what_is_typed_is_visible(seed: int, walk_of: WalkOf, typing: Collection[str]) -> None:
    for shot, frame in walk_of(seed)[1]:
        if frame.view.screen in typing and shot.is_large_enough:
            typed = safe(frame.view.typed, frame.view.glyphs)
            assert f"{typed[-8:]}_" in text_of(frame.lines[-1])


@every_walk
def test_a_page_scrolls_to_its_end_and_no_further(seed: int) -> None:
    for shot, frame in walk(seed)[1][::2]:
        if frame.view.screen not in ("detail", "comparison", "totals", "help") or not shot.is_large_enough:
            continue
        end = shot.draw(update(frame.view, "end", shot.snapshot)[0])
        title = 2 if shot.snapshot.error is not None else 1  # below the header and what is stale
        assert "below)" not in text_of(end.lines[title])
        assert end.view.scroll < 1000  # no page is that long
        if end.view.scroll:
            above = shot.draw(update(end.view, "up", shot.snapshot)[0])
            first, after = title + 1, title + 1 + end.view.page
            assert above.view.scroll == end.view.scroll - 1
            assert above.lines[first + 1 : after] == end.lines[first : after - 1]


@every_walk
def test_esc_leads_to_the_table_tab_to_all_and_a_screen_too_small_names_a_key(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        said = " ".join(text_of(line).strip() for line in frame.lines)
        if not shot.is_large_enough and "q quits" in said:
            quits = update(replace(frame.view, asked=()), "q", shot.snapshot)[1]
            assert quits == (a_command("quit"),)
        elif not shot.is_large_enough and "Esc" in said:
            assert update(frame.view, "escape", shot.snapshot)[0].screen != frame.view.screen
        view = frame.view
        for _ in range(3):
            view, commands = update(view, "escape", shot.snapshot)
            assert commands == ()
        assert view.screen == "main" and view.request is None and view.typed == ""
        views = [replace(frame.view, screen="main")]
        for _ in range(4):
            views.append(update(views[-1], "tab", shot.snapshot)[0])
        assert None in {view.group for view in views}


@every_walk
def test_the_cursor_is_on_one_member_that_is_there_and_stays_on_it(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        if frame.view.screen not in ("main", "filter") or not shot.is_large_enough:
            continue
        rows, lines = visible_rows(shot.snapshot, frame.view), cursor_lines(frame)
        assert len(lines) == min(1, len(rows))
        row = TABLE.selected(shot.snapshot, frame.view)
        if row is not None:
            column, width = table_columns(shot.snapshot.rows, shot.size[0])[0]
            assert column.show(member_of(row, shot.snapshot, frame.view), width).strip() in lines[0]
            assert ("*" in lines[0][:2]) is (row.key in frame.view.marked)
            assert frame.view.selected in {each.key for each in shot.snapshot.rows}
            assert row.key == shot.view.selected or shot.view.selected not in {each.key for each in rows}


@every_walk
def test_a_question_shows_what_is_to_be_typed_and_whom_it_concerns(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        request = frame.view.request
        if frame.view.screen != "confirm" or request is None or not shot.is_large_enough:
            continue
        pages = [shot.draw(replace(frame.view, scroll=at)).lines for at in range(0, 40, shot.size[1] - 5)]
        text = "\n".join(text_of(line) for lines in pages for line in lines)
        assert frame.view.phrase in "\n".join(map(text_of, pages[0]))
        assert f" {request.name} {len(request.about)} member" in text_of(
            frame.lines[2 if shot.snapshot.error is not None else 1]
        )
        there = [row.instance_id for row in shot.snapshot.rows if row.key in request.about]
        assert all(str(number) in text for number in there if isinstance(number, int))


# Keys of which the last ones take back what the first did.
BACK_AGAIN = {
    "main": ["S S", "l l", "? escape", "! escape", "t enter", "enter escape", "D escape", "s escape"],
    "detail": ["? escape", "x escape"],
    "comparison": ["? enter"],
    "alerts": ["? escape"],
}


@every_walk
def test_what_is_taken_back_leaves_the_screen_as_it_was(seed: int) -> None:
    for shot, frame in walk(seed)[1][::6]:
        was = shot.draw(replace(frame.view, message="")).lines
        for first, *others in map(str.split, BACK_AGAIN.get(frame.view.screen, [])):
            view, _ = update(frame.view, first, shot.snapshot)
            if others == ["escape"] and view.screen == frame.view.screen:
                continue  # there is nothing to open it on
            for key in others:
                is_open = view.screen != frame.view.screen
                view, _ = update(shot.draw(view).view if is_open else view, key, shot.snapshot)
            assert shot.draw(replace(view, message="")).lines == was, [first, *others]


@every_walk
def test_only_what_a_question_named_is_done_once_its_phrase_was_typed(seed: int) -> None:
    """By a person's own memory of whom the question named and what was typed since."""
    named: tuple[str, tuple[str, ...]] | None = None
    typed = ""
    for press in walk(seed)[0]:
        before, key = press.before, press.key
        acts = [command for command in press.commands if command.name in ACTIONS.values()]
        due: list[Do] = []
        if named is None and press.after.screen == "confirm":
            named, typed = (ACTIONS[key], whom(press)), ""
        elif named is not None and key in ("enter", "escape"):
            there = {row.key for row in press.snapshot.rows}
            assert before.request is not None and before.phrase.startswith(f"{named[0]} ")
            if key == "enter" and typed == before.phrase and {*named[1]} <= there:
                due = [a_command(*named)]
            named = None
        elif named is not None:
            typed = {"backspace": typed[:-1], "ctrl-u": ""}.get(
                key, typed + key * (len(key) == 1 and key.isprintable())
            )
        assert acts == due


def whom(press: Press) -> tuple[str, ...]:
    """Whom a key concerns that stops or destroys."""
    if press.before.screen == "detail":
        return tuple(row.key for row in press.snapshot.rows if row.key == press.before.selected)
    marked = tuple(row.key for row in press.snapshot.rows if row.key in press.before.marked)
    chosen = TABLE.selected(press.snapshot, press.before)
    return marked or (() if chosen is None else (chosen.key,))


@every_walk
def test_a_question_keeps_its_members_until_it_is_answered(seed: int) -> None:
    shots = walk(seed)[1]
    for (shot, frame), (later, _) in zip(shots, shots[1:]):
        for key, action in ACTIONS.items():
            if frame.view.screen not in ("main", "detail"):
                continue
            asked, _ = update(frame.view, key, shot.snapshot)
            keys = whom(Press(frame.view, key, shot.snapshot, asked, ()))
            if seed in READ_ONLY or not keys:
                assert asked == replace(frame.view, message=asked.message)
                continue
            assert asked.request is not None and (asked.request.name, asked.request.about) == (action, keys)
            _, commands = update(replace(asked, typed=asked.phrase), "enter", later.snapshot)
            is_there = {*keys} <= {row.key for row in later.snapshot.rows}
            assert commands == ((a_command(action, keys),) if is_there else ())


@pytest.mark.parametrize("seed", sorted(READ_ONLY))
def test_read_only_asks_no_question_and_does_nothing(seed: int) -> None:
    for press in walk(seed)[0]:
        assert not any(command.name in ACTIONS.values() for command in press.commands)
        assert press.after.request is None and press.after.screen != "confirm"


def test_the_walks_come_to_every_screen_and_do_both() -> None:
    presses = [press for seed in WALK_SEEDS for press in walk(seed)[0]]
    assert {press.after.screen for press in presses} == {*TABLES}
    assert {command.name for press in presses for command in press.commands} >= {"stop", "destroy", "quit", "resume"}


@every_walk
def test_q_quits_unless_something_that_was_asked_for_is_not_answered(seed: int) -> None:
    asked: list[tuple[str, float]] = []
    for press in walk(seed)[0]:
        answers = {(alert.key, alert.timestamp) for alert in press.snapshot.alerts if alert.kind in ANSWERS}
        asked = [(key, since) for key, since in asked if not any(key == who and at > since for who, at in answers)]
        if press.key == "q" and press.before.screen not in ("filter", "confirm"):
            assert press.commands == (() if asked else (a_command("quit"),))
        for command in press.commands:
            if command.name in ACTIONS.values():
                asked += [(key, press.snapshot.timestamp) for key in command.about]


def shown(view: FleetView, snapshot: FleetSnapshot, width: int, height: int) -> str:
    return "\n".join(map(text_of, render(snapshot, view, width, height, lambda key: ()).lines))


@pytest.mark.parametrize("name", ["trainer-0", "trainer-1"])
@pytest.mark.parametrize("width", [40, 80])
def test_a_question_tells_members_apart_whose_ids_are_cut(width: int, name: str) -> None:
    ids = [f"k8s://a-long-namespace/and-a-workload/trainer-{number}" for number in range(2)]
    two = replace(SNAPSHOT, rows=tuple(member(each, instance_id=ids[each], key=f"{ids[each]}#job") for each in (0, 1)))
    view = update(FleetView(selected=next(row.key for row in two.rows if name in row.key)), "D", two)[0]
    drawn = "".join(shown(view, two, width, 24).split())
    assert f"/{name}#job" in drawn and drawn.count("#job") == 1
