"""The network NCCL says it talks over, out of log text at NCCL_DEBUG=INFO.

What it answers: the newest initialisation in text order. What it refuses: `Using network AWS Libfabric` alone does
not prove EFA, the name is the same when libfabric picked tcp or cxi; the provider line decides, or a channel via
`NET/AWS Libfabric`. Absence of lines is unknown, never socket.

Wordings read from every tag: aws-ofi-nccl v0.9 (`Selected Provider is efa`), v1.6 (`... (found N nics)`), v1.14 to
v1.21 (`Selected provider is efa, fabric is F (found N nics)`); NCCL 2.3 (`Using internal Network Socket`), 2.4 to 2.30
(`NET/IB : Using`, `NET/Socket : Using`), 2.6 to 2.30 (`Using network NAME`), channels in four layouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from training_monitor.models import NcclTransport
from training_monitor.parse.log_text import log_pieces

EVIDENCE_LENGTH = 200

_PLUGIN = re.compile(r"NET/OFI (?:Using|Initializing) aws-ofi-nccl\s+(\S+)", re.IGNORECASE)
_PROVIDER = re.compile(r"Selected provider is ([^\s,(]+)(?:[^(]{0,200}\(found (\d{1,6}) nics\))?", re.IGNORECASE)
_NO_PROVIDER = re.compile(
    r"NET/OFI.{0,80}(?:could ?n[o']t find any optimal provider|could not find any optimal provider"
    r"|no eligible providers were found|unable to find a protocol that worked)"
    r"|aws-ofi-nccl initialization failed",
    re.IGNORECASE,
)
_NO_PLUGIN = re.compile(r"NET/Plugin ?: ?(?:No plugin found|Could not find:?) ?\(?\S{0,200}libnccl-net", re.IGNORECASE)
_NETWORK = re.compile(r"(?:Using network|Using internal Network|Assigned NET plugin) (.+)$")
_CHANNEL = re.compile(r"\[send\] via NET/(.{1,60}?)/\d+((?:/\w+)*)")
_OLD_CHANNEL = re.compile(r"(?:Channel|Ring) \d.{0,80} via NET/(.{1,60}?)/\d+((?:/\w+)*)")
_DEVICES = re.compile(r"NET/(\w{1,40}) ?: Using (\[\d+\].*)$")
_RDMA_DEVICE = re.compile(r"\]\w{1,40}:\d{1,4}/(?:IB|RoCE)\b")
_DEVICE = re.compile(r"\[\d+\]\S")
_PROCESS = re.compile(r"([\w.\-]{1,100}:\d{1,10}):\d{1,10} \[\d{1,4}\]")
_GDR = re.compile(r"GPU Direct RDMA Enabled for")


@dataclass
class _Initialisation:
    """What the lines of one initialisation said; a line that starts another one begins a new object."""

    provider: str | None = None
    plugin_version: str | None = None
    nics: int | None = None
    network: str | None = None
    channel: str | None = None
    gpudirect: bool | None = None
    failed: bool = False
    no_provider: bool = False  # the plugin was there and found nothing to talk over
    devices: str | None = None
    rdma: str | None = None  # the network, of whatever name, whose devices are InfiniBand or RoCE
    processes: set[str] = field(default_factory=set)
    evidence: str = ""
    rank: int = 0  # how much the evidence line decides

    def keep(self, line: str, rank: int) -> None:
        if rank >= self.rank:
            self.evidence, self.rank = line.strip()[:EVIDENCE_LENGTH], rank


def parse_nccl_transport(text: str) -> NcclTransport:
    """Say what NCCL talks over, from its newest initialisation in the text. Never raises.

    Args:
        text: Log text of one or more ranks; lines without NCCL in them are passed over.

    Returns:
        NcclTransport with transport efa, socket, ib, fastsocket, fallback (the plugin is there and found no
        provider, or NCCL did not find the plugin and named no network) or unknown, the AWS plugin's `provider`
        and version, network interfaces found, whether GPUDirect RDMA is on (None when not said), and as `evidence`
        the line that decided, at most 200 characters.
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
    """Whether a line opens another initialisation: the plugin search comes before any verdict of the same process.

    Ranks share a log, so the first words of another process belong to the same initialisation.
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
    """Take what one line says; at most one rule applies to a line."""
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
    """The verdict: a channel in use, then the provider, the chosen network, a failure, the devices found."""
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
    """The transport behind a libfabric provider: `efa`, or plain TCP under another name, or one we do not know."""
    if provider.startswith("efa"):
        return "efa"
    return "fallback" if provider.startswith(("tcp", "sockets", "udp")) else "unknown"
