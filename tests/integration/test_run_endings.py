"""Every way in which a training can live and end, by real processes: what its file, and `top`, say afterwards.

docs/top.md has the table: a row here is a row there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import wait_until
from tests.integration.notebook_pages import ROOT
from tests.integration.scripts import Script
from tests.integration.test_notebook import a_kernel
from tests.requirements import miss, require_installed
from training_monitor.runs import RunCollector, open_runs

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
BEGIN = """
import asyncio, concurrent.futures, gc, json, multiprocessing, os, signal, sys, threading, time
from training_monitor.runs.monitor import TrainingMonitor

RUN = "progress/run.json"

def new():
    return TrainingMonitor(RUN, interval=0.02)

def fail():
    raise ValueError("boom")

def wait(*ignored):
    open("waits", "w").close()
    for _ in range(600):
        time.sleep(.1)

def steps(monitor, end=None, batches=20):
    monitor.start_epoch(1, 20, 1)
    for batch in range(batches):
        monitor.start_batch()
        monitor.update_metrics(loss=1.0)
        if end and batch == 5:
            end()

def train(end=None):
    steps(new(), end)

def copied(rank, monitor, end=None):
    with monitor:
        steps(monitor, end)
        monitor.update_metrics(mine=rank)
        time.sleep(.5 if rank else 2.5)

def leave():
    sys.exit(3)

def leave_by_raise():
    raise SystemExit(3)

def started(context, function, *arguments):
    child = (getattr(context, "Process", None) or context.Thread)(target=function, args=arguments)
    child.start()
    return child

def ended(*children):
    for child in children:
        child.join()

def waits():
    while not os.path.exists("waits"):
        time.sleep(.02)

async def task(end):
    with new() as monitor:
        steps(monitor, end if end is fail else None, batches=6)
        open("waits", "w").close()
        await asyncio.sleep(60)

async def gathered(end):
    running = asyncio.create_task(task(end))
    while not (running.done() or os.path.exists("waits")):
        await asyncio.sleep(.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
"""
# Each case in a process of its own, which is forked from one that has imported all.
END = """
def reap():
    pid, status = os.wait()
    with open(f"{running.pop(pid)}/code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(status)))

if __name__ == "__main__":
    running = {}
    gc.freeze()  # else the end of each process reads, and so copies, all that was imported
    for number, (method, body) in enumerate(json.load(open("cases.json"))):
        if len(running) == 6:
            reap()
        os.mkdir(str(number))
        pid = os.fork()
        if not pid:
            os.chdir(str(number))
            for descriptor, name in ((1, "said"), (2, "err")):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), descriptor)
            context = multiprocessing.get_context(method or "fork")
            break
        running[pid] = number
    else:
        while running:
            reap()
        sys.exit()
    exec(body)
