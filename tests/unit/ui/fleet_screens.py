"""The screens of a fleet, as the tests draw them and press their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.fleet.values import FleetSnapshot
from training_monitor.ui.fleet.app import APP
from training_monitor.ui.fleet.view import FleetView, Recent
from training_monitor.ui.kit import keys, page
from training_monitor.ui.kit.view import Do, Frame

TABLES = {name: screen.keys for name, screen in APP.screens.items()}


def update(view: FleetView, key: str, snapshot: FleetSnapshot) -> tuple[FleetView, Sequence[Do]]:
    return keys.update(APP, view, key, snapshot)


def keys_of(view: FleetView) -> Sequence[keys.Key]:
    return keys.keys_of(APP, view)


def render(snapshot: FleetSnapshot, view: FleetView, width: int, height: int, recent: Recent) -> Frame[FleetView]:
    view = replace(view, recent=recent, losses=lambda key: [sample.values.get("loss") for sample in recent(key)])
    return page.render_screen(APP, snapshot, view, width, height)


def a_command(name: str, members: Sequence[str] = ()) -> Do:
    """The command of that name, as `update` gives it."""
    return Do(name, tuple(members) if name in ("stop", "destroy", "start", "reboot") else None)
