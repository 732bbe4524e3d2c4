"""Arguments of public functions are taken by their annotations: paths and foreign numbers as plain ones."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.frozen import checking


@checking
def taken(folder: str = "", step: int = 0, share: float | None = None, *rest: object, **more: object) -> object:
    return [folder, step, share, *rest, *more.values()]


def test_a_path_and_a_number_of_another_library_are_taken_as_plain_ones() -> None:
    found = taken(Path("/data"), share=Fraction(1, 4))
    assert found == ["/data", 0, 0.25] and type(taken("", 0, Fraction(2))[2]) is float  # type: ignore[index]


def test_further_arguments_are_taken_as_they_are() -> None:
    path = Path("/data")
    assert taken("", 1, None, path, other=path) == ["", 1, None, path, path]


@pytest.mark.parametrize(("name", "value"), [("step", Fraction(1, 2)), ("step", Path("/7")), ("folder", b"/data")])
def test_what_fits_in_no_form_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: got .*, expected "):
        taken(**{name: value})
