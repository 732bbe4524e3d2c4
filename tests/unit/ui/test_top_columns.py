"""The file in which the choice of columns is kept: its mode, and what happens where it cannot be read or written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from training_monitor.core.errors import StateError
from training_monitor.ui.top.columns import columns_path, keep_hidden_columns, load_hidden_columns

HIDDEN = frozenset({"Phase", "Wandb URL"})


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_choice_is_kept_for_its_owner_alone(state: Path) -> None:
    assert load_hidden_columns() == frozenset()
    path = Path(keep_hidden_columns(HIDDEN))
    assert path.parent == state and load_hidden_columns() == HIDDEN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(state.stat().st_mode) == 0o700
    keep_hidden_columns(frozenset())
    assert load_hidden_columns() == frozenset() and os.listdir(state) == [path.name]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"hidden": 5}', '{"hidden": [[]]}', '{"hidden": [], "later": 1}', "x" * 100_000]
)
def test_a_damaged_file_is_an_error_that_names_it(state: Path, text: str) -> None:
    path = Path(keep_hidden_columns(HIDDEN))
    path.write_text(text)
    with pytest.raises(StateError, match=f"{path} cannot be read: "):
        load_hidden_columns()
    keep_hidden_columns(HIDDEN)
    assert load_hidden_columns() == HIDDEN


def test_what_others_could_have_written_is_refused(state: Path) -> None:
    path = Path(keep_hidden_columns(HIDDEN))
    path.chmod(0o666)
    with pytest.raises(StateError, match="written to by others"):
        load_hidden_columns()
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(StateError, match="it is a link"):
        load_hidden_columns()


def test_a_folder_that_cannot_be_made_is_an_error(state: Path) -> None:
    state.write_text("a file")
    with pytest.raises(StateError, match="cannot be made"):
        keep_hidden_columns(HIDDEN)
    with pytest.raises(StateError, match="cannot be read"):
        load_hidden_columns()


def test_a_file_that_cannot_be_replaced_is_an_error(state: Path) -> None:
    Path(columns_path()).mkdir(parents=True)
    with pytest.raises(StateError, match="cannot be written"):
        keep_hidden_columns(HIDDEN)
