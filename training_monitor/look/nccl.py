"""Find out which network NCCL uses: from its log at NCCL_DEBUG=INFO, and from EFA's own counters.

The newest initialisation in text order counts. `Using network AWS Libfabric` alone does not prove EFA, since the name
is the same if libfabric picked tcp or cxi; the provider line decides, or a channel via `NET/AWS Libfabric`. Missing
lines mean unknown, never socket.

Wordings read from every tag: aws-ofi-nccl v0.9 (`Selected Provider is efa`), v1.6 (`... (found N nics)`), v1.14 to
v1.21 (`Selected provider is efa, fabric is F (found N nics)`); NCCL 2.3 (`Using internal Network Socket`), 2.4 to 2.30
(`NET/IB : Using`, `NET/Socket : Using`), 2.6 to 2.30 (`Using network NAME`), channels in four layouts.

Counters: Linux drivers/infiniband/hw/efa/efa_verbs.c, /sys/class/infiniband/*/ports/*/hw_counters. The presence of a
device proves nothing; a moving counter does, and so does NCCL's provider line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from training_monitor.core.errors import ParseError
from training_monitor.core.models import Answer, NcclTransport, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.core.reports import EfaClusterReport, EfaReport, NodeEfaReport, report_of
from training_monitor.core.units import plural
from training_monitor.logs.text import log_pieces
from training_monitor.targets.asking import ask_many
from training_monitor.targets.scripts import format_call
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport

EVIDENCE_LENGTH = 200

_PLUGIN = regex(r"NET/OFI (?:Using|Initializing) aws-ofi-nccl\s+(\S+)", re.IGNORECASE)
_PROVIDER = regex(r"Selected provider is ([^\s,(]+)(?:[^(]{0,200}\(found (\d{1,6}) nics\))?", re.IGNORECASE)
_NO_PROVIDER = regex(
    r"NET/OFI.{0,80}(?:could ?n[o']t find any optimal provider|could not find any optimal provider"
    r"|no eligible providers were found|unable to find a protocol that worked)"
    r"|aws-ofi-nccl initialization failed",
    re.IGNORECASE,
)
_NO_PLUGIN = regex(r"NET/Plugin ?: ?(?:No plugin found|Could not find:?) ?\(?\S{0,200}libnccl-net", re.IGNORECASE)
_NETWORK = regex(r"(?:Using network|Using internal Network|Assigned NET plugin) (.+)$")
_CHANNEL = regex(r"\[send\] via NET/(.{1,60}?)/\d+((?:/\w+)*)")
_OLD_CHANNEL = regex(r"(?:Channel|Ring) \d.{0,80} via NET/(.{1,60}?)/\d+((?:/\w+)*)")
_DEVICES = regex(r"NET/(\w{1,40}) ?: Using (\[\d+\].*)$")
_RDMA_DEVICE = regex(r"\]\w{1,40}:\d{1,4}/(?:IB|RoCE)\b")
_DEVICE = regex(r"\[\d+\]\S")
_PROCESS = regex(r"([\w.\-]{1,100}:\d{1,10}):\d{1,10} \[\d{1,4}\]")
_GDR = regex(r"GPU Direct RDMA Enabled for")
_MOST_LOGS, _MOST_BYTES = 32, 120_000  # logs to read, and bytes of each: one answer must hold them


@dataclass
class _Initialisation:
    """The facts from the lines of one initialisation; a line that starts another one begins a new object."""

    provider: str | None = None
    plugin_version: str | None = None
    nics: int | None = None
    network: str | None = None
    channel: str | None = None
    gpudirect: bool | None = None
    failed: bool = False
    no_provider: bool = False  # the plugin is there but found no provider
    devices: str | None = None
    rdma: str | None = None  # the network, by any name, whose devices are InfiniBand or RoCE
    processes: set[str] = field(default_factory=set)
    evidence: str = ""
    rank: int = 0  # how decisive the evidence line is

    def keep(self, line: str, rank: int) -> None:
        if rank >= self.rank:
            self.evidence, self.rank = line.strip()[:EVIDENCE_LENGTH], rank


def parse_nccl_transport(text: str) -> NcclTransport:
    """Find the transport that NCCL uses, from its most recent initialization in a log. Never raises.

    Args:
        text: log text of one or more ranks; lines that do not contain NCCL are skipped.

    Returns:
        An NcclTransport. `transport` is efa, socket, ib, fastsocket, fallback (the plugin exists but found no provider,
        or NCCL did not find the plugin and did not log its network) or unknown. The other fields are the AWS plugin's
        `provider` and version, the number of network interfaces, whether GPUDirect RDMA is enabled (None if not
        logged), and the decisive line as `evidence`, at most 200 characters.
    """
    state = _Initialisation()
    for line in _nccl_lines(text):
        if _starts_again(line, state):
            state = _Initialisation()
        _read(line, state)
    return NcclTransport(
        transport=_transport(state),
        provider=state.provider,
        plugin_version=state.plugin_version,
        nics=state.nics,
        gpudirect_rdma=state.gpudirect,
        evidence=state.evidence or None,
    )


def _nccl_lines(text: str) -> Iterator[str]:
    for piece in log_pieces(text):
        if any(mark in piece for mark in ("NET/", "etwork", "NCCL version", "GPU Direct RDMA", "aws-ofi-nccl")):
            yield piece


def _starts_again(line: str, state: _Initialisation) -> bool:
    """Whether a line begins another initialisation: a process searches for the plugin before it reports a result.

    Ranks share a log, so the first lines of another process belong to the same initialisation.
    """
    if not (state.network or state.channel or state.failed):
        return False
    if "NCCL version" in line:
        return True
    opens = _PLUGIN.search(line) or _PROVIDER.search(line)
    if not state.failed:
        opens = opens or _NO_PLUGIN.search(line) or _NO_PROVIDER.search(line) or _DEVICES.search(line)
    return bool(opens) and _process(line) in state.processes


def _process(line: str) -> str:
    found = _PROCESS.search(line)
    return found[1] if found else ""


def _read(line: str, state: _Initialisation) -> None:
    """Take the facts of one line; at most one rule applies."""
    state.processes.add(_process(line))
    plugin, provider, network = _PLUGIN.search(line), _PROVIDER.search(line), _NETWORK.search(line)
    channel, devices = _CHANNEL.search(line) or _OLD_CHANNEL.search(line), _DEVICES.search(line)
    if plugin:
        state.plugin_version = plugin[1]
    elif provider:
        state.provider, state.failed, state.no_provider = provider[1].lower(), False, False
        state.nics = int(provider[2]) if provider[2] else None
        state.keep(line, 5)
    elif _NO_PROVIDER.search(line):
        state.failed = state.no_provider = True
        state.keep(line, 3)
    elif _NO_PLUGIN.search(line):
        state.failed = True
        state.keep(line, 1)
    elif network:
        state.network, state.channel = network[1].partition(" to comm")[0].strip(), None
        if _named(state.network) not in ("libfabric", "unknown"):
            state.provider, state.rank = None, 0
        state.keep(line, 4)
    elif channel:
        state.channel, state.gpudirect = channel[1], "GDRDMA" in channel[2]
        state.keep(line, 4)
    elif devices:
        state.devices = devices[1]
        state.rdma = devices[1] if _RDMA_DEVICE.search(devices[2]) else state.rdma
        state.nics = len(_DEVICE.findall(devices[2]))
        state.keep(line, 2)
    elif _GDR.search(line):
        state.gpudirect = True


def _transport(state: _Initialisation) -> str:
    """Return the transport, by a channel in use, the provider, the chosen network, a failure, or the devices found."""
    named = _named(state.channel or state.network or "")
    if named == "libfabric":
        if state.provider:
            return _of_provider(state.provider)
        return "efa" if state.channel else "unknown"
    if named != "unknown":
        return "fallback" if named == "socket" and state.no_provider else named
    if state.rdma and (state.channel or state.network) == state.rdma:
        return "ib"
    if state.provider:
        return _of_provider(state.provider)
    if state.no_provider or (state.failed and state.devices is None):
        return "fallback"
    return _named(state.devices or "")


def _named(network: str) -> str:
    name = network.strip().lower()
    if "libfabric" in name or name == "ofi":
        return "libfabric"
    if name.startswith("fastsocket"):
        return "fastsocket"
    if name.startswith("socket"):
        return "socket"
    return "ib" if name.startswith("ib") else "unknown"


def _of_provider(provider: str) -> str:
    """Return the transport behind a libfabric provider: `efa`, `fallback` for plain TCP, or unknown."""
    if provider.startswith("efa"):
        return "efa"
    return "fallback" if provider.startswith(("tcp", "sockets", "udp")) else "unknown"


@dataclass(frozen=True, slots=True)
class EfaReading:
    """`devices` EFA ports, bytes moved in one second, and NCCL's log; `unread` counts older logs that were not read."""

    devices: int
    bytes_moved: int
    transport: NcclTransport
    channels: int
    unread: int = 0


