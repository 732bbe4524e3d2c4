"""The loopback Kubernetes API server, driven by the real kubectl."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.conftest import wait_until
from tests.loopback.kubernetes import ContainerState, KubernetesApi
from tests.requirements import require

Answer = subprocess.CompletedProcess[bytes]
Kubectl = Callable[..., Answer]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubernetesApi]:
    with KubernetesApi(tmp_path, {"loopback": "default", "elsewhere": "team"}) as api:
        api.add_pod("trainer", labels={"job": "run-1"})
        yield api


@pytest.fixture
def kubectl(api: KubernetesApi) -> Kubectl:
    program = require("kubectl")
    environ = {**os.environ, **api.environ}

    def run(*arguments: str, stdin: bytes = b"", timeout: float = 30) -> Answer:
        return subprocess.run(
            [program, *arguments], input=stdin, env=environ, capture_output=True, timeout=timeout, check=False
        )

    return run


def names(answer: Answer) -> list[str]:
    return answer.stdout.decode().split()


def test_stdout_stderr_and_the_exit_code_of_a_command_arrive_separately(kubectl: Kubectl) -> None:
    answer = kubectl("exec", "trainer", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (answer.returncode, answer.stdout) == (3, b"out\n")
    assert answer.stderr.splitlines() == [b"err", b"command terminated with exit code 3"]


def test_a_script_on_stdin_runs_in_the_root_and_the_environment_of_its_pod(
    api: KubernetesApi, kubectl: Kubectl
) -> None:
    pod = api.add_pod("worker", env={"RANK": "7"})
    answer = kubectl("exec", "-i", "worker", "--", "sh", "-s", stdin=b'pwd; echo "$HOME" "$RANK"\n')
    assert answer.stdout.decode().splitlines() == [str(pod.root), f"{pod.root} 7"]
    assert api.execs == [("default", "worker", "main", ["sh", "-s"])]


def test_a_mebibyte_passes_through_cat_intact(kubectl: Kubectl) -> None:
    data = random.Random(0).randbytes(1 << 20)
    assert kubectl("exec", "-i", "trainer", "--", "cat", stdin=data).stdout == data


def test_a_command_that_does_not_read_its_stdin_still_ends_with_its_status(kubectl: Kubectl) -> None:
    answer = kubectl("exec", "-i", "trainer", "--", "sh", "-c", "exit 4", stdin=bytes(1 << 22))
    assert (answer.returncode, answer.stdout) == (4, b"")


def test_a_command_that_does_not_exist_is_an_error_of_the_container_runtime(kubectl: Kubectl) -> None:
    answer = kubectl("exec", "trainer", "--", "no-such-program")
    assert answer.returncode == 1
    assert b'exec: "no-such-program": executable file not found in $PATH' in answer.stderr


@pytest.mark.parametrize("arguments", [("get", "pod", "nope"), ("exec", "nope", "--", "true")])
def test_a_missing_pod_is_not_found(kubectl: Kubectl, arguments: tuple[str, ...]) -> None:
    answer = kubectl(*arguments)
    assert (answer.returncode, answer.stderr) == (1, b'Error from server (NotFound): pods "nope" not found\n')


def test_what_is_forbidden_is_refused_and_announced_by_can_i(api: KubernetesApi, kubectl: Kubectl) -> None:
    may_exec = ("auth", "can-i", "create", "pods", "--subresource=exec")  # pods/exec would ask about a pod named exec
    assert kubectl(*may_exec).stdout == b"yes\n"
    api.forbidden = {"create pods/exec"}
    assert kubectl(*may_exec).stdout == b"no\n"
    assert kubectl("auth", "can-i", "get", "pods").stdout == b"yes\n"
    answer = kubectl("exec", "trainer", "--", "true")
    assert answer.returncode == 1
    assert b'pods "trainer" is forbidden: User "loopback" cannot create resource "pods/exec"' in answer.stderr


def test_an_exec_can_fail_with_any_http_status(api: KubernetesApi, kubectl: Kubectl) -> None:
    api.fail_exec_with = (500, "InternalError")
    answer = kubectl("exec", "trainer", "--", "true")
    assert (answer.returncode, answer.stdout) == (1, b"")
    assert b"error dialing backend" in answer.stderr


def test_sixteen_commands_run_at_the_same_time(kubectl: Kubectl) -> None:
    script = 'touch "$0"; while [ "$(ls | wc -l)" -lt 16 ]; do sleep 0.05; done; echo "$0"'

    def meet(number: int) -> Answer:
        return kubectl("exec", "trainer", "--", "sh", "-c", script, str(number))

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(meet, range(16)))
    assert [(answer.returncode, names(answer)) for answer in answers] == [(0, [str(n)]) for n in range(16)]


def test_an_exec_can_report_success_and_lose_its_stdout(api: KubernetesApi, kubectl: Kubectl) -> None:
    api.exec_empty_ok = 1
    answers = [kubectl("exec", "trainer", "--", "echo", "hello") for _ in range(2)]
    assert [(answer.returncode, answer.stdout) for answer in answers] == [(0, b""), (0, b"hello\n")]


def test_a_connection_can_drop_in_the_middle_of_the_stdout(api: KubernetesApi, kubectl: Kubectl) -> None:
    api.drop_exec_after_bytes = 5
    answer = kubectl("exec", "trainer", "--", "sh", "-c", "echo 123456789; sleep 0.1; echo more")
    assert answer.returncode == 1
    assert answer.stdout in (b"12345", b"")  # kubectl may not get to print what it has received
    assert b"unexpected EOF" in answer.stderr


def test_an_exec_can_hang_until_the_client_gives_up(api: KubernetesApi, kubectl: Kubectl) -> None:
    api.hang_exec = True
    with pytest.raises(subprocess.TimeoutExpired):
        kubectl("exec", "trainer", "--", "true", timeout=1)


def test_a_client_that_leaves_does_not_end_the_command(api: KubernetesApi, kubectl: Kubectl) -> None:
    root = api.pods["default", "trainer"].root
    with pytest.raises(subprocess.TimeoutExpired):
        kubectl("exec", "-i", "trainer", "--", "sh", "-c", "cat; sleep 1; touch survived", timeout=0.5)
    assert wait_until((root / "survived").exists)


def test_a_command_loses_its_stdin_when_the_client_leaves(api: KubernetesApi) -> None:
    root = api.pods["default", "trainer"].root
    command = [require("kubectl"), "exec", "-i", "trainer", "--", "sh", "-c", "touch begun; cat; touch ended"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **api.environ}) as client:
        assert wait_until((root / "begun").exists)
        assert not (root / "ended").exists()
        client.kill()
    assert wait_until((root / "ended").exists)


def test_the_processes_of_a_removed_pod_are_killed(api: KubernetesApi, kubectl: Kubectl) -> None:
    detached = kubectl("exec", "trainer", "--", "sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!")
    command = Path(f"/proc/{int(detached.stdout)}/cmdline")
    assert wait_until(lambda: command.read_bytes().startswith(b"sleep"))
    api.remove_pod("trainer")
    assert wait_until(lambda: not command.exists() or not command.read_bytes())
    assert b"not found" in kubectl("get", "pod", "trainer").stderr


def test_a_pod_tells_its_phase_its_restarts_and_why_it_was_down(api: KubernetesApi, kubectl: Kubectl) -> None:
    states = {"main": ContainerState(restart_count=3, last_terminated="OOMKilled")}
    pod = api.add_pod("worker", containers=["main", "logger"], states=states)
    shown = json.loads(kubectl("get", "pod", "worker", "-o", "json").stdout)
    assert (shown["metadata"]["uid"], shown["spec"]["nodeName"]) == (pod.uid, "node-1")
    assert shown["status"]["phase"] == "Running"
    main, logger = shown["status"]["containerStatuses"]
    assert (main["restartCount"], main["lastState"]["terminated"]["reason"]) == (3, "OOMKilled")
    assert (logger["name"], logger["restartCount"], logger["ready"]) == ("logger", 0, True)
    assert {"type": "Ready", "status": "True", "lastTransitionTime": pod.created} in shown["status"]["conditions"]


def test_pods_are_listed_by_label_and_by_name(api: KubernetesApi, kubectl: Kubectl) -> None:
    api.add_pod("other", labels={"job": "run-2"})
    by_label = json.loads(kubectl("get", "pods", "-l", "job=run-2", "-o", "json").stdout)
    assert [pod["metadata"]["name"] for pod in by_label["items"]] == ["other"]
    by_name = kubectl("get", "pods", "trainer", "gone", "other", "-o", "json")
    assert [pod["metadata"]["name"] for pod in json.loads(by_name.stdout)["items"]] == ["trainer", "other"]
    assert (by_name.returncode, by_name.stderr) == (1, b'Error from server (NotFound): pods "gone" not found\n')


def test_each_context_has_its_own_namespace(api: KubernetesApi, kubectl: Kubectl) -> None:
    api.add_pod("theirs", "team")
    assert kubectl("config", "current-context").stdout == b"loopback\n"
    assert names(kubectl("get", "pods", "-o", "name")) == ["pod/trainer"]
    assert names(kubectl("--context", "elsewhere", "get", "pods", "-o", "name")) == ["pod/theirs"]
    assert names(kubectl("-n", "team", "exec", "theirs", "--", "echo", "hello")) == ["hello"]


def test_a_stopped_server_refuses_connections_and_comes_back_on_the_same_port(
    api: KubernetesApi, kubectl: Kubectl
) -> None:
    port = api.port
    api.stop()
    answer = kubectl("exec", "trainer", "--", "true")
    assert answer.returncode == 1
    assert f"The connection to the server 127.0.0.1:{port} was refused".encode() in answer.stderr
    api.start()
    assert (api.port, kubectl("exec", "trainer", "--", "true").returncode) == (port, 0)


def test_connections_can_be_closed_at_once(api: KubernetesApi, kubectl: Kubectl) -> None:
    assert kubectl("get", "pods").returncode == 0  # caches the discovery
    api.refuse = True
    try:
        answer = kubectl("get", "pods", timeout=2)
    except subprocess.TimeoutExpired:
        pass  # it tries again for ten seconds after EOF, and gives up where the close came before its question
    else:
        assert answer.returncode == 1 and b"server closed idle connection" in answer.stderr
    api.refuse = False
    assert kubectl("get", "pods").returncode == 0
