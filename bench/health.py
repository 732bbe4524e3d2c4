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
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.loopback.kubernetes import KubernetesApi  # noqa: E402
from tests.loopback.ray_dashboard import RayDashboard  # noqa: E402
from training_monitor import get_training_health  # noqa: E402

PODS = [f"verl-{name}" for name in ("head-pgbtb", "worker-8v7pg", "worker-nqvvq", "worker-v5rz4")]


def measure(rounds: int, folder: Path) -> None:
    with KubernetesApi(folder / "kube") as api, RayDashboard() as dashboard:
        os.environ.update(api.environ)
        environ = {"PATH": os.defpath, "RAY_API_SERVER_ADDRESS": dashboard.address, "RAY_TMPDIR": str(folder)}
        for name in PODS:
            api.add_pod(name, root=folder / name, env=environ)
        checkpoints = folder / PODS[0] / "checkpoints"
        (checkpoints / "step_100").mkdir(parents=True)
        (checkpoints / "step_100" / "optimizer.json").write_text("{}")
        bare, programs, health, execs = [], [], [], []
        for _ in range(rounds + 1):
            started = time.perf_counter()
            subprocess.run(["kubectl", "exec", PODS[0], "--", "true"], check=True)
            bare.append(time.perf_counter() - started)
            started = time.perf_counter()
            words = [["exec", name, "--", "true"] for name in PODS] + [["get", "pods", "-o", "json"]]
            at_once = [subprocess.Popen(["kubectl", *each], stdout=subprocess.DEVNULL) for each in words]
            for process in at_once:
                process.wait()
            programs.append(time.perf_counter() - started)
            before = len(api.execs)
            started = time.perf_counter()
            report = get_training_health(PODS[0], str(checkpoints), PODS)
            health.append(time.perf_counter() - started)
            execs.append(len(api.execs) - before)
            assert report["checkpoints"]["latest_step"] == 100, report
    one = statistics.median(bare[1:])
    for name, times, goal in (
        ("kubectl exec POD -- true", bare, ""),
        ("4 of them and get pods at once", programs, ""),
        ("get_training_health, 4 pods", health, "   goal 3.0"),
    ):
        median, best = statistics.median(times[1:]), min(times[1:])
        print(f"{name:<32}{median * 1000:7.1f} ms ({best * 1000:.1f} at best)  ratio {median / one:.2f}{goal}")
    print(f"execs per report {statistics.mode(execs)} (goal 4)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    with tempfile.TemporaryDirectory() as name:
        measure(parser.parse_args().rounds, Path(name))
