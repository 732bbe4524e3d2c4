"""Wall time of get_training_health over N pods against N bare `kubectl exec POD -- true` at once, in the same run.

    python3 bench/health.py [--rounds 15] [--pods 4 16]

Real kubectl, a loopback Kubernetes API and Ray dashboard, pods that are folders of this machine with processes of their
own. All are measured in turn, so that noise hits them alike; printed are medians and their ratios (goal: 1.3). The pods
of a cluster have processors of their own, so `bench/own_processors.py` replays their recorded output after the recorded
time. In the last row of each count, their scripts run on this machine, at the same time as everything else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.own_processors import Recorder, elsewhere  # noqa: E402
from bench.table import Row, as_table, in_turn
from tests.loopback.kubernetes import KubernetesApi  # noqa: E402
from tests.loopback.ray_dashboard import RayDashboard  # noqa: E402
from training_monitor import get_training_health  # noqa: E402


def run_at_once(commands: Sequence[Sequence[str]]) -> None:
    """Run programs of kubectl at once."""
    at_once = [subprocess.Popen(["kubectl", *each], stdout=subprocess.DEVNULL) for each in commands]
    for process in at_once:
        process.wait()


def rows(rounds: int = 15, counts: Sequence[int] = (4, 16)) -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of the health report."""
    environ_before = dict(os.environ)
    with tempfile.TemporaryDirectory() as name, KubernetesApi(Path(name) / "kube") as api, RayDashboard() as dashboard:
        folder = Path(name)
        os.environ.update(api.environ)
        environ = {"PATH": os.defpath, "RAY_API_SERVER_ADDRESS": dashboard.address, "RAY_TMPDIR": str(folder)}
        every = [f"verl-{number}" for number in range(max(counts))]
        for pod in every:
            api.add_pod(pod, root=folder / pod, env=environ).main_container = "other"  # /proc has its processes alone
        checkpoints = folder / every[0] / "checkpoints"
        (checkpoints / "step_100").mkdir(parents=True)
        (checkpoints / "step_100" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        for count in counts:
            pods = every[:count]
            report = partial(get_training_health, pods[0], str(checkpoints), pods)
            assert report()["checkpoints"]["latest_step"] == 100
            before = len(api.execs)
            report()
            assert len(api.execs) - before == count
            bare = partial(run_at_once, [["exec", pod, "--", "true"] for pod in pods])
            recorder = Recorder({pod.name: pod for pod in api.pods.values()})
            report(transport=recorder)
            with elsewhere(recorder.said):
                assert report()["checkpoints"]["latest_step"] == 100
                apart = in_turn({"bare": bare, "ours": report}, rounds)
            beside = in_turn({"bare": bare, "ours": report}, rounds)
            for where, taken in (("", apart), (" on this machine", beside)):
                what = f"get the health of {count} pods{where}"
                reference = f"{count} `kubectl exec POD -- true` in parallel"
                yield Row(what, 1000 * taken["ours"], "ms", 1000 * taken["bare"], reference, "1.3x")
    os.environ.clear()
    os.environ.update(environ_before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pods", type=int, nargs="+", default=[4, 16])
    args = parser.parse_args()
    print("\n".join(as_table(rows(args.rounds, args.pods))))
