"""Where a rank of a training is, by its Python stack, and what it does, by the kernel. Pure.

What counts is the training's own code: the innermost of its frames, the function of a library that it called there, and
a collective further inside. Trainers that are installed packages are taken for own code, since they call the
collectives and the data. A process that was forked has the frames of its parent too, which do not count.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from training_monitor.core.masking import redact
from training_monitor.core.regex import regex
from training_monitor.core.shown import shown
from training_monitor.core.units import name_some
from training_monitor.verdict.gpu_load import gpu_mode
from training_monitor.why.ranks import CHILD, DISK, LOCK, PIPE, TERMINAL, TIMER, Frame, Rank, Stack

ENDED, STOPPED, BLOCKED, RUNS = "ZXx", "Tt", "D", "R"
BUSY_CORES, RUNNING_CORES = 0.5, 0.05  # CPU seconds per second, from which on a rank computes; where it has to queue
COMPUTES, BUSY = "computes", "is busy"  # by itself; or that is open
_NEVER_A_MEETING = (PIPE, TIMER, CHILD, DISK, TERMINAL)
_TRAINERS = (
    r"transformers/trainer|trl/trainer|lightning/pytorch/(?:loops|trainer)|pytorch_lightning/(?:loops|trainer)|axolotl/"
    r"|llamafactory/|llmtuner/|verl/|composer/trainer|torchtune/|torchtitan/|nemo/|ultralytics/engine|fairseq|swift/"
)
_STANDARD = r"/lib(?:64)?/python\d[^/]*/(?!(?:site|dist)-packages/)|^<|^[^/]*\.so\b|^$"
_STANDARD_LIBRARY = regex(_STANDARD)
_LIBRARY = regex(rf"/(?:site|dist)-packages/(?!{_TRAINERS})|{_STANDARD}|/training_monitor/|/ray/python/|/s?bin/[^/.]*$")
# Below the folder of packages. Checkpoints are written within functions with the name of the collective at their end.
_COMMUNICATES = regex(
    r"/torch/(?:distributed(?!/checkpoint)|cuda|nn/parallel|_tensor|autograd)|/deepspeed/|/accelerate/|/horovod/|/mpi4py/"
    r"|/lightning|/ray/(?:util/collective|train)|/megatron/|/fairscale/|/cupy/|/jax/"
)
_PLUMBING = regex(rf"/torch/|/s?bin/[^/.]*$|{_COMMUNICATES.pattern}")
_TO_SERVERS = regex(r"/(?:http/client|ssl|ftplib|smtplib)\.py$")
_WRAPPERS = regex(r"(?:.*\.)?(?:\w*wrapp(?:er|ed)\w*|_fn|inner\w*|__call__|_?call_impl|decorate_context|\.\.\.)")
_COLLECTIVE = regex(
    r"(?!__|\w*_to_device)(?:\w*_)?(?:i?all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|barrier|i?send|i?recv"
    r"|gather|scatter|reduce(?!_ex)|wait_for_everyone|synchronize|sync_grads|rendezvous|init_process_group|wait)\w*"
)
_DEBUGGER = regex(r"/(pdb|ipdb|pudb|debugpy)\b[^-]*\.py$")
_PROMPTS = ("interaction", "cmdloop", "_cmdloop", "wait_for_client")
_BACKWARD = regex(r"_engine_run_backward|backward")


# ---------------------------------------------------------------- by the stack


def is_library(frame: Frame) -> bool:
    """Return whether a frame is not the training's own: the standard library, installed packages, generated code."""
    return bool(_LIBRARY.search(frame.file))


