"""The choice of columns is kept from one start to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_monitor.core.errors import StateError
from training_monitor.ui.top.app import keep_hidden_columns, load_hidden_columns

HIDDEN = frozenset({"Phase", "Wandb URL"})


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_choice_is_kept_in_the_state_folder(state: Path) -> None:
    assert load_hidden_columns() == frozenset()
    assert Path(keep_hidden_columns(HIDDEN)).parent == state and load_hidden_columns() == HIDDEN
    keep_hidden_columns(frozenset())
    assert load_hidden_columns() == frozenset()


def test_a_folder_that_cannot_be_made_is_an_error(state: Path) -> None:
    state.write_text("a file")
    with pytest.raises(StateError):
        keep_hidden_columns(HIDDEN)
    with pytest.raises(StateError):
        load_hidden_columns()
