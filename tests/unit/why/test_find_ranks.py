"""Which processes of a training are its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.unit.verdict.some_ranks import PACKAGES, STD
from tests.unit.why.some_processes import TRAIN, One, joining, ranks, seen, stack_of
from training_monitor.core.models import Gpu, GpuProcess, GpuTable
from training_monitor.why.find_ranks import build_ranks, choose_ranks, choose_training
from training_monitor.why.processes import SeenTraining
from training_monitor.why.ranks import LOCK, Frame, Stack
from training_monitor.why.stacks import SeenStacks, StackAnswer

TORCHRUN = ("/usr/bin/python3", "/opt/conda/bin/torchrun", "train.py")
CALLS = (
    Frame("main_loop", f"{PACKAGES}/ray/_private/worker.py", 1013),
    Frame("<module>", f"{PACKAGES}/ray/_private/workers/default_worker.py", 330),
)
RUNNER = (
    Frame("_run_target", f"{PACKAGES}/ray/train/v2/_internal/execution/worker_group/thread_runner.py", 38),
    Frame("run", f"{STD}/threading.py", 1012),
)
LOADS = (Frame("load_batch", "/w/data.py", 41), Frame("train_fn", "/w/train.py", 80), *RUNNER)


def by_main(*frames: Frame) -> StackAnswer:
    return StackAnswer("py-spy", (Stack("MainThread", frames, True),))


def waiting_for_one(file: str = "/w/run.py", *inside: Frame) -> StackAnswer:
    join = (
        Frame("poll", f"{STD}/multiprocessing/popen_fork.py", 27),
        Frame("wait", f"{STD}/multiprocessing/popen_fork.py", 43),
        Frame("join", f"{STD}/multiprocessing/process.py", 149),
    )
    return by_main(*join, *inside, Frame("<module>", file, 40))


def test_torchrun_numbers_its_children_and_is_no_rank_itself() -> None:
    launcher = One(10, words=("python", "/v/bin/torchrun", "train.py"))
    workers = [
        One(20 + each, 10, variables={"RANK": 4 + each, "LOCAL_RANK": each, "WORLD_SIZE": 8, "LOCAL_WORLD_SIZE": 4})
        for each in range(4)
    ]
    found = build_ranks(seen(launcher, *workers), SeenStacks({}), None, "local", None)
    assert [(each.pid, each.rank, each.local_rank, each.world_size, each.local_world_size) for each in found] == [
        (20 + each, 4 + each, each, 8, 4) for each in range(4)
    ]
    slurm = {"SLURM_PROCID": 0, "SLURM_NTASKS": 2}
    launcher = One(10, words=("python", "torchrun"), variables=slurm)
    workers = [One(20 + each, 10, variables={**slurm, "RANK": each, "WORLD_SIZE": 4}) for each in range(2)]
    assert ranks(launcher, *workers) == [(20, 0), (21, 1)]
    launcher = One(1, 0, TORCHRUN, {"RANK": 0, "WORLD_SIZE": 2})  # Kubeflow numbers the pods
    workers = [
        One(30 + each, 1, variables={"RANK": each, "LOCAL_RANK": each, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2})
        for each in range(2)
    ]
    assert ranks(launcher, *workers) == [(30, 0), (31, 1)]
    assert ranks(launcher) == [(1, 0)], "nothing else has a number"


def test_slurm_and_mpi_number_them_too() -> None:
    for rank, local, world, local_world in [
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", None),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ]:
        names = {rank: 3, local: 1, world: 4, **({local_world: 2} if local_world else {})}
        [one] = build_ranks(seen(One(20, variables=names)), SeenStacks({}), None, "local", None)
        assert (one.rank, one.local_rank, one.world_size) == (3, 1, 4)
        assert one.local_world_size == (2 if local_world else None)


def test_a_shell_above_the_python_that_has_its_number_is_no_rank() -> None:
    number = {"RANK": 1}
    for pythons in ((20,), ()):  # also where it is unknown which processes run Python
        shell, rank = One(10, 1, ("bash", "run.sh"), number), One(20, 10, variables=number)
        assert ranks(shell, rank, stacks=SeenStacks({}, pythons)) == [(20, 1)]
    assert ranks(One(10, 1, ("./train",), number), stacks=SeenStacks({})) == [(10, 1)], "it is no Python"


def test_data_workers_have_the_number_of_their_rank_and_are_its_children() -> None:
    rank = One(20, variables={"RANK": 1})
    workers = [One(30 + each, 20, variables={"RANK": 1}, state="SD"[each]) for each in range(2)]
    helper = One(40, 31, ("gzip",), state="D")
    answers = {30: stack_of(RANK=1)}
    [found] = build_ranks(seen(rank, *workers, helper), SeenStacks(answers, (20, 30, 31)), None, "local", None)
    assert (found.pid, [each.pid for each in found.children]) == (20, [31, 40, 30]), "those that wait for a disk first"


def test_without_numbers_the_topmost_pythons_are_the_ranks() -> None:
    assert ranks(One(20), One(30, 20), One(31, 20)) == [(20, None)]
    launcher = One(10, words=("python", "/v/bin/accelerate", "launch", "train.py"))
    assert ranks(launcher, One(20, 10), One(21, 10), One(30, 20)) == [(20, None), (21, None)]


def test_spawned_ranks_are_those_whose_parent_only_waits_for_them() -> None:
    """Their number is not that of the node: a Slurm job with one task per node spawns a process per GPU."""
    for node in ({}, {"SLURM_PROCID": 1, "SLURM_NTASKS": 2}):
        tree = (One(10, variables=node), One(20, 10, variables=node), One(21, 10, variables=node), One(30, 20))
        assert ranks(*tree, stacks=SeenStacks({10: joining()}, (10, 20, 21, 30))) == [(20, None), (21, None)]
        told = {10: joining(), 20: stack_of(RANK=8), 21: stack_of(RANK=9)}
        assert ranks(*tree, stacks=SeenStacks(told, (10, 20, 21))) == [(20, 8), (21, 9)]


def helper(pid: int, parent: int, name: str, variables: Mapping[str, object] | None = None) -> One:
    """A process that multiprocessing starts for itself."""
    return One(pid, parent, ("python", "-B", "-c", f"from {name} import main;main(3)"), variables or {})


def test_a_helper_of_multiprocessing_is_no_rank() -> None:
    for name in [
        "multiprocessing.resource_tracker",
        "multiprocessing.semaphore_tracker",
        "joblib.externals.loky.resource_tracker",
    ]:
        spawned = (One(10), helper(19, 10, name), One(20, 10), One(21, 10))
        assert ranks(*spawned, stacks=SeenStacks({10: joining()}, (10, 19, 20, 21))) == [(20, None), (21, None)]
        launcher = One(10, words=("python", "/v/bin/torchrun", "train.py"))
        assert ranks(launcher, helper(19, 10, name), One(20, 10)) == [(20, None)]
        left = helper(19, 1, name, {"RANK": 1})  # by a rank that has ended
        assert ranks(left, One(20, variables={"RANK": 0})) == [(20, 0)]
        assert ranks(helper(19, 1, name), One(20), stacks=SeenStacks({})) == [(20, None)]


def test_ranks_from_a_forkserver_have_its_command_line() -> None:
    name, node = "multiprocessing.forkserver", {"SLURM_PROCID": 1}
    ranked = [helper(each, 12, name, node) for each in (20, 21)]
    tracker = helper(11, 10, "multiprocessing.resource_tracker", node)
    tree = (One(10, variables=node), tracker, helper(12, 10, name, node), *ranked)
    pythons = (10, 11, 12, 20, 21)
    assert ranks(*tree, stacks=SeenStacks({10: joining()}, pythons)) == [(20, None), (21, None)]
    told = {10: joining(), 20: stack_of(RANK=8), 21: stack_of(RANK=9)}
    assert ranks(*tree, stacks=SeenStacks(told, pythons)) == [(20, 8), (21, 9)]


def test_the_workers_of_ray_and_ray_train_train_but_not_between_two_tasks() -> None:
    workers = [One(20 + each, 1, ("ray::TrainWorker.run()",)) for each in range(2)]
    idle = [One(30, 1, ("ray::IDLE",)), One(31, 1, ("ray::IDLE_SpillWorker",))]
    assert ranks(*workers, *idle, One(40, 20), stacks=SeenStacks({}, (20, 21, 30, 31, 40))) == [(20, None), (21, None)]
    others = (One(40, 1, ("ray::TrainController",)), One(41, 1, ("ray::SplitCoordinator",)))
    for title in ("ray::RayTrainWorker.execute", "ray::_RayTrainWorker__execute.get_next"):
        workers = [One(20 + each, 1, (title,)) for each in range(2)]
        assert ranks(*workers, *others) == [(20, None), (21, None)]
    assert ranks(*others) == [(40, None), (41, None)]
    loop = Frame("Worker.main_loop", "/v/site-packages/ray/_private/worker.py", 950)
    idle = StackAnswer("py-spy", (Stack("MainThread", (loop,), True),))
    threaded = StackAnswer("py-spy", (*idle.stacks, Stack("Thread-3", LOADS)))
    busy = StackAnswer("py-spy", (Stack("MainThread", (*LOADS, loop), True),))
    workers = [One(pid, 1, ("ray::Worker",)) for pid in (20, 21, 22)]
    answers = {20: idle, 21: busy, 22: threaded}
    assert ranks(*workers, stacks=SeenStacks(answers, (20, 21, 22))) == [(21, None), (22, None)]
    assert ranks(workers[0], stacks=SeenStacks(answers, (20,))) == []
    numbered = One(20, 1, ("ray::Worker",), {"RANK": 1})  # it is what the others wait for
    assert ranks(numbered, stacks=SeenStacks(answers, (20,))) == [(20, 1)]


def test_only_zombies_of_the_training_are_told() -> None:
    launcher = One(10, words=("python", "torchrun"))
    alive, dead = One(20, 10, variables={"RANK": 0}), One(21, 10, ("python",), state="Z")
    found = build_ranks(seen(launcher, alive, dead), SeenStacks({}), None, "local", None)
    assert [(each.pid, each.rank, each.state) for each in found] == [(20, 0, "S"), (21, None, "Z")]
    rank, tool = One(20, variables={"RANK": 0}), One(21, 20, ("sleep",), state="Z")
    assert ranks(rank, tool) == [(20, 0)]


def test_a_number_that_is_none_numbers_nobody_and_is_not_counted_with() -> None:
    for value in ("-1", "99999999999999999999", "٣", "1.5", ""):
        assert ranks(One(20, variables={"RANK": value})) == [(20, None)]
    for value in ("", "-1", "x", "1" * 30):
        for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE"):
            child = One(20, 10, variables={"LOCAL_RANK": 1, "NODE_RANK": 0, "WORLD_SIZE": 2, name: value})
            assert ranks(One(10), child) == ([(10, 0), (20, 1)] if name == "NODE_RANK" else [(10, None)])


def test_a_deep_or_wide_tree_takes_little_time() -> None:
    deep = [One(100 + each, 99 + each, variables={"RANK": each % 2}) for each in range(3000)]
    wide = [One(100 + each, 1, variables={"RANK": each}) for each in range(1500)]
    loop = [One(100, 101), One(101, 102), One(102, 100)]
    for tree in (deep, wide, loop):
        for stacks in (SeenStacks({}), SeenStacks({}, tuple(each.pid for each in tree))):
            training = seen(*tree)
            assert len(build_ranks(training, stacks, None, "local", None)) <= 1024
            choose_ranks(replace_numbers(training), stacks)


def replace_numbers(training: SeenTraining) -> SeenTraining:
    """The same without numbers."""
    return SeenTraining(training.facts, {pid: replace(each, variables={}) for pid, each in training.processes.items()})


def test_lightning_is_the_first_rank_itself_and_numbers_its_children() -> None:
    for node in [0, 2]:
        sizes = {"NODE_RANK": node, "WORLD_SIZE": 4 * (node + 1)}
        children = [One(20 + each, 10, variables={"LOCAL_RANK": each, **sizes}) for each in (1, 2, 3)]
        workers = One(40, 22, variables={"LOCAL_RANK": 2, **sizes})
        found = build_ranks(seen(One(10), *children, workers), SeenStacks({}), None, "local", None)
        first = 4 * node
        assert [(each.pid, each.rank, each.local_rank) for each in found] == [
            (10, first, 0), (21, first + 1, 1), (22, first + 2, 2), (23, first + 3, 3),
        ]  # fmt: skip
        assert {(each.world_size, each.local_world_size) for each in found} == {
            (sizes["WORLD_SIZE"], None if node else 4)
        }
    children = [One(20 + each, 10, variables={"LOCAL_RANK": each, "WORLD_SIZE": 2}) for each in range(2)]
    assert ranks(One(10), *children) == [(10, None)]


def test_processes_that_are_joined_are_ranks() -> None:
    """As in PyTorch's tutorials: multiprocessing.Process for each rank, and join() for each."""
    tree = (One(10), *(One(20 + each, 10) for each in range(3)))
    pids = (10, 20, 21, 22)
    assert ranks(*tree, stacks=SeenStacks({10: waiting_for_one()}, pids)) == [(20, None), (21, None), (22, None)]
    assert ranks(*tree[:2], stacks=SeenStacks({10: waiting_for_one()}, pids[:2])) == [(10, None)], "a helper"
    loader = Frame("_shutdown_workers", f"{PACKAGES}/torch/utils/data/dataloader.py", 1500)
    ends_its_loader = SeenStacks({10: waiting_for_one("/w/train.py", loader)}, pids)
    assert ranks(*tree, stacks=ends_its_loader) == [(10, None)]
    numbered = (One(10, variables={"RANK": 0}), *tree[1:])
    assert ranks(*numbered, stacks=SeenStacks({10: waiting_for_one()}, pids)) == [(10, 0)]
    assert ranks(*tree[:2], stacks=SeenStacks({10: joining()}, pids[:2])) == [(20, None)]


