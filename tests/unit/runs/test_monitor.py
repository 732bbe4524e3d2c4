"""The class that a script uses: nothing it is handed raises, what is written is what was said."""

from __future__ import annotations

import copy
import decimal
import fractions
import itertools
import json
import math
import pickle
import sys
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import FakeClock
from training_monitor.core.clock import SYSTEM_CLOCK
from training_monitor.runs.files import run_files
from training_monitor.runs.monitor import TrainingMonitor, default_file
from training_monitor.runs.progress_file import parse_progress_file
from training_monitor.runs.record import GrowingHistory, RunRecord, plain_value, value_now, written
from training_monitor.runs.rows import percent_done, total_steps_of
from training_monitor.runs.values import RUNNING, MetricHistory, OwnResources, Run, RunRow
from training_monitor.targets.proc_stat import Identity


def monitor_in(folder: Path, name: str = "run.json", **options: Any) -> TrainingMonitor:
    return TrainingMonitor(folder / name, **{"interval": 0.01, "handle_signals": False, **options})


def wait_for(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)


def ending(folder: Path, name: str = "run.json") -> tuple[str, str | None]:
    """The status and the message of a run."""
    document = read(folder / name)
    return document["status"], document["error_message"]


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@contextmanager
def told() -> Iterator[list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        messages: list[str] = []
        yield messages
        messages += [str(each.message) for each in caught]


class Raises:
    def __float__(self) -> float:
        raise RuntimeError("password=hunter22222")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class BadNumber(int):
    def __abs__(self) -> int:
        raise RuntimeError("no size")


class BadText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unbound:
    """As a proxy for something that is not there."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("unbound")


class Scalar:
    """As a tensor or array of one element."""

    def __init__(self, value: object) -> None:
        self.value = value

    def item(self) -> object:
        return self.value

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = object.__hash__


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize(("layout", "file"), [("run.json", "run.json"), ("run", "run/progress.json")])
def test_a_run_in_either_layout_is_written_and_read_back(tmp_path: Path, layout: str, file: str) -> None:
    with monitor_in(tmp_path, layout, run_name="my run", wandb_url="https://wandb.ai/x") as monitor:
        monitor.set_dataset_sizes(1000, 100)
        monitor.start_epoch(1, 10, 2)
        for number in range(10):
            monitor.start_batch()
            monitor.update_metrics(loss=1.0 / (number + 1), note="a\nb", done=False, bad=math.nan)
            monitor.end_batch()
    path = tmp_path / file
    run = parse_progress_file(path.read_text(), Run("run", str(path), ""))
    assert (run.status, run.phase, run.epoch, run.batch, run.total_batches, run.step) == (
        "FINISHED", "training", 1, 10, 10, 10,
    )  # fmt: skip
    assert run.metrics == {"loss": 0.1, "note": "a\nb", "done": False, "bad": "nan"}
    assert run.history["loss"].values[-1] == 0.1
    assert run.process and run.process.start_ticks and run.wandb_url == "https://wandb.ai/x"
    document = read(path)
    assert document["metadata"]["run_name"] == "my run" and document["estimates"]["dataset_ratio"] == 0.1
    assert document["end_time"] >= document["start_time"] and document["estimates"]["run"]["remaining"] == 0
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_first_file_is_there_soon_and_a_heartbeat_keeps_it_young(tmp_path: Path) -> None:
    monitor, path = monitor_in(tmp_path), tmp_path / "run.json"
    monitor.start_monitoring()
    monitor.start_monitoring()
    wait_for(path.exists)
    first = read(path)
    assert first["status"] == "RUNNING" and first["state"]["phase"] == "loading" and first["end_time"] is None
    wait_for(lambda: read(path)["updated_at"] != first["updated_at"])
    wait_for(lambda: read(path)["resources"]["cpu_percent"] is not None)
    resources = read(path)["resources"]
    assert resources["rss_bytes"] > 1e6 and resources["threads"] >= 2
    monitor.shutdown()
    assert read(path)["status"] == "FINISHED"


def test_the_old_calls_of_a_training_with_a_progress_bar(tmp_path: Path) -> None:
    monitor = TrainingMonitor(str(tmp_path / "old"), "wandb name", None, handle_signals=False)
    monitor.set_dataset_sizes(100, 10)
    monitor.start_phase("training")
    monitor.start_epoch(0, 10, 2)
    monitor.start_training()
    monitor.update_tqdm_stats(2.5, 4.0, 36.0)
    monitor.start_batch()
    monitor.update_metrics(loss=0.5, learning_rate=1e-4, samples_processed=32)
    monitor.end_training()
    monitor.start_validation()
    monitor.end_validation()
    monitor.end_epoch()
    monitor.set_failed("out of memory")
    monitor.shutdown()
    document = read(tmp_path / "old" / "progress.json")
    assert (document["status"], document["error_message"]) == ("FAILED", "out of memory")
    assert document["state"]["epoch"] == 1 and document["metadata"]["wandb_run_name"] == "wandb name"
    assert document["metrics"]["samples_processed"] == 32


def test_validation_batches_are_no_steps(tmp_path: Path) -> None:
    with monitor_in(tmp_path) as monitor:
        monitor.start_epoch()
        for _ in range(3):
            monitor.start_batch()
        monitor.start_validation(7)
        for _ in range(5):
            monitor.start_batch()
        monitor.end_validation()
        monitor.start_batch(4)
    state = read(tmp_path / "run.json")["state"]
    assert (state["step"], state["batch"], state["total_validation_batches"]) == (4, 4, 7)


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("finished raise", "FINISHED", None),
        ("finished canceled", "FINISHED", None),
        ("finished failed", "FAILED", "ValueError: mine"),
        ("failed finished", "FAILED", "ValueError: mine"),
        ("failed canceled", "FAILED", "ValueError: mine"),
        ("failed raise finished", "FAILED", "ValueError: mine"),
        ("canceled finished", "CANCELED", None),
        ("canceled failed", "CANCELED", None),
        ("canceled raise", "CANCELED", None),
        ("raise finished", "FAILED", "KeyError: 'theirs'"),
        ("raise failed finished", "FAILED", "ValueError: mine"),
        ("raise canceled", "CANCELED", None),
        ("pass canceled finished", "CANCELED", None),
        ("pass failed", "FAILED", "ValueError: mine"),
        ("pass finished failed", "FAILED", "ValueError: mine"),
    ],
)
def test_the_first_word_of_a_script_stands_but_no_failure_is_lost(
    tmp_path: Path, words: str, status: str, message: str | None
) -> None:
    monitor = monitor_in(tmp_path)
    monitor.start_batch()
    for word in words.split():
        if word == "raise":
            monitor.__exit__(KeyError, KeyError("theirs"), None)
        elif word == "pass":
            monitor.__exit__(None, None, None)
        elif word == "failed":
            monitor.set_failed(ValueError("mine"))
        else:
            getattr(monitor, f"set_{word}")()
    assert ending(tmp_path) == (status, message)


@pytest.mark.parametrize(
    ("error", "status", "message", "exit_code"),
    [
        (ValueError("broken"), "FAILED", "ValueError: broken", None),
        (ValueError(139), "FAILED", "ValueError: 139", None),
        (KeyboardInterrupt(), "CANCELED", "KeyboardInterrupt", None),
        (SystemExit(), "FINISHED", None, 0),
        (SystemExit(0), "FINISHED", None, 0),
        (SystemExit(3), "FAILED", None, 3),
        (SystemExit(139), "FAILED", None, 139),
        (SystemExit(True), "FAILED", None, 1),
        (SystemExit(-1), "FAILED", None, 255),
        (SystemExit(2**80 + 7), "FAILED", None, 255),
        (SystemExit("no data"), "FAILED", "no data", 1),
        (RuntimeError("token=abcdefgh123"), "FAILED", "RuntimeError: token=***", None),
        (RuntimeError(Raises()), "FAILED", "RuntimeError: (its text raises RuntimeError)", None),
    ],
)
def test_the_end_of_the_block_is_the_end_of_the_run(
    tmp_path: Path, error: BaseException, status: str, message: str | None, exit_code: int | None
) -> None:
    with pytest.raises(type(error)), monitor_in(tmp_path):
        raise error
    assert (*ending(tmp_path), read(tmp_path / "run.json")["exit_code"]) == (status, message, exit_code)


def test_a_script_that_says_that_it_failed_hands_over_its_exit_or_a_bounded_message(tmp_path: Path) -> None:
    monitor_in(tmp_path).set_failed(SystemExit(139))
    assert ending(tmp_path) == ("FAILED", None) and read(tmp_path / "run.json")["exit_code"] == 139
    monitor_in(tmp_path).set_failed("x" * 10**6 + "\ud800")
    assert len(ending(tmp_path)[1] or "") == 2000


def test_shutdown_in_a_finally_sees_the_exception_on_its_way(tmp_path: Path) -> None:
    monitor = monitor_in(tmp_path)
    with pytest.raises(ValueError):
        try:
            monitor.start_batch()
            raise ValueError("broken")
        finally:
            monitor.shutdown()
    assert ending(tmp_path)[1] == "ValueError: broken"


def test_what_was_put_into_the_interpreter_is_taken_out(tmp_path: Path) -> None:
    before = sys.exit, sys.excepthook
    with monitor_in(tmp_path, "a.json") as first:
        second = monitor_in(tmp_path, "b.json")
        second.start_monitoring()
        first.set_finished()
        assert (sys.exit, sys.excepthook) != before
        second.set_finished()
        with pytest.raises(SystemExit) as ended:
            sys.exit(4)
        assert ended.value.code == 4
    sys.exit, sys.excepthook = before
    assert read(tmp_path / "a.json")["status"] == read(tmp_path / "b.json")["status"] == "FINISHED"


# ---------------------------------------------------------------- nothing raises


def test_calls_that_make_no_sense_warn_once_each_and_raise_nothing(tmp_path: Path) -> None:
    with told() as messages:
        monitor: Any = monitor_in(tmp_path)
        for _ in range(3):
            monitor.set_dataset_sizes(None, "x")
            monitor.start_epoch("one", -5, [])
            monitor.start_epoch(1, 2, 3, 4, 5)
            monitor.start_batch("x")
            monitor.start_batch(-1)
            monitor.update_metrics(5)
            monitor.update_tqdm_stats("?", None, None)
            monitor.track_variables(7)
            monitor.track_variables({5: 5})
            monitor.start_phase(Raises())
            monitor.start_training(total_batches=True)
        monitor.end_validation()
        monitor.end_epoch()
        monitor.set_finished()
    assert read(tmp_path / "run.json")["status"] == "FINISHED"
    assert all(message.startswith("training_monitor: ") for message in messages)
    assert len(messages) == len(set(messages)) == 7


def test_warnings_that_are_errors_raise_nothing_either(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor = monitor_in(tmp_path)
        monitor.start_epoch("one")  # type: ignore[arg-type]
        monitor.set_finished()
    assert read(tmp_path / "run.json")["status"] == "FINISHED"


@pytest.mark.parametrize("file", ["", "control_x.json", ".hidden", "a\0b", 5])
def test_a_path_that_can_be_none_warns_and_nothing_is_written(tmp_path: Path, file: Any) -> None:
    with told() as messages:
        with TrainingMonitor(file) as monitor:
            monitor.start_batch()
            monitor.update_metrics(loss=1)
        monitor.set_finished()
    assert len(messages) == 1 and "progress is not being written" in messages[0]


@pytest.mark.parametrize("interval", [math.inf, math.nan, -1, "1", None])
def test_an_interval_that_makes_no_sense_is_none_that_hurts(tmp_path: Path, interval: Any) -> None:
    with told() as messages, monitor_in(tmp_path, interval=interval) as monitor:
        wait_for((tmp_path / "run.json").exists)
        monitor.start_batch()
    assert read(tmp_path / "run.json")["state"]["step"] == 1 and messages == []


def test_the_default_file_has_the_name_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    for script, file in {
        "/a/train.py": "train",
        "/a/evaluation/__main__.py": "evaluation",
        "-c": "run",
        "": "run",
        "/a/control.py": "run_control",
        "control_x.py": "run_control_x",
        "progress.py": "run_progress",
    }.items():
        monkeypatch.setattr(sys, "argv", [script])
        assert default_file() == f"progress/{file}.json"
        assert run_files(default_file()).name == file


SILENT_RANKS = (
    "RANK=1 LOCAL_RANK=0,RANK=x,SLURM_PROCID=3,OMPI_COMM_WORLD_RANK=2,PMI_RANK=1,PMIX_RANK=1,MV2_COMM_WORLD_RANK=1,"
    "RANK=5 SLURM_PROCID=0,LOCAL_RANK=1,LOCAL_RANK=0 NODE_RANK=1"
)
WRITING_RANKS = (
    "SLURM_PROCID=0",  # also that of a plain step of sbatch or salloc
    "RANK=0 SLURM_PROCID=1",  # torchrun in a step of srun
    "RANK= SLURM_PROCID=0 LOCAL_RANK=1",
    "LOCAL_RANK=0",
)


@pytest.mark.parametrize("environ", [*SILENT_RANKS.split(","), *WRITING_RANKS])
def test_only_rank_zero_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: str) -> None:
    for setting in environ.split():
        monkeypatch.setenv(*setting.split("="))
    with monitor_in(tmp_path, "other.json") as monitor:
        monitor.start_epoch(1)
        monitor.start_batch(1)
        monitor.update_metrics(loss=1)
        assert monitor.is_change() is False and monitor.check_changes() == ()
    assert [path.name for path in tmp_path.iterdir()] == (["other.json"] if environ in WRITING_RANKS else [])
    with monitor_in(tmp_path, "forced.json", rank=0):
        pass
    assert (tmp_path / "forced.json").exists()


def test_a_pickled_monitor_does_nothing_and_a_copied_one_is_the_same(tmp_path: Path) -> None:
    monitor = monitor_in(tmp_path)
    assert copy.deepcopy(monitor) is monitor is copy.copy(monitor)
    other = pickle.loads(pickle.dumps(monitor))
    with told() as messages, other:
        other.start_batch()
    assert list(tmp_path.iterdir()) == []
    assert len(messages) == 1 and "the copy of its monitor in this process does nothing" in messages[0]


def test_a_run_after_the_end_of_one_takes_its_place_and_says_so(tmp_path: Path) -> None:
    monitor, mine = monitor_in(tmp_path), {"lr": 0.1}
    monitor.track_variables(mine)
    monitor.start_epoch(1, 2, 1)
    monitor.start_batch()
    monitor.set_failed("the first")
    with told() as messages:
        monitor.start_batch()
        monitor.start_batch()
    assert len(messages) == 1 and "has ended (FAILED)" in messages[0]
    with told() as messages, monitor:
        monitor.start_epoch(1, 3, 1)
        for _ in range(3):
            monitor.start_batch()
        monitor.update_metrics(loss=2.0)
    assert len(messages) == 1 and "a new run replaces it" in messages[0]
    document = read(tmp_path / "run.json")
    assert (document["status"], document["error_message"], document["state"]["step"]) == ("FINISHED", None, 3)
    assert document["metrics"] == {"loss": 2.0} and list(document["variables"]) == ["lr"]
    monitor.end_epoch()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("report", "status", "message"),
    [
        ({}, "FINISHED", None),
        ({"total_batches": 2, "total_epochs": 1}, "FINISHED", None),
        ({"total_batches": 20}, "CANCELED", "exited with status 0 at batch 2 of 20"),
        ({"total_batches": 20, "total_epochs": 3}, "CANCELED", "exited with status 0 at epoch 1 of 3, batch 2 of 20"),
        ({"total_batches": 2, "total_epochs": 3}, "FINISHED", "exited with status 0 at epoch 1 of 3"),
    ],
)
def test_an_exit_before_the_announced_end_says_where_it_was(
    tmp_path: Path, report: dict[str, int], status: str, message: str | None
) -> None:
    for name, exits in (("exit.json", True), ("end.json", False)):
        with suppress(SystemExit), monitor_in(tmp_path, name) as monitor:
            monitor.start_epoch(1, **report)
            monitor.start_batch()
            monitor.start_batch()
            if exits:
                raise SystemExit(0)
    assert ending(tmp_path, "exit.json") == (status, message)
    ended = message and message.replace("exited with status 0", "ended")
    assert ending(tmp_path, "end.json") == ("FINISHED", ended)


def test_a_failing_callback_is_told_and_the_value_applied(tmp_path: Path) -> None:
    monitor, mine = monitor_in(tmp_path), {"batch_size": 8}
    monitor.track_variables(mine)
    monitor.register_callback("batch_size", lambda name, old, new: 1 / 0)
    heard: list[object] = []
    monitor.register_general_callback(lambda *change: heard.append(change))
    with told() as messages, monitor:
        (tmp_path / "control_run.json").write_text('{"batch_size": 16}')
        wait_for(lambda: monitor.is_change("batch_size"))
        assert monitor.should_restart_dataloader() and not monitor.should_restart_dataloader()
        assert monitor.get_change_summary() == "batch_size: 8 -> 16"
        assert not monitor.is_change("batch_size") and not monitor.is_change()
    assert mine == {"batch_size": 16} == monitor.variables
    assert heard == [("batch_size", 8, 16)]
    assert len(messages) == 1 and "ZeroDivisionError" in messages[0]


# ---------------------------------------------------------------- values


def test_any_value_becomes_a_number_or_a_short_text(subtests: pytest.Subtests) -> None:
    for value, plain in [
        (True, True),
        (None, None),
        (3, 3),
        (2**70, float(2**70)),
        (-(10**400), -math.inf),
        (1.5, 1.5),
        ("x" * 500, "x" * 200),
        ("api_key=abcdef12345", "api_key=***"),
        (Scalar(2), 2),
        (Scalar(2.5), 2.5),
        (Scalar(decimal.Decimal("0.5")), 0.5),
        (fractions.Fraction(1, 4), 0.25),
        ([1, 2], "list: float() argument must be a string or a real number, not 'list'"),
        (Raises(), "Raises: password=***"),
        (BadNumber(3), "BadNumber: no size"),
        (BadText("x"), "BadText: no text"),
    ]:
        with subtests.test(value=value, plain=plain):
            assert plain_value(value) == plain


def test_values_that_hide_what_they_are_or_have_no_json_cost_no_status(tmp_path: Path) -> None:
    with told() as messages, monitor_in(tmp_path) as monitor:
        monitor.update_metrics(loss=1.0, proxy=Unbound())
    document = read(tmp_path / "run.json")
    assert (document["status"], document["metrics"]) == ("FINISHED", {"loss": 1.0, "proxy": "Unbound: unbound"})
    assert messages == []
    assert [written(value) for value in (math.nan, math.inf, -math.inf, 1.0)] == ["nan", "inf", "-inf", 1.0]


class Tensor:
    """A tensor of one element, on a device of torch, that may change after it was handed in."""

    def __init__(self, value: float, device: str) -> None:
        self.value, self.device = value, SimpleNamespace(type=device)

    def numel(self) -> int:
        return 1

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.value, self.device.type)

    def item(self) -> float:
        return self.value


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_metric_is_its_value_at_the_call(tmp_path: Path, device: str) -> None:
    loss, same = Tensor(0.5, device), Tensor(1.0, device)
    kept = weakref.ref(loss)
    with monitor_in(tmp_path) as monitor:
        monitor.update_metrics({"same": same}, loss=loss)
        loss.value = same.value = 0.0
        del loss
        assert kept() is None
    assert read(tmp_path / "run.json")["metrics"] == {"same": 1.0, "loss": 0.5}


def test_a_tensor_on_a_gpu_is_not_waited_for_at_the_call_and_not_held_once_converted() -> None:
    tensor = Tensor(0.5, "cuda")
    copy = value_now(tensor)
    assert isinstance(copy, Tensor) and copy is not tensor and value_now(Tensor(0.5, "cpu")) == 0.5
    record = RunRecord(SYSTEM_CLOCK)
    record.metrics["loss"] = tensor
    kept = weakref.ref(tensor)
    del tensor
    assert not any(record.take_metrics().values()) and kept() is None and not record.metrics


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, MemoryError])
def test_a_metric_that_raises_anything_ends_no_thread_of_ours(tmp_path: Path, error: type[BaseException]) -> None:
    class Hostile(Tensor):
        def clone(self) -> Tensor:
            return self

        def item(self) -> float:
            raise error("from item")

    with told(), monitor_in(tmp_path, interval=0.01) as monitor:
        monitor.update_metrics(bad=Hostile(1.0, "cuda"))
        wait_for(lambda: not monitor._record.metrics)
        if error is SystemExit:
            monitor.update_metrics(worse=Hostile(1.0, "cpu"), other=2.0)
        monitor.update_metrics(loss=0.5)
    document = read(tmp_path / "run.json")
    assert (document["status"], document["metrics"]["loss"]) == ("FINISHED", 0.5)
    if error is SystemExit:
        assert (document["metrics"]["worse"], document["metrics"]["other"]) == ("SystemExit: from item", 2.0)


def test_what_is_handed_in_where_nobody_writes_is_not_gathered(tmp_path: Path) -> None:
    for options in ({}, {"rank": 3}):
        with monitor_in(tmp_path, **options) as monitor:
            pass
        monitor.update_metrics({"a": 1}, loss=1.0)
        assert not monitor._metrics


def test_the_values_of_a_long_run_are_thinned_evenly_and_earlier_steps_replace_later() -> None:
    history = GrowingHistory()
    for number in range(100_000):
        history.add(number, float(number))
    written = history.written()
    steps = written["steps"]
    assert steps == written["values"] and (steps[0], steps[-1]) == (0, 99_999) and 30 <= len(steps) <= 64
    gaps = {later - earlier for earlier, later in itertools.pairwise(steps[:-1])}
    assert len(gaps) == 1
    history.add(100_000, math.nan)
    assert history.written()["values"][-1] == "nan"
    history = GrowingHistory([(1, 1.0), (50, 0.5), (90, None)])
    for step, value in ((60, 6.0), (61, 7.0), (61, 6.1)):
        history.add(step, value)
    assert history.written() == {"steps": [1, 50, 60, 61], "values": [1.0, 0.5, 6.0, 6.1]}


# ---------------------------------------------------------------- a run that goes on


def state_of(folder: Path) -> Run:
    files = run_files(folder / "run.json")
    return parse_progress_file((folder / "run.json").read_text(), files.unread())


def attempt(folder: Path, steps: range, **options: Any) -> Run:
    """Train some steps of ten epochs of ten, as a script that says which epoch and batch it begins with."""
    with monitor_in(folder, interval=0.005, **options) as monitor:
        for step in steps:
            if step == steps.start or step % 10 == 0:
                monitor.start_epoch(step // 10 + 1, 10, 10)
            monitor.start_batch(step % 10 + 1)
            monitor.update_metrics(loss=100.0 - step)
            time.sleep(0.005)
    return state_of(folder)


def test_a_run_that_continues_counts_from_its_first_step(tmp_path: Path) -> None:
    for steps in (range(70, 75), range(73, 78)):
        run = attempt(tmp_path, steps)
        assert (run.step, total_steps_of(run, run.step)) == (steps.stop, 100)
        assert percent_done(RunRow(run, RUNNING)) == steps.stop
    assert attempt(tmp_path, range(70, 75), initial_step=1070).step == 1075


def test_a_run_of_the_same_name_is_another_attempt_and_its_history_goes_on(tmp_path: Path) -> None:
    attempt(tmp_path, range(20))
    with pytest.raises(ValueError, match="broken"), monitor_in(tmp_path) as monitor:
        monitor.start_epoch(2, 10, 10)
        monitor.start_batch(1)
        raise ValueError("broken")
    run = attempt(tmp_path, range(10, 30))
    assert run.attempt == 3
    assert [(each.status, each.step) for each in run.earlier] == [("FINISHED", 20), ("FAILED", 11)]
    run = attempt(tmp_path, range(30, 35))
    steps, values = run.history["loss"].steps, run.history["loss"].values
    assert steps[0] < 11 and steps[-1] == 35 and any(11 <= step <= 30 for step in steps)
    assert values == tuple(101.0 - step for step in steps) and list(steps) == sorted(set(steps))
    assert attempt(tmp_path, range(5)).history["loss"].steps[0] <= 5


def test_an_attempt_that_ends_before_its_first_step_keeps_the_history(tmp_path: Path) -> None:
    history = attempt(tmp_path, range(20)).history
    with pytest.raises(MemoryError), monitor_in(tmp_path) as monitor:
        monitor.update_metrics(vram=80.0)
        raise MemoryError
    assert state_of(tmp_path).history == history
    assert attempt(tmp_path, range(20, 30)).history["loss"].steps[0] == history["loss"].steps[0]


def test_a_history_goes_on_where_the_earlier_attempt_is_only_known_later(tmp_path: Path) -> None:
    earlier, record = attempt(tmp_path, range(20)), RunRecord(SYSTEM_CLOCK)
    record.progress.start_epoch(3, 10, 10)
    next(record.training)
    record.metrics["loss"] = 0.5
    record.take_metrics()  # its file is still that of another machine's process
    record.follow(earlier, Identity(1, "there"))
    history = record.document({}, OwnResources(), [])["history"]
    assert isinstance(history, dict) and history["loss"]["steps"] == [*earlier.history["loss"].steps, 21]


def test_a_script_without_steps_has_a_history_per_run(tmp_path: Path) -> None:
    for _ in range(2):
        with monitor_in(tmp_path) as monitor:
            monitor.update_metrics(reward=1.0)
        assert state_of(tmp_path).history["reward"] == MetricHistory((1,), (1.0,))


@pytest.mark.parametrize("kind", [dict, lambda **settings: SimpleNamespace(**settings)])
def test_settings_are_given_once_by_name(tmp_path: Path, kind: Any) -> None:
    given = kind(lr=0.1, layers=[1, 2], optimizer={"name": "adam", "betas": {"one": 0.9}}, api_key="sk-123456789")
    with told() as messages, monitor_in(tmp_path, config=given):
        pass
    assert messages == [] and state_of(tmp_path).config == {
        "lr": 0.1, "layers": "[1, 2]", "optimizer.name": "adam", "optimizer.betas.one": 0.9, "api_key": "***",
    }  # fmt: skip


def test_settings_that_are_none_warn_once_and_nested_and_wide_ones_take_no_time(tmp_path: Path) -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    for wrong in (3, endless):
        with told() as messages, monitor_in(tmp_path, config=wrong):
            pass
        assert len(messages) == 1 and state_of(tmp_path).config == {}
    given: dict[str, Any] = {}
    for _ in range(5):
        given = {f"part {number}": given for number in range(100)}
    with monitor_in(tmp_path, config=given):
        pass
    assert len(state_of(tmp_path).config) == 100


def train_from_zero(folder: Path, epochs: range, **options: Any) -> Run:
    with monitor_in(folder, interval=0.005, **options) as monitor:
        for epoch in epochs:
            monitor.start_epoch(epoch, 4, 10)
            for _ in range(4):
                monitor.start_batch()
                time.sleep(0.005)
    return state_of(folder)


@pytest.mark.parametrize("options", [{}, {"initial_step": 20}])
def test_epochs_that_count_from_zero_do_so_after_a_resume(tmp_path: Path, options: dict[str, Any]) -> None:
    assert train_from_zero(tmp_path, range(5)).epoch == 5
    run = train_from_zero(tmp_path, range(5, 10), **options)
    assert (run.epoch, run.step, percent_done(RunRow(run, RUNNING))) == (10, 40, 100.0)


def test_the_total_of_a_training_part_tells_where_it_continues(tmp_path: Path) -> None:
    with monitor_in(tmp_path) as monitor:
        monitor.start_epoch(5, total_epochs=10)
        monitor.start_training(20)
        monitor.start_batch()
    assert state_of(tmp_path).step == 81


def test_a_number_of_the_whole_run_is_no_number_of_the_epoch(tmp_path: Path) -> None:
    with monitor_in(tmp_path) as monitor:
        monitor.start_epoch(3, 20, 3)
        for step in range(41, 46):
            monitor.start_batch(step)
    run = state_of(tmp_path)
    assert (run.step, run.batch) == (45, 5)


def test_a_metric_before_the_first_epoch_costs_no_history(tmp_path: Path) -> None:
    attempt(tmp_path, range(20))
    with monitor_in(tmp_path, interval=0.005) as monitor:
        monitor.update_metrics(loss=9.0)
        time.sleep(0.05)
        monitor.start_epoch(3, 10, 10)
        monitor.start_batch(1)
        monitor.update_metrics(loss=80.0)
    history = state_of(tmp_path).history["loss"]
    assert history.steps[0] < 20 and (history.steps[-1], history.values[-1]) == (21, 80.0)


def test_an_earlier_attempt_that_says_running_is_judged_by_where_it_was(tmp_path: Path) -> None:
    first = monitor_in(tmp_path, interval=0.005)
    first.start_epoch(1, 2, 1)
    first.start_batch()
    time.sleep(0.05)
    [earlier] = attempt(tmp_path, range(2)).earlier
    assert (earlier.status, earlier.step) == ("CANCELED", 1)
    complete = {"epoch": 2, "total_epochs": 2, "batch": 5, "total_batches": 5, "step": 10}
    for state, status in ((complete, "FINISHED"), ({"step": 40}, "KILLED")):
        gone = {"status": "RUNNING", "state": state, "metadata": {"pid": 1}, "updated_at": 5.0}
        (tmp_path / "run.json").write_text(json.dumps(gone))
        earlier = attempt(tmp_path, range(2)).earlier[-1]
        assert (earlier.status, earlier.step, earlier.ended_at) == (status, state["step"], 5.0)


# ---------------------------------------------------------------- threads, memory


def test_no_step_of_many_threads_is_lost(tmp_path: Path) -> None:
    with monitor_in(tmp_path) as monitor:

        def step() -> None:
            for number in range(20_000):
                monitor.start_batch()
                monitor.update_metrics(loss=number)

        threads = [threading.Thread(target=step) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert read(tmp_path / "run.json")["state"]["step"] == 80_000


def test_many_steps_and_epochs_take_less_than_a_megabyte(tmp_path: Path) -> None:
    monitor = monitor_in(tmp_path)
    with monitor:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for epoch in range(1, 51):
            monitor.start_epoch(epoch, 4_000, 50)
            for number in range(4_000):
                monitor.start_batch()
                monitor.update_metrics(loss=number * 0.5)
            monitor.start_validation(10)
            monitor.end_validation()
            monitor.end_epoch()
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert used < 2**20
    assert read(tmp_path / "run.json")["state"]["step"] == 200_000


def test_metrics_of_ever_new_names_are_cut_and_told(tmp_path: Path) -> None:
    with told() as messages, monitor_in(tmp_path) as monitor:
        monitor.update_metrics({f"layer {number}": number for number in range(5000)})
    assert len(read(tmp_path / "run.json")["metrics"]) == 200
    assert messages == [
        "training_monitor: only 200 metrics are kept (losses and learning rates first); left out: 'layer 200', "
        "'layer 201', 'layer 202', 'layer 203', 'layer 204' and 4795 more",
        "training_monitor: only the histories of 32 metrics are kept (losses and learning rates first); left out: "
        "'layer 32', 'layer 33', 'layer 34', 'layer 35', 'layer 36' and 163 more",
    ]


def test_a_misused_call_is_named_where_it_stands(tmp_path: Path) -> None:
    with monitor_in(tmp_path) as monitor, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monitor.update_metrics(5)  # type: ignore[arg-type]
        monitor.start_batch("x")  # type: ignore[arg-type]
    assert [(str(each.message).split()[1], each.filename) for each in caught] == [
        ("update_metrics()", __file__), ("start_batch()", __file__),
    ]  # fmt: skip


def test_long_names_stay_apart_and_losses_have_a_place_before_others(tmp_path: Path) -> None:
    start, end = "model." * 30, ".weight/grad_norm" * 10
    with monitor_in(tmp_path) as monitor:
        monitor.update_metrics({f"{start}{number}{end}": number for number in range(3)})
    metrics = read(tmp_path / "run.json")["metrics"]
    assert sorted(metrics.values()) == [0, 1, 2] and all(len(name) == 100 for name in metrics)
    with told(), monitor_in(tmp_path) as monitor:
        monitor.update_metrics({f"layer {number}": number for number in range(300)})
        monitor.update_metrics(loss=1.0, val_loss=2.0)
        monitor.update_metrics({"lr-AdamW/pg1": 0.1, "learning_rate": 0.2})
    document = read(tmp_path / "run.json")
    wanted = {"loss", "val_loss", "lr-AdamW/pg1", "learning_rate"}
    assert len(document["metrics"]) == 200 and wanted < document["metrics"].keys()
    assert wanted < document["history"].keys() and len(document["history"]) == 32


def test_a_lasting_change_of_speed_is_in_the_file_within_a_minute(tmp_path: Path) -> None:
    clock, path, estimates = FakeClock(), tmp_path / "run.json", dict[float, Any]()
    begun, done = threading.Event(), threading.Event()
    monitor = monitor_in(tmp_path, interval=0.25, clock=clock)

    def end() -> None:
        monitor.set_finished()
        done.set()

    clock.at(0.0, begun.wait)  # the thread that lets time pass starts before the epoch does
    for number in range(40 * 19):
        clock.at(0.1 + number / 19, monitor.start_batch)
    for number in range(70 * 2):
        clock.at(40.1 + number / 2, monitor.start_batch)
    for seconds in (39.0, 75.0, 100.0):
        clock.at(seconds, lambda seconds=seconds: estimates.update({seconds: read(path)["estimates"]["run"]}))
    clock.at(110.0, end)
    monitor.start_epoch(1, 2000, 1)
    begun.set()
    assert done.wait(60)
    assert (estimates[39.0]["rate"], estimates[39.0]["remaining"]) == pytest.approx((19.0, 66.0), rel=0.05)
    assert (estimates[75.0]["rate"], estimates[75.0]["remaining"]) == pytest.approx((2.0, 585.0), rel=0.1)
    assert (estimates[100.0]["rate"], estimates[100.0]["remaining"]) == pytest.approx((2.0, 560.0), rel=0.05)
