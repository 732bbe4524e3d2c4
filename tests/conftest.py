"""In which order the tests run, and which of them in one worker where pytest-xdist shares them out."""

from __future__ import annotations

from typing import Any

import pytest

# What starts a Ray cluster, or fills a disk once for all tests of its file: one worker, one test after the other.
TOGETHER = ("tests/integration/test_ray", "tests/integration/test_large_checkpoint_folders")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests: run side by side, all the others fill the time beside them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests out one by one; by file, one worker has half of the work."""
    from xdist.scheduler import LoadScopeScheduling

    class OneByOne(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid)

    return OneByOne(config, log) if config.getvalue("dist") == "loadscope" else None
