"""Which processes are the ranks, where a launcher, a framework or an operator does it in its own way."""

from __future__ import annotations

import pytest

from tests.unit.explain.test_processes import One, joining, ranks, seen
from tests.unit.judging.some_ranks import PACKAGES, STD
from training_monitor.core.models import Gpu, GpuProcess, GpuTable
from training_monitor.explain.find_ranks import build_ranks
from training_monitor.explain.stacks import SeenStacks, StackAnswer
from training_monitor.judging.ranks import LOCK, Frame, Stack

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


def test_a_launcher_that_an_operator_has_numbered_is_no_rank() -> None:
    """Kubeflow numbers the pods: training-operator, pkg/controller.v1/pytorch/envvar.go, setPodEnv."""
    launcher = One(1, 0, TORCHRUN, {"RANK": 0, "WORLD_SIZE": 2})
    workers = [
        One(30 + each, 1, variables={"RANK": each, "LOCAL_RANK": each, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2})
        for each in range(2)
    ]
    assert ranks(launcher, *workers) == [(30, 0), (31, 1)]
    assert ranks(launcher) == [(1, 0)], "nothing else has a number"


@pytest.mark.parametrize("node", [0, 2])
def test_lightning_is_the_first_rank_itself_and_numbers_its_children(node: int) -> None:
    sizes = {"NODE_RANK": node, "WORLD_SIZE": 4 * (node + 1)}
    children = [One(20 + each, 10, variables={"LOCAL_RANK": each, **sizes}) for each in (1, 2, 3)]
    workers = One(40, 22, variables={"LOCAL_RANK": 2, **sizes})
    found = build_ranks(seen(One(10), *children, workers), SeenStacks({}), None, "local", None)
    first = 4 * node
    assert [(each.pid, each.rank, each.local_rank) for each in found] == [
        (10, first, 0), (21, first + 1, 1), (22, first + 2, 2), (23, first + 3, 3),
    ]  # fmt: skip
    assert {(each.world_size, each.local_world_size) for each in found} == {(sizes["WORLD_SIZE"], None if node else 4)}


def test_who_has_all_local_ranks_below_it_is_no_rank() -> None:
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


def test_only_the_workers_of_ray_train_train() -> None:
    others = (One(40, 1, ("ray::TrainController",)), One(41, 1, ("ray::SplitCoordinator",)))
    for title in ("ray::RayTrainWorker.execute", "ray::_RayTrainWorker__execute.get_next"):
        workers = [One(20 + each, 1, (title,)) for each in range(2)]
        assert ranks(*workers, *others) == [(20, None), (21, None)]
    assert ranks(*others) == [(40, None), (41, None)]


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
