"""The fleet screen: its keys, their actions, and the screens they lead to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from training_monitor.core.units import plural
from training_monitor.fleet.attention import RESULTS
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.metrics import DEFAULT_THRESHOLDS, FLEET_COLUMNS, Thresholds
from training_monitor.fleet.values import FleetAlert, FleetSnapshot
from training_monitor.ui.fleet.main import draw_header, draw_main
from training_monitor.ui.fleet.pages import (
    confirmation_phrase,
    draw_alerts,
    draw_comparison,
    draw_confirm,
    draw_detail,
    draw_totals,
    shown_alerts,
)
from training_monitor.ui.fleet.view import TABLE, FleetView, follow, marked_rows, member_row
from training_monitor.ui.kit.keys import (
    BACK,
    CLOSE_HELP,
    HELP,
    QUIT,
    REDRAW,
    REFRESH,
    SCROLLS,
    App,
    By,
    Key,
    Screen,
    change,
    filter_keys,
    moves,
    open_page,
    question_keys,
    sort_keys,
    start_filter,
    toggle,
)
from training_monitor.ui.kit.loop import Session, run_screen
from training_monitor.ui.kit.terminal import terminal_glyphs
from training_monitor.ui.kit.view import Do, asked, go_back, opened, said

_ANSWERS = (*RESULTS, "failed")  # which is also the kind of a training's failure

Act = Callable[[FleetView, FleetSnapshot], FleetView]


def _pause(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    return replace(view, todo=(Do("resume" if snapshot.paused else "pause"),))


def _clear(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    return said(replace(view, log_lines=(), todo=(Do("clear"),)), "cleared the log lines shown so far")


def _group(by: int) -> Act:
    def act(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
        groups = [None, *snapshot.groups]
        if groups == [view.group]:
            return said(view, "no groups are defined: add them in the settings file")
        place = groups.index(view.group) if view.group in groups else 0
        return replace(view, group=groups[(place + by) % len(groups)])

    return act


def _mark(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    row = TABLE.selected(snapshot, view)
    if row is None:
        return view
    return TABLE.move(lambda view: 1)(replace(view, marked=view.marked ^ {row.key}), snapshot)


def _compare(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    if len(marked_rows(snapshot, view)) < 2:
        return said(view, "first mark two or more members with Space")
    return opened(view, "comparison")


# ---------------------------------------------------------------- alerts


def _open_alerts(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    return replace(opened(view, "alerts"), alert=0)


def _move_alert(by: By) -> Act:
    def act(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
        last = len(shown_alerts(snapshot)) - 1
        return replace(view, alert=max(0, min(last, view.alert + by(view))))

    return act


def _chosen(view: FleetView, snapshot: FleetSnapshot) -> Sequence[FleetAlert]:
    groups = shown_alerts(snapshot)
    return groups[min(view.alert, len(groups) - 1)] if groups else ()


def _jump(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    """Open the member that the selected alert is about, the first of several."""
    keys = [alert.key for alert in _chosen(view, snapshot) if member_row(snapshot, alert.key)]
    if not keys:
        return said(view, "no member to open: the alert concerns the whole fleet or a removed member")
    return replace(opened(view, "detail"), selected=keys[0])


def _acknowledge(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    """Acknowledge the selected alerts, and go on to the next."""
    chosen = _chosen(view, snapshot)
    if not chosen:
        return said(view, "no alert to acknowledge")
    view = _move_alert(lambda view: 1)(view, snapshot)
    return replace(view, todo=(Do("acknowledge", tuple(alert.identity for alert in chosen)),))


def _click_alert(view: FleetView, snapshot: FleetSnapshot, key: str) -> FleetView:
    number = int(key.split()[2]) - view.heading_line - 1 + view.scroll
    return replace(view, alert=number) if 0 <= number < len(shown_alerts(snapshot)) else view


def _click(view: FleetView, snapshot: FleetSnapshot, key: str) -> FleetView:
    """Select what was clicked: a row, the order of a column, or the member of an alert."""
    line = int(key.split()[2])
    about = next((member for at, member in view.alert_lines if at == line), None)
    if about is None:
        return TABLE.click(view, snapshot, key)
    return replace(view, selected=about) if member_row(snapshot, about) else view


def _escape(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    return replace(view, words="") if view.words else replace(view, marked=frozenset())


# ---------------------------------------------------------------- stop and destroy


def _ask(action: str) -> Act:
    def act(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
        if view.screen == "detail":
            rows = [member_row(snapshot, view.selected)]
        else:
            rows = [*marked_rows(snapshot, view)] or [TABLE.selected(snapshot, view)]
        meant = [row for row in rows if row is not None]
        if not meant:
            return said(view, f"no member to {action}")
        return asked(view, Do(action, tuple(row.key for row in meant)), confirmation_phrase(action, meant))

    return act


def _confirm(view: FleetView, snapshot: FleetSnapshot, request: Do) -> FleetView:
    keys = request.about
    gone = {*keys} - {row.key for row in snapshot.rows}
    if gone:
        listed = f"{plural(len(gone), 'member')} {'is' if len(gone) == 1 else 'are'} no longer listed"
        return said(view, f"cancelled: {listed}; try again")
    under_way = (*_under_way(view, snapshot), *((key, snapshot.timestamp) for key in keys))
    view = replace(view, marked=view.marked - {*keys}, asked=under_way, todo=(request,))
    return said(view, f"{request.name} requested for {plural(len(keys), 'member')}; alerts will report the result")


def _under_way(view: FleetView, snapshot: FleetSnapshot) -> list[tuple[str, float]]:
    """Return the requested actions that no alert has answered yet."""
    answered = {alert.key: alert.timestamp for alert in snapshot.alerts if alert.kind in _ANSWERS}
    return [(key, since) for key, since in view.asked if answered.get(key, since) <= since]


def _quit(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    """Quit, but not while a requested stop or destroy is still running."""
    if _under_way(view, snapshot):
        return said(view, "an action is in progress: wait for its result, or press Ctrl-C to quit anyway")
    return replace(view, todo=(Do("quit"),))


def _shell(view: FleetView, snapshot: FleetSnapshot) -> FleetView:
    row = member_row(snapshot, view.selected) if view.screen == "detail" else TABLE.selected(snapshot, view)
    return said(view, "nothing is selected") if row is None else replace(view, todo=(Do("shell", row.key),))


# ---------------------------------------------------------------- tables


_AGAIN = "press the same letter again to reverse the order"
SORTS = {each.title: each.letter for each in FLEET_COLUMNS if each.letter}
_QUIT = replace(QUIT, act=_quit)
_PAUSE = Key("p", "stop refreshing until p is pressed again", _pause, "pause")
_CHANGES = (
    Key("x", "stop the marked members, or the selected one", _ask("stop"), "stop", changes=True),
    Key("D", "destroy the marked members, or the selected one", _ask("destroy"), "destroy", changes=True),
    Key("U", "start the machines of the marked members, or the selected one", _ask("start"), changes=True),
    Key("R", "reboot the machines of the marked members, or the selected one", _ask("reboot"), changes=True),
    Key("$", "open a shell on the selected machine; this screen returns afterwards", _shell, "shell", changes=True),
)
_MAIN: tuple[Key[Any, Any], ...] = (
    _QUIT,
    REFRESH,
    _PAUSE,
    Key("c", "clear the log lines shown so far", _clear, "clear"),
    HELP,
    Key("Enter", "show all details of the selected member", TABLE.open_detail, "detail"),
    Key("/", "filter by ID, name, GPU, status, health or reason", start_filter, "filter"),
    Key("s", "choose the sort order", change(screen="sort"), "sort"),
    Key("S", "reverse the sort order", toggle("reverse")),
    Key("Tab", "show the next group", _group(1), "group"),
    Key("Shift-Tab", "show the previous group", _group(-1)),
    Key("Space", "mark or unmark the selected member", _mark, "mark"),
    Key("m v", "compare the marked members", _compare, "compare"),
    *_CHANGES,
    Key("l", "show the logs of the selected member, or of all members", toggle("all_logs"), "logs"),
    Key("!", "show all alerts", _open_alerts, "alerts"),
    Key("t", "show the totals of each group", open_page("totals"), "totals"),
    *moves(TABLE.move),
    Key("Esc", "clear the filter, or the marks if there is no filter", _escape),
    REDRAW,
)
_PAGE = (BACK, _QUIT, REFRESH, _PAUSE, HELP, *SCROLLS)
_ALERTS: tuple[Key[Any, Any], ...] = (
    Key("Esc", "back", go_back, "back"),
    Key("Enter", "open the member that the alert is about", _jump, "member"),
    Key(
        "a",
        "acknowledge the alert: it then appears only in this list, and its member moves down in the table",
        _acknowledge,
        "acknowledge",
    ),
    *_PAGE[1:5],
    *moves(_move_alert),
    REDRAW,
)
_DETAIL: tuple[Key[Any, Any], ...] = (
    BACK,
    Key("Left [", "show the previous member", TABLE.move(lambda view: -1), "before"),
    Key("Right ]", "show the next member", TABLE.move(lambda view: 1), "next"),
    *_PAGE[1:],
    *_CHANGES,
)
APP: App[FleetView, FleetSnapshot] = App(
    TABLE,
    draw_header,
    {
        "main": Screen(draw_main, _MAIN, section="the table", click=_click),
        "filter": Screen(draw_main, filter_keys(TABLE), "/", "while you type the filter", click=_click),
        "sort": Screen(
            draw_main, sort_keys(TABLE, SORTS), section="the sort order: press s first", note=_AGAIN, click=_click
        ),
        "detail": Screen(draw_detail, _DETAIL, section="one member"),
        "comparison": Screen(draw_comparison, _PAGE),
        "alerts": Screen(draw_alerts, _ALERTS, section="alerts", click=_click_alert),
        "totals": Screen(draw_totals, _PAGE),
        "help": Screen(None, (CLOSE_HELP, *(key for key in _PAGE[1:] if key is not HELP))),
        "confirm": Screen(draw_confirm, question_keys(_confirm), "> ", "stop and destroy", changes=True),
    },
    {"k": "up", "j": "down", "g": "home", "G": "end"},
)


def run_fleet(
    fleet: FleetMonitor,
    *,
    read_only: bool = False,
    title: str = "fleet",
    group: str | None = None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> None:
    """Show a fleet on this terminal until the user quits; starts the fleet and closes it.

    Args:
        read_only: nothing can be stopped or destroyed.
        title: shown at the top.
        group: show only its members; None: all.
        thresholds: the limits beyond which a value is worth a warning.

    Raises:
        TrainingMonitorError: stdin or stdout is not a usable terminal; the fleet was not started.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP; the terminal is restored.
    """
    view = FleetView(title, read_only, terminal_glyphs(), thresholds=thresholds, group=group)
    view = replace(view, recent=fleet.recent, losses=fleet.recent_losses)
    run_screen(APP, _FleetSession(fleet), view)


class _FleetSession(Session[FleetView, FleetSnapshot]):
    def __init__(self, fleet: FleetMonitor) -> None:
        super().__init__(fleet)
        self._fleet = fleet

    def look(self, view: FleetView) -> tuple[FleetSnapshot, FleetView]:
        snapshot = self._fleet.snapshot()
        return snapshot, follow(view, snapshot.rows)

    def step_aside(self, command: Do) -> list[str]:
        return self._fleet.shell_command(command.about)

    def obey(self, view: FleetView, command: Do) -> FleetView:
        match command:
            case Do("refresh"):
                self._fleet.refresh()
            case Do("pause" | "resume" as name):
                self._fleet.set_paused(name == "pause")
            case Do("acknowledge", identities):
                self._fleet.acknowledge(identities)
            case Do("clear"):
                self._fleet.clear_logs()
            case Do(action, keys):  # stop, destroy, start or reboot
                self._fleet.act(action, keys)
        return view