def efa_question(limit: float = 15.0) -> Question[EfaReading]:
    """Ask for the EFA counters and the NCCL lines of the newest Ray worker and driver logs."""
    script = format_call("efa", "show", most_logs=_MOST_LOGS, most_bytes=_MOST_BYTES)

    def parse(reply: Reply) -> EfaReading:
        head, _, logs = reply.output.partition("\n")
        found = re.fullmatch(r"efa (\d+) (-?\d+)(?: (\d+))?", head)
        if not found:
            raise ParseError("no counters in the reply", source="efa", text=reply.output)
        return EfaReading(
            int(found.group(1)),
            int(found.group(2)),
            parse_nccl_transport(logs),
            len(re.findall(r"\[send\] via NET/", logs)),
            int(found.group(3) or 0),
        )

    return Question("efa", script, parse, limit)


def check_efa_utilization(
    head_pod: str | Target,
    namespace: str = "default",
    *,
    all_pods: Sequence[str | Target] = (),
    timeout: float = 15.0,
    transport: Transport | None = None,
) -> EfaClusterReport:
    """Check whether NCCL uses EFA on a target and on all given pods.

    If a target cannot be queried, no exception is raised.

    Returns:
        A report. `efa_active` is True (the EFA counters increase, or NCCL selected the efa provider), False (NCCL logs
        another transport on at least one pod) or None (no evidence; without NCCL_DEBUG=INFO there are no log lines).
        `transport` is ofi | socket | ib | unknown, or mixed if the pods differ. A single pod on sockets slows down all
        pods. `per_node` has the report of each pod.
    """
    head = parse_target(head_pod, namespace=namespace)
    others = [parse_target(pod, namespace=namespace) for pod in all_pods]
    targets = list(dict.fromkeys([head, *others]))
    answers = ask_many(targets, efa_question(limit=timeout), transport=transport)
    nodes = [
        NodeEfaReport(pod=target.name or str(target), **_report(answer))
        for target, [answer] in zip(targets, answers, strict=True)
    ]
    return combine_efa_reports(nodes)