"""


@dataclass(frozen=True)
class Row:
    """One way: the row of docs/top.md, what the script does, and what is then said of it."""

    lives: str
    ends: str
    body: str
    status: str
    message: str | None = None
    code: int = 0
    methods: tuple[str, ...] = ("",)  # how multiprocessing starts its children
    written: str = ""  # what the file itself says, where a reader concludes more
    step: int | None = 6
    mine: int | None = None  # which rank wrote
    exit_code: int | None = None  # in the file


ALL = ("fork", "spawn", "forkserver")
BOOM = "ValueError: boom"
ROWS = (
    Row("script", "runs to completion", "train()", "FINISHED", step=20),
    Row("script", "exception", "train(fail)", "FAILED", BOOM, 1),
    Row("script", "`sys.exit(3)`", "train(lambda: sys.exit(3))", "FAILED", code=3, exit_code=3),
    Row("script", "`sys.exit(0)` in the middle of an epoch", "train(lambda: sys.exit(0))", "CANCELED",
        "exited with status 0 at batch 6 of 20", exit_code=0),
    Row("script", "the training loop ends before the last batch", "steps(new(), batches=6)", "FINISHED",
        "ended at batch 6 of 20"),
    Row("script", "the training loop ends before the last batch", "steps(new(), batches=6); sys.exit(0)", "FINISHED",
        "exited with status 0 at batch 6 of 20", exit_code=0),
    Row("script", "SIGTERM, Ctrl-C", "train(lambda: os.kill(os.getpid(), signal.SIGTERM))", "CANCELED", "SIGTERM", 143),
    Row("script", "`os._exit(3)`", "train(lambda: os._exit(3))", "FAILED", code=3, exit_code=3),
    Row(
        "script",
        "`os._exit(3)` in an atexit function",
        "import atexit; train(); atexit.register(os._exit, 3)",
        "FAILED",
        code=3,
        step=20,
        exit_code=3,
    ),
    Row("script", "`os._exit(0)` after the last batch", "train(); os._exit(0)", "FINISHED", step=20, exit_code=0),
    Row("script", "killed after the last batch", "train(); time.sleep(.5); os.kill(os.getpid(), 9)", "FINISHED",
        code=-9, written="RUNNING", step=20),
    Row("script", "killed before the last batch", "train(lambda: (time.sleep(.5), os.kill(os.getpid(), 9)))", "KILLED",
        code=-9, written="RUNNING"),
    Row("multiprocessing child", "its function returns", "ended(started(context, train))", "FINISHED",
        methods=ALL, step=20),
    Row("multiprocessing child", "exception", "ended(started(context, train, fail))", "FAILED", BOOM, methods=ALL),
    Row("multiprocessing child", "`sys.exit(3)`", "ended(started(context, train, leave))",
        "FAILED", exit_code=3, methods=ALL),
    Row("multiprocessing child", "`raise SystemExit(3)`", "ended(started(context, train, leave_by_raise))",
        "FAILED", exit_code=3, methods=ALL),
    Row("multiprocessing child", "`terminate()`",
        "child = started(context, train, wait); waits(); child.terminate(); child.join()", "CANCELED", "SIGTERM",
        methods=ALL),
    Row("Pool task", "its function returns",
        "with context.Pool(2) as pool: pool.apply(train)", "FINISHED", methods=ALL, step=20),
    Row("Pool task", "exception", "with context.Pool(2) as pool: pool.apply(train, (fail,))", "FAILED", BOOM, 1,
        methods=ALL),
    Row("Pool task", "`terminate()`",
        "with context.Pool(2) as pool: pool.apply_async(train, (wait,)); waits()", "CANCELED", "SIGTERM",
        methods=ALL),
    Row("ProcessPoolExecutor task", "its function returns",
        "with concurrent.futures.ProcessPoolExecutor(2, context) as pool: pool.submit(train)", "FINISHED",
        methods=ALL, step=20),
    Row("ProcessPoolExecutor task", "exception",
        "with concurrent.futures.ProcessPoolExecutor(2, context) as pool: pool.submit(train, fail)", "FAILED", BOOM,
        methods=ALL),
    Row("thread", "its function returns", "ended(started(threading, train))", "FINISHED", step=20),
    Row("thread", "exception", "ended(started(threading, train, fail))", "FAILED", BOOM),
    Row("thread", "exception",
        "with new() as monitor: ended(started(threading, steps, monitor, fail))", "FAILED", BOOM),
    Row("asyncio task", "exception", "asyncio.run(gathered(fail))", "FAILED", BOOM),
    Row("asyncio task", "canceled", "asyncio.run(gathered(None))", "CANCELED", "CancelledError"),
    Row("child with a copied monitor", "its function returns",
        "monitor = new(); ended(*(started(context, copied, rank, monitor) for rank in range(2)))", "FINISHED",
        methods=ALL, step=20, mine=0),
    Row("child with a copied monitor", "its function returns",
        "with new() as monitor: ended(*(started(context, copied, rank, monitor) for rank in range(2)))", "FINISHED",
        methods=ALL, step=20, mine=0),
    Row("child with a copied monitor", "exception",
        "with new() as monitor: ended(started(context, copied, 0, monitor, fail))", "FAILED", BOOM, methods=ALL),
    Row("child with a copied monitor", "`sys.exit(3)`",
        "monitor = new()\nif os.fork() == 0: steps(monitor, leave)\nos.wait()", "FAILED", exit_code=3),
)  # fmt: skip

BY_HAND = (  # the rows of the manual that other tests below show
    ("torch.multiprocessing.spawn", "exception", "FAILED"),
    ("notebook cell", "exception, including in `%run`", "FAILED"),
    ("notebook cell", "interrupted", "CANCELED"),
    ("notebook cell", "runs to completion; the kernel is shut down later", "FINISHED"),
)


def pythons() -> dict[str, str]:
    """The interpreters that are here, by their versions: on PATH, or of pyenv."""
    found = {".".join(map(str, sys.version_info[:2])): sys.executable}
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in VERSIONS:
        of_pyenv = sorted(root.glob(f"{version}.*/bin/python"))
        program = of_pyenv[-1] if of_pyenv else shutil.which(f"python{version}")
        if program and version not in found and not subprocess.run([program, "-c", ""], capture_output=True).returncode:
            found[version] = str(program)
    return found


PYTHONS = pythons()


def row_of(folder: Path) -> Any:
    """What `top` says of the only run."""
    [row] = RunCollector(open_runs(str(folder)), where="").look_once().rows
    return row


@dataclass(frozen=True)
class Ended:
    """A case that has ended."""

    folder: Path

    @property
    def code(self) -> int:
        return int((self.folder / "code").read_text())

    @property
    def out(self) -> str:
        return (self.folder / "said").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def read(self) -> tuple[dict[str, Any], tuple[object, ...]]:
        """Its file, and what that says about the end."""
        document = json.loads((self.folder / "progress" / "run.json").read_text())
        return document, (document["status"], document["error_message"], document["state"]["step"])


def run_cases(
    folder: Path, cases: Sequence[tuple[str, str]], more: str = "", python: str = sys.executable, **environ: str
) -> list[Ended]:
    """Run scripts, each with a start method of multiprocessing."""
    (folder / "cases.json").write_text(json.dumps(cases))
    code, _, err = Script(folder, python).run("", begin=BEGIN + more + END, **environ)
    assert code == 0, err
    return [Ended(folder / str(number)) for number in range(len(cases))]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_ending_has_its_status(tmp_path: Path, version: str, subtests: pytest.Subtests) -> None:
    """The versions share the start methods of multiprocessing, each of which is tried by one of three versions.

    Those between the first and the last share the rows too.
    """
    if version not in PYTHONS:
        miss(f"python{version}", f"Python {version} is not installed")
    cases = []
    is_shared = len(PYTHONS) > 2 and not os.environ.get("TRAINING_MONITOR_FUZZ")
    between = [each for each in VERSIONS if each in PYTHONS][1:-1] if is_shared else []
    for number, row in enumerate(ROWS):
        if version in between and number % len(between) != between.index(version):
            continue
        methods = row.methods[(number + VERSIONS.index(version)) % len(row.methods) :][:1] if is_shared else row.methods
        cases += [(row, method) for method in methods]
    found = run_cases(tmp_path, [(method, row.body) for row, method in cases], python=PYTHONS[version])
    for (row, method), ended in zip(cases, found, strict=True):
        with subtests.test(lives=row.lives, ends=row.ends, method=method):
            document, said = ended.read()
            assert (ended.code, *said) == (row.code, row.written or row.status, row.message, row.step), ended.err
            assert (document["end_time"] is None) is (document["status"] == "RUNNING")
            if row.lives == "script" or row.exit_code:
                assert document["exit_code"] == row.exit_code
            assert document["metrics"].get("mine") == row.mine
            assert "SystemExit" not in ended.err and "Warning" not in ended.err
            assert wait_until(lambda ended=ended, row=row: row_of(ended.folder / "progress").status == row.status)


def test_the_manual_has_every_ending() -> None:
    manual = (ROOT / "docs" / "top.md").read_text(encoding="utf-8")
    header = "| where the training runs | how it ends | status |\n|---|---|---|\n"
    table = manual.partition(header)[2].partition("\n\n")[0]
    written = {tuple(each.strip() for each in line.strip("|").split("|")) for line in table.splitlines()}
    assert {(row.lives, row.ends, row.status) for row in ROWS} | set(BY_HAND) == written


# ---------------------------------------------------------------- frameworks, with the Python of the tests

TORCH = """
import torch, weakref
import torch.multiprocessing
from training_monitor.runs.integrations import HuggingFaceCallback, LightningCallback

