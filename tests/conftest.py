"""In which order the tests run."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests: run side by side, all the others fill the time beside them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
