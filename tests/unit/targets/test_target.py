"""Target strings: every documented form, and nothing that a program could take for an option or a shell word."""

from __future__ import annotations

import pytest

from tests.fakes import FakeTransport
from training_monitor.core.errors import SettingsError
from training_monitor.core.results import CommandResult
from training_monitor.targets.kinds.container import DockerTarget, PodmanTarget
from training_monitor.targets.kinds.local import LocalTarget
from training_monitor.targets.kinds.pod import PodTarget, namespace_of_context
from training_monitor.targets.kinds.ssh import SshTarget
from training_monitor.targets.kinds.vast import VastTarget
from training_monitor.targets.target import parse_target

FORMS = {
    "local": LocalTarget(),
    "my-pod": PodTarget("my-pod", namespace="default"),
    "verl-grpo-training-head-pgbtb": PodTarget("verl-grpo-training-head-pgbtb", namespace="default"),
    "web.0": PodTarget("web.0", namespace="default"),
    "7pod": PodTarget("7pod", namespace="default"),
    "k8s://ml/pod": PodTarget("pod", namespace="ml"),
    "k8s://ml/pod/main": PodTarget("pod", namespace="ml", container="main"),
    "k8s://ml/pod?context=prod": PodTarget("pod", namespace="ml", context="prod"),
    "k8s://ml/pod/main?context=prod": PodTarget("pod", namespace="ml", container="main", context="prod"),
    "k8s://ml/pod?context=arn:aws:eks:us-east-1:123456789012:cluster/train": PodTarget(
        "pod", namespace="ml", context="arn:aws:eks:us-east-1:123456789012:cluster/train"
    ),
    "k8s://ml/pod?context=admin@my_cluster.example": PodTarget("pod", "ml", context="admin@my_cluster.example"),
    "ssh://host": SshTarget("host"),
    "ssh://root@host": SshTarget("host", user="root"),
    "ssh://host:2222": SshTarget("host", port=2222),
    "ssh://user@host.example.com:22": SshTarget("host.example.com", user="user", port=22),
    "ssh://user.name@10.0.0.5:40022": SshTarget("10.0.0.5", user="user.name", port=40022),
    "ssh://root@[2001:db8::1]:22": SshTarget("2001:db8::1", user="root", port=22),
    "docker://train": DockerTarget("train"),
    "docker://": DockerTarget(""),
    "docker://me@gpu1:2222/0f1e2d3c4b5a": DockerTarget("0f1e2d3c4b5a", SshTarget("gpu1", "me", 2222)),
    "podman://train_2.x": PodmanTarget("train_2.x"),
    "podman://gpu1/": PodmanTarget("", SshTarget("gpu1")),
    "vast://12345": VastTarget("12345"),
}


def test_every_documented_form_is_read_and_shown_as_it_was_given() -> None:
    for text, expected in FORMS.items():
        target = parse_target(text)
        assert target == expected == parse_target(str(target))
        assert "://" not in text or str(target) == text
    for context in ["a&b", "a+b", "a#b", "a%20b", "a?b", "100%"]:
        target = PodTarget("pod", namespace="ml", context=context)
        assert parse_target(str(target)) == target


def test_a_bare_name_is_a_pod_in_the_callers_namespace_unless_it_names_one() -> None:
    assert str(parse_target("my-pod", namespace="ml")) == "k8s://ml/my-pod"
    assert parse_target("k8s://ml/pod", namespace="other") == PodTarget("pod", "ml")
    target = SshTarget("host")
    assert parse_target(target, namespace="ml") is target
    assert parse_target("ssh://GPU-Box").name == "GPU-Box"