def test_the_ranks_of_the_training_that_was_named_are_chosen() -> None:
    def place(port: int, rank: int) -> dict[str, object]:
        return {"MASTER_ADDR": "gpu-1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": 2}

    launchers = [One(pid, 5, words=("python", "torchrun")) for pid in (10, 11)]
    two = [One(20 + 2 * job + each, 10 + job, variables=place(job, each)) for job in range(2) for each in range(2)]
    sweep = One(5, 1, words=("python", "sweep.py"))
    training = seen(sweep, *launchers, *two)
    found = build_ranks(training, SeenStacks({}), None, "local", None)
    by_named = {named: [each.pid for each in choose_training(found, training, named)] for named in (21, 11, 5, None)}
    assert by_named == {21: [20, 21], 11: [22, 23], 5: [20, 22, 21, 23], None: [20, 22, 21, 23]}
    bare = seen(*launchers, *(replace(each, variables={"RANK": each.pid % 2, "WORLD_SIZE": 2}) for each in two))
    found = build_ranks(bare, SeenStacks({}), None, "local", None)
    assert [each.pid for each in choose_training(found, bare, 21)] == [20, 21]


def test_ray_train_trains_in_a_thread_of_which_the_kernel_tells_nothing() -> None:
    process = One(20, 1, ("ray::RayTrainWorker",), wait="futex_wait_queue|202 0x0")
    calls, trains = Stack("MainThread", CALLS, True), Stack("TrainingThread(train_fn)", LOADS)
    beside = Stack("pin_memory", (Frame("get", f"{STD}/queue.py", 180),))
    stacks = SeenStacks({20: StackAnswer("py-spy", (calls, beside, trains))}, (20,))
    [rank] = build_ranks(seen(process), stacks, None, "local", None)
    assert (rank.main_stack, rank.waits_for, rank.wait_channel) == (LOADS, None, None)
    assert [each.is_main for each in rank.stacks] == [False, False, True]
    in_main = SeenStacks({20: StackAnswer("py-spy", (Stack("MainThread", LOADS, True), beside))}, (20,))
    [rank] = build_ranks(seen(process), in_main, None, "local", None)
    assert (rank.main_stack, rank.waits_for) == (LOADS, LOCK)
    several = SeenStacks({20: StackAnswer("py-spy", (calls, trains, trains))}, (20,))
    [rank] = build_ranks(seen(process), several, None, "local", None)
    assert rank.main_stack == CALLS, "which of them trains is unknown"


