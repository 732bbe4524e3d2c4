"""A supervised run whose waits have no jitter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.supervision.test_auto_restart import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("random.random", lambda: 0.0)
    return Bench(tmp_path)
