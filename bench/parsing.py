"""What hostile text costs every parser beside plain text of the same size, and how fast a training log is read.

    python3 bench/parsing.py [--only parse_progress] [--show 3]

Every parser reads 64 KiB of what it is made for, and 64 KiB of each of about 100 texts made to be slow: long runs, and
almost-matches of the regular expressions in the source, as lines of several lengths and as one line without an end.
Printed is the worst ratio (goal: under 20) and, from 16, 32 and 64 KiB of that text, the exponent of the growth (1 is
linear). A reading is given up after 2 seconds: "over" stands before its ratio. Then the readers of logs read one of
32 MB, 256 KiB at a time and for at most 4 seconds each, beside `grep -cE 'step|loss'` over the whole file.
"""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from training_monitor.checkpoints.completeness import group_checkpoints
from training_monitor.checkpoints.listing import parse_listing
from training_monitor.core.errors import ParseError
from training_monitor.jobs import ray_output
from training_monitor.jobs.process_jobs import parse_process_job
from training_monitor.logs.patterns import LogPattern, parse_metrics
from training_monitor.logs.text import log_pieces
from training_monitor.logs.totals import LogTotals
from training_monitor.logs.training_log import parse_progress
from training_monitor.look import nvidia_smi
from training_monitor.look.nccl import parse_nccl_transport
from training_monitor.targets.pods import parse_pods
from training_monitor.verdict.failure import classify_failure

SIZE = 64 * 1024
GIVE_UP = 2.0  # seconds
SCREEN_GIVE_UP = 0.2
LOG_SIZE = 32 * 1024 * 1024
LOG_SECONDS = 4.0

# ---------------------------------------------------------------- hostile texts: a line's start, and what fills it

