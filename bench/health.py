"""Wall time of get_training_health over four pods against one bare `kubectl exec POD -- true`, in the same run.

    python3 bench/health.py [--rounds 15]

Real kubectl, a loopback Kubernetes API and Ray dashboard, pods that are folders of this machine. All are measured in
turn, so that noise hits them alike; printed are medians, ratios of medians, and the number of execs per report (goal: 4
execs, ratio at most 3.0 on two cores). The programs that a report needs, started at once with nothing to do, are what
it cannot be faster than.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, as_table, in_turn
from tests.loopback.kubernetes import KubernetesApi  # noqa: E402
from tests.loopback.ray_dashboard import RayDashboard  # noqa: E402
from training_monitor import get_training_health  # noqa: E402

PODS = [f"verl-{name}" for name in ("head-pgbtb", "worker-8v7pg", "worker-nqvvq", "worker-v5rz4")]


def run_at_once() -> None:
    """Run the programs that a report needs, with nothing to do."""
    words = [["exec", name, "--", "true"] for name in PODS] + [["get", "pods", "-o", "json"]]
    at_once = [subprocess.Popen(["kubectl", *each], stdout=subprocess.DEVNULL) for each in words]
    for process in at_once:
        process.wait()


def rows(rounds: int = 15) -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of the health report."""
    environ_before = dict(os.environ)
    with tempfile.TemporaryDirectory() as name, KubernetesApi(Path(name) / "kube") as api, RayDashboard() as dashboard:
        folder = Path(name)
        os.environ.update(api.environ)
        environ = {"PATH": os.defpath, "RAY_API_SERVER_ADDRESS": dashboard.address, "RAY_TMPDIR": str(folder)}
        for pod in PODS:
            api.add_pod(pod, root=folder / pod, env=environ)
        checkpoints = folder / PODS[0] / "checkpoints"
        (checkpoints / "step_100").mkdir(parents=True)
        (checkpoints / "step_100" / "optimizer.json").write_text("{}")
        report = partial(get_training_health, PODS[0], str(checkpoints), PODS)
        assert report()["checkpoints"]["latest_step"] == 100
        before = len(api.execs)
        report()
        execs = len(api.execs) - before
        bare = partial(subprocess.run, ["kubectl", "exec", PODS[0], "--", "true"], check=True)
        taken = in_turn({"bare": bare, "programs": run_at_once, "ours": report}, rounds)
    os.environ.clear()
    os.environ.update(environ_before)
    one, programs, ours = (1000 * taken[name] for name in ("bare", "programs", "ours"))
    yield Row(f"health of four pods ({execs} execs)", ours, "ms", one, "`kubectl exec POD -- true`", "3.0x")
    yield Row("its programs at once, with nothing to do", programs, "ms", one, "the same", "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    print("\n".join(as_table(rows(parser.parse_args().rounds))))
