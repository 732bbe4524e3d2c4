"""How fast training logs are read, beside one `bytes.translate` and one dictionary entry for each line.

    python3 bench/logs.py

LogTotals reads logs of a few megabytes, 256 KiB at a time: lines of frameworks, and lines that never repeat in shape.
Then come the readers of the end of a log, 64 KiB, and how the time for a whole log grows with its lines.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.framework_lines import FRAMEWORKS
from bench.table import Row, as_table, in_turn
from training_monitor.logs.following import get_log_progress
from training_monitor.logs.totals import LogTotals
from training_monitor.logs.training_log import parse_progress
from training_monitor.verdict.failure import classify_failure

MEGA, CHUNK, END = 1e6, 256 * 1024, 64 * 1024
SIZE, ROUNDS = 2_000_000, 5
_ZERO = bytes.maketrans(b"123456789", b"000000000")
_STEP = re.compile(r"step\D{0,3}(\d+)|(\d+)/\d+ \[")


def _unlike() -> Iterator[str]:
    """Lines without end, no two of which are alike in more than their beginning."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randrange(2, 9))) for _ in range(5000)]
    while True:
        yield f"2030-01-01 10:00:00 INFO {' '.join(chance.choices(words, k=12))} ({chance.random():.4f})\n"


def _log(lines: Iterable[str], size: int) -> str:
    text, length = list[str](), 0
    for line in lines:
        text.append(line)
        length += len(line)
        if length > size:
            return "".join(text)
    raise AssertionError("lines without end")


def _read(text: str) -> None:
    totals = LogTotals()
    for at in range(0, len(text), CHUNK):
        totals.feed(text[at : at + CHUNK])
    totals.close()


def _translate(text: str) -> None:
    seen: dict[bytes, int] = {}
    for line in text.encode().translate(_ZERO).split(b"\n"):
        seen[line] = seen.get(line, 0) + 1


def rows() -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of logs."""
    texts = {kind: _log(map(line, count()), SIZE) for kind, line in FRAMEWORKS.items()}
    beside = "`bytes.translate` and a dict"
    for kind, text in texts.items():
        calls = {"ours": partial(_read, text), "reference": partial(_translate, text.replace("\r", "\n"))}
        ours, reference = (len(text) / MEGA / seconds for seconds in in_turn(calls, ROUNDS).values())
        yield Row(f"LogTotals, {kind}", ours, "MB/s", reference, beside, "20 MB/s")
    source = _unlike()
    speeds = [_speed(_log(source, SIZE // 4)) for _ in range(ROUNDS)]  # each text once: the caches know none of it
    yield Row("LogTotals, lines that never repeat", sorted(speeds)[ROUNDS // 2], "MB/s", None, "", "3 MB/s")
    for kind in ("tqdm", "HF Trainer"):
        yield _of_an_end("parse_progress", parse_progress, kind, texts[kind][-END:], "5 ms")
        yield _of_an_end("classify_failure", classify_failure, kind, texts[kind][-END:], "10 ms")
    yield from _steps(texts["tqdm"].encode())


def _speed(text: str) -> float:
    started = time.perf_counter()
    _read(text)
    return len(text) / MEGA / (time.perf_counter() - started)


def _of_an_end(name: str, read: Callable[[str], object], kind: str, text: str, goal: str) -> Row:
    calls: dict[str, Callable[[], object]] = {"ours": partial(read, text), "reference": partial(_STEP.findall, text)}
    ours, reference = (1e3 * seconds for seconds in in_turn(calls, 4 * ROUNDS).values())
    return Row(f"{name}, 64 KiB of {kind} output", ours, "ms", reference, "one regular expression", goal)


def _steps(text: bytes) -> Iterator[Row]:
    """Ask this machine for the step in logs that end in `text`; what comes before it is a hole in the file."""
    with tempfile.TemporaryDirectory() as folder:
        for name, size in (("20 KB", 20_000), ("2 MB", 2_000_000), ("2 GB", 2_000_000_000)):
            path = Path(folder, "train.log")
            with path.open("wb") as file:
                file.seek(max(0, size - len(text)))
                file.write(text[-size:])
            tail = partial(subprocess.run, ["tail", "-c", str(END), path], stdout=subprocess.DEVNULL, check=True)
            ask = partial(get_log_progress, "local", str(path))
            calls: dict[str, Callable[[], object]] = {"ours": ask, "reference": tail}
            ours, reference = (1e3 * seconds for seconds in in_turn(calls, 4 * ROUNDS).values())
            yield Row(f"get the current step from a log of {name}", ours, "ms", reference, f"`tail -c {END}`", "2x")


def growth() -> Iterator[str]:
    """Measure how the time for a whole log grows with its lines."""
    yield "| lines in the log | total time | time per line |"
    yield "| ---: | ---: | ---: |"
    for lines in (1, 10, 100, 1000, 10_000, 100_000, 1_000_000):
        text = "".join(map(FRAMEWORKS["nanoGPT"], range(lines)))
        taken = in_turn({"ours": partial(_read, text)}, 3)["ours"]
        yield f"| {lines:,} | {taken * 1e3:.2f} ms | {taken / lines * 1e6:.2f} us |"


if __name__ == "__main__":
    print("\n".join([*as_table(rows()), "", *growth()]))
