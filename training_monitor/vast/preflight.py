"""Whether a rented machine is what was paid for, before anything is trained on it: one round trip.

A problem is something that the machine said, or a tool on it. What could not be asked is no problem of the machine: it
raises, and the caller asks again.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass
from typing import Any

from training_monitor.errors import (
    CommandError,
    CommandFailed,
    ParseError,
    SettingsError,
    ToolNotFound,
    last_lines,
)
from training_monitor.models import Answer, Gpu, GpuProcess, GpuTable, Question, Reply
from training_monitor.probes.gpu import gpu_question
from training_monitor.probes.host import Disk, disk_question
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.units import plural

GPU_SECONDS = 30.0
COMMAND_SECONDS = 120.0
HOTTEST = 90.0
MOST_USED = 0.1
TOLERANCE = 0.98  # of the memory that was promised: drivers keep a little for themselves
_GpuAnswer = Answer[tuple[GpuTable, tuple[GpuProcess, ...]]]


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """What a machine showed; `ok` when there are no `problems`, each of which is one sentence.

    `free_disk_gb` is in 10^9 bytes; None where it was not told.
    """

    ok: bool
    problems: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    free_disk_gb: float | None


def check_instance(
    target: str | Target,
    *,
    num_gpus: int = 1,
    min_vram_gb: float = 0,
    min_disk_gb: float = 0,
    folder: str = "/",
    command: str | None = None,
    transport: Transport | None = None,
) -> PreflightReport:
    """Look at the GPUs and the disk of a machine, and run a command of the user's there.

    Args:
        num_gpus: how many were rented; a GPU that cannot be read does not count.
        min_vram_gb: of each GPU, as the market counts: a 4090 has 24.564.
        min_disk_gb: free space, in 10^9 bytes, where `folder` lies or will lie.
        folder: an absolute path there.
        command: a line for `sh` there that exits with 0 on a good machine, within two minutes.

    Raises:
        SettingsError: `folder` is not absolute.
        CommandError: something could not be asked, or did not answer in time. That is no verdict on the machine.
    """
    gpu, disk, *own = ask(target, *_questions(folder, command), transport=transport)
    gpus, problems = _read_gpus(gpu)
    if not problems or gpus:
        problems += _judge_gpus(gpus, num_gpus, min_vram_gb)
    free = _read_disk(disk, is_needed=min_disk_gb > 0)
    if free is not None and free < min_disk_gb:
        problems.append(f"{free:.1f} GB are free for {folder}, {min_disk_gb:g} GB are needed")
    problems += [problem for answer in own if (problem := _judge_command(answer.get()))]
    return PreflightReport(not problems, tuple(problems), gpus, free)


def _questions(folder: str, command: str | None) -> list[Question[Any]]:
    if not folder.startswith("/") or "\n" in folder or "\0" in folder:
        raise SettingsError("folder", folder, "an absolute path")
    above = [folder]
    while above[-1] != posixpath.dirname(above[-1]):
        above.append(posixpath.dirname(above[-1]))
    questions: list[Question[Any]] = [gpu_question(GPU_SECONDS), disk_question(*above)]
    if command is not None:
        script = f"sh -c {shlex.quote(command)} 2>&1"
        questions.append(Question("command", script, lambda reply: reply, COMMAND_SECONDS))
    return questions


def _read_gpus(answer: _GpuAnswer) -> tuple[tuple[Gpu, ...], list[str]]:
    """The GPUs, or why the machine cannot name them. Raises what kept us from asking."""
    if isinstance(answer.failure, (ToolNotFound, ParseError)):
        return (), [f"its GPUs cannot be read: {answer.failure}"]
    table, _ = answer.get() or (GpuTable(()), ())
    return table.gpus, [f"nvidia-smi fails: {table.error}"] if table.error else []


def _judge_gpus(gpus: tuple[Gpu, ...], num_gpus: int, min_vram_gb: float) -> list[str]:
    usable = sum(not gpu.error for gpu in gpus)
    problems = [] if usable >= num_gpus else [f"it has {plural(usable, 'usable GPU')}, {num_gpus} were rented"]
    for number, gpu in enumerate(gpus):
        name = f"GPU {number if gpu.index is None else gpu.index}"
        problems += [f"{name} {problem}" for problem in _judge_gpu(gpu, min_vram_gb)]
    return problems


def _judge_gpu(gpu: Gpu, min_vram_gb: float) -> list[str]:
    if gpu.error:
        return [f"cannot be used: {gpu.error}"]
    problems = []
    total, used, heat = gpu.memory_total_mb, gpu.memory_used_mb, gpu.temperature_celsius
    if min_vram_gb > 0 and total is None:
        problems.append("does not say how much memory it has")
    if total is not None and total / 1000 < min_vram_gb * TOLERANCE:
        problems.append(f"has {total / 1000:.1f} GB of memory, {min_vram_gb:g} GB were promised")
    if total and used is not None and used > total * MOST_USED:
        problems.append(f"is in use by somebody else: {used / 1000:.1f} of {total / 1000:.1f} GB are taken")
    if heat is not None and heat >= HOTTEST:
        problems.append(f"has {heat:g} °C without work")
    return problems


def _read_disk(answer: Answer[tuple[Disk, ...]], *, is_needed: bool) -> float | None:
    """Free space where the folder, or what there is of its path, lies. Raises what kept us from asking."""
    if isinstance(answer.failure, CommandError):
        raise answer.failure
    if answer.failure and is_needed:
        raise CommandFailed(f"its disk cannot be read: {answer.failure}") from answer.failure
    disks = answer.value or ()
    return disks[0].free_bytes / 1e9 if disks else None


def _judge_command(reply: Reply | None) -> str | None:
    if reply is None or reply.exit_code == 0:
        return None
    return f"the check command ended with {reply.exit_code}: {last_lines(reply.output) or 'it said nothing'}"
