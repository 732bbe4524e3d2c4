"""A pod: a bare name, or `k8s://namespace/pod[/container][?context=C]`; what Kubernetes says of those beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from training_monitor.core.errors import ParseError, TrainingMonitorError
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult, PodState
from training_monitor.targets.pods import find_replaced, parse_pods, standing_of
from training_monitor.targets.target import RESOLVE_SECONDS, Target
from training_monitor.targets.transport import KubectlTransport, LocalTransport, Transport, explain_failure

_NAME = regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CONTEXT = regex(r"[A-Za-z0-9_][^\s\x00-\x1f\x7f]*")
_SECONDS = 20.0
# kubectl asks for each name by itself, after the first 10 (Burst of client-go's rest.Config) no more than 5 a second.
_MOST_NAMES = 10
_OWN_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
OUTPUT_BYTES = 4 * 1024 * 1024  # of a container's log in one answer
_OF_RAY = ("ray.io/cluster", "ray.io/node-type")
# Labels that the pods of one training share, the widest first: the pods of a JobSet belong to several Jobs, and the
# launcher of an MPIJob to a Job of its own.
_OF_ONE_TRAINING = (
    "ray.io/cluster",
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
    "app.kubernetes.io/instance",
)
# Kinds of which an object may be suspended (in its spec, or its runPolicy), and then has no pods.
_MAY_BE_SUSPENDED = (
    "jobs.batch",
    "rayjobs.ray.io",
    "rayclusters.ray.io",
    "jobsets.jobset.x-k8s.io",
    "trainjobs.trainer.kubeflow.org",
    *(f"{each}jobs.kubeflow.org" for each in ("pytorch", "tf", "jax", "paddle", "xgboost", "mpi")),
)
_SUSPENDED = 'jsonpath={range .items[*]}{.metadata.name} {.spec.suspend}{.spec.runPolicy.suspend}{"\\n"}{end}'
_WARNINGS = ("events", "--field-selector", "type!=Normal")
_EVENTS = (
    r'jsonpath={range .items[*]}{.involvedObject.kind}{"\t"}{.involvedObject.name}{"\t"}{.reason}{"\t"}{.message}{"\n"}'
    "{end}"
)
_MOST_TOLD = 5
_OF_POD = regex(  # what a pod's name has behind that of its job: a replica of Kubeflow, an index, what is drawn by lot
    r"(?:-(?:launcher|head|(?:master|worker|chief|ps|evaluator)-\d+|\d+))?(?:-[a-z0-9]{5})?$"
)
_MAY_HAVE_ENDED = regex(
    r"container not found|CONTAINER_EXITED|cannot exec in a stopped container|does not have a host assigned"
    r"|no running task found|is not (?:created or )?running|pod does not exist|is waiting to start: "
)
_MISSING = regex(r"\(NotFound\): pods \"([^\"]+)\" not found")
_OF_ONE_POD = regex(r"hash|revision|pod-name|pod-index|completion-index|controller-uid|replica-index|restart-attempt")


def namespace_of_context(transport: Transport | None = None) -> str:
    """Return the namespace of kubectl's current context; inside a pod without one, that of the pod; else `default`."""
    argv = ["kubectl", "config", "view", "--minify", "-o", "jsonpath={..namespace}"]
    with suppress(TrainingMonitorError):
        found = (transport or LocalTransport()).run(argv, timeout=_SECONDS)
        if found.exit_code == 0 and _NAME.fullmatch(found.stdout.strip()):
            return found.stdout.strip()
    with suppress(OSError):
        with open(_OWN_NAMESPACE, encoding="utf-8", errors="replace") as file:
            if _NAME.fullmatch(name := file.read(300).strip()):
                return name
    return "default"


