"""Arguments of public functions are taken by their annotations: paths and foreign numbers as plain ones."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import training_monitor
from training_monitor.core.arguments import checking
from training_monitor.core.errors import SettingsError
from training_monitor.core.outcomes import TerminationPlan
from training_monitor.verdict.restart import RestartPolicy


@checking
def taken(folder: str = "", step: int = 0, share: float | None = None, *rest: object, **more: object) -> object:
    return [folder, step, share, *rest, *more.values()]


def test_paths_and_foreign_numbers_are_taken_as_plain_ones_and_the_rest_as_given() -> None:
    found = taken(Path("/data"), share=Fraction(1, 4))
    assert found == ["/data", 0, 0.25] and type(taken("", 0, Fraction(2))[2]) is float  # type: ignore[index]
    path = Path("/data")
    assert taken("", 1, None, path, other=path) == ["", 1, None, path, path]


@pytest.mark.parametrize(("name", "value"), [("step", Fraction(1, 2)), ("step", Path("/7")), ("folder", b"/data")])
def test_what_fits_in_no_form_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: got .*, expected "):
        taken(**{name: value})


@pytest.mark.parametrize("make", [list, set, iter, lambda given: (each for each in given)])
def test_a_plan_keeps_a_collection_as_a_tuple(make: Callable[[list[str]], Any]) -> None:
    assert TerminationPlan(upload_to=make(["hf:me/x"]), tags=make(["a"])).upload_to == ("hf:me/x",)


def test_a_policy_keeps_a_number_of_another_library_as_a_plain_one() -> None:
    numpy = pytest.importorskip("numpy")
    kept = RestartPolicy(max_retries=numpy.int64(5), retry_delay=Fraction(1, 2))  # type: ignore[arg-type]
    assert (type(kept.max_retries), kept.max_retries, kept.retry_delay) == (int, 5, 0.5)
    assert type(training_monitor.StallPolicy(min_samples=numpy.int64(5)).min_samples) is int


@pytest.mark.parametrize(
    "given", [{"end": "banana"}, {"upload_to": [""]}, {"upload_to": "hf:me/x"}, {"upload_to": iter([1])}]
)
def test_a_plan_that_cannot_be_meant_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"^{next(iter(given))}: "):
        TerminationPlan(**given)


def test_a_jitter_larger_than_the_delay_or_an_endless_limit_is_refused() -> None:
    with pytest.raises(SettingsError, match="^jitter: "):
        RestartPolicy(jitter=5)
    with pytest.raises(SettingsError, match="expected a finite number"):
        RestartPolicy(max_delay=float("inf"))


def test_what_is_wrong_is_named() -> None:
    for call, name in [
        (lambda: training_monitor.parse_progress(Path("/log")), "text"),  # type: ignore[arg-type]
        (lambda: training_monitor.classify_failure(Path("/log")), "text"),  # type: ignore[arg-type]
        (lambda: training_monitor.check_training("pod", namespace=Path("/ml")), "namespace"),  # type: ignore[arg-type]
        (lambda: training_monitor.setup_logging("20"), "level"),
    ]:
        with pytest.raises(SettingsError, match=f"^{name}: "):
            call()
