"""What is seen beside the ranks of a training on one host: the questions about it, and what their answers say.

Every question only reads, and stands for itself: one that hangs, as `df` does on a file system whose server is gone, is
unknown alone. What a question finds has no place yet; `read_surroundings` puts the host to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import Answer, Question, Reply
from training_monitor.core.results import PodState
from training_monitor.look.nvidia_smi import SMI_FOLDERS
from training_monitor.targets.asking import Site, quote_path
from training_monitor.targets.proc_stat import RANK_VARIABLES
from training_monitor.targets.scripts import Quoted, format_call, spell_path
from training_monitor.why.blocked import parse_blocked
from training_monitor.why.flight_recorder import MOST_FILE_BYTES, MOST_FILES, parse_dumps
from training_monitor.why.gpu_faults import parse_gpu_details
from training_monitor.why.kernel_log import parse_kernel_log
from training_monitor.why.machine_limits import parse_efa_counters, parse_memory_kills, parse_space
from training_monitor.why.nccl_ras import parse_ras
from training_monitor.why.pod_events import find_pod_troubles, parse_pod_events
from training_monitor.why.ranks import MOST_FINDINGS, Surroundings as Surroundings, in_brief
from training_monitor.why.waits import parse_waits

ANSWER_BYTES = 700_000  # of packed dumps: a reply to all questions together may have 2 MiB, see targets/transport.py
_DISKS = ("/", "/tmp", "/dev/shm", "~/")
_NOT_THERE = 127  # a tool that a machine without GPUs lacks: that is no news
_RAS_SECONDS = 2  # for which NCCL waits for processes that do not answer


def surroundings_questions(limit: float = 8.0, roots: str = "") -> list[Question[Any]]:
    """Return the questions about what is beside the ranks of a training on a host, for one round trip.

    Args:
        limit: seconds for each of them; they run side by side.
        roots: a script that prints the pids of the training's processes, or of their common ancestors, as for
            `evidence_question`; by default all processes of the host are looked at.
    """
    pids: Quoted | str = Quoted(f'"- $({roots}\n)"') if roots else ""  # a training may have no process any more
    dumps = format_call(
        "flight_recorder",
        "show_dumps",
        roots=pids,
        spelling=spell_path(),
        ranks="\\|".join(RANK_VARIABLES),
        most_files=MOST_FILES,
        file_bytes=MOST_FILE_BYTES,
        answer_bytes=ANSWER_BYTES,
        environment_bytes=65_536,
    )
    asked: dict[str, tuple[str, Callable[[str], Surroundings]]] = {
        "flight recorder": (dumps, parse_dumps),
        "ncclras": (format_call("nccl_ras", "show_ras", seconds=_RAS_SECONDS), parse_ras),
        "nvidia-smi -q": (format_call("gpu", "show_details", folders=":".join(SMI_FOLDERS)), parse_gpu_details),
        "kernel log": (format_call("kernel_log", "show_kernel_log", most=50), parse_kernel_log),
        "oom_kill": (format_call("evidence", "show_kills", roots=pids), parse_memory_kills),
        "waits for disks": (format_call("blocked", "show_blocked", roots=pids, most=20, most_paths=200), parse_blocked),
        "waits": (format_call("waits", "show_waits", roots=pids, most=20), parse_waits),
        "EFA counters": (format_call("efa", "show_counters"), parse_efa_counters),
    }
    for path in _DISKS:
        asked[f"df {path}"] = (format_call("host", "show_space", quote_path(path)), parse_space)
    return [_question(name, script, parse, limit) for name, (script, parse) in asked.items()]


def _question(name: str, script: str, parse: Callable[[str], Surroundings], limit: float) -> Question[Surroundings]:
    def read(reply: Reply) -> Surroundings:
        return Surroundings() if reply.exit_code == _NOT_THERE else parse(reply.output)

    return Question(name, script, read, limit)


def read_surroundings(answers: Sequence[Answer[Any]], host: str, node: str | None) -> Surroundings:
    """Return what the answers to `surroundings_questions` say together.

    Args:
        host, node: of all of them, as in `Rank`.
    """
    seen = [answer.value for answer in answers if isinstance(answer.value, Surroundings)]
    unknown = [str(answer.failure) for answer in answers if answer.failure]
    findings = dict.fromkeys(replace(each, host=host, node=node) for one in seen for each in one.findings)
    return Surroundings(
        tuple(findings)[:MOST_FINDINGS],
        tuple(dict.fromkeys(each for one in seen for each in one.collectives)),
        tuple(dict.fromkeys(in_brief(said) for said in [*(each for one in seen for each in one.unread), *unknown])),
    )


def pod_findings(site: Site, pods: Sequence[PodState], timeout: float) -> Surroundings:
    """Return what Kubernetes says of the pods of a training: restarts, kills for memory, and warnings.

    Args:
        site: one of the pods.
        pods: all of them, as `list_pods` returned them.
        timeout: seconds for the one call of kubectl.
    """
    if not pods:
        return Surroundings()
    by_name = {pod.name: pod for pod in pods}
    told = [(pod.name, each) for pod in pods for each in find_pod_troubles(pod)]
    unread: tuple[str, ...] = ()
    try:
        told += parse_pod_events(site.target.get_warnings(site.transport, timeout), tuple(by_name))
    except TrainingMonitorError as error:
        unread = (in_brief(f"the events of the pods could not be read: {error.what}"),)
    placed = (replace(each, host=str(site.target.beside(name)), node=by_name[name].node) for name, each in told)
    return Surroundings(tuple(dict.fromkeys(placed))[:MOST_FINDINGS], unread=unread)