@dataclass(frozen=True, slots=True)
class PodTarget(Target):
    """A pod, in a context of kubectl or its current one, and one of its containers or its default one."""

    namespace: str = "default"
    container: str | None = None
    context: str | None = None
    listed: PodState | None = field(default=None, compare=False)  # what a listing said of it
    is_settled: bool = field(default=False, compare=False)  # the default container, where others could be meant

    has_rsync: ClassVar[bool] = False
    is_machine: ClassVar[bool] = False
    output: ClassVar[str] = "container:"

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> PodTarget | None:
        from urllib.parse import unquote

        path, mark, query = (text, "", "") if namespace is not None else text.partition("?")
        names = path.split("/") if namespace is None else [namespace, text]
        if len(names) not in (2, 3) or (mark and not re.fullmatch(r"context=[^&#]+", query)):
            return None
        context = unquote(query.removeprefix("context=")) if query else None
        if not all(map(_NAME.fullmatch, names)) or not (context is None or _CONTEXT.fullmatch(context)):
            return None
        return cls(names[1], names[0], names[2] if len(names) > 2 else None, context)

    def __str__(self) -> str:
        from urllib.parse import quote

        container = f"/{self.container}" if self.container else ""
        context = f"?context={quote(self.context, safe='/:@')}" if self.context else ""
        return f"k8s://{self.namespace}/{self.name}{container}{context}"

    @property
    def called(self) -> str:
        return f"pod {self.name}"

    @property
    def host(self) -> object:
        return PodTarget, self.context, self.namespace, self.name

    @property
    def cluster(self) -> object:
        return self.context, self.namespace

    def connect(self, transport: Transport | None) -> Transport:
        inner = transport or LocalTransport()
        return KubectlTransport(inner, self.namespace, self.name, self.container, self.context)

    # ------------------------------------------------------------ what Kubernetes says

    def beside(self, pod: str) -> PodTarget:
        return self if pod == self.name else replace(self, name=pod, container=None, listed=None)

    def resolve(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> PodTarget:
        """Choose its container, by one `kubectl get pod`; where that cannot be asked, what is asked next says why."""
        if self.container or self.listed:
            return self
        try:
            pods = self.list_pods(self.name, transport=transport, timeout=min(_SECONDS, timeout) / 2)
        except TrainingMonitorError:
            return self
        return self.as_listed(pods[0]) if pods else self

    def as_listed(self, pod: PodState) -> PodTarget:
        return replace(self, container=self.container or pod.main_container, listed=pod)

    @property
    def may_be(self) -> tuple[PodTarget, ...]:
        names = self.listed.containers if self.listed else ()
        if self.container or self.is_settled or len(names) < 2:
            return ()
        return replace(self, is_settled=True), *(replace(self, container=each) for each in names)

    @property
    def others(self) -> tuple[str, ...]:
        names = self.listed.containers if self.listed else ()
        return tuple(str(replace(self, container=each)) for each in names if each != self.container and len(names) > 1)

    def list_pods(
        self, *names: str, selector: str | None = None, transport: Transport | None = None, timeout: float = _SECONDS
    ) -> tuple[PodState, ...]:
        """Return the named pods beside it, without missing ones, or those of its namespace that match a selector."""
        if len(names) > _MOST_NAMES:
            from training_monitor.targets.asking import side_by_side

            some = [names[first : first + _MOST_NAMES] for first in range(0, len(names), _MOST_NAMES)]
            found = list[PodState]()
            list_some = partial(self.list_pods, transport=transport, timeout=timeout)
            for part in side_by_side([partial(list_some, *each) for each in some]):
                if isinstance(part, TrainingMonitorError):
                    raise part
                found += part
            return tuple(found)
        chosen = [*names, *(["-l", selector] if selector else [])]
        result = self._get("pods", *chosen, transport=transport, timeout=timeout)
        missing = set(_MISSING.findall(result.stderr)) & set(names)
        if result.exit_code != 0 and not missing:
            raise explain_failure(result, f"namespace {self.namespace}")
        if names and missing == set(names) and not result.stdout.strip():
            return ()
        try:
            pods = parse_pods(result.stdout)
        except ParseError as error:
            raise explain_failure(result, f"namespace {self.namespace}") from error
        if set(names) - missing - {pod.name for pod in pods}:  # of which nothing is said, they are not known to be gone
            raise explain_failure(replace(result, stdout=""), f"namespace {self.namespace}")
        return pods

    def find_pods_of_training(self, transport: Transport | None, timeout: float = 2 * _SECONDS) -> tuple[PodState, ...]:
        """Return all pods of its training, by the labels of KubeRay, JobSet, Kubeflow, Job and the like.

        Returns:
            Only the pod itself if it has no such label; an empty tuple if it is gone. Other pods that have failed and
            been replaced are left out.
        """
        own = (self.listed,) if self.listed else self.list_pods(self.name, transport=transport, timeout=timeout / 2)
        labels = own[0].labels if own else {}
        key = next((key for key in _OF_ONE_TRAINING if labels.get(key)), None)
        if key is None:
            return own
        pods = self.list_pods(selector=f"{key}={labels[key]}", transport=transport, timeout=timeout / 2)
        replaced = find_replaced(pods)
        return tuple(pod for pod in pods if pod.name not in replaced or pod.name == self.name)

    def explain_no_pods(self, transport: Transport | None = None) -> tuple[str, ...]:
        from training_monitor.targets.asking import side_by_side

        names = (self.name, _OF_POD.sub("", self.name, count=1) or self.name)  # of two kubectl makes a list
        get = partial(self._get, transport=transport, timeout=_SECONDS)
        calls = [partial(get, kind, *names, "--ignore-not-found", form=_SUSPENDED) for kind in _MAY_BE_SUSPENDED]
        calls.append(partial(get, *_WARNINGS, form=_EVENTS))
        *suspended, events = (
            answer.stdout.splitlines() if isinstance(answer, CommandResult) else [] for answer in side_by_side(calls)
        )
        told = [
            f"{kind.partition('.')[0].removesuffix('s')} {name} is suspended, and has no pods until it is resumed, or "
            "admitted by its queue"
            for kind, lines in zip(_MAY_BE_SUSPENDED, suspended, strict=True)
            for name in dict.fromkeys(names)
            if [name, "true"] in map(str.split, lines)
        ]
        for kind, name, reason, message in (line.split("\t", 3) for line in events if line.count("\t") >= 3):
            if kind != "Pod" and name in names:
                told.append(f"{kind.lower()} {name}: {reason}: {message}")
        return tuple(dict.fromkeys(told))[:_MOST_TOLD]

    def find_replacement(
        self, labels: Mapping[str, str], transport: Transport | None, ended_at: float | None = None
    ) -> PodTarget | None:
        """Return the pod that replaced it: same Ray cluster and node type, else same labels and name prefix.

        Args:
            ended_at: when it ended. Its replacement was created then or later; other workers of its Job were before.

        Returns:
            None if there is none yet, or more than one candidate.
        """
        ray = {key: value for key, value in labels.items() if key in _OF_RAY}
        wanted = ray or {key: value for key, value in labels.items() if not _OF_ONE_POD.search(key)}
        if not wanted:
            return None
        prefix = re.sub(r"-[a-z0-9]{4,10}$", "-", self.name)
        made_at = self.listed.created_at if self.listed else None
        after = ended_at or (made_at and made_at + 1.0)
        try:
            pods = self.list_pods(
                selector=",".join(f"{key}={value}" for key, value in wanted.items()), transport=transport
            )
        except TrainingMonitorError:
            return None
        running = [
            pod
            for pod in pods
            if pod.phase == "Running"
            and not pod.deleting
            and (ray or (prefix != self.name and pod.name.startswith(prefix)))
            and (after is None or pod.created_at is None or pod.created_at >= after)
        ]
        if len(running) != 1:
            return None
        chosen = self.container if self.container != (self.listed and self.listed.main_container) else None
        return replace(self, name=running[0].name, container=chosen, listed=None, is_settled=False)

    def read_output(self, transport: Transport | None, *, since: str = "", lines: int = 0, former: bool = False) -> str:
        """Return its container's log with times, by `kubectl logs`; of `since` the API keeps whole seconds only."""
        words = ["logs", "-n", self.namespace, self.name, "--timestamps"]
        words += ["-c", self.container] if self.container else []
        words += ["--previous"] if former else []
        words += [f"--since-time={since}"] if since else []
        words += [f"--tail={lines}"] if lines else [f"--limit-bytes={OUTPUT_BYTES}"]
        result = self._kubectl(*words, transport=transport, timeout=_SECONDS)
        if result.exit_code != 0:
            raise explain_failure(result, str(self))
        return result.stdout

    def may_stand(self, said: str) -> bool:
        return _MAY_HAVE_ENDED.search(said) is not None

    def read_standing(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> PodState | None:
        for pod in self.list_pods(self.name, transport=transport, timeout=min(_SECONDS, timeout)):
            return standing_of(pod, self.container or pod.main_container)
        return None

    def get_warnings(self, transport: Transport | None, timeout: float) -> str:
        result = self._get(*_WARNINGS, transport=transport, timeout=timeout)
        if result.exit_code != 0:
            raise explain_failure(result, f"namespace {self.namespace}")
        return result.stdout

    def _get(
        self, kind: str, *words: str, transport: Transport | None, timeout: float, form: str = "json"
    ) -> CommandResult:
        """Run `kubectl get KIND WORDS -o FORM` in its namespace. Raises CommandError if it could not be run."""
        words = (kind, "-n", self.namespace, *words, "-o", form)
        return self._kubectl("get", *words, transport=transport, timeout=timeout)

    def _kubectl(self, *words: str, transport: Transport | None, timeout: float) -> CommandResult:
        at = ["--context", self.context] if self.context else []
        return (transport or LocalTransport()).run(["kubectl", *at, *words], timeout=timeout)