def own_frames(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames of the training's own code, innermost first.

    Without any, those that are neither Python's, nor PyTorch's, nor of what communicates; or else all.
    """
    inner = _since_fork(stack)
    own = tuple(each for each in inner if not is_library(each))
    return own or tuple(each for each in inner if not _is_plumbing(each)) or tuple(inner)


def _since_fork(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames of a process that `multiprocessing` has started, without those of its parent."""
    for number, each in enumerate(stack):
        if each.file.endswith("multiprocessing/process.py") and bare_name(each) == "_bootstrap":
            return stack[:number]
    return stack


def _called(stack: Sequence[Frame], own: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames of what the innermost own frame has called, innermost first."""
    return stack[: stack.index(own[0])] if own else ()


def called_by_own(stack: Sequence[Frame]) -> Frame | None:
    """Return the function of a library that the innermost own frame has called; None if it is in its own code."""
    inner = list(_called(stack, own_frames(stack)))
    while len(inner) > 1 and _WRAPPERS.fullmatch(inner[-1].function):
        inner.pop()
    return inner[-1] if inner else None


def collective_of(stack: Sequence[Frame]) -> Frame | None:
    """Return the collective that a rank is in, as its own code called it; None if it is in none by its name."""
    own = own_frames(stack)
    inner = _since_fork(stack) if own and is_library(own[0]) else _called(stack, own)
    return next((each for each in reversed(inner) if has_name_of_collective(each) and _communicates(each)), None)


def _communicates(frame: Frame) -> bool:
    return bool(_COMMUNICATES.search(_below_packages(frame)))


def _is_plumbing(frame: Frame) -> bool:
    return _is_standard(frame) or bool(_PLUMBING.search(_below_packages(frame)))


def _is_standard(frame: Frame) -> bool:
    return bool(_STANDARD_LIBRARY.search(frame.file))


def _below_packages(frame: Frame) -> str:
    """Return a file's path below the folder of packages: an environment may be named like a library."""
    path = frame.file.rpartition("-packages/")[2]
    return "" if _is_standard(frame) else path if path == frame.file else f"/{path}"


def meeting_of(rank: Rank) -> Frame | None:
    """Return the call in which a rank waits for the others: a collective, or a backward pass, which reduces gradients.

    A backward pass in which a rank computes is work of its own.
    """
    if _is_blocked(rank):
        return None
    stack = rank.main_stack
    if found := collective_of(stack):
        return found
    if rank.waits_for in _NEVER_A_MEETING or computes(rank):
        return None
    called = _called(stack, own_frames(stack))
    return next((each for each in called if _BACKWARD.fullmatch(bare_name(each)) and _communicates(each)), None)


def is_between_processes(rank: Rank) -> bool:
    """Return whether a rank waits in a barrier, condition or event of `multiprocessing`."""
    return _waits_for_processes(rank.main_stack) is not False


def _waits_for_processes(stack: Sequence[Frame]) -> bool | None:
    """Return True in a barrier of `multiprocessing`, None in its conditions and events, and False elsewhere.

    The barrier is that of `threading` with a condition of `multiprocessing`.
    """
    called = _called(stack, own_frames(stack))
    if not any(each.file.endswith("multiprocessing/synchronize.py") and bare_name(each) == "wait" for each in called):
        return False
    return any(each.file.endswith("/threading.py") and bare_name(each) == "_wait" for each in called) or None


def has_name_of_collective(frame: Frame) -> bool:
    """Return whether a function is called like a collective, which one of a training's own may be too."""
    return bool(_COLLECTIVE.fullmatch(bare_name(frame)))


def bare_name(frame: Frame) -> str:
    """Return the name of a function without its class, which not every tool tells."""
    return frame.function.rpartition(".")[2]


def same(frame: Frame) -> tuple[str, str, int | None]:
    """Return what a line of code has in common on all hosts."""
    return bare_name(frame), posixpath.basename(frame.file), frame.line


def inside_of(stack: Sequence[Frame]) -> Frame | None:
    """Return what a rank is in within the function that its own code has called: a collective, or another library."""
    frames = (each for each in _called(stack, own_frames(stack)) if not _is_plumbing(each))
    return collective_of(stack) or next(frames, None)


def prompt_of(stack: Sequence[Frame]) -> str | None:
    """Return the debugger of Python that waits for input in a stack, as `pdb`; None without one."""
    found = (_DEBUGGER.search(each.file) for each in stack if bare_name(each) in _PROMPTS)
    return next((each[1] for each in found if each), None)


def place_of(rank: Rank) -> object:
    """Return what ranks at the same place have in common."""
    stack = rank.main_stack
    deeper = (called_by_own(stack), inside_of(stack))
    return same(own_frames(stack)[0]), *(each and same(each)[:2] for each in deeper)


def format_line(frame: Frame) -> str:
    """Return `train.py:88`."""
    name = brief(posixpath.basename(frame.file) or frame.file or "?")
    return f"{name}:{frame.line}" if frame.line is not None else name


def where_is(rank: Rank) -> str | None:
    """Return where a rank is, as `all_reduce, called at train.py:88` or `data.py:41 load_batch`; None if unknown."""
    stack = rank.main_stack
    if not stack:
        return None
    own, called, inner = own_frames(stack)[0], called_by_own(stack), inside_of(stack)
    if called is None:
        return f"{format_line(own)} {brief(own.function)}"
    inside = f"{brief(inner.function)} in " if inner and inner != called else ""
    return f"{inside}{brief(called.function)}, called at {format_line(own)}"


def as_main(rank: Rank, stack: Stack) -> Rank:
    """Return a rank as it would be with this stack as that of its main thread."""
    return replace(rank, stacks=(replace(stack, is_main=True),))


def brief(text: str, most: int = 80) -> str:
    """Return the beginning of a foreign text on one line, secrets replaced; at most so many characters."""
    said = shown(redact(text))
    return said if len(said) <= most else f"{said[: most - 3]}..."


# ---------------------------------------------------------------- by the kernel and the GPU


def does(rank: Rank) -> str:
    """Return what the kernel says that a rank does, as a part of a sentence; "" if unknown."""
    if rank.state in STOPPED:
        return "is stopped by a signal" if rank.state == "T" else "is held by a debugger"
    if is_busy(rank):
        return COMPUTES if computes(rank) else "waits for its GPU" if gpu_place(rank) == "spinning" else BUSY
    if _is_blocked(rank):
        return "waits for a disk" + (f" ({brief(rank.wait_channel)})" if rank.wait_channel else "")
    return f"waits for {rank.waits_for}" if rank.waits_for else ""


def wait_details(rank: Rank) -> str:
    """Return the file that a rank waits for, and the processes that can end the wait, in brief; "" if unknown."""
    told = [brief(rank.waits_on)] if rank.waits_on and rank.waits_on.startswith("/") else []
    if rank.awaits:
        pids = f"{'pid' if len(rank.awaits) == 1 else 'pids'} {name_some([str(each) for each in rank.awaits], 3)}"
        told.append({CHILD: pids, LOCK: f"held by {pids}"}.get(rank.waits_for or "", f"other end: {pids}"))
    elif rank.awaits is not None and rank.waits_for == PIPE:
        told.append("other end: no visible process")
    return ", ".join(told)


def is_busy(rank: Rank) -> bool:
    """Return whether a rank computes; on a crowded machine it may get little of the CPU that it wants."""
    least = RUNNING_CORES if rank.state in RUNS else BUSY_CORES
    return rank.cpu_cores is not None and rank.cpu_cores >= least


def waits_for_others(rank: Rank) -> bool | None:
    """Return whether a rank waits for other ranks: True by its stack, None where that is open.

    It is open where the training's own code, or a library that communicates, waits in C: for the handle of a
    collective, or for the GPU, on which one runs. A data loader or a client of a server does not wait for ranks.
    """
    if rank.state in STOPPED:
        return False
    if meeting_of(rank):
        return True
    if rank.waits_for in _NEVER_A_MEETING or _is_blocked(rank) or computes(rank):
        return False
    stack = rank.main_stack
    if (found := _waits_for_processes(stack)) is not False:
        return found
    if rank.waits_for == LOCK and (not stack or _is_standard(stack[0])):
        return False
    return None if may_communicate(stack) else False


def may_communicate(stack: Sequence[Frame]) -> bool:
    """Return whether a call into C may be about other ranks, by the innermost frame beyond the standard library."""
    if any(_TO_SERVERS.search(each.file) for each in stack):
        return False
    caller = next((each for each in stack if not _is_standard(each)), None)
    return caller is None or not is_library(caller) or _communicates(caller)


def computes(rank: Rank) -> bool:
    """Return whether a rank computes on its own, which is open where it may be busy with waiting for its GPU.

    PyTorch waits so for a GPU (`loss.item()`), on which a collective may wait for the others: cudaDeviceScheduleAuto
    spins unless there are more contexts than CPUs.
    """
    if not is_busy(rank):
        return False
    mode = gpu_place(rank)
    return rank.uses_gpu is False or mode in ("idle", "busy") or not (mode or may_communicate(rank.main_stack))


def _is_blocked(rank: Rank) -> bool:
    return rank.waits_for == DISK or rank.state in BLOCKED


def kernel_place(rank: Rank) -> str | None:
    """Return what tells ranks apart by the kernel; None if it says nothing."""
    if rank.state in STOPPED or rank.state in BLOCKED:
        return rank.state
    return "busy" if is_busy(rank) else rank.waits_for


def gpu_place(rank: Rank) -> str | None:
    """Return what tells ranks apart by their GPUs, `busy`, `spinning` or `idle` by the busiest; None if unknown."""
    modes = [gpu_mode(each.gpu_utilization, each.gpu_power) for each in rank.gpus]
    return next((mode for mode in ("busy", "spinning", "idle") if mode in modes), None)
