"""Which network NCCL uses: what it says in the logs, and whether EFA's own counters move.

Counters: Linux drivers/infiniband/hw/efa/efa_verbs.c, /sys/class/infiniband/*/ports/*/hw_counters.
A device that is present proves nothing; a counter that moves does, and so does NCCL's provider line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from training_monitor.errors import ParseError
from training_monitor.models import Answer, NcclTransport, Question, Reply
from training_monitor.parse.nccl import parse_nccl_transport
from training_monitor.reports import EfaClusterReport, EfaReport, NodeEfaReport
from training_monitor.targets.fleet import ask_many
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport
from training_monitor.units import plural

_PATTERN = "NET/|Using network|Using internal Network"
_MOST_LOGS, _MOST_BYTES = 32, 120_000  # logs that are read, and what is taken of each: one answer holds them

# NCCL speaks when a communicator starts: the first MiB and the last 256 KiB of the newest logs are read, so the cost
# does not grow with them. Of what it said there the end is taken, since its newest words count. Two readings of the
# counters, a second apart, only where there is a device.
_SCRIPT = rf"""
_total() {{ cat /sys/class/infiniband/*/ports/*/hw_counters/[rt]x_bytes 2>/dev/null | {{
  t=0; while read -r n; do t=$((t + n)); done; echo $t; }}; }}
set -- /sys/class/infiniband/*/ports/*/hw_counters/tx_bytes
if [ -e "$1" ]; then a=$(_total); sleep 1; printf 'efa %s %s' $# $(($(_total) - a)); else printf 'efa 0 0'; fi
_logs=${{RAY_TMPDIR:-/tmp/ray}}/session_latest/logs
set --; for f in "$_logs"/worker*.out "$_logs"/worker*.err "$_logs"/job-driver-*.log; do
  [ -s "$f" ] && set -- "$@" "$f"
done
echo " $(($# > {_MOST_LOGS} ? $# - {_MOST_LOGS} : 0))"
[ $# -eq 0 ] || ls -tr "$@" | tail -n {_MOST_LOGS} | while IFS= read -r f; do
  {{ head -c 1048576 "$f"; echo; tail -c 262144 "$f"; }} | LC_ALL=C grep -aE '{_PATTERN}' | cut -c 1-300 |
    tail -c {_MOST_BYTES}
done
:
"""


@dataclass(frozen=True, slots=True)
class EfaReading:
    """`devices` EFA ports, bytes over them in one second, and what NCCL logged; `unread` older logs are there too."""

    devices: int
    bytes_moved: int
    transport: NcclTransport
    channels: int
    unread: int = 0


def efa_question(limit: float = 15.0) -> Question[EfaReading]:
    """EFA counters and NCCL's lines of the newest Ray worker and driver logs."""

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

    return Question("efa", _SCRIPT, parse, limit)


def check_efa_utilization(
    head_pod: str | Target,
    namespace: str = "default",
    *,
    all_pods: Sequence[str | Target] = (),
    timeout: float = 15.0,
    transport: Transport | None = None,
) -> EfaClusterReport:
    """Say whether NCCL uses EFA on a target, and on all pods given; never raises for the outside world.

    Returns:
        `efa_active` True (the counters move, or NCCL selected the efa provider), False (NCCL says it uses something
        else, on one pod at least), None (nothing shows it: no log lines without NCCL_DEBUG=INFO). `transport` ofi |
        socket | ib | unknown, or mixed when pods differ: one on sockets slows all. `per_node` has each pod's own.
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
    return EfaReport(
        efa_active=None,
        transport="unknown",
        details=said,
        provider=None,
        efa_devices=None,
        bytes_moved=None,
        error=said,
    )


def combine_efa_reports(nodes: list[NodeEfaReport]) -> EfaClusterReport:
    """One report on many pods; that of the first where they do not differ."""
    names = sorted({node["transport"] for node in nodes} - {"unknown"})
    active = [node["efa_active"] for node in nodes]
    first = next((node for node in nodes if node["transport"] != "unknown"), nodes[0])
    details = first["details"]
    if len(names) > 1:
        pods = {name: ", ".join(node["pod"] for node in nodes if node["transport"] == name) for name in names}
        details = "; ".join(f"{name} on {pods[name]}" for name in names)
    return EfaClusterReport(
        efa_active=False if False in active else True if True in active else None,
        transport="mixed" if len(names) > 1 else first["transport"],
        details=details,
        provider=first["provider"],
        efa_devices=first["efa_devices"],
        bytes_moved=first["bytes_moved"],
        error=next((node["error"] for node in nodes if node["error"]), None),
        per_node=nodes,
    )


_NAMES = {"efa": "ofi", "fallback": "socket", "fastsocket": "socket"}


def format_efa_report(reading: EfaReading) -> EfaReport:
    """The documented dict of an EFA reading."""
    said = reading.transport
    moving = (
        reading.bytes_moved > 0 and said.transport == "unknown"
    )  # storage over EFA moves them too: NCCL's word first
    active = True if moving or said.transport == "efa" else None if said.transport == "unknown" else False
    details = said.evidence or "no NCCL transport lines in the logs (set NCCL_DEBUG=INFO)"
    if reading.devices:
        details += f"; {reading.devices} EFA ports moved {reading.bytes_moved} bytes in 1 s"
    if reading.unread:
        details += f"; {plural(reading.unread, 'older log')} not read"
    name = "ofi" if moving else _NAMES.get(said.transport, said.transport)
    return EfaReport(
        efa_active=active,
        transport=name,
        details=details,
        provider=said.provider,
        efa_devices=reading.devices,
        bytes_moved=reading.bytes_moved,
        error=None,
    )