def test_whether_a_rank_uses_a_gpu() -> None:
    def uses(facts: str, *listed: int) -> bool | None:
        processes = tuple(GpuProcess(pid, "p", "GPU-0", None) for pid in listed)
        table = GpuTable((Gpu(0, uuid="GPU-0"),))
        [one] = build_ranks(seen(One(20), facts=facts), SeenStacks({}), (table, processes), "local", None)
        return one.uses_gpu

    assert (uses("has_gpu=0\n"), uses("has_gpu=1\n"), uses("")) == (False, None, None)
    assert uses("has_gpu=1\n", 20) is True
    assert uses("has_gpu=1\n", 77) is None, "of another container"


SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork")


def family(*words: tuple[str, ...], wait: str = "do_wait|", **known: object) -> list[One]:
    """A process that waits for its children, and its children."""
    return [One(20, wait=wait, **known), *(One(30 + at, 20, each) for at, each in enumerate(words))]  # type: ignore[arg-type]


def test_without_stacks_the_awaited_processes_of_multiprocessing_are_the_ranks() -> None:
    for words in [TRAIN, SPAWNED]:
        for wait in ("do_wait|", "do_wait|61 0x1f 0x7f 0x0"):
            assert ranks(*family(words, words, wait=wait)) == [(30, None), (31, None)]
        helper = ("python", "-c", "from multiprocessing.resource_tracker import main")
        assert ranks(*family(words, words, helper)) == [(30, None), (31, None)]
    for others in ([TRAIN], [TRAIN, TRAIN, ("gsutil", "cp")]):
        assert ranks(*family(*others)) == [(20, None)]
    assert ranks(*family(TRAIN, TRAIN, wait="do_wait|61 0x63 0x7f 0x0"), One(99, 20, ("gsutil",))) == [(20, None)]
    assert ranks(*family(TRAIN, TRAIN, wait="pipe_read|")) == [(20, None)]
    assert ranks(*family(TRAIN, TRAIN, variables={"RANK": 0})) == [(20, 0)]


def test_a_rank_without_a_number_has_the_one_that_its_workers_inherit() -> None:
    def rank(pid: int, number: int) -> list[One]:
        inherited = {"RANK": number, "WORLD_SIZE": 2, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": 29500}
        return [One(pid), *(One(pid + 1 + each, pid, SPAWNED, inherited) for each in range(2))]

    assert ranks(*rank(20, 0), *rank(30, 1)) == [(20, 0), (30, 1)]
    [first] = build_ranks(seen(*rank(20, 0)), SeenStacks({}), None, "local", None)
    assert first.world_size == 2
    numbered = [One(30 + each, 20, SPAWNED, {"RANK": each}) for each in range(2)]
    assert ranks(One(20), *numbered) == [(30, 0), (31, 1)], "each has its own"


def test_children_that_wait_outside_the_training_are_listed_first() -> None:
    one, *children = family(TRAIN, TRAIN, wait="pipe_read|")
    children[1].wait = "hrtimer_nanosleep|"
    [rank] = build_ranks(seen(one, *children), SeenStacks({}, (20, 30, 31)), None, "local", None)
    assert [(each.pid, each.waits_outside, each.is_spawned) for each in rank.children] == [
        (31, True, True),
        (30, None, True),
    ]