FILLINGS: Mapping[str, tuple[str, str]] = {
    **{f"{each!r} only": ("", each) for each in "7 ./[](){}'\"`:=,|-_%a\t\x00\x1b\r\x08\u0663\ud800\u2028"},
    **{f"{each!r} repeated": ("", each) for each in ("a=", "a=a ", "1/", "1.", "1,", "1:", "a.", "a/", "a_")},
    **{f"{each!r} repeated": ("", each) for each in ("a-", "- ", "[1", "1]", "(a", "a b", "a: ", "=|", "1 ", "1e")},
    **{f"{each!r} repeated": ("", each) for each in ("-1", "\x1b[", "'\\", "\x1b[3", "\x1b[32m", "\x1b]")},
    **{f"{each!r} repeated": ("", each) for each in ("[32m", "\x1b[3;", "{'a': ", '{"a":')},
    # counters, names and numbers
    "epoch and spaces": ("epoch ", " "), "epoch again and again": ("", "epoch "), "epoch [": ("", "epoch ["),
    "epochs almost": ("", "epoch: 1" + " " * 12), "step and digits": ("step ", "1"), "step": ("", "step "),
    "steps": ("", "step 1/1 "), "loss": ("", "loss "), "loss=": ("", "loss="), "name and spaces": ("", "a" + " " * 40),
    "name = spaces": ("", "a" + " " * 20 + "=" + " " * 32), "name 80": ("", "a" * 81 + "("), "number end": (
        "", "a=111111111111111,111,111.11111111111111111111x"), "names": ("", "a loss b loss "),
    "per": ("", "1 s per "),
    "rates": ("", "1.1 it/"), "eta": ("", "eta: 1"), "eta of words": ("", "eta: 1 d 1 h 1 m "),
    "times": ("", "1:11:11 "),
    "drawn bar": ("", "1/1 [=" + "=" * 78), "drawn bar 2": ("", "1/1 " + "━" * 80), "rows": ("", "| 1.1 ms "),
    "brackets": ("", "[1/1][1/1]"), "metric": ("", "[1] " + "loss_" * 8), "wording": ("", "warmup global "),
    # bars, prefixes
    "bar": ("", "1/1 [0<1, 1a/a"), "bar head": ("", "1/1 [0<1"), "bars": ("", "1/1 [0<1, 1it/s] "),
    "it": ("", "1it [0"),
    "spelled bar": ("", "progress on: 1it/1 rate:"), "spelled bar 2": ("progress on:", "1it/1it rate:"),
    "ray prefix": ("(" + "a" * 70, " pid=1"), "pid": ("", "(pid=1"), "repeated": ("", "[repeated 1x"), "rank": (
        "", "[rank1]: "), "info": ("", "info: "), "date": ("", "2030-01-01 10:00:00,123 "), "file": ("", "a.py:1 "),
    "bracketed": ("", "[" + "a" * 160), "in brackets": ("", "[a] "), "signs": ("", ">>> a "), "kubectl": (
        "", "[pod/" + "a" * 200),
    # sentences
    "saved": ("", "saved "), "saving 120": ("", "saving " + "x" * 115 + " "), "saved almost": ("", "saved check modl "),
    "checkpoint 200": ("", "checkpoint " + "x" * 190 + " "), "loading": ("", "loading "), "val late": (
        "x " * 2000 + "loss 1 ", "val: 1 "), "val": ("", "val: "), "evaluation": ("loss 1 ", "eval:"), "stage": (
        "compiling ", "(step "), "sampling": ("generating ", "a "), "resumed": ("", "resum resume_"), "total": (
        "", "total training steps "), "saved step": ("", "saved step-1."), "gpu": ("", "gpu util: 1"), "vram": (
        "vram ", "1.1/1.1 "), "error rate": ("error ", "a_error"), "Error": ("error ", "A."),
    "Errors": ("Error ", "Ab"),
    "warning": ("warning ", "w"), "quoted": ("saved model ", "'a\""),
    # failures
    "xid": ("", "xid "), "xid (": ("", "xid (" + "a" * 40), "uncorrectable": ("", "uncorrectable "), "uncorrect": (
        "", "uncorrect" + "a" * 40), "corrupt": ("", "checkpoint corrup"), "exception": (". . . . . ", "a.aaa bbb "),
    "exception 2": ("          ", "a" * 60 + " "), "nccl": ("", "nccl "), "job": ("", "job "), "cuda": ("", ".cu:1:"),
    "killed": ("", "killed "), "edac": ("", "edac "), "shape": ("", "shape '"), "expected": ("", "expected "), "oom": (
        "", "oom-kill"), "code": ("", "exit code  137"), "retry": ("", "attempt 1"), "line": ("line 1:", " "),
    "raylet": ("", "raylet "), "state": ("", "state reason:"), "unable": ("", "unable to allocate "),
    # other tools
    "channel": ("", "[send] via NET/"), "old channel": ("", "Channel 1 via NET/"), "ring": ("", "Ring 1"), "ofi": (
        "", "NET/OFI "), "provider": ("", "Selected provider is a"),
    "provider 200": ("", "Selected provider is a," + "b" * 180),
    "no plugin": ("", "NET/Plugin: No plugin found "), "process": ("NET/OFI Using aws-ofi-nccl a ", "a.1:"),
    "devices": ("NET/IB : Using ", "[1]"), "spaces in nccl": ("NET/OFI Using aws-ofi-nccl", " "), "handle": (
        "", "Unable to determine the device handle for GPU"), "smi": ("0,", "[N/A],"), "smi 2": ("0,GPU-a", ",1"),
    "job '": ("", "Job '"), "job exists": ("", "Job with submission_id "), "404": ("", "status code 404: "), "usage": (
        " ", "1.1/1.1 "),
}  # fmt: skip


