"""A real Ray cluster that asks for a token: the pod's own opens it, and is seen by nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.ray_cluster import RayHead, record_calls, token_pods
from tests.loopback.kubernetes import KubernetesApi
from training_monitor import check_job_status
from training_monitor.core.errors import RestError
from training_monitor.jobs import look_at_job
from training_monitor.jobs.jobs import start_job
from training_monitor.targets.asking import Site


def test_the_token_of_the_pod_opens_the_dashboard_and_is_in_no_argument(kube: KubernetesApi, tmp_path: Path) -> None:
    token = "0123456789abcdef" * 4
    head = RayHead(RAY_AUTH_MODE="token")
    head.headers["Authorization"] = f"Bearer {token}"
    notes = record_calls(tmp_path / "bin", head.environment["PATH"], "curl", "python3", "ray")
    plain, pods = token_pods(head, token, tmp_path)
    try:
        head.start()
        for name, environment in pods.items():
            kube.add_pod(name, env={**plain, **environment})
            assert start_job(Site.of(name), f"by-{name}", {"entrypoint": "true"}, None) == "started", name
            assert look_at_job(name, f"by-{name}").job_id == f"by-{name}"
        assert set(head.jobs()) == {f"by-{name}" for name in pods}
        for name, environment in {"none": {}, "wrong": {"RAY_AUTH_TOKEN": "f" * 64}}.items():
            kube.add_pod(name, env={**plain, **environment})
            with pytest.raises(RestError, match="refused access") as refusal:
                look_at_job(name, "by-path")
            assert "RAY_AUTH_TOKEN" in str(refusal.value)
            assert check_job_status(name, "by-path") == "UNKNOWN"
        assert "curl" in notes.read_text() and "python3" in notes.read_text()
        assert token not in notes.read_text() + str(kube.execs)
    finally:
        head.stop()