def _report(answer: Answer[EfaReading]) -> EfaReport:
    if answer.value is not None:
        return format_efa_report(answer.value)
    said = answer.error or "no answer"
    return report_of(EfaReport, None, transport="unknown", details=said, error=said)


def combine_efa_reports(nodes: list[NodeEfaReport]) -> EfaClusterReport:
    """Combine the reports of many pods; where they do not differ, use the first one's."""
    names = sorted({node["transport"] for node in nodes} - {"unknown"})
    active = [node["efa_active"] for node in nodes]
    first = next((node for node in nodes if node["transport"] != "unknown"), nodes[0])
    details = first["details"]
    if len(names) > 1:
        pods = {name: ", ".join(node["pod"] for node in nodes if node["transport"] == name) for name in names}
        details = "; ".join(f"{name} on {pods[name]}" for name in names)
    return report_of(
        EfaClusterReport,
        first,
        efa_active=False if False in active else True if True in active else None,
        transport="mixed" if len(names) > 1 else first["transport"],
        details=details,
        error=next((node["error"] for node in nodes if node["error"]), None),
        per_node=nodes,
    )


_NAMES = {"efa": "ofi", "fallback": "socket", "fastsocket": "socket"}


def format_efa_report(reading: EfaReading) -> EfaReport:
    """Format an EFA reading as the documented dict."""
    said = reading.transport
    # storage over EFA moves them too: NCCL's log comes first
    moving = reading.bytes_moved > 0 and said.transport == "unknown"
    active = True if moving or said.transport == "efa" else None if said.transport == "unknown" else False
    details = said.evidence or "no NCCL transport lines in the logs (set NCCL_DEBUG=INFO)"
    if reading.devices:
        details += f"; {reading.devices} EFA ports moved {reading.bytes_moved} bytes in 1 s"
    if reading.unread:
        details += f"; {plural(reading.unread, 'older log')} not read"
    name = "ofi" if moving else _NAMES.get(said.transport, said.transport)
    told = {"efa_active": active, "transport": name, "details": details, "efa_devices": reading.devices}
    return report_of(EfaReport, None, said, reading, told)
