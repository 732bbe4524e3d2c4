"""Every key of every screen, by `update`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.ui.fleet_screens import TABLES, a_command, render, update
from tests.unit.ui.snapshots import ROWS, SNAPSHOT, member, recent
from training_monitor.fleet.values import FleetAlert, FleetSnapshot
from training_monitor.ui.fleet.view import ORDERS, TABLE, FleetView, follow, visible_rows
from training_monitor.ui.kit.view import Do

START = FleetView(selected=ROWS[0].key, page=3, sort="ID")  # the order of ROWS
READ_ONLY = replace(START, read_only=True)
EMPTY = replace(SNAPSHOT, rows=(), groups=())
EMPTY_OF_ALERTS = replace(SNAPSHOT, alerts=())


def press(view: FleetView, *keys: str, snapshot: FleetSnapshot = SNAPSHOT) -> tuple[FleetView, list[Do]]:
    commands: list[Do] = []
    for key in keys:
        view, more = update(view, key, snapshot)
        commands += more
    return view, commands


def after(*keys: str, view: FleetView = START, snapshot: FleetSnapshot = SNAPSHOT) -> FleetView:
    return press(view, *keys, snapshot=snapshot)[0]


def cursor(view: FleetView, snapshot: FleetSnapshot = SNAPSHOT) -> int:
    row = TABLE.selected(snapshot, view)
    assert row is not None
    return ROWS.index(row)


def ids(view: FleetView) -> list[int]:
    return [ROWS.index(row) for row in visible_rows(SNAPSHOT, view)]


def test_a_key_asks_for_what_it_is_documented_to_do() -> None:
    keys = {"q": "quit", "r": "refresh", "p": "pause", "c": "clear", "ctrl-l": "redraw"}
    assert press(START, *keys)[1] == [a_command(name) for name in keys.values()]
    assert press(START, "p", snapshot=replace(SNAPSHOT, paused=True))[1] == [a_command("resume")]
    for screen in ("detail", "comparison", "alerts", "help"):
        names = [command.name for command in press(replace(START, screen=screen), "r", "p", "q")[1]]
        assert names == ["refresh", "pause", "quit"]
    view = after("c", view=follow(START, ROWS))
    assert view.log_lines == ()
    assert follow(view, ROWS).log_lines == ()
    assert [after("l").all_logs, after("l", "l").all_logs] == [True, False]


def test_an_unknown_key_changes_nothing_and_is_reported(subtests: pytest.Subtests) -> None:
    for screen in TABLES:
        with subtests.test(screen=screen):
            view = replace(START, screen=screen)
            for key in ("f12", "ctrl-z", "\x01", ""):
                said = "" if screen in ("filter", "confirm") else f"{key} has no function on this screen"
                assert press(view, key) == (replace(view, message=said), [])


def test_every_key_of_every_screen_is_answered_also_by_an_empty_fleet(subtests: pytest.Subtests) -> None:
    for screen in TABLES:
        with subtests.test(screen=screen):
            keys = [name for entry in TABLES[screen] for name in entry.names]
            assert len(keys) == len(set(keys))
            for snapshot in (SNAPSHOT, EMPTY):
                for key in keys:
                    view, _ = update(replace(START, screen=screen), key, snapshot)
                    assert len(render(snapshot, view, 80, 24, recent).lines) == 24


def test_the_cursor_moves_and_follows_its_member_or_stays_in_its_place() -> None:
    for keys, place in {
        "down": 1, "j j": 2, "j k": 0, "down up": 0, "up": 0, "page-down": 3, "page-down page-up": 0, "end": 7, "G": 7,
        "G down": 7, "end home": 0, "G g": 0,
    }.items():  # fmt: skip
        assert cursor(after(*keys.split())) == place, keys
    view = after("down", "down")
    for keys in (["s"], ["s", "S"], ["s"] * 5):
        assert TABLE.selected(SNAPSHOT, after(*keys, view=view)) == ROWS[2]
    for rows, selected in ((ROWS[::-1], 2), (ROWS[:2] + ROWS[3:], 3), (ROWS[:2], 1)):
        assert TABLE.selected(replace(SNAPSHOT, rows=rows), view) == ROWS[selected]
    view = after("down", "down", "/", *"8x h100", "enter")
    assert cursor(view) == 1
    view = render(SNAPSHOT, view, 80, 24, recent).view
    assert cursor(after("escape", view=view)) == 2


def test_s_and_a_letter_sort_by_a_column_and_again_reverse_it(subtests: pytest.Subtests) -> None:
    letters = {key.word: key.shown for key in TABLES["sort"] if key.word in ORDERS}
    assert list(letters) == list(ORDERS)
    for title, letter in letters.items():
        with subtests.test(title=title):
            view = after("s", letter, view=replace(START, sort=""))
            falls = title in TABLE.falling
            assert (view.screen, view.sort, view.reverse) == ("main", title, falls)
            assert after("s", letter, view=view).reverse is not falls


def test_the_order_is_left_as_it_is_or_made_the_worst_first_again() -> None:
    view = after("s", "l")
    assert after("s", "escape", view=view) == replace(view, message="")
    assert after("s", "o", view=view).sort == "" and "worst first" in after("s", "o", view=view).message
    view = after("s", "down", "z", "D")
    assert (view.screen, cursor(view), view.request) == ("sort", 1, None)


def test_rows_are_sorted_and_the_unknown_comes_last() -> None:
    for sort, order in {
        "": [1, 6, 3, 4, 5, 7, 2, 0],  # the worst first, and of them the dearest
        "ID": [0, 1, 2, 3, 4, 5, 6, 7],
        "LOSS": [4, 0, 5, 6, 1, 2, 3, 7],
        "$/H": [0, 4, 5, 7, 2, 6, 1, 3],
        "ETA": [0, 4, 5, 1, 2, 3, 6, 7],
        "GPU%": [4, 0, 1, 5, 6, 2, 3, 7],
    }.items():
        assert ids(replace(START, sort=sort)) == order, sort
    assert ids(after("S", view=replace(START, sort="LOSS"))) == [1, 0, 5, 6, 4, 2, 3, 7]
    for sort in ("", "ID"):
        assert ids(replace(START, sort=sort, reverse=True)) == ids(replace(START, sort=sort))[::-1]
    assert after("S").reverse
    levels = [ROWS[place].health().level for place in ids(replace(START, sort="HEALTH"))]
    assert levels == ["error"] * 3 + ["warning"] + ["unknown"] * 3 + ["healthy"]


def test_the_filter_looks_into_what_the_table_shows() -> None:
    for words, found in {
        "30007002": [1], "RUN-5": [4], "h100": [1], "loading": [2], "error": [1, 3, 6], "healthy": [0],
        "no answer": [5], "rtx error": [3, 6], "nothing like it": [], "  ": [*range(8)], ".*": [],
    }.items():  # fmt: skip
        assert ids(after("/", *words)) == found, words
    view, commands = press(START, "/", *"qrpcxD?!", "down", "page-down", "up", "page-up")
    assert (view.words, commands, view.screen) == ("qrpcxD?!", [], "filter")


def test_enter_keeps_the_filter_and_escape_takes_it_away() -> None:
    kept = after("/", *"q r", "enter")
    assert (kept.screen, kept.words) == ("main", "q r")
    assert after("escape", view=kept).words == ""
    assert after("/", *"abc", "escape").words == ""
    assert after("/", *"abc", "backspace", "backspace").words == "a"
    assert after("/", *"abc", "ctrl-u").words == ""
    assert after("/", *"ab", "enter", "/", "c").words == "abc"
    assert len(after("/", *("x" * 2000)).typed) == 1000


def test_tab_goes_through_the_groups() -> None:
    view, seen = START, []
    for _ in range(4):
        view = after("tab", view=view)
        seen.append(view.group)
    assert seen == ["even", "odd", None, "even"]
    assert after("shift-tab").group == "odd"
    assert ids(after("tab")) == [1, 3, 5, 7]
    assert after("tab", view=replace(START, group="gone")).group == "even"
    view = after("tab", snapshot=EMPTY)
    assert view.group is None and "no groups" in view.message


def test_a_page_opens_scrolls_and_goes_back() -> None:
    for key, screen in {"enter": "detail", "!": "alerts", "?": "help"}.items():
        view = after(key, view=replace(START, scroll=4))
        assert (view.screen, view.scroll) == (screen, 0)
        assert after("escape", view=view).screen == "main"
    help_of_detail = after("enter", "?", "escape")
    assert help_of_detail.screen == "detail" and after("escape", view=help_of_detail).screen == "main"
    view = replace(START, screen="comparison", page=5)
    assert [after(*keys, view=view).scroll for keys in (["up"], ["j", "j"], ["page-down"], ["G", "g"])] == [0, 2, 5, 0]
    far = render(SNAPSHOT, after("G", view=replace(view, screen="help")), 80, 24, recent).view
    assert after("up", view=far).scroll == far.scroll - 1
    view = after("enter", "right", "right", "left")
    assert (view.screen, view.selected) == ("detail", ROWS[1].key)
    view = after("enter", snapshot=EMPTY)
    assert view.screen == "main" and view.message


def test_marks_survive_a_filter_and_two_marked_members_are_compared() -> None:
    view = after(" ", " ", "up", " ")
    assert view.marked == {ROWS[0].key}
    assert cursor(view) == 2
    assert after("/", *"h100", "enter", "s", "tab", view=view).marked == {ROWS[0].key}
    assert after("escape", view=view).marked == frozenset()
    for key in ("m", "v"):
        assert after(" ", " ", key).screen == "comparison"
        one = after(" ", key)
        assert one.screen == "main" and "Space" in one.message


ACTIONS = {"x": "stop", "D": "destroy", "U": "start", "R": "reboot"}


def test_members_are_acted_on_once_id_or_number_was_typed() -> None:
    for key, action in ACTIONS.items():
        view, commands = press(START, key, *f"{action} 30007001", "enter")
        assert commands == [a_command(action, (ROWS[0].key,))]
        assert view.screen == "main" and view.request is None and view.typed == ""
    view, commands = press(START, " ", " ", "G", "D", *"destroy 2", "enter")
    assert commands == [a_command("destroy", (ROWS[0].key, ROWS[1].key))]
    assert view.marked == frozenset()
    assert press(START, "D", *"destory", "ctrl-u", *"destroy 30007001x", "backspace", "enter")[1] != []


def test_anything_else_that_is_typed_cancels() -> None:
    for typed in [
        "", "y", "destroy", "destroy 3000700", "destroy 30007001 ", " destroy 30007001", "Destroy 30007001",
        "stop 30007001",
    ]:  # fmt: skip
        view, commands = press(START, "D", *typed, "enter")
        assert commands == [] and view.screen == "main" and "nothing was done" in view.message
    view, commands = press(START, "D", *"destroy 30007001", "escape", "enter")
    assert commands == [] and view.request is None


def test_a_member_that_is_not_rented_is_confirmed_by_its_name_or_by_number() -> None:
    for name, phrase in (("process:train", "stop process:train"), ("späce ☃\n", "stop 1"), ("", "stop 1")):
        odd = replace(SNAPSHOT, rows=(member(1, instance_id="local", name=name, cost_per_hour=None),))
        view = after("x", snapshot=odd)
        assert view.request is not None and view.phrase == phrase
        text = " ".join("".join(piece for piece, _ in line) for line in render(odd, view, 80, 24, recent).lines)
        assert "Its training ends." in text and "disk" not in text and "cost" not in text


def test_only_whom_it_was_asked_about_and_only_all_of_them_are_acted_on() -> None:
    asked = after(" ", " ", "D", *"destroy 2")
    view, commands = press(asked, "enter", snapshot=replace(SNAPSHOT, rows=ROWS[1:]))
    assert commands == [] and "cancelled" in view.message
    more = replace(SNAPSHOT, rows=(member(9), *ROWS))
    assert press(after("x", *"stop 30007001"), "enter", snapshot=more)[1] == [a_command("stop", (ROWS[0].key,))]


def test_the_detail_screen_acts_on_its_member_and_not_on_the_marked() -> None:
    view = after(" ", " ", "G", "enter", "x")
    assert view.request is not None and view.request.about == (ROWS[7].key,)
    assert after("escape", view=view).screen == "detail"
    view = after("x", view=after("enter"), snapshot=EMPTY)
    assert view.request is None and view.message


def test_read_only_refuses_to_change_anything() -> None:
    for screen in ("main", "detail"):
        for key in (*ACTIONS, "$"):
            view, commands = press(replace(READ_ONLY, screen=screen), key)
            assert (commands, view.screen, view.request) == ([], screen, None) and "read-only" in view.message
            assert after("r", view=view).message == ""


def answered(kind: str, key: str, later: float = 1.0) -> FleetSnapshot:
    alert = FleetAlert(SNAPSHOT.timestamp + later, key, kind, "it is done")
    return replace(SNAPSHOT, alerts=(*SNAPSHOT.alerts, alert))


def test_q_waits_until_what_was_asked_for_is_answered() -> None:
    first, second = ROWS[0].key, ROWS[1].key
    for key, action in ACTIONS.items():
        view, commands = press(START, key, *f"{action} {ROWS[0].instance_id}", "enter", "q")
        assert [command.name for command in commands] == [action]
        assert "is in progress" in view.message and "Ctrl-C" in view.message
        for told in (answered("lost", first), answered("failed", second), answered("failed", first, -9.0)):
            assert press(view, "q", snapshot=told)[1] == []
        for kind in ("stopped", "destroyed", "gone", "failed", "refused"):
            assert press(view, "q", snapshot=answered(kind, first))[1] == [a_command("quit")]
    view, commands = press(START, " ", " ", "D", *"destroy 2", "enter")
    assert len(commands[0].about) == 2
    assert press(view, "q", snapshot=answered("destroyed", first))[1] == []
    assert press(START, "D", *"destroy", "enter", "q")[1] == [a_command("quit")]


ALERTS = replace(START, screen="alerts")


def test_an_alert_leads_to_its_member_and_back() -> None:
    view = after("down", "down", "enter", view=ALERTS)
    assert (view.screen, view.selected) == ("detail", "vast://30007002")
    assert after("escape", view=view).screen == "alerts"
    fleet = after("home", "enter", view=ALERTS)
    assert fleet.screen == "alerts" and "no member to open" in fleet.message
    for keys, number in ((["up"], 0), (["end"], 3), (["end", "down"], 3), (["G", "k"], 2), (["page-down"], 3)):
        assert after(*keys, view=ALERTS).alert == number
    assert after("down", view=ALERTS, snapshot=EMPTY_OF_ALERTS).alert == 0


def test_a_acknowledges_an_alert_or_all_of_a_line_and_goes_on() -> None:
    view, commands = press(ALERTS, "end", "a")
    assert commands == [Do("acknowledge", (("vast://30007001", "epoch", 1),))]
    alike = tuple(FleetAlert(1000.0, row.key, "rule:idle", "it idles") for row in ROWS[:3])
    _, commands = press(ALERTS, "a", snapshot=replace(SNAPSHOT, alerts=alike))
    assert commands == [Do("acknowledge", tuple((row.key, "rule:idle", 0) for row in ROWS[:3]))]
    view, commands = press(ALERTS, "a", snapshot=EMPTY_OF_ALERTS)
    assert commands == [] and "no alert to acknowledge" in view.message


def test_a_click_on_an_alert_selects_its_member_and_on_the_page_the_alert() -> None:
    view = render(SNAPSHOT, replace(START, sort=""), 80, 24, recent).view
    line = next(line for line, key in view.alert_lines if key == "vast://30007004")
    assert update(view, f"click 5 {line}", SNAPSHOT)[0].selected == "vast://30007004"
    of_fleet = next(line for line, key in view.alert_lines if key == "")
    assert update(view, f"click 5 {of_fleet}", SNAPSHOT)[0].selected == view.selected
    page = render(SNAPSHOT, ALERTS, 80, 24, recent).view
    assert update(page, "click 5 4", SNAPSHOT)[0].alert == 2
    assert update(page, "click 5 20", SNAPSHOT)[0].alert == 0


def test_a_key_asks_for_a_shell_on_the_machine_of_the_selected_member() -> None:
    for screen in ("main", "detail"):
        assert press(replace(START, screen=screen), "$")[1] == [Do("shell", ROWS[0].key)]
    view, commands = press(START, "$", snapshot=EMPTY)
    assert commands == [] and view.message == "nothing is selected"
