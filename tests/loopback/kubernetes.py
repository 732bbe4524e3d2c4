"""A Kubernetes API server on the loopback interface, for the real kubectl to talk to.

Served: what `kubectl get pods`, `kubectl exec`, `kubectl logs`, `kubectl auth can-i` and `kubectl apply
--dry-run=client --validate=false` ask for. That is discovery, pods (one, a list, by label), access reviews, the logs of
containers, and `exec` over a WebSocket as in the Kubernetes remotecommand
protocol (subprotocols v4 and v5.channel.k8s.io: each binary message starts with its channel, 0 stdin, 1 stdout,
2 stderr, 3 the final Status; in v5, channel 255 closes the channel that its second byte names). See
https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets
and k8s.io/apimachinery/pkg/util/remotecommand.

`Pod.start` runs a program as process 1 of a pod, in pid and mount namespaces of its own (util-linux `unshare`): its
output is the container's log, a line each as containerd keeps them, with the time at which its end was read. As the
kubelet does, a log is served from a whole second on, and one that was rotated only from its last file.

A command in a pod is a local process with the pod's root folder as its working directory and home. As with a
container runtime, an exec lasts until the command has exited and every holder of its stdout and stderr has closed
them; when the client leaves, the command only loses its streams; when the pod is removed, its processes are killed.

Not served: SPDY, terminals, field and set selectors, watches, server-side tables, and a request line over 64 KiB
(a real server takes more).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
SUBPROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
CONTINUATION, BINARY, CLOSING, PING, PONG = 0x0, 0x2, 0x8, 0x9, 0xA
CHUNK = 64 * 1024
GOODBYE_SECONDS = 5.0  # how long a client may take to close its side once the status is sent
USER = "loopback"
IMAGE = "loopback/image:1"
NO_PROCESSES = ["unshare", "--pid", "--fork", "--mount-proc"]  # of a container without a training
UID_VARIABLE = "LOOPBACK_POD_UID"  # marks a pod's processes, so that they can be found when the pod goes


def nanoseconds(at: float | None = None) -> str:
    """RFC 3339 with nanoseconds, as container runtimes write it; `at` in epoch seconds, default: now."""
    ns = time.time_ns() if at is None else round(at * 1e9)
    return f"{datetime.fromtimestamp(ns // 10**9, timezone.utc):%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z"


def timestamp() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- pods


@dataclass
class ContainerState:
    """What differs from an ordinary container of a pod in its phase."""

    restart_count: int = 0
    waiting: str = ""  # a reason, e.g. CrashLoopBackOff or ImagePullBackOff
    terminated: str = ""  # the reason why it is down now, e.g. OOMKilled
    last_terminated: str = ""  # the reason why it was down before its last restart
    exit_code: int = 137  # of the termination named above


@dataclass
class Pod:
    name: str
    root: Path
    namespace: str = "default"
    labels: dict[str, str] = field(default_factory=dict)
    phase: str = "Running"
    node: str = "node-1"
    containers: list[str] = field(default_factory=lambda: ["main"])
    states: dict[str, ContainerState] = field(default_factory=dict)  # by container name
    env: dict[str, str] = field(default_factory=dict)
    enter: tuple[str, ...] = ()  # words before each command, such as nsenter: a pod with processes of its own
    reason: str = ""  # status.reason, e.g. Evicted
    message: str = ""
    deletion_timestamp: str = ""
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=timestamp)
    gpus: dict[str, int] = field(default_factory=dict)  # limits of containers
    logs: dict[str, list[str]] = field(default_factory=dict)  # by container: lines with their times
    former_logs: dict[str, list[str]] = field(default_factory=dict)  # of the container before its last restart
    restart_policy: str = "Always"
    main: subprocess.Popen[bytes] | None = None  # its process 1, see `start`
    main_container: str = ""  # the container of that; others have no processes

    def print(self, text: str, container: str = "main", at: float | None = None) -> None:
        """Add lines to a container's log."""
        lines = self.logs.setdefault(container, [])
        lines += [f"{nanoseconds(at)} {line}" for line in text.splitlines(keepends=True)]

    def start(self, argv: list[str], container: str = "main") -> None:
        """Run a program as process 1 of the pod; `enter` then leads to its processes."""
        alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *argv]
        pipe, environment = subprocess.PIPE, self.environment()
        self.main = subprocess.Popen(
            alone, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, cwd=self.root, env=environment
        )
        children = Path(f"/proc/{self.main.pid}/task/{self.main.pid}/children")
        while not (found := children.read_text().split()):
            time.sleep(0.01)
        self.enter = ("nsenter", "-t", found[0], "--pid", "--mount", f"--wdns={self.root}")
        self.main_container = container
        output = self.main.stdout
        assert output

        def collect() -> None:
            for line in output:
                self.print(line.decode("utf-8", "replace"), container)

        threading.Thread(target=collect, daemon=True).start()

    def end(self, phase: str, exit_code: int, reason: str = "", container: str = "main") -> None:
        """Let the pod end: its process 1 with it."""
        self.stop()
        self.phase, self.enter = phase, ()
        self.states[container] = ContainerState(terminated=reason, exit_code=exit_code)

    def restart(self, argv: list[str], reason: str, exit_code: int, container: str = "main") -> None:
        """Let the container end, and another take its place with the same processes."""
        self.stop()
        count = self.states.get(container, ContainerState()).restart_count + 1
        self.states[container] = ContainerState(count, last_terminated=reason, exit_code=exit_code)
        self.former_logs[container], self.logs[container] = self.logs.get(container, []), []
        self.start(argv, container)

    def stop(self) -> None:
        """End its process 1, and wait until all it printed is in the log."""
        if self.main:
            self.main.kill()
            self.main.wait()
            time.sleep(0.1)
            self.main = None

    def environment(self) -> dict[str, str]:
        basic = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.root), "HOSTNAME": self.name}
        return {**basic, **self.env, UID_VARIABLE: self.uid}

    def is_up(self, container: str) -> bool:
        state = self.states.get(container, ContainerState())
        return self.phase == "Running" and not state.waiting and not state.terminated

    def has_labels(self, selector: str) -> bool:
        """Whether an equality selector (a=b,c!=d) matches."""
        terms = [re.split("(!=|==?)", term) for term in selector.split(",") if term]
        if any(len(term) != 3 for term in terms):
            raise Refusal(400, "BadRequest", f"this server only knows equality selectors: {selector}")
        return all((self.labels.get(key) == value) == (operator != "!=") for key, operator, value in terms)

    def to_json(self) -> Json:
        metadata: Json = {"name": self.name, "namespace": self.namespace, "uid": self.uid, "labels": self.labels}
        metadata |= {"creationTimestamp": self.created, "resourceVersion": "1"}
        if self.deletion_timestamp:
            metadata |= {"deletionTimestamp": self.deletion_timestamp, "deletionGracePeriodSeconds": 30}
        containers = [
            {"name": name, "image": IMAGE, "resources": {"limits": {"nvidia.com/gpu": str(self.gpus[name])}}}
            if name in self.gpus
            else {"name": name, "image": IMAGE, "resources": {}}
            for name in self.containers
        ]
        spec = {"nodeName": self.node, "restartPolicy": self.restart_policy, "containers": containers}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": self._status()}

    def _status(self) -> Json:
        ready = all(map(self.is_up, self.containers)) and not self.deletion_timestamp
        conditions = [
            {"type": kind, "status": str(holds), "lastTransitionTime": self.created}
            for kind, holds in {"PodScheduled": bool(self.node), "ContainersReady": ready, "Ready": ready}.items()
        ]
        status: Json = {"phase": self.phase, "startTime": self.created, "conditions": conditions}
        if self.reason != "Evicted":  # an evicted pod reports no containers
            status["containerStatuses"] = [self._container_status(name) for name in self.containers]
        return status | {key: text for key, text in (("reason", self.reason), ("message", self.message)) if text}

    def _container_status(self, name: str) -> Json:
        state = self.states.get(name, ContainerState())
        ended = {"Succeeded": ("Completed", 0), "Failed": ("Error", 1)}.get(self.phase)
        now: Json = {"running": {"startedAt": self.created}}
        if state.waiting or self.phase == "Pending":
            now = {"waiting": {"reason": state.waiting or "ContainerCreating"}}
        elif state.terminated:
            now = self._terminated(state.terminated, state.exit_code)
        elif ended:
            now = self._terminated(*ended)
        last = self._terminated(state.last_terminated, state.exit_code) if state.last_terminated else {}
        status = {"name": name, "image": IMAGE, "containerID": f"containerd://{self.uid}-{name}", "state": now}
        return {**status, "lastState": last, "restartCount": state.restart_count, "ready": self.is_up(name)}

    def _terminated(self, reason: str, exit_code: int) -> Json:
        times = {"startedAt": self.created, "finishedAt": self.created}
        return {"terminated": {"reason": reason, "exitCode": exit_code, **times}}