def spawned(function, *arguments):  # what torch.multiprocessing.spawn calls
    torch.multiprocessing.start_processes(function, arguments, 2, start_method="fork")

def ranked(rank, monitor, end=None):
    copied(rank, monitor, end if not rank else None)

def late():  # the other rank has begun by then
    time.sleep(4)
    fail()

def launched(monitor):
    copied(int(os.environ["RANK"]), monitor)

def launch(monitor):  # as accelerate's notebook_launcher does
    from accelerate.utils import PrepareForLaunch
    spawned(PrepareForLaunch(launched, "MULTI_CPU"), monitor)

def failing(rank, end):
    train(end)

class Noted(torch.autograd.Function):  # its saved tensors live as long as the graph
    @staticmethod
    def forward(ctx, tensor):
        ctx.save_for_backward(tensor)
        return tensor.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad

def tensors(monitor):
    total, big = torch.zeros(()), torch.ones(1000, requires_grad=True) * 1
    kept, loss = weakref.ref(big), Noted.apply(big)
    total += 3
    monitor.update_metrics({"total": total, "batch": torch.tensor([7])}, val_loss=loss, half=torch.tensor(0.5).half())
    total.zero_()
    del big, loss
    assert kept() is None, "the graph is held"
    monitor.update_metrics(many=torch.ones(3))

