"""What is typed in `top`: the name filter, values, searches. Pure."""

from __future__ import annotations

from dataclasses import replace

from training_monitor.policy.run_values import RunsSnapshot
from training_monitor.tui.top_acts import Act, Result
from training_monitor.tui.top_view import SearchOutput, TopView, shown_runs
from training_monitor.units import plural


def type_text(view: TopView, typed: str) -> TopView:
    """Take over what is typed; the table is filtered by it at once."""
    return replace(view, typed=typed, words=typed if view.screen == "filter" else view.words)


def erase(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Erase the last character."""
    return type_text(view, view.typed[:-1]), ()


def erase_all(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Erase all that was typed."""
    return type_text(view, ""), ()


def start_filter(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Begin to type a name."""
    return replace(view, screen="filter", typed=view.words, before=view.words), ()


def keep_filter(view: TopView, snapshot: RunsSnapshot) -> Result:
    """End the typing and keep the filter."""
    shown = plural(len(shown_runs(snapshot, view)), "run")
    return replace(view, screen="main", typed="", message=f"{shown} shown; Esc shows all again"), ()


def leave_filter(view: TopView, snapshot: RunsSnapshot) -> Result:
    """End the typing with the filter of before."""
    return replace(view, screen="main", typed="", words=view.before), ()


def leave_edit(view: TopView, snapshot: RunsSnapshot) -> Result:
    """End the typing of a value and change nothing."""
    return replace(view, screen="editor", typed="", message="cancelled: nothing was changed"), ()


def leave_search(view: TopView, snapshot: RunsSnapshot) -> Result:
    """End the typing and search for nothing."""
    return replace(view, screen="output", typed=""), ()


def search_typed(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Search backwards for what was typed, or for the same again."""
    words = view.typed or view.searched
    view = replace(view, screen="output", typed="", searched=words)
    return view, (SearchOutput(words, backwards=True),) if words else ()


def search_again(backwards: bool) -> Act:
    """Search for the same words further on."""

    def act(view: TopView, snapshot: RunsSnapshot) -> Result:
        if not view.searched:
            return replace(view, message="nothing was searched for yet: / searches"), ()
        return view, (SearchOutput(view.searched, backwards),)

    return act


def start_search(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Begin to type what to search for."""
    return replace(view, screen="search", typed=""), ()