# --- Status objects


class Refusal(Exception):
    """A request that is answered by an error Status."""

    def __init__(self, code: int, reason: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def to_json(self) -> Json:
        failure = {"status": "Failure", "message": self.message, "reason": self.reason, "code": self.code}
        return {"apiVersion": "v1", "kind": "Status", "metadata": {}, **failure, "details": self.details}


def forbidden(verb: str, resource: str, namespace: str, name: str = "") -> Refusal:
    subject = f'pods "{name}"' if name else resource
    attempt = f'User "{USER}" cannot {verb} resource "{resource}" in API group "" in the namespace "{namespace}"'
    return Refusal(403, "Forbidden", f"{subject} is forbidden: {attempt}", name=name, kind="pods")


def exit_status(code: int) -> Json:
    if code == 0:
        return {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}
    shown = code if code > 0 else 128 - code  # ended by a signal
    message = f"command terminated with non-zero exit code: exit status {shown}"
    causes = [{"reason": "ExitCode", "message": str(shown)}]
    return Refusal(500, "NonZeroExitCode", message, causes=causes).to_json()


def cannot_start(argv: list[str], error: OSError) -> Json:
    problem = "executable file not found in $PATH" if isinstance(error, FileNotFoundError) else str(error.strerror)
    cause = f"OCI runtime exec failed: exec failed: unable to start container process: exec: {json.dumps(argv[0])}"
    return Refusal(500, "InternalError", f"Internal error occurred: {cause}: {problem}: unknown").to_json()


# --- exec


class ExecRecord(NamedTuple):
    namespace: str
    pod: str
    container: str
    argv: list[str]


def unmask(data: bytes, mask: bytes) -> bytes:
    """RFC 6455 section 5.3, as one long number: far quicker than a loop over the bytes."""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")


class WebSocket:
    """The server's side of RFC 6455, after the handshake."""

    def __init__(self, incoming: BinaryIO, connection: socket.socket) -> None:
        self._incoming, self._connection = incoming, connection
        self._sending = threading.Lock()

    def messages(self) -> Iterator[bytes]:
        """Each binary message, until the client closes or is gone. Answers pings."""
        message = b""
        with suppress(OSError, EOFError, ValueError):
            while True:
                final, operation, payload = self._frame()
                if operation == CLOSING:
                    return
                if operation == PING:
                    self._send(PONG, payload)
                elif operation in (BINARY, CONTINUATION):
                    message += payload
                    if final:
                        yield message
                        message = b""

    def send(self, channel: int, payload: bytes) -> None:
        self._send(BINARY, bytes([channel]) + payload)

    def finish(self, status: Json) -> None:
        """Send the final status and close this side; a client that has left misses nothing."""
        with suppress(OSError):
            self.send(STATUS, json.dumps(status).encode())
            self._send(CLOSING, struct.pack("!H", 1000))
            self._connection.shutdown(socket.SHUT_WR)

    def drop(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _send(self, operation: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            header = struct.pack("!BB", 0x80 | operation, size)
        elif size < 65536:
            header = struct.pack("!BBH", 0x80 | operation, 126, size)
        else:
            header = struct.pack("!BBQ", 0x80 | operation, 127, size)
        with self._sending:
            self._connection.sendall(header + payload)

    def _frame(self) -> tuple[bool, int, bytes]:
        first, second = self._exactly(2)
        size = second & 0x7F
        if size >= 126:
            (size,) = struct.unpack(*("!H", self._exactly(2)) if size == 126 else ("!Q", self._exactly(8)))
        mask = self._exactly(4) if second & 0x80 else b""
        return bool(first & 0x80), first & 0x0F, unmask(self._exactly(size), mask)

    def _exactly(self, size: int) -> bytes:
        data = self._incoming.read(size)
        if len(data) < size:
            raise EOFError
        return data


class Execution:
    """One command of a pod with its streams on a WebSocket."""

    def __init__(self, web_socket: WebSocket, pod: Pod, argv: list[str], streams: set[str]) -> None:
        self.web_socket, self.pod, self.argv, self.streams = web_socket, pod, argv, streams
        self.lose_stdout = False
        self.drop_after: int | None = None

    def run(self) -> None:
        try:
            process = self._start()
        except OSError as error:
            self.web_socket.finish(cannot_start(self.argv, error))
            return
        feeder = threading.Thread(target=self._feed, args=(process.stdin,), daemon=True)
        complainer = threading.Thread(target=self._pump, args=(process.stderr, STDERR), daemon=True)
        feeder.start()
        complainer.start()
        self._pump(process.stdout, STDOUT)
        complainer.join()
        code = process.wait()
        self.web_socket.finish(exit_status(0 if self.lose_stdout else code))
        # Unread input would make the kernel reset the connection, and the client lose the status.
        feeder.join(GOODBYE_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        stdin, stdout, stderr = (
            subprocess.PIPE if name in self.streams else subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")
        )
        return subprocess.Popen(
            self.argv if self.argv[:1] == NO_PROCESSES[:1] else [*self.pod.enter, *self.argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self.pod.root,
            env=self.pod.environment(),
            start_new_session=True,
        )

    def _feed(self, stdin: IO[bytes] | None) -> None:
        """Pass stdin on until the client closes it or leaves; read on to the end of the connection."""
        for message in self.web_socket.messages():
            if stdin and message[:1] == bytes([STDIN]):
                try:
                    stdin.write(memoryview(message)[1:])
                    stdin.flush()
                    continue
                except OSError:  # the command reads no more
                    pass
            elif message != bytes([CLOSE, STDIN]):
                continue
            self._close(stdin)
            stdin = None
        self._close(stdin)

    def _pump(self, output: IO[bytes] | None, channel: int) -> None:
        """Pass output on until the command closes it, or until output finds that the client has left."""
        sent = 0
        limit = self.drop_after if channel == STDOUT else None
        try:
            while output and (data := output.read1(CHUNK)):  # type: ignore[attr-defined]
                if channel == STDOUT and self.lose_stdout:
                    continue
                self.web_socket.send(channel, data if limit is None else data[: limit - sent])
                sent += len(data)
                if limit is not None and sent >= limit:
                    self.web_socket.drop()
                    break
        except OSError:
            pass
        self._close(output)

    @staticmethod
    def _close(stream: IO[bytes] | None) -> None:
        if stream:
            with suppress(OSError):
                stream.close()


# --- HTTP


def protobuf_fields(data: bytes) -> dict[int, bytes]:
    """The strings and messages in a protobuf message, up to its first field of another kind."""
    fields: dict[int, bytes] = {}
    numbers = iter(data)

    def varint() -> int:
        value = shift = 0
        for byte in numbers:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return value

    while (tag := varint()) & 7 == 2:
        fields[tag >> 3] = bytes(islice(numbers, varint()))
    return fields


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        self.api = cast("_Server", self.server).api
        url = urlsplit(self.path)
        self.query = parse_qs(url.query, keep_blank_values=True)
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.api.delay_seconds:
            time.sleep(self.api.delay_seconds)
        try:
            for route, method in _ROUTES:
                if found := route.fullmatch(f"{self.command} {url.path}"):
                    method(self, **{key: value for key, value in found.groupdict().items() if value})
                    return
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        except Refusal as refusal:
            self._reply(refusal.to_json(), refusal.code)

    def _reply(self, answer: Json, code: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _static(self) -> None:
        path = urlsplit(self.path).path
        if path not in (discovery := {**_DISCOVERY, **groups_of(self.api.kinds)}):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        self._reply(discovery[path])

    def _version(self) -> None:
        major, minor = self.api.version.lstrip("v").split(".")[:2]
        self._reply({"major": major, "minor": minor, "gitVersion": self.api.version, "platform": "linux/amd64"})

    def _access_review(self) -> None:
        spec = protobuf_fields(protobuf_fields(self.body.removeprefix(b"k8s\0"))[2])[2]  # kubectl sends no JSON here
        asked = protobuf_fields(protobuf_fields(spec)[1])
        verb, resource, subresource = (asked.get(number, b"").decode() for number in (2, 5, 6))
        allowed = f"{verb} {resource}/{subresource}".rstrip("/") not in self.api.forbidden
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
        self._reply({**review, "status": {"allowed": allowed}}, 201)

    def _list_pods(self, namespace: str = "") -> None:
        self._permit("list", "pods", namespace)
        pods = [pod for key, pod in sorted(self.api.pods.items()) if namespace in ("", key[0])]
        chosen = [pod.to_json() for pod in pods if pod.has_labels(self.query.get("labelSelector", [""])[0])]
        self._reply({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": chosen})

    def _list_events(self, namespace: str) -> None:
        self._permit("list", "events", namespace)
        events = [each for each in self.api.events if each["metadata"]["namespace"] == namespace]
        if self.query.get("fieldSelector") == ["type!=Normal"]:
            events = [each for each in events if each["type"] != "Normal"]
        self._reply({"kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": events})

    def _get_pod(self, namespace: str, name: str) -> None:
        self._permit("get", "pods", namespace, name)
        self._reply(self._pod(namespace, name).to_json())

    def _log(self, namespace: str, name: str) -> None:
        self._permit("get", "pods/log", namespace, name)
        pod, asked = self._pod(namespace, name), {key: values[0] for key, values in self.query.items()}
        container = asked.get("container", pod.containers[0])
        if container not in pod.containers:
            raise Refusal(400, "BadRequest", f"container {container} is not valid for pod {name}")
        former = asked.get("previous") == "true"
        lines = (pod.former_logs if former else pod.logs).get(container, [])
        if former and container not in pod.former_logs:
            problem = f'previous terminated container "{container}" in pod "{name}" not found'
            raise Refusal(400, "BadRequest", problem)
        if pod.phase == "Pending":
            problem = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            raise Refusal(400, "BadRequest", problem)
        self.api.log_reads.append(self.query)
        if since := asked.get("sinceTime", ""):
            lines = [line for line in lines if line[:19] >= since[:19]]
        if "tailLines" in asked:
            lines = lines[-int(asked["tailLines"]) :] if int(asked["tailLines"]) else []
        shown = lines if asked.get("timestamps") == "true" else [line.partition(" ")[2] for line in lines]
        text = "".join(shown).encode()
        if "limitBytes" in asked:
            text = text[: int(asked["limitBytes"])]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _exec(self, namespace: str, name: str) -> None:
        pod = self._pod(namespace, name)
        container = self.query.get("container", pod.containers)[0]
        argv = self.query.get("command", [])
        upgrade = self.headers.get("Upgrade", "").lower() == "websocket"
        if upgrade:
            self.api.execs.append(ExecRecord(namespace, name, container, argv))
        self._check_exec(pod, container, argv)
        offered = [name.strip() for name in self.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        spoken = [name for name in SUBPROTOCOLS if name in offered]
        if not upgrade or not spoken:
            raise Refusal(400, "BadRequest", "Upgrade request required: websocket, v5.channel.k8s.io")
        web_socket = self._upgrade(spoken[0])
        if self.api.hang_exec:
            for _ in web_socket.messages():
                pass
            return
        streams = {stream for stream in ("stdin", "stdout", "stderr") if self.query.get(stream) in (["true"], ["1"])}
        is_other = pod.main_container not in ("", container)
        execution = Execution(web_socket, pod, [*NO_PROCESSES, *argv] if is_other else argv, streams)
        execution.drop_after = self.api.drop_exec_after_bytes
        execution.lose_stdout = self.api._take_empty_ok()
        self.api.executions.append(execution)
        try:
            execution.run()
        finally:
            self.api.executions.remove(execution)

    def _check_exec(self, pod: Pod, container: str, argv: list[str]) -> None:
        self._permit("create", "pods/exec", pod.namespace, pod.name)
        if self.api.fail_exec_with:
            code, reason = self.api.fail_exec_with
            if code == 403:
                raise forbidden("create", "pods/exec", pod.namespace, pod.name)
            raise Refusal(code, reason, "error dialing backend: dial tcp 10.0.0.1:10250: i/o timeout")
        if container not in pod.containers:
            raise Refusal(400, "BadRequest", f"container {container} is not valid for pod {pod.name}")
        if not pod.is_up(container):
            problem = f'unable to upgrade connection: container not found ("{container}")'
            raise Refusal(500, "InternalError", f"Internal error occurred: {problem}")
        if not argv:
            raise Refusal(400, "BadRequest", "you must specify at least 1 command for the container")

    def _upgrade(self, subprotocol: str) -> WebSocket:
        self.close_connection = True
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        key = self.headers.get("Sec-WebSocket-Key", "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", subprotocol)
        self.end_headers()
        return WebSocket(cast(BinaryIO, self.rfile), self.connection)

    def _permit(self, verb: str, resource: str, namespace: str, name: str = "") -> None:
        if f"{verb} {resource}" in self.api.forbidden:
            raise forbidden(verb, resource, namespace, name)

    def _pod(self, namespace: str, name: str) -> Pod:
        try:
            return self.api.pods[namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f'pods "{name}" not found', name=name, kind="pods") from None


_PODS = r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods"
_DISCOVERY: dict[str, Json] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "singularName": "pod", "shortNames": ["po"], "namespaced": True, "kind": "Pod",
             "verbs": ["get", "list"]},
            {"name": "pods/exec", "singularName": "", "namespaced": True, "kind": "PodExecOptions",
             "verbs": ["create", "get"]},
            {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]},
            {"name": "events", "singularName": "event", "shortNames": ["ev"], "namespaced": True, "kind": "Event",
             "verbs": ["get", "list"]},
        ],
    },
}  # fmt: skip


def groups_of(kinds: Mapping[str, Mapping[str, str]]) -> dict[str, Json]:
    """The discovery of further kinds, of which there are no objects: the plural of each, by version (apps/v1)."""
    found: dict[str, Json] = {"/apis": {**_DISCOVERY["/apis"], "groups": []}}
    for version, plurals in kinds.items():
        group, _, number = version.rpartition("/")
        path = f"/apis/{version}" if group else f"/api/{version}"
        rows = [
            {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": ["get", "patch"]}
            for kind, plural in plurals.items()
        ]
        there = _DISCOVERY.get(path, {}).get("resources", [])
        found[path] = {"kind": "APIResourceList", "groupVersion": version, "resources": [*there, *rows]}
        if group:
            served = {"groupVersion": version, "version": number}
            found["/apis"]["groups"].append({"name": group, "versions": [served], "preferredVersion": served})
    return found


_ROUTES: list[tuple[re.Pattern[str], Callable[..., None]]] = [
    (re.compile(rf"GET {_PODS}/(?P<name>[^/]+)"), _Handler._get_pod),
    (re.compile(rf"(GET|POST) {_PODS}/(?P<name>[^/]+)/exec"), _Handler._exec),
    (re.compile(rf"GET {_PODS}/(?P<name>[^/]+)/log"), _Handler._log),
    (re.compile(rf"GET ({_PODS}|/api/v1/pods)"), _Handler._list_pods),
    (re.compile(r"GET /api/v1/namespaces/(?P<namespace>[^/]+)/events"), _Handler._list_events),
    (re.compile("GET (/api|/apis|/api/v1|/apis/[^/]+/[^/]+)"), _Handler._static),
    (re.compile("GET /version"), _Handler._version),
    (re.compile("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), _Handler._access_review),
]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, api: KubernetesApi, port: int) -> None:
        self.api = api
        self.connections: set[Any] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer would also look its own name up, which can be slow

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return not self.api.refuse

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that went away is no news
            super().handle_error(request, client_address)

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class KubernetesApi:
    """The server, its pods, and the faults that a test can set at any time.

    `contexts` maps each context of the kubeconfig to its default namespace; the first one is current.
    """

    def __init__(self, folder: Path, contexts: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.contexts = dict(contexts or {"loopback": "default"})
        self.environ = {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(folder / "cache")}
        self.version = "v1.32.4"
        self.port = 0
        self.kinds: Mapping[str, Mapping[str, str]] = {}  # beside pods, see groups_of
        self.pods: dict[tuple[str, str], Pod] = {}  # by namespace and name
        self.events: list[Json] = []  # core/v1, of all namespaces
        self.log_reads: list[dict[str, list[str]]] = []  # what was asked of each log
        self.execs: list[ExecRecord] = []  # every exec asked for, also those that a fault spoiled
        self.forbidden: set[str] = set()  # such as "get pods", "list pods", "create pods/exec"
        self.fail_exec_with: tuple[int, str] | None = None  # HTTP status and reason, e.g. (500, "InternalError")
        self.drop_exec_after_bytes: int | None = None  # cut the connection at that many bytes of stdout
        self.exec_empty_ok = 0  # how many of the next execs report success but lose their stdout
        self.hang_exec = False  # open the streams, then nothing (pings are answered)
        self.refuse = False  # close each new connection at once
        self.delay_seconds = 0.0  # before each answer
        self.executions: list[Execution] = []  # those that run
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def __enter__(self) -> KubernetesApi:  # noqa: PYI034 (Self is not in Python 3.10)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for namespace, name in list(self.pods):
            self.remove_pod(name, namespace)

    def start(self) -> None:
        """Listen; after a stop, on the same port."""
        self._server = _Server(self, self.port)
        self.port = self._server.server_address[1]
        self._write_kubeconfig()
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections and cut those that are open. Commands lose their streams and run on."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server.drop_connections()
            self._server = None

    def end_execs(self) -> None:
        """Close every open stream with exit code 0, as a container runtime does after hours; the commands run on."""
        for execution in list(self.executions):
            execution.web_socket.finish(exit_status(0))

    def add_pod(self, name: str, namespace: str = "default", root: Path | None = None, **details: Any) -> Pod:
        """Add a pod; `details` are those of `Pod`. Its root is by default a new folder."""
        pod = Pod(name, root or self.folder / "pods" / namespace / name, namespace, **details)
        pod.root.mkdir(parents=True, exist_ok=True)
        self.pods[namespace, name] = pod
        return pod

    def remove_pod(self, name: str, namespace: str = "default") -> None:
        """Delete a pod and kill its processes, its detached ones too (where there is a /proc)."""
        pod = self.pods.pop((namespace, name))
        pod.stop()
        mark = f"{UID_VARIABLE}={pod.uid}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)

    def _take_empty_ok(self) -> bool:
        with self._lock:
            taken = self.exec_empty_ok > 0
            self.exec_empty_ok -= taken
            return taken

    def _write_kubeconfig(self) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": next(iter(self.contexts)),
            "clusters": [{"name": "loopback", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": USER, "user": {}}],
            "contexts": [
                {"name": name, "context": {"cluster": "loopback", "user": USER, "namespace": namespace}}
                for name, namespace in self.contexts.items()
            ],
        }
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        self.kubeconfig.write_text(json.dumps(config, indent=2), encoding="utf-8")  # JSON is YAML