HOSTILE = """
    -pod --kubeconfig=x pod;rm pod' $(pod) `pod` pod/ pod/main Pod pod_1 k8s:// k8s://a k8s://a/ k8s:///pod
    k8s://a/b/c/d k8s://a//c k8s://-a/pod k8s://a/-pod k8s://a/pod/-c k8s://a/pod?context=-x
    k8s://a/pod?context=--kubeconfig%3Dx k8s://a/pod?context= k8s://a/pod?contxt=x k8s://a/pod?context=a&context=b
    k8s://a/pod#main k8s://user@a/pod ssh:// ssh://-oProxyCommand=x ssh://-l@host ssh://root@-host
    ssh://user:password@host ssh://user:@host ssh://host:0 ssh://host:65536 ssh://host:-1 ssh://host:ssh ssh://host:
    ssh://host/path ssh://host?x=1 ssh://host#x ssh://ho'st ssh://ho;st ssh://us'er@host ssh://@host ssh://[::1
    vast:// vast://abc vast://-5 vast://12345/x vast://12345?x http://host ftp://host ://host local://
""".split()
HOSTILE += ["", " ", "a pod", " pod", "pod ", "pod\n", "pod\nrm", 'pod"', "pöd", "po\x00d", "a" * 300, "k8s://a/po d"]
HOSTILE += ["k8s://a/pod?context=a b", "ssh://host:２２", "ssh://ho st", "ssh://ho\nst", "ssh://ho\tst", "ssh://host\n"]
HOSTILE += ['ssh://ho"st', "ssh://us er@host", "vast://1 2", "vast://12\n34", "vast://１２", "vast://٣"]


def test_anything_else_is_refused() -> None:
    for text in HOSTILE:
        with pytest.raises(SettingsError) as caught:
            parse_target(text)
        assert caught.value.key == "target" and "k8s://namespace/pod" in str(caught.value)


def test_who_names_a_path_as_a_target_learns_how_to_name_a_file_of_this_machine() -> None:
    with pytest.raises(SettingsError, match="or vast://ID; for a file on this machine, use the target local"):
        parse_target("./train.log")


def test_a_hostile_namespace_is_refused_and_no_password_is_shown() -> None:
    for namespace in ["", "-n", "a b", "A", "a/b", "a\n"]:
        with pytest.raises(SettingsError):
            parse_target("pod", namespace=namespace)
    with pytest.raises(SettingsError) as caught:
        parse_target("ssh://user:hunter2@host")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "exit_code", "expected"), [("ml\n", 0, "ml"), ("ml", 1, "default"), ("", 0, "default")]
)
def test_a_pod_without_namespace_is_in_that_of_the_context(said: str, exit_code: int, expected: str) -> None:
    transport = FakeTransport(lambda script: ("", 0))
    transport.register(("kubectl", "config", "view"), lambda words, _: CommandResult(words, exit_code, said, "", 0.0))
    assert namespace_of_context(transport) == expected


def test_kubernetes_is_asked_about_a_pod_in_which_nothing_can_be_run() -> None:
    pod = parse_target("k8s://default/trainer")
    for said, may_stand in [
        ('error: unable to upgrade connection: container not found ("main")', True),
        ("error: unable to upgrade connection: pod does not exist", True),
        ('Error from server (BadRequest): container "main" in pod "w" is waiting to start: PodInitializing', True),
        ("error: unable to upgrade connection: Forbidden (user=apiserver, verb=create, resource=nodes)", False),
        ("The connection to the server 127.0.0.1:6443 was refused", False),
    ]:
        assert pod.may_stand(said) is may_stand, said


def test_a_job_without_pods_may_be_suspended_whatever_kinds_the_cluster_lacks() -> None:
    said = {"jobs.batch": "llm true", "rayjobs.ray.io": "llm false", "tfjobs.kubeflow.org": "llm true\nllm true"}
    said |= {"jaxjobs.kubeflow.org": "llm-x true", "mpijobs.kubeflow.org": "llm \n"}
    transport = FakeTransport(lambda script: ("", 0))

    def get(words: tuple[str, ...], _: str | None) -> CommandResult:
        lacks = "" if words[2] in said else "error: the server doesn't have a resource type"
        return CommandResult(words, int(bool(lacks)), said.get(words[2], ""), lacks, 0.0)

    transport.register(("kubectl", "get"), get)
    for pod in ("llm", "llm-worker-12", "llm-launcher-x7k2p", "llm-x7k2p", "llm-0-x7k2p", "llm-head-x7k2p"):
        told = parse_target(f"k8s://ml/{pod}").explain_no_pods(transport)
        assert [each.partition(" is suspended")[0] for each in told] == ["job llm", "tfjob llm"], pod
    [told] = parse_target("k8s://ml/llm-x").explain_no_pods(transport)
    assert told == "jaxjob llm-x is suspended, and has no pods until it is resumed, or admitted by its queue"
    assert parse_target("ssh://host").explain_no_pods(transport) == ()
