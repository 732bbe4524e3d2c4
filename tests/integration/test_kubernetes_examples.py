"""examples/kubernetes: the real kubectl takes it, the schemas of Kubernetes fit, and what it starts works."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.integration.commands import PYTHON
from tests.integration.conftest import Surroundings, wait_until
from tests.loopback.kubernetes import KubernetesApi
from tests.loopback.ray_dashboard import RayDashboard
from tests.requirements import require_package
from training_monitor.cli.parsing import build_parser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
KINDS = {
    "v1": {
        "ServiceAccount": "serviceaccounts",
        "PersistentVolumeClaim": "persistentvolumeclaims",
        "Service": "services",
    },
    "rbac.authorization.k8s.io/v1": {"Role": "roles", "RoleBinding": "rolebindings"},
    "batch/v1": {"Job": "jobs"},
    "apps/v1": {"Deployment": "deployments"},
    "ray.io/v1": {"RayJob": "rayjobs"},
}
TOKEN = "a-token-of-some-length"
WATCHER, STANDBY = ("Deployment", "training-monitor"), ("Deployment", "my-training-supervisors")
PODS = {("Job", "my-training-supervisor"): "restart", STANDBY: "restart", WATCHER: "web"}  # and their commands
VERSION = "1.34"  # of the schemas
# Of KubeRay's RayJobSpec and what is in it, v1: ray-operator/apis/ray/v1 of the KubeRay repository.
RAY_JOB = {"jobId", "entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "rayClusterSpec"}
HEAD_GROUP = {"rayStartParams", "template"}
WORKER_GROUP = HEAD_GROUP | {"groupName", "replicas", "minReplicas", "maxReplicas"}


def objects() -> list[dict[str, Any]]:
    yaml = require_package("yaml")
    return [each for file in FILES for each in yaml.safe_load_all(file.read_text())]


def named(kind: str, name: str = "") -> dict[str, Any]:
    [found] = [each for each in objects() if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return found


def pods_of(kind: str, name: str = "") -> dict[str, Any]:
    return dict(named(kind, name)["spec"]["template"]["spec"])


def container(kind: str, name: str = "") -> dict[str, Any]:
    [found] = pods_of(kind, name)["containers"]
    return dict(found)


def pod_templates(ray_job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = ray_job["spec"]["rayClusterSpec"]
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def test_kubectl_takes_every_file(kube: KubernetesApi) -> None:
    kube.kinds = KINDS
    files = [word for file in FILES for word in ("-f", str(file))]
    command = ["kubectl", "apply", "--dry-run=client", "--validate=false", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("created (dry run)") == len(objects()) >= 8
    assert {each["kind"] for each in objects()} == {kind for kinds in KINDS.values() for kind in kinds}


def test_every_field_is_one_of_kubernetes() -> None:
    validator = require_package("kubernetes_validate")
    ray_job = named("RayJob")
    pods = [{"apiVersion": "v1", "kind": "Pod", **template} for template in pod_templates(ray_job)]
    for each in [*(each for each in objects() if each["kind"] != "RayJob"), *pods]:
        validator.validate(each, VERSION, strict=True)
    with pytest.raises(validator.ValidationError):
        validator.validate({**pods[0], "spec": {"container": []}}, VERSION, strict=True)


def test_the_ray_job_has_the_fields_of_kuberay() -> None:
    spec = named("RayJob")["spec"]
    assert set(spec) == RAY_JOB and not spec["backoffLimit"] and spec["shutdownAfterJobFinishes"] is False
    assert set(spec["rayClusterSpec"]) == {"headGroupSpec", "workerGroupSpecs"}
    assert set(spec["rayClusterSpec"]["headGroupSpec"]) == HEAD_GROUP
    assert all(set(group) == WORKER_GROUP for group in spec["rayClusterSpec"]["workerGroupSpecs"])


def test_the_role_allows_what_is_asked_and_no_more(kube: KubernetesApi) -> None:
    rules = named("Role")["rules"]
    allowed = {f"{verb} {resource}" for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    assert allowed == {"get pods", "list pods", "get pods/log", "create pods/exec"}
    names = {each["metadata"]["name"] for each in objects() if each["kind"] in ("ServiceAccount", "Role")}
    users = {pods_of(*each)["serviceAccountName"] for each in PODS}
    assert users == names == {named("RoleBinding")["roleRef"]["name"], named("RoleBinding")["subjects"][0]["name"]}


@pytest.mark.parametrize("kind_and_name", PODS)
def test_the_command_in_a_container_is_one_that_there_is(kind_and_name: tuple[str, str]) -> None:
    [script] = container(*kind_and_name)["args"]
    words = shlex.split(script.partition("exec training-monitor ")[2].replace("\\\n", " "))
    assert build_parser().parse_args(words).subcommand == PODS[kind_and_name]


def test_a_standby_differs_from_the_job_in_what_its_file_says_and_in_nothing_else() -> None:
    pod, standby = pods_of("Job"), pods_of(*STANDBY)
    [script], [other] = (each["containers"][0].pop("args") for each in (pod, standby))
    assert other.replace(" --standby", "") == script and "--standby" in other
    assert (pod.pop("restartPolicy"), pod["volumes"].pop(0)["name"], standby["volumes"].pop(0)) == (
        "Never",
        "state",
        {"name": "state", "emptyDir": {}},
    )
    term = standby.pop("affinity")["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
    assert term["podAffinityTerm"]["labelSelector"] == named(*STANDBY)["spec"]["selector"]
    assert standby == pod and named(*STANDBY)["spec"]["replicas"] == 2


# ---------------------------------------------------------------- what the containers do


def script_of(surroundings: Surroundings, kind: str, name: str = "") -> tuple[list[str], dict[str, str]]:
    """A container's command with its variables; the checkpoints are where a test may write, and the port is free."""
    program = surroundings.tools / "training-monitor"
    program.write_text(f'#!/bin/sh\nexec {PYTHON} -m training_monitor "$@"\n')
    program.chmod(0o755)
    found = container(kind, name)
    changes = {"/checkpoints/": f"{surroundings.folder}/checkpoints/", "--host 0.0.0.0": "--json --port 0"}
    [text] = found["args"]
    for there, here in changes.items():
        text = text.replace(there, here)
    return [*found["command"], text], {**os.environ, "PYTHONPATH": str(ROOT), "NAMESPACE": "default", "TOKEN": TOKEN}


