"""GPUs of a target, by nvidia-smi."""

from __future__ import annotations

from training_monitor.errors import ToolNotFound, TrainingMonitorError
from training_monitor.models import GpuProcess, GpuTable, Question, Reply
from training_monitor.parse.nvidia_smi import GPU_FIELDS, GPU_FIELDS_MINIMAL, parse_gpu_processes, parse_gpus
from training_monitor.policy.gpu_load import mode_of
from training_monitor.policy.health import average
from training_monitor.reports import GpuReport
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport

_SEPARATOR = "-- processes --"
_SCRIPT = f"""
command -v nvidia-smi >/dev/null || exit 127
query() {{ nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>&1; }}
out=$(query {",".join(GPU_FIELDS)})
case $out in *'not a valid field'*) out=$(query {",".join(GPU_FIELDS_MINIMAL)});; esac
printf '%s\\n{_SEPARATOR}\\n' "$out"
nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid,used_memory --format=csv,noheader,nounits 2>/dev/null
:
"""


def gpu_question(limit: float = 10.0) -> Question[tuple[GpuTable, tuple[GpuProcess, ...]]]:
    """All GPUs and the processes on them, nvidia-smi asked twice under one time limit."""

    def parse(reply: Reply) -> tuple[GpuTable, tuple[GpuProcess, ...]]:
        if reply.exit_code == 127:
            raise ToolNotFound("nvidia-smi is not there", hint="is this a GPU machine, and the container a GPU one?")
        gpus, _, processes = reply.output.partition(_SEPARATOR)
        return parse_gpus(gpus), parse_gpu_processes(processes)

    return Question("gpu", _SCRIPT, parse, limit)


def check_gpu_utilization(
    head_pod: str | Target, namespace: str = "default", *, timeout: float = 10.0, transport: Transport | None = None
) -> GpuReport:
    """Ask nvidia-smi on a target; never raises for the outside world.

    Returns:
        `healthy` says that the check succeeded and found GPUs that can be read; `busy` whether one of them works: one
        that spins at idle power, since a collective waits, does not.
        Utilisations in per cent, memory in MB, power in watts, temperatures in °C; what nvidia-smi does not report
        ([N/A], MIG, ERR!) is None and does not count in `avg_utilization`, which is None when nothing is known.
    """
    target = parse_target(head_pod, namespace=namespace)
    try:
        [answer] = ask(target, gpu_question(timeout), transport=transport)
        gpus, processes = answer.get() or (GpuTable(()), ())
    except TrainingMonitorError as error:
        return format_gpu_report(None, (), str(error))
    return format_gpu_report(gpus, processes)


def format_gpu_report(table: GpuTable | None, processes: tuple[GpuProcess, ...], error: str | None = None) -> GpuReport:
    """The documented dict of a GPU reading; `table` None when it could not be asked."""
    gpus = table.gpus if table else ()
    error = error or (table.error if table else None)
    broken = [gpu.error for gpu in gpus if gpu.error]
    modes = [mode for gpu in gpus if (mode := mode_of(gpu))]
    return GpuReport(
        healthy=bool(gpus) and not error and not broken,
        busy="busy" in modes if modes else None,
        gpu_count=len(gpus) if table and (gpus or table.error is None or table.has_none) else None,
        gpu_names=[gpu.name for gpu in gpus],
        gpu_utilizations=[gpu.utilization for gpu in gpus],
        avg_utilization=average(gpu.utilization for gpu in gpus),
        memory_used=[gpu.memory_used_mb for gpu in gpus],
        memory_total=[gpu.memory_total_mb for gpu in gpus],
        memory_utilizations=[gpu.memory_utilization for gpu in gpus],
        power_draw=[gpu.power_draw_watts for gpu in gpus],
        power_limit=[gpu.power_limit_watts for gpu in gpus],
        temperatures=[gpu.temperature_celsius for gpu in gpus],
        mig_enabled=[gpu.mig_enabled for gpu in gpus],
        gpu_errors=[gpu.error for gpu in gpus],
        processes=[
            {"pid": each.pid, "name": each.name, "gpu": each.gpu_uuid, "memory": each.memory_used_mb}
            for each in processes
        ],
        error=error or (broken[0] if broken else None),
    )
