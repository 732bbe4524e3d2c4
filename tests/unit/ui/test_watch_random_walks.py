"""What holds on the screen of `watch` whatever is pressed while all changes, also the terminal's size."""

from __future__ import annotations

from tests.unit.ui.random_watch import walk
from tests.unit.ui.test_random_walks import every_walk, text_of
from tests.unit.ui.watched import render, update
from training_monitor.ui.kit.view import Do
from training_monitor.ui.watch.app import APP


@every_walk
def test_esc_leads_to_the_main_page_and_q_quits_from_everywhere(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        assert update(frame.view, "q", shot.snapshot)[1] == (Do("quit"),)
        assert update(frame.view, "escape", shot.snapshot)[0].screen == "main"


@every_walk
def test_no_key_asks_for_anything_but_a_look_a_new_drawing_or_the_end(seed: int) -> None:
    presses = walk(seed)[0]
    commands = {command for press in presses for command in press.commands}
    assert commands == {Do("quit"), Do("refresh"), Do("redraw")}
    assert {press.after.screen for press in presses} == {*APP.screens}


@every_walk
def test_the_state_is_on_the_main_page_until_it_is_scrolled_away(seed: int) -> None:
    for shot, frame in walk(seed)[1]:
        if frame.view.screen == "main" and shot.is_large_enough and shot.snapshot.verdict:
            above = " ".join(text_of(line) for line in frame.lines[:5])  # below the header and an error
            assert shot.snapshot.verdict.state.upper() in above


@every_walk
def test_a_scrolled_log_stays_where_it_is_while_lines_come(seed: int) -> None:
    shots = walk(seed)[1]
    for (shot, frame), (later, _) in zip(shots, shots[1:]):
        if frame.view.screen != "log" or frame.view.log_top is None or later.snapshot.first_line > frame.view.top:
            continue
        again = render(later.snapshot, frame.view, *shot.size)
        assert again.view.top == frame.view.top
