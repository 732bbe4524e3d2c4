"""The targets of the integration tests, and a reader of the skill who writes down what happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evals.reader import Reader
from tests.integration.conftest import Surroundings, gate, kube, moto, sshd, surroundings, vast, vastai  # noqa: F401
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.loopback.ray_dashboard import RayDashboard

HEAD = "training-head-abc123"


@pytest.fixture
def reader(request: pytest.FixtureRequest, surroundings: Surroundings) -> Iterator[Reader]:  # noqa: F811
    name = request.node.name.removeprefix("test_")
    reader = Reader(name, {str(surroundings.folder): "/home/me"})
    yield reader
    reader.close()


@pytest.fixture
def dashboard() -> Iterator[RayDashboard]:
    with RayDashboard() as dashboard:
        yield dashboard


@pytest.fixture
def head(kube: KubernetesApi, surroundings: Surroundings, dashboard: RayDashboard) -> Pod:  # noqa: F811
    """The head pod of a Ray cluster."""
    root = surroundings.folder / HEAD
    environ = {"RAY_API_SERVER_ADDRESS": dashboard.address, "RAY_TMPDIR": str(root), "HOME": str(root)}
    return kube.add_pod(HEAD, root=root, env={**environ, "TRAINING_MONITOR_TEST": surroundings.mark})


def put(path: Path, text: str | bytes) -> Path:
    """A file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