def resumed(run):  # by a second process, after the first one has died
    for turn in ("first", "second"):
        if not os.fork():
            return run(turn)
        os.wait()

def die():
    raise RuntimeError("the power is gone")
"""
LIGHTNING = """
import lightning
import torch._dynamo  # the first step imports it

class Model(lightning.LightningModule):
    def __init__(self, end=None):
        super().__init__()
        self.layer, self.end = torch.nn.Linear(2, 1), end
    def training_step(self, batch, number):
        if self.end and number == 5:
            self.end()
        self.log("mine", float(self.global_rank))
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

class Die(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if trainer.global_step == 7:
            trainer.save_checkpoint("seven.ckpt")
            die()

class Constant(Model):
    def training_step(self, batch, number):
        return self.layer(batch).mean() * 0 + 2.0

def fit(monitor, end=None, fits=1, size=20, model=Model, others=(), checkpoint=None, **options):
    options = {"max_epochs": 1, "logger": False, "enable_checkpointing": False, **options}
    options |= {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    callback, loader = LightningCallback(monitor), torch.utils.data.DataLoader(torch.randn(size, 2))
    for _ in range(fits):
        trainer = lightning.Trainer(callbacks=[callback, *others], **options)
        trainer.fit(model(end), loader, ckpt_path=checkpoint)

def again(turn):
    more = {"others": [Die()]} if turn == "first" else {"checkpoint": "seven.ckpt"}
    fit(TrainingMonitor("progress/run", interval=0.02), size=10, max_epochs=2, **more)
"""
TRAINER = """
import transformers
transformers.Trainer, transformers.TrainingArguments  # are imported when they are asked for
import torch._dynamo

class Data(torch.utils.data.Dataset):
    size = 20
    def __len__(self):
        return self.size
    def __getitem__(self, number):
        return {"x": torch.ones(2)}

class Model(torch.nn.Module):
    def __init__(self, end):
        super().__init__()
        self.layer, self.end, self.called = torch.nn.Linear(2, 1), end, 0
    def forward(self, x, **ignored):
        self.called += 1
        if self.end and self.called == 6:
            self.end()
        return {"loss": self.layer(x).sum()}

class Die(transformers.TrainerCallback):
    def on_save(self, args, state, control, **others):
        die()

def fit(monitor, end=None, fits=1, others=(), resume=False, **options):
    options = {"num_train_epochs": 1, "save_strategy": "no", **options}
    options |= {"per_device_train_batch_size": 1, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    args = transformers.TrainingArguments("out", **options)
    callbacks = [HuggingFaceCallback(monitor), *others]
    trainer = transformers.Trainer(Model(end), args, train_dataset=Data(), callbacks=callbacks)
    for _ in range(fits):
        trainer.train(resume_from_checkpoint=resume)
    trainer.evaluate(Data())

def again(turn):
    Data.size = 10
    options = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 7, "logging_steps": 1}
    monitor = TrainingMonitor("progress/run", interval=0.02)
    fit(monitor, others=[Die()] if turn == "first" else [], resume=turn != "first", **options)
"""
SECOND = "has ended (FINISHED): a new run replaces it"
FRAMEWORKS = (
    ("torch", "torch.multiprocessing.spawn(failing, (fail,), 1)", "FAILED", BOOM, 6, None),
    ("torch", "spawned(ranked, new())", "FINISHED", None, 20, None),
    ("torch", "with new() as made: spawned(ranked, made, late)", "FAILED", BOOM, 6, None),
    ("torch", "launch(new())", "FINISHED", None, 20, None),
    ("lightning", "fit(new(), strategy='ddp_notebook', devices=2)", "FINISHED", None, 10, None),
    ("lightning", "fit(new(), fail, strategy='ddp_fork', devices=2)", "FAILED", BOOM, 6, None),
    ("lightning", "fit(new(), lambda: sys.exit(0))", "CANCELED", "exited with status 0 at batch 6 of 20", 6, None),
    ("lightning", "fit(RUN, fits=2)", "FINISHED", None, 20, SECOND),
    ("transformers", "fit(RUN)", "FINISHED", None, 20, None),
    ("transformers", "fit(new(), fail)", "FAILED", BOOM, 6, None),
    ("transformers", "fit(new(), lambda: sys.exit(0))", "CANCELED", "exited with status 0 at batch 6 of 20", 6, None),
    ("transformers", "fit(new(), fits=2)", "FINISHED", None, 20, SECOND),
    ("transformers", "fit(7)", None, None, None, "int is not a TrainingMonitor"),
)  # fmt: skip


def check_resumed(ended: Ended) -> None:
    """Of ten batches an epoch, two epochs; the first process dies after batch 7, of which it has a checkpoint."""
    assert "the power is gone" in ended.err
    [row] = json.loads(run_command("top", str(ended.folder / "progress"), "--once", "--json").stdout)["runs"]
    run = row["run"]
    assert (run["status"], run["step"], run["epoch"], run["attempt"]) == ("FINISHED", 20, 2, 2)
    assert [(each["status"], each["step"]) for each in run["earlier"]] == [("FAILED", 7)]
    steps = run["history"]["loss"]["steps"]
    assert steps[0] <= 7 and steps[-1] == 20 and steps == sorted(set(steps))


def check_tensors(ended: Ended) -> None:
    """A tensor is its value at the call, and its graph is not held."""
    metrics = ended.read()[0]["metrics"]
    assert "cannot be converted" in metrics.pop("many")
    assert metrics == {"total": 3.0, "batch": 7, "val_loss": 1000.0, "half": 0.5}


def check_accumulated(ended: Ended) -> None:
    """Of batches whose gradients are accumulated, lightning divides the loss."""
    document, _ = ended.read()
    assert document["metrics"]["loss"] == 2.0 and set(document["history"]["loss"]["values"]) == {2.0}


CHECKED = (
    ("torch", "with new() as made: tensors(made)", check_tensors),
    ("lightning", "fit(new(), size=8, model=Constant, accumulate_grad_batches=4)", check_accumulated),
    ("lightning", "resumed(again)", check_resumed),
    ("transformers", "resumed(again)", check_resumed),
)


@pytest.mark.parametrize("package", ["torch", "lightning", "transformers"])
def test_a_framework_reports_the_run_of_rank_zero(tmp_path: Path, package: str, subtests: pytest.Subtests) -> None:
    require_installed("torch", "accelerate" if package == "torch" else package)
    more = TORCH + {"lightning": LIGHTNING, "transformers": TRAINER}.get(package, "")
    cases = [case for needed, *case in FRAMEWORKS if needed == package]
    checked = [case for needed, *case in CHECKED if needed == package]
    environ = {"CUDA_VISIBLE_DEVICES": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    found = run_cases(tmp_path, [("", body) for body, *_ in cases + checked], more, **environ)
    for (body, check), ended in zip(checked, found[len(cases) :], strict=True):
        with subtests.test(body=body):
            assert ended.code == 0, ended.err
            check(ended)
    for (body, status, message, step, told), ended in zip(cases, found):
        with subtests.test(body=body):
            warned = [line for line in ended.err.splitlines() if "training_monitor: " in line]
            assert len(warned) == bool(told) and (told or "") in "".join(warned), ended.err[-2000:]
            if status is None:
                assert not (ended.folder / "progress").exists() and "Error" not in ended.err
                continue
            document, said = ended.read()
            assert said == (status, message, step), ended.err[-2000:]
            assert not document["metrics"].get("mine")


# ---------------------------------------------------------------- notebooks

CELLS = """
    import os, sys, time
    os.chdir({folder!r})
    from training_monitor.runs.monitor import TrainingMonitor
    def steps(name, end=None):
        global monitor
        monitor = TrainingMonitor(f"progress/{{name}}.json", interval=0.02)
        monitor.start_epoch(1, 20, 1)
        for batch in range(20):
            monitor.start_batch()
            if end and batch == 5:
                end()
    def fail():
        raise ValueError("boom")
    def wait():
        while True:
            time.sleep(.1)
    with open("train.py", "w") as file:
        file.write("steps('run', fail)")
"""


def test_every_ending_of_a_cell_has_its_status(tmp_path: Path) -> None:
    def is_said(name: str, *said: object) -> bool:
        path = tmp_path / "progress" / f"{name}.json"
        document = json.loads(path.read_text()) if path.exists() else {}
        return (document.get("status"), document.get("error_message")) == said

    with a_kernel(tmp_path) as kernel:
        kernel.begin(CELLS.format(folder=str(tmp_path)))
        kernel.begin("steps('failed', fail)")
        assert wait_until(lambda: is_said("failed", "FAILED", BOOM))
        kernel.begin("steps('exits', lambda: sys.exit(0))")
        assert wait_until(lambda: is_said("exits", "CANCELED", "exited with status 0 at batch 6 of 20"))
        kernel.begin("%run -i train.py")
        assert wait_until(lambda: is_said("run", "FAILED", BOOM))
        number = kernel.begin("steps('interrupted', wait)")
        assert wait_until(lambda: is_said("interrupted", "RUNNING", None))
        assert kernel.interrupt(number)["ename"] == "KeyboardInterrupt"
        assert wait_until(lambda: is_said("interrupted", "CANCELED", "SIGINT"))
        kernel.begin("monitor.start_epoch(1, 2, 1)\nmonitor.start_batch()")
        assert wait_until(lambda: is_said("interrupted", "RUNNING", None))
        kernel.begin("steps('done')")
        kernel.client.execute("nonsense", stop_on_error=False)
        kernel.begin("open('nonsense', 'w').close()")
        assert wait_until((tmp_path / "nonsense").exists) and wait_until(lambda: is_said("done", "RUNNING", None))
        kernel.manager.shutdown_kernel()
        assert wait_until(lambda: is_said("done", "FINISHED", None))