def supervise(surroundings: Surroundings) -> subprocess.CompletedProcess[str]:
    words, environ = script_of(surroundings, "Job")
    return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=120)


def test_the_supervisor_finds_the_head_by_its_label_and_adopts_the_job(
    kube: KubernetesApi, surroundings: Surroundings
) -> None:
    spec = named("RayJob")["spec"]
    labels = {**pod_templates(named("RayJob"))[0]["metadata"]["labels"], "ray.io/node-type": "head"}
    (surroundings.folder / "checkpoints" / "my-training").mkdir(parents=True)
    with RayDashboard() as dashboard:
        dashboard.add_job(spec["jobId"], "SUCCEEDED", "step 40/40 loss=0.1\n", spec["entrypoint"])
        environ = {"RAY_API_SERVER_ADDRESS": dashboard.address, "TRAINING_MONITOR_TEST": surroundings.mark}
        kube.add_pod("my-training-7h2xk-head-v9q4z", labels=labels, env=environ)
        kube.add_pod("other-head", labels={"ray.io/node-type": "head"}, env=environ)
        done = supervise(surroundings)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["success"], result["job_id"], result["final_step"]) == (True, "my-training", 40)


def test_the_supervisor_waits_for_a_head_and_its_job_tries_again(
    kube: KubernetesApi, surroundings: Surroundings
) -> None:
    done = supervise(surroundings)
    assert done.returncode == 3 and "0 head pods" in done.stderr
    final = named("Job")["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
    assert done.returncode not in final and final == [1, 2, 4]


def test_the_watcher_serves_metrics_of_every_head(kube: KubernetesApi, surroundings: Surroundings) -> None:
    for name in ("one-head", "two-head"):
        kube.add_pod(name, labels={"ray.io/node-type": "head"}, env={"TRAINING_MONITOR_TEST": surroundings.mark})
    kube.add_pod("one-worker", labels={"ray.io/node-type": "worker"})
    words, environ = script_of(surroundings, *WATCHER)
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            port = re.findall(r":(\d+)/", json.loads(process.stdout.readline())["url"])[0]
            asked = Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})

            def heads() -> set[str]:
                with urlopen(asked, timeout=60) as answer:
                    return set(re.findall(r"\w+-(?:head|worker)", answer.read().decode()))

            assert wait_until(lambda: heads() == {"one-head", "two-head"}), heads()
        finally:
            process.terminate()
