"""What a target that cannot be asked is called: through the real kubectl and the real ssh."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.integration.conftest import Place, SshServer, Surroundings, free_port, plain
from tests.loopback.kubernetes import ContainerState, KubernetesApi, Pod
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandTimedOut,
    LocalFailure,
    TargetEnded,
    TargetNotFound,
    TargetUnreachable,
    TargetWaits,
)
from training_monitor.core.models import Reply
from training_monitor.targets.asking import ASK_ATTEMPTS, ask


def say(target: str, word: str = "hello", **more: object) -> str:
    """What a target answers to one question."""
    [answer] = ask(target, plain(f"echo {word}"), **more)  # type: ignore[arg-type]
    reply = answer.get()
    assert isinstance(reply, Reply)
    return reply.output


def failure(target: str, **more: object) -> CommandError:
    """The error of a target that does not answer; it names the target."""
    with pytest.raises(CommandError) as caught:
        say(target, **more)
    assert caught.value.target in (None, target)
    return caught.value


# --- kubectl


@pytest.mark.usefixtures("pod")
class TestKubectl:
    def test_a_pod_that_does_not_exist_is_not_found(self) -> None:
        for target in ("gone", "k8s://team/head", "k8s://nowhere/head"):
            with pytest.raises(TargetNotFound) as caught:
                say(target)
            assert "(NotFound)" in str(caught.value) and "kubectl get pods -A" in str(caught.value)

    def test_a_container_that_does_not_exist_is_no_missing_pod(self) -> None:
        error = failure("k8s://default/head/sidecar")
        assert type(error) is LocalFailure and "specify one of the pod's containers" in str(error)

    def test_a_pod_that_is_down_waits_or_has_ended(self, kube: KubernetesApi, pod: Pod) -> None:
        pod.states["main"] = ContainerState(waiting="CrashLoopBackOff")
        assert type(failure("k8s://default/head")) is TargetWaits
        pod.states.clear()
        pod.phase = "Succeeded"
        assert type(failure("k8s://default/head")) is TargetEnded

    def test_what_is_forbidden_is_access_denied_with_the_permission_to_ask_for(self, kube: KubernetesApi) -> None:
        kube.forbidden = {"create pods/exec"}
        error = failure("k8s://default/head")
        assert type(error) is AccessDenied
        assert "pods/exec" in str(error) and "auth can-i" in str(error)

    def test_an_api_server_that_is_down_is_unreachable_until_it_is_back(self, kube: KubernetesApi) -> None:
        kube.stop()
        error = failure("k8s://default/head")
        assert type(error) is TargetUnreachable and "refused" in str(error)
        kube.start()
        assert say("k8s://default/head") == "hello\n"

    def test_a_node_that_does_not_answer_the_api_server_is_unreachable(self, kube: KubernetesApi) -> None:
        kube.fail_exec_with = (500, "InternalError")
        assert type(failure("k8s://default/head")) is TargetUnreachable

    def test_an_answer_that_was_lost_is_asked_for_again(self, kube: KubernetesApi) -> None:
        kube.exec_empty_ok = ASK_ATTEMPTS - 1
        assert say("k8s://default/head") == "hello\n"
        assert len(kube.execs) == ASK_ATTEMPTS

    def test_half_an_answer_is_no_answer(self, kube: KubernetesApi) -> None:
        for kube.drop_exec_after_bytes in (1, 70, 5000):
            with pytest.raises(TargetUnreachable):
                ask("k8s://default/head", plain("echo first"), plain("head -c 10000 /dev/zero | tr '\\0' x"))

    def test_a_server_that_hangs_costs_the_timeout(self, kube: KubernetesApi) -> None:
        kube.hang_exec = True
        started = time.monotonic()
        error = failure("k8s://default/head", timeout=1)
        assert type(error) is CommandTimedOut and "within 1 s" in str(error)
        assert time.monotonic() - started < 8

    def test_a_login_that_waits_for_somebody_is_shown(self, kube: KubernetesApi, tmp_path: Path) -> None:
        login = tmp_path / "login"
        login.write_text(f'#!/bin/sh\necho "{SIGN_IN}" >&2\nexec sleep 60\n')
        login.chmod(0o755)
        log_in_with(kube.kubeconfig, str(login))
        error = failure("k8s://default/head", timeout=2)
        assert type(error) is CommandTimedOut and "devicelogin" in str(error) and error.target == "k8s://default/head"
        assert "log in once in a terminal" in (error.hint or "")

    def test_a_missing_plugin_is_to_be_installed(self, kube: KubernetesApi) -> None:
        log_in_with(kube.kubeconfig, "aws-iam-authenticator")
        error = failure("k8s://default/head")
        assert type(error) is AccessDenied and "install aws-iam-authenticator" in (error.hint or "")

    def test_the_namespace_is_used(self, kube: KubernetesApi) -> None:
        kube.add_pod("head", "team", env={"WHERE": "in team"})
        for target, namespace in (("head", "team"), ("k8s://team/head", "default")):
            assert say(target, '"$WHERE"', namespace=namespace) == "in team\n"
        assert [(each.namespace, each.pod) for each in kube.execs] == [("team", "head")] * 2
        assert say("head", '"$WHERE"') == "\n"

    def test_the_container_is_used(self, kube: KubernetesApi) -> None:
        kube.add_pod("pair", containers=["main", "trainer"])
        assert say("k8s://default/pair/trainer") == "hello\n"
        assert kube.execs[-1].container == "trainer"

    def test_the_context_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kube: KubernetesApi) -> None:
        with KubernetesApi(tmp_path / "other", {"far": "default"}) as other:
            other.add_pod("head", env={"WHERE": "far away"})
            monkeypatch.setenv("KUBECONFIG", f"{kube.kubeconfig}:{rename(other.kubeconfig, 'far')}")
            assert say("k8s://default/head?context=far", '"$WHERE"') == "far away\n"
            assert (len(other.execs), len(kube.execs)) == (1, 0)
            assert say("k8s://default/head", '"$WHERE"') == "\n"

    def test_a_context_that_does_not_exist_is_access_denied(self) -> None:
        error = failure("k8s://default/head?context=nowhere")
        assert type(error) is AccessDenied and "get-contexts" in str(error)

    def test_a_container_without_sh_says_so(self, tmp_path: Path, pod: Pod) -> None:
        pod.env["PATH"] = str(tmp_path)
        assert "no `sh`" in str(failure("k8s://default/head"))


SIGN_IN = "To sign in, use a web browser to open the page https://microsoft.com/devicelogin and enter the code ABC123."


def log_in_with(kubeconfig: Path, command: str) -> None:
    """Let a kubeconfig name a program that fetches the credentials."""
    config = json.loads(kubeconfig.read_text())
    version = "client.authentication.k8s.io/v1"
    for cluster in config["clusters"]:  # only behind TLS are there credentials
        cluster["cluster"]["server"] = "https://127.0.0.1:1"
    for user in config["users"]:
        user["user"] = {"exec": {"apiVersion": version, "command": command, "interactiveMode": "IfAvailable"}}
    kubeconfig.write_text(json.dumps(config))


def rename(kubeconfig: Path, name: str) -> Path:
    """The same kubeconfig with names that do not clash with those of another."""
    kubeconfig.write_text(kubeconfig.read_text().replace('"loopback"', f'"{name}-cluster"'))
    return kubeconfig


# --- ssh


class TestSsh:
    def test_a_port_where_nobody_listens_is_unreachable(self, sshd: SshServer) -> None:
        error = failure(f"ssh://{sshd.user}@127.0.0.1:{free_port()}")
        assert type(error) is TargetUnreachable and "refused" in str(error)

    def test_a_host_that_does_not_exist_is_unreachable(self, sshd: SshServer) -> None:
        error = failure(f"ssh://{sshd.user}@no-such-host.invalid")
        assert type(error) is TargetUnreachable

    def test_a_key_that_the_host_does_not_know_is_access_denied(self, sshd: SshServer) -> None:
        sshd.make_key("user_key")
        error = failure(sshd.address)
        assert type(error) is AccessDenied and "ssh-add -l" in str(error)

    def test_a_connection_that_is_cut_is_unreachable_until_it_is_back(self, sshd: SshServer) -> None:
        assert say(sshd.address) == "hello\n"
        sshd.stop()
        assert type(failure(sshd.address)) is TargetUnreachable
        sshd.start()
        assert say(sshd.address) == "hello\n"

    def test_a_host_that_hangs_costs_the_timeout_and_answers_later(self, over_ssh: Place) -> None:
        started = time.monotonic()
        with pytest.raises(CommandTimedOut):
            ask(over_ssh.address, plain("sleep 4", limit=4), timeout=1)
        assert time.monotonic() - started < 8
        assert say(over_ssh.address) == "hello\n"

    def test_connections_are_shared_and_private(self, sshd: SshServer, surroundings: Surroundings) -> None:
        for _ in range(3):
            assert say(sshd.address) == "hello\n"
        [folder] = surroundings.sockets.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(list(folder.iterdir())) == 1
        assert (sshd.folder / "log").read_text().count("Accepted publickey") == 1
