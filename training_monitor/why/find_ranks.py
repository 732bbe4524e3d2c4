"""Find the ranks of a training among its processes on one host.

A rank is known by the environment in which a launcher started it. Without such variables, the ranks are the workers of
Ray, or the topmost Python processes; their children are data workers and the like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from training_monitor.core.fields import shared_fields
from training_monitor.core.masking import redact
from training_monitor.core.models import GpuProcess, GpuTable
from training_monitor.core.regex import regex
from training_monitor.look.training_command import is_launcher
from training_monitor.targets.proc_stat import RANK_VARIABLES, Process, ancestors_of
from training_monitor.targets.replies import read_whole
from training_monitor.verdict.gpu_load import power_fraction
from training_monitor.why.meetings import find_contradiction, leave_out_others
from training_monitor.why.places import bare_name, called_by_own, is_library
from training_monitor.why.processes import (
    LOCAL_RANK,
    LOCAL_WORLD_SIZE,
    MOST_RANKS,
    WORLD_SIZE,
    HostFacts,
    SeenProcess,
    SeenTraining,
)
from training_monitor.why.ranks import CHILD, DISK, TERMINAL, TIMER, Frame, Rank, RankGpu, Stack
from training_monitor.why.stacks import SeenStacks, StackAnswer

_MOST_CHILDREN, _COMMAND_LENGTH = 16, 200
_PYTHON = regex(r"(?:^|/)python[\d.]*$|^ray::")
_HELPER = regex(r"\w{1,8} [\w.]{1,80}\.(?:resource_tracker|semaphore_tracker|forkserver)\b")
_WORKER_OF_RAY, _WORKER_OF_RAY_TRAIN = regex(r"ray::(?!IDLE)"), regex(r"ray::_?RayTrainWorker")
_LOOP_OF_RAY = regex(r"/ray/_private/worker\.py$")


def build_ranks(
    seen: SeenTraining,
    stacks: SeenStacks,
    gpus: tuple[GpuTable, tuple[GpuProcess, ...]] | None,
    host: str,
    node: str | None,
) -> tuple[Rank, ...]:
    """Return the ranks of a training on one host, with their children; ended ones that are left as zombies too."""
    seen = _with_numbers(_with_handed_down(seen))
    table = {pid: each.process for pid, each in seen.processes.items()}
    chosen = choose_ranks(seen, stacks)
    names = {table[pid].name for pid in chosen}  # process 1 of a pod also has the zombies of others' programs
    ended = [pid for pid, each in table.items() if not each.is_running and each.parent in table]
    ended = [pid for pid in ended if not names or table[pid].name in names or _PYTHON.search(table[pid].name)]
    below = _children_of(chosen, table)
    found = []
    for pid in [*chosen, *(each for each in ended if each not in below)][:MOST_RANKS]:
        children = [
            _rank(seen, stacks, gpus, host, node, each)
            for each in below.get(pid, ())
            if not _is_helper(each, seen.processes)
        ]
        children.sort(key=lambda each: not (each.waits_outside or each.state in "DT"))
        rank = _rank(seen, stacks, gpus, host, node, pid)
        found.append(replace(rank, children=tuple(children[:_MOST_CHILDREN])))
    return tuple(sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.pid)))


def are_all_of_host(seen: SeenTraining, ranks: Sequence[Rank]) -> bool:
    """Return whether all ranks on a host are among these: they were looked for, or what was named starts them."""
    return seen.is_searched or not {each.pid for each in ranks}.issuperset(seen.named)


def choose_training(ranks: Sequence[Rank], seen: SeenTraining, named: int | None) -> tuple[Rank, ...]:
    """Return the ranks of the training to which the process belongs that the user has named, as far as that is known.

    They meet where it does. Without known places, of two ranks with one number the one counts that has its launcher.
    """
    table = {pid: each.process for pid, each in seen.processes.items()}
    own = [each for each in ranks if named is not None and named in (each.pid, *ancestors_of(each.pid, table))]
    if not own or find_contradiction(own):
        return tuple(ranks)
    kept = leave_out_others(own, ranks)
    if not find_contradiction(kept):
        return tuple(kept)
    launchers = {table[each.pid].parent for each in own if each.pid in table} | {named}
    return tuple(each for each in kept if each in own or (each.pid in table and table[each.pid].parent in launchers))


def _children_of(chosen: Sequence[int], table: Mapping[int, Process]) -> dict[int, list[int]]:
    """Return the processes that run below each rank and are none."""
    below: dict[int, list[int]] = {pid: [] for pid in chosen}
    for pid, process in table.items():
        if pid not in below and process.is_running:
            above = next((each for each in ancestors_of(pid, table) if each in below), None)
            if above is not None:
                below[above].append(pid)
    return below


def choose_ranks(seen: SeenTraining, stacks: SeenStacks) -> list[int]:
    """Return the pids of the ranks, see the beginning of this module."""
    running = {pid: each for pid, each in seen.processes.items() if each.process.is_running}
    found = _numbered(running, stacks) or _ray_workers(running, stacks) or _topmost(running, stacks)
    return [each for pid in found for each in _spawned(pid, running, stacks) or [pid]]


def _with_handed_down(seen: SeenTraining) -> SeenTraining:
    """Return the same, a rank that has set its number after its start with the number that its children inherited.

    /proc/PID/environ has the variables with which a program was started, and only those.
    """
    children: dict[int, list[SeenProcess]] = {}
    for pid, each in seen.processes.items():
        if each.process.is_running and _is_spawned(pid, seen.processes) and not _is_helper(pid, seen.processes):
            children.setdefault(_spawner_of(pid, seen.processes), []).append(each)
    handed = dict(seen.processes)
    for pid, below in children.items():
        parent = seen.processes.get(pid)
        numbers = [{name: each.variables.get(name) for name in RANK_VARIABLES} for each in below]
        is_of_parent = len(below) > 1 and any(numbers[0].values()) and all(each == numbers[0] for each in numbers)
        if parent and is_of_parent and parent.variables.keys().isdisjoint(RANK_VARIABLES):
            variables = {**below[0].variables, **parent.variables}
            handed[pid] = replace(parent, variables=variables, meeting=parent.meeting or below[0].meeting)
    return seen._replace(processes=handed)


def _with_numbers(seen: SeenTraining) -> SeenTraining:
    """Return the same, the ranks of Lightning with their numbers.

    It starts all but the first rank of a node, which it is itself, with LOCAL_RANK, NODE_RANK and WORLD_SIZE:
    lightning/fabric/strategies/launchers/subprocess_script.py.
    """
    known = {pid: _numbers_of(each, None) for pid, each in seen.processes.items() if each.process.is_running}
    if any(name in numbers for numbers in known.values() for name in RANK_VARIABLES):
        return seen
    local = {pid: each["LOCAL_RANK"] for pid, each in known.items() if {"LOCAL_RANK", "WORLD_SIZE"} <= each.keys()}
    parents = {pid: seen.processes[pid].process.parent for pid in local}
    local = {pid: rank for pid, rank in local.items() if local.get(parents[pid]) != rank}  # its data workers inherit it
    first = {parents[pid] for pid in local}
    if len(first) != 1 or 0 in local.values() or not first <= known.keys():
        return seen
    of_one = known[min(local)]
    node, here, world = of_one.get("NODE_RANK", 0), max(local.values()) + 1, of_one["WORLD_SIZE"]
    numbered = dict(seen.processes)
    for pid, rank in {first.pop(): 0, **local}.items():
        numbers = {"RANK": node * here + rank, "LOCAL_RANK": rank, "WORLD_SIZE": world}
        numbers |= {"LOCAL_WORLD_SIZE": here} if here == world else {}
        told = {name: str(number) for name, number in numbers.items()}
        numbered[pid] = replace(numbered[pid], variables={**numbered[pid].variables, **told})
    return seen._replace(processes=numbered)


def _numbered(running: Mapping[int, SeenProcess], stacks: SeenStacks) -> list[int]:
    """Return those that a launcher has numbered: of a process and its children with the same number, the first.

    A launcher may have a number itself, as the first process of a pod (Kubeflow's PyTorchJob).
    """
    numbers = {pid: _numbers_of(each, stacks.answers.get(pid)) for pid, each in running.items()}
    name = next((name for name in RANK_VARIABLES for each in numbers.values() if name in each), None)
    if name is None:
        return []
    pythons, table = _pythons(running, stacks), {pid: each.process for pid, each in running.items()}
    holders = {pid: each[name] for pid, each in numbers.items() if name in each}
    holders = {pid: rank for pid, rank in holders.items() if not is_launcher(running[pid].words)} or holders
    able = {pid: rank for pid, rank in holders.items() if pid in pythons} or holders
    return [pid for pid in able if not any(able.get(up) == able[pid] for up in ancestors_of(pid, table))]


def _ray_workers(running: Mapping[int, SeenProcess], stacks: SeenStacks) -> list[int]:
    """Return the workers of Ray that have something to do; those that train, where Ray Train has other actors too."""
    titles = {pid: each.words[0] for pid, each in running.items() if each.words}
    of_train = [pid for pid, title in titles.items() if _WORKER_OF_RAY_TRAIN.match(title)]
    found = of_train or [pid for pid, title in titles.items() if _WORKER_OF_RAY.match(title)]
    return [pid for pid in found if not _waits_for_tasks(stacks.answers.get(pid))]


def _waits_for_tasks(answer: StackAnswer | None) -> bool:
    """Return whether a worker of Ray is between two tasks: in its main loop, and in no code of a training."""
    inner = next(iter(_main_frames(answer)), None)
    if not answer or not inner or bare_name(inner) != "main_loop" or not _LOOP_OF_RAY.search(inner.file):
        return False
    return all(is_library(frame) for stack in answer.stacks for frame in stack.frames)


def _topmost(running: Mapping[int, SeenProcess], stacks: SeenStacks) -> list[int]:
    pythons, table = _pythons(running, stacks), {pid: each.process for pid, each in running.items()}
    idle = {pid for pid in running if is_launcher(running[pid].words) or _waits_for_tasks(stacks.answers.get(pid))}
    able = pythons - idle
    return [pid for pid in running if pid in able and able.isdisjoint(ancestors_of(pid, table))]


def _pythons(running: Mapping[int, SeenProcess], stacks: SeenStacks) -> set[int]:
    """Return those that run Python, without multiprocessing's helpers; all if that is unknown, or if none does."""
    by_name = (pid for pid, each in running.items() if each.words and _PYTHON.search(each.words[0]))
    found = {pid for pid in stacks.pythons if pid in running} or set(by_name) or set(running)
    return {pid for pid in found if not _is_helper(pid, running)} or found


def _is_helper(pid: int, processes: Mapping[int, SeenProcess]) -> bool:
    """Return whether a process is multiprocessing's own; a child of its fork server has the command of its parent."""
    each = processes.get(pid)
    parent = processes.get(each.process.parent) if each else None
    return each is not None and any(map(_HELPER.match, each.words)) and not (parent and parent.words == each.words)


def _spawner_of(pid: int, processes: Mapping[int, SeenProcess]) -> int:
    """Return the parent of a process, or of the fork server that forked it."""
    parent = processes[pid].process.parent
    return processes[parent].process.parent if _is_helper(parent, processes) else parent


def _spawned(pid: int, running: Mapping[int, SeenProcess], stacks: SeenStacks) -> list[int]:
    """Return the ranks that a process has started by `multiprocessing` and waits for."""
    answer = stacks.answers.get(pid)
    if not (_joins(answer) or _joins_one(answer) or (not _main_frames(answer) and _awaits_spawned(pid, running))):
        return []
    children = [each for each in sorted(_pythons(running, stacks)) if _spawner_of(each, running) == pid]
    is_rank = any(name in _numbers_of(running[pid], answer) for name in RANK_VARIABLES)
    return children if _joins(answer) or (len(children) > 1 and not is_rank) else []


def _awaits_spawned(pid: int, running: Mapping[int, SeenProcess]) -> bool:
    """Return whether a process waits in the kernel for its children, all of which `multiprocessing` has started."""
    parent = running[pid]
    children = [each for each in running if _spawner_of(each, running) == pid and not _is_helper(each, running)]
    is_awaited = parent.waits_for == CHILD and set(parent.awaits or children) <= set(children)
    return is_awaited and all(_is_spawned(each, running) for each in children)


def _is_spawned(pid: int, processes: Mapping[int, SeenProcess]) -> bool:
    """Return whether `multiprocessing` has started a process, by its command line and that of its parent."""
    each = processes[pid]
    parent = processes.get(each.process.parent)
    return "--multiprocessing-fork" in each.words or (
        parent is not None and bool(each.words) and each.words == parent.words
    )


def _joins(answer: StackAnswer | None) -> bool:
    """Return whether a process only waits for ranks that it has spawned (torch.multiprocessing.spawn)."""
    return any(_is_join(each, "multiprocessing/spawn.py") for each in _main_frames(answer))


def _joins_one(answer: StackAnswer | None) -> bool:
    """Return whether the training's own code waits for a process that it has started (multiprocessing.Process)."""
    called = called_by_own(_main_frames(answer))
    return called is not None and _is_join(called, "multiprocessing/process.py")


def _is_join(frame: Frame, file: str) -> bool:
    return frame.function.endswith("join") and frame.file.endswith(file)


def _main_frames(answer: StackAnswer | None) -> tuple[Frame, ...]:
    return next((each.frames for each in answer.stacks if each.is_main), ()) if answer else ()


def _numbers_of(each: SeenProcess, answer: StackAnswer | None) -> dict[str, int]:
    """Return the numbers in the environment in which it was started, and in the one that it has by now."""
    told = {name: number for name, value in each.variables.items() if (number := read_whole(value)) is not None}
    return {**told, **(answer.variables if answer else {})}


def _numbers_of_rank(seen: SeenTraining, stacks: SeenStacks, pid: int) -> dict[str, int]:
    """Return the numbers of a process; those that it has from the one that spawned it are not its own."""
    each, answer = seen.processes[pid], stacks.answers.get(pid)
    if _joins(stacks.answers.get(_spawner_of(pid, seen.processes))):
        return dict(answer.variables) if answer else {}
    return _numbers_of(each, answer)


def _first(names: Iterable[str], numbers: Mapping[str, int]) -> int | None:
    return next((numbers[name] for name in names if name in numbers), None)


def _rank(
    seen: SeenTraining,
    stacks: SeenStacks,
    gpus: tuple[GpuTable, tuple[GpuProcess, ...]] | None,
    host: str,
    node: str | None,
    pid: int,
) -> Rank:
    each, answer = seen.processes[pid], stacks.answers.get(pid) or StackAnswer()
    numbers = _numbers_of_rank(seen, stacks, pid)
    stacks_of_rank = _with_training_thread(answer.stacks)
    if stacks_of_rank != answer.stacks:  # what the kernel reports is another thread
        each = replace(
            each, wait_channel=None, waits_for=None, waits_on=None, awaits=None, is_still=None, kernel_stack=()
        )
    return Rank(
        host,
        pid,
        node,
        redact(" ".join(each.words))[:_COMMAND_LENGTH],
        rank=_first(RANK_VARIABLES, numbers),
        local_rank=_first(LOCAL_RANK, numbers),
        world_size=_first(WORLD_SIZE, numbers),
        local_world_size=_first(LOCAL_WORLD_SIZE, numbers),
        state=each.process.state,
        gpus=_gpus_of(pid, gpus),
        stacks=stacks_of_rank,
        stacks_from=answer.way,
        no_stacks=_why_no_stacks(answer, seen.facts),
        batches=answer.batches,
        uses_gpu=_uses_gpu(pid, seen, gpus),
        waits_outside=_waits_outside(each, seen),
        is_spawned=_is_spawned(pid, seen.processes),
        **shared_fields(Rank, each),
    )


def _waits_outside(each: SeenProcess, seen: SeenTraining) -> bool | None:
    """Return whether no process of the training can end the wait of one; None if that is open.

    One that wakes up now and then, as in a loop that sleeps, may look at others each time.
    """
    if not each.is_still:
        return None
    if each.awaits is not None:
        return seen.processes.keys().isdisjoint(each.awaits)
    return True if each.waits_for in (TIMER, DISK, TERMINAL) else None


def _with_training_thread(stacks: tuple[Stack, ...]) -> tuple[Stack, ...]:
    """Return the same with the thread that trains as the main one, beside which Ray Train starts it."""
    own = [each for each in stacks if not all(map(is_library, each.frames))]
    if len(own) != 1 or not any(each.is_main for each in stacks):
        return stacks
    return tuple(replace(each, is_main=each is own[0]) for each in stacks)


def _gpus_of(pid: int, gpus: tuple[GpuTable, tuple[GpuProcess, ...]] | None) -> tuple[RankGpu, ...]:
    if gpus is None:
        return ()
    mine = {each.gpu_uuid for each in gpus[1] if each.pid == pid and each.gpu_uuid}
    used = (gpu for gpu in gpus[0].gpus if gpu.uuid in mine)
    return tuple(RankGpu(gpu.index, gpu.utilization, power_fraction(gpu)) for gpu in used)


def _uses_gpu(pid: int, seen: SeenTraining, gpus: tuple[GpuTable, tuple[GpuProcess, ...]] | None) -> bool | None:
    """Return whether a process uses a GPU; None in a container, where nvidia-smi lists no processes."""
    if seen.facts.has_gpu is False:
        return False
    listed = {each.pid for each in gpus[1]} if gpus else set()
    return pid in listed if not listed.isdisjoint(seen.processes) else None


def _why_no_stacks(answer: StackAnswer, facts: HostFacts) -> str | None:
    if answer.stacks:
        return None
    said = f": {redact(answer.said)}" if answer.said else ""
    return {
        "denied": f"no permission to read its memory{said}",
        "late": "no time was left to query it",
        "none": "py-spy is not installed there",
        "failed": f"its stacks could not be read{said}",
    }.get(answer.lack or "", "no method to read its stacks is available")