def filled(size: int, start: str, filling: str, width: int | None) -> str:
    """Lines of `width` characters, or one line; each is the start, and the filling as often as it fits."""
    width = min(width or size, size)
    line = (start + filling * (1 + width // len(filling)))[: width - 1]
    return "\n".join([line] * (size // width))


# ---------------------------------------------------------------- hostile texts of one parser


def _fit(size: int, line: Callable[[int], str], opening: str = "") -> str:
    """As many lines as fit, each made of its number."""
    text, number = [opening], 0
    while size > 0:
        text.append(line(number))
        size, number = size - len(text[-1]), number + 1
    return "".join(text)


_THERE = "state=there\nnow 1\nlooked .\n"
LISTINGS: Mapping[str, Callable[[int], str]] = {
    "deep path": lambda size: f"{_THERE}file 1 1 ./" + "a/" * (size // 2),
    ".tmp.tmp": lambda size: f"{_THERE}file 1 1 ./" + ".tmp" * (size // 4) + "x",
    "link ./ ./": lambda size: f"{_THERE}link" + " ./" * (size // 3),
    "link -> ->": lambda size: f"{_THERE}link ./" + " -> " * (size // 4),
    "steps": lambda size: _fit(size, lambda n: f"file 1 1 ./step_{n}/a.pt\n", _THERE),
    "single files": lambda size: _fit(size, lambda n: f"file 1 1 ./a_step_{n}.pt\n", _THERE),
    "steps with own markers": lambda size: _fit(size, lambda n: f"file 1 1 ./step_{n}/{n}/latest\n", _THERE),
    "steps and trackers": lambda size: _fit(
        size, lambda n: f"file 1 1 ./step_{n}/a.pt\ntracker ./{n}/latest\tstep_1\n", _THERE
    ),
    "trackers inside": lambda size: _fit(
        size, lambda n: f"file 1 1 ./s/step_1/{n}.pt\ntracker ./s/step_1/{n}/latest\ta\n", _THERE
    ),
    "one checkpoint": lambda size: _fit(size, lambda n: f"file 1 1 ./step_1/{n}.pt\n", _THERE),
    "shards": lambda size: _fit(
        size, lambda n: f"file 1 1 ./step_1/a-{n + 1:05d}-of-{size // 36:05d}.safetensors\n", _THERE
    ),
    "ranks": lambda size: _fit(size, lambda n: f"file 1 1 ./step_1/zero_pp_rank_{n}_optim.pt\n", _THERE),
    "in place": lambda size: _fit(size, lambda n: f"file 1 1 ./{n}/last.ckpt\ntracker ./{n}/latest\ta\n", _THERE),
    "names of one step": lambda size: f"{_THERE}file 1 1 ./" + "checkpoint_1" * (size // 12) + ".pt",
    "step=": lambda size: f"{_THERE}file 1 1 ./" + "-step=x" * (size // 7) + ".pt",
    "index files": lambda size: _fit(
        size, lambda n: f"file 1 1 ./step_1/i.json\nshard ./step_1/i.json\t{n}.bin\n", _THERE
    ),
}


def _inner_bars(size: int) -> str:
    """One long line with the job's bar, and short ones with smaller bars."""
    bar = "loss 1 1/99 [00:00<00:00, 1it/s, loss=1]" + "a=1 " * (min(size, 15600) // 8)
    return _fit(size - len(bar), lambda n: "1/5 [00:00<00:00, 1it/s]\n", f"{bar}\n")


LOGS: Mapping[str, Callable[[int], str]] = {
    "long bar, inner bars": _inner_bars,
    "checkpoints": lambda size: _fit(size, lambda n: f"saved checkpoint to /a/{n}.pt\n"),
    "errors": lambda size: _fit(size, lambda n: f"Error: {n}\n"),
    "losses": lambda size: _fit(size, lambda n: f"step {n} loss {n}\n"),
}
JOBS = {"fields without end": lambda size: "state=running\n" + "\n" * size, "fields": lambda size: "a=\n" * (size // 3)}
LISTS: Mapping[str, Callable[[int], str]] = {
    "escaped quotes": lambda size: "[JobDetails('" + "\\'" * (size // 2),
    "escapes": lambda size: "[JobDetails('" + "\\\\" * (size // 2),
    "brackets": lambda size: "[JobDetails(" + "(" * size,
    "sum": lambda size: "[JobDetails(a=" + "1+" * (size // 2) + "1)]",
    "jobs": lambda size: "[" + "JobDetails(submission_id='a')," * (size // 30) + "]",
    "enums": lambda size: "[JobDetails(" + "<a.a: 'a'>" * (size // 10),
    "starts": lambda size: "-- [JobDetails(" * (size // 15),
}
STATUSES: Mapping[str, Callable[[int], str]] = {
    "404 in one line": lambda size: "status code 404: " * (size // 17),
    "message lines": lambda size: "Job 'a' failed\nStatus message: x\n" + "a\n" * (size // 2),
}
PODS: Mapping[str, Callable[[int], str]] = {
    "nested": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "small pods": lambda size: '{"kind":"List","items":[' + '{"metadata":{"name":1}},' * (size // 24) + "{}]}",
}


# ---------------------------------------------------------------- plain texts


def training_log() -> Iterator[str]:
    """Lines of several frameworks, without end."""
    number = 0
    while True:
        number += 1
        at, loss = f"{number // 60:02d}:{number % 60:02d}", 1 + 1 / number
        yield f"\rEpoch 1/3: {number % 100:3d}%|####      | {number}/90000 [{at}<1:00:00,  1.20it/s, loss={loss:.4f}]"
        yield f"\n{{'loss': {loss:.4f}, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': {number / 1000:.2f}}}\n"
        yield f"(TaskRunner pid=27) step:{number} - actor/pg_loss:{loss:.4f} - timing_s/step:96.5 - lr:1e-06\n"
        yield f"2030-01-01 10:{at},123 INFO trainer.py:88 iteration {number}/ 90000 | lm loss: {loss:.5E} |\n"
        yield f"[rank{number % 8}]: 2030-01-01 10:{at} INFO worker.py:12 the queue holds {number % 7} batches of 8\n"
        if number % 50 == 0:
            yield f"Saving model checkpoint to ./out/checkpoint-{number}\n"


def _plain(lines: Iterator[str], size: int = SIZE) -> str:
    text: list[str] = []
    while size > 0:
        text.append(next(lines))
        size -= len(text[-1])
    return "".join(text)


def _again(text: str) -> str:
    return text * (SIZE // len(text))


_NCCL = (
    "n1:12:34 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.14.0\n"
    "n1:12:34 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)\n"
    "n1:12:34 [0] NCCL INFO Using network AWS Libfabric\n"
    "n1:12:34 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/0/GDRDMA\n"
    "n1:12:34 [0] NCCL INFO Connected all rings\n"
)
_POD = (
    '{"kind":"Pod","metadata":{"name":"w-0","labels":{"app":"t"}},"spec":{"nodeName":"n1"},"status":{"phase":'
    '"Running","containerStatuses":[{"name":"c","ready":true,"restartCount":0,"state":{"running":{}}}]}}'
)
_JOB = (
    "JobDetails(submission_id='a{}', status=<JobStatus.FAILED: 'FAILED'>, message='exit code 1', metadata={{'k': 'v'}})"
)


# ---------------------------------------------------------------- the parsers


class Parser(NamedTuple):
    """`opening` and `line` stand before a hostile text and before each of its lines, so that it is not refused."""

    read: Callable[[str], object]
    plain: str
    widths: tuple[int | None, ...]
    own: Mapping[str, Callable[[int], str]] = {}
    opening: str = ""
    line: str = ""


def _totals(text: str) -> object:
    totals = LogTotals()
    totals.feed(text)
    totals.close()
    return totals.as_dict()


def _checkpoints(text: str) -> object:
    listing = parse_listing(text, "/c")
    return listing and group_checkpoints(listing, "/c")


_PATTERNS = [LogPattern("nothing", r"reward_mean[:=] ?([\d.]+)"), LogPattern("count", r"(\d+) seconds", "int")]


def parsers() -> dict[str, Parser]:
    log = _plain(training_log())
    gpus = _again("0, GPU-aa, NVIDIA H200, 35, 10, 1024, 143771, 300.00, 700.00, 41, Disabled\n")
    listing = _fit(SIZE, lambda n: f"file 100 1 ./step_{n // 20}/model-{n % 20 + 1:05d}-of-00020.safetensors\n", _THERE)
    status = "2030-01-01 10:00:00,123\tINFO cli.py:67 -- Job 'b' failed\n"
    usage = "Total Usage:\n" + _again(" 3.0/8.0 CPU\n 1.0/2.0 GPU (1.0 used)\n")
    return {
        "parse_progress": Parser(parse_progress, log, (8000, 200), LOGS),
        "LogTotals": Parser(_totals, log, (8000,), LOGS),
        "parse_metrics": Parser(lambda text: parse_metrics(text, _PATTERNS), log, (8000, 200)),
        "log_pieces": Parser(lambda text: list(log_pieces(text)), log, (None, 8000, 200)),
        "classify_failure": Parser(classify_failure, log, (2000, 200), LOGS),
        "parse_nccl_transport": Parser(parse_nccl_transport, _again(_NCCL), (8000, 200)),
        "parse_gpus": Parser(nvidia_smi.parse_gpus, gpus, (None, 200)),
        "parse_gpu_processes": Parser(
            nvidia_smi.parse_gpu_processes, _again("1, a, GPU-a, 5\n"), (None, 200), {}, "", "1,"
        ),
        "parse_listing, group": Parser(_checkpoints, listing, (None, 200), LISTINGS, _THERE, "file 1 1 ./step_1"),
        "parse_process_job": Parser(
            lambda text: parse_process_job(text, "j"), f"state=running\nlog\n{log}", (), JOBS
        ),
        "parse_pods": Parser(parse_pods, f'{{"kind":"List","items":[{_again(_POD + ",")}{_POD}]}}', (None,), PODS),
        "parse_ray_list_cli": Parser(
            ray_output.parse_ray_list_cli,
            "[" + _fit(SIZE, lambda n: f"{_JOB.format(n)}, ") + "]", (None, 200), LISTS, "[JobDetails('x', "
        ),
        "parse_ray_status_cli": Parser(
            lambda text: ray_output.parse_ray_status_cli(text, "a"), _again(status), (None, 200), STATUSES
        ),
        "parse_ray_resources": Parser(ray_output.parse_ray_resources, usage, (None, 200), {}, "Usage:\n", " "),
        "parse_ray_submit": Parser(ray_output.parse_ray_submit, log, (None, 200)),
        "is_already_exists": Parser(ray_output.is_already_exists, log, (None, 200)),
    }  # fmt: skip


def hostile(parser: Parser) -> dict[str, Callable[[int], str]]:
    """Every hostile text for a parser, by name, as a function of its size."""

    def made(start: str, filling: str, width: int | None) -> Callable[[int], str]:
        return lambda size: parser.opening + filled(size, parser.line + start, filling, width)

    texts = dict(parser.own)
    for name, (start, filling) in FILLINGS.items():
        for width in parser.widths:
            texts[f"{name}, {f'lines of {width}' if width else 'one line'}"] = made(start, filling, width)
    return texts


# ---------------------------------------------------------------- measuring


class _GivenUp(BaseException):
    pass


def _give_up(*_: object) -> None:
    raise _GivenUp


def seconds(parser: Parser, text: str, limit: float = GIVE_UP, rounds: int = 1) -> float:
    """The best of some rounds; infinite when it takes longer than the limit."""
    best = math.inf
    for _ in range(rounds):
        signal.setitimer(signal.ITIMER_REAL, limit)
        started = time.perf_counter()
        try:
            parser.read(text)
        except _GivenUp:
            return math.inf
        except (ParseError, ValueError, ArithmeticError, LookupError):
            pass  # what is raised is the business of tests/unit/test_hostile_input.py
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        best = min(best, time.perf_counter() - started)
    return best


def growth(sizes: list[int], times: list[float]) -> float:
    """The exponent between the first and the last size that was measured."""
    known = [(size, one) for size, one in zip(sizes, times) if one < math.inf]
    if len(known) < 2:
        return math.nan
    (small, fast), (large, slow) = known[0], known[-1]
    return math.log(slow / fast) / math.log(large / small)


class Worst(NamedTuple):
    ratio: float
    over: bool
    exponent: float
    name: str


def measure(parser: Parser, most: int) -> tuple[float, list[Worst]]:
    """The plain time, and the worst texts: found at a size that the parser reads fast, then measured at three."""
    plain = seconds(parser, parser.plain, rounds=5)
    texts, screen = hostile(parser), SIZE if plain < 0.004 else SIZE // 8
    found = {name: seconds(parser, make(screen), SCREEN_GIVE_UP) for name, make in texts.items()}
    worst = []
    for name in sorted(found, key=lambda each: -found[each])[: most + 2]:
        sizes = [SIZE // 4, SIZE // 2, SIZE]
        if found[name] == math.inf:
            sizes = [SIZE // 32, SIZE // 16, *sizes]
        times: list[float] = []
        for size in sizes:
            times.append(seconds(parser, texts[name](size), rounds=3 if found[name] < 0.02 else 1))
            if times[-1] == math.inf:
                break
        over = times[-1] == math.inf
        worst.append(Worst((GIVE_UP if over else times[-1]) / plain, over, growth(sizes, times), name))
    return plain, sorted(worst, key=lambda each: -each.ratio)[:most]


def compare(only: str, show: int) -> None:
    print(
        f"{'parser':<22}{'64 KiB plain':>13}  {'worst ratio':>12}  {'exponent':>8}  text (goal: under 20, exponent 1)"
    )
    for name, parser in parsers().items():
        if only not in name:
            continue
        plain, worst = measure(parser, show)
        for each in worst:
            ratio = f"{'over ' if each.over else ''}{each.ratio:.1f}"
            print(f"{name:<22}{plain * 1000:>10.2f} ms  {ratio:>12}  {each.exponent:>8.2f}  {each.name}", flush=True)


def throughput(folder: Path) -> None:
    path, mega, chunk = folder / "log", 1024 * 1024, 256 * 1024
    path.write_text(_plain(training_log(), LOG_SIZE))
    text, greps = path.read_bytes().decode(), []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(["grep", "-cE", "step|loss", str(path)], check=True, capture_output=True)
        greps.append(time.perf_counter() - started)
    grep = len(text) / mega / min(greps)
    print(f"{'grep -cE step|loss':<22}{grep:>9.1f} MB/s over {len(text) / mega:.0f} MB")
    readers: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("parse_progress", parse_progress), ("classify_failure", classify_failure), ("LogTotals", _totals)
    )  # fmt: skip
    for name, read in readers:
        started, at = time.perf_counter(), 0
        while at < len(text) and time.perf_counter() - started < LOG_SECONDS:
            read(text[at : at + chunk])
            at += chunk
        done = min(at, len(text)) / mega
        speed = done / (time.perf_counter() - started)
        print(f"{name:<22}{speed:>9.2f} MB/s over {done:.1f} MB   grep is {grep / speed:.0f} times as fast")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default="", help="parsers whose name contains this")
    arguments.add_argument("--show", type=int, default=1, help="so many of the worst texts per parser")
    options = arguments.parse_args()
    signal.signal(signal.SIGALRM, _give_up)
    compare(options.only, options.show)
    if not options.only:
        with tempfile.TemporaryDirectory() as name:
            throughput(Path(name))
