"""What public values have beside a dataclass of the standard library."""

from __future__ import annotations

import copy
import importlib
import pickle
from dataclasses import dataclass, field, is_dataclass, replace

from tests.unit.core.test_panels import PACKAGES
from training_monitor.core.fields import MOST_TEXT, PublicValue, keys_of


@dataclass(frozen=True, slots=True, repr=False)
class Sample(PublicValue):
    step: int
    secret: str = field(default="", repr=False)
    text: str = ""


def test_a_public_value_has_a_short_repr_without_what_it_leaves_out() -> None:
    assert repr(Sample(1, "word", "a")) == "Sample(step=1, text='a')"
    long = repr(Sample(1, text="x" * 10_000))
    assert len(long) < MOST_TEXT + 50 and "..." in long


def test_every_public_dataclass_is_one() -> None:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for found in (getattr(module, name) for name in module.__all__):
            if isinstance(found, type) and is_dataclass(found):
                assert issubclass(found, PublicValue) and not found.__dataclass_params__.repr, found


def test_a_public_value_has_no_dictionary_and_can_be_copied_and_pickled() -> None:
    value = Sample(1, "word")
    assert not hasattr(value, "__dict__")
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == replace(value) == value


def test_keys_are_renamed_and_left_out() -> None:
    assert keys_of(Sample(1, "word", "a"), secret="", text="said") == {"step": 1, "said": "a"}
