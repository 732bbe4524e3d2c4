"""How the judge tells 20 hung real processes from 20 healthy ones on a machine whose cores are all taken.

    python3 bench/real_processes.py [--seconds 260] [--only NAME]

Small programs without dependencies print what trainings print, and wait, compute, write or hang as trainings do. An
endless loop runs on each core. All are looked at as `watch` looks at a process and its log, with limits that the
setting `stall_after` scales down. Exit code 1 if a healthy program was called stalled, or a hung one was not found.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from training_monitor import TrainingWatcher  # noqa: E402
from training_monitor.core.store import Store
from training_monitor.verdict.judge import format_verdict

STALL_AFTER = 30.0  # seconds; four times as long while something works, or before the first step
BEGIN = """
import json, os, random, signal, socket, subprocess, sys, threading, time
T = time.time()
step = 0
def since(): return time.time() - T
def say(text, end="\\n"): sys.stdout.write(text + end); sys.stdout.flush()
def work(seconds):  # of processor time
    until = time.process_time() + seconds
    while time.process_time() < until: pass
def spend(seconds):  # of time, computing
    until = time.time() + seconds
    while time.time() < until: pass
def line(): say(f"step {step}/100000 loss {3 / (1 + step / 50):.4f} lr 3e-4")
def draw(step, total):
    say(f"\\r{step * 100 // total}%|#  | {step}/{total} [00:{int(since()) % 60:02d}<59:59,  2.00it/s]", "")
def bar(): draw(step, 100000)
def as_json(): say(json.dumps({"step": step, "loss": 3 / (1 + step / 50), "time": time.time()}))
def train(seconds, each=0.5, show=line):
    global step
    until = time.time() + seconds
    while time.time() < until:
        time.sleep(each); step += 1; show()
def stamp(text): say(time.strftime("%Y-%m-%d %H:%M:%S ") + text)
def repeat(text, every):
    while True: time.sleep(every); say(text())
def beat(text, every): threading.Thread(target=repeat, args=(text, every), daemon=True).start()
FOREVER = 10 ** 6
"""
HEALTHY = {
    "bar": "train(FOREVER, 0.3, bar)",
    "lines": "train(FOREVER)",
    "JSON lines": "train(FOREVER, 1.0, as_json)",
    "times, a line in 9 s": "train(FOREVER, 9.0, lambda: stamp(f'INFO step={step} loss={2 + 1 / (1 + step):.4f}'))",
    "dict lines by epochs": "train(FOREVER, 2.0, lambda: say(str({'loss': 2 + random.random(), 'epoch': step / 10})))",
    "batches without a total": """
def show():
    epoch, batch = divmod(step, 40)
    say(f"Epoch {epoch + 1}, batch {batch}: loss {2 + random.random():.3f}")
train(FOREVER, 0.7, show)
""",
    "a bar for each epoch": """
while True:
    for batch in range(1, 41): time.sleep(0.5); draw(batch, 40)
    say("")
""",
    "unreadable but growing": """
while True:
    time.sleep(random.uniform(1, 4)); step += random.randint(3, 90)
    say(f"{random.choice('abcdefghijkl')}{random.randint(0, 99)} packed, {step} texts, mean {random.random():.2f}")
""",
    "niced steps": "os.nice(19)\nwhile True: work(0.3); step += 1; line()",
    "niced, silent": "os.nice(19)\nwhile True: train(5); spend(80)",
    "computes, silent": "spend(FOREVER)",
    "children compute, silent": """
loop = "import time; end = time.time() + 80\\nwhile time.time() < end: pass"
while True:
    train(5)
    [each.wait() for each in [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(2)]]
""",
    "writes, few lines": """
while True:
    for _ in range(8):
        with open(sys.argv[1], "wb") as file: file.write(os.urandom(1 << 20)); os.fsync(file.fileno())
        time.sleep(1)
    step += 1; line()
""",
    "writes, silent": """
while True:
    train(5)
    for _ in range(80):
        with open(sys.argv[1], "wb") as file: file.write(os.urandom(1 << 20))
        time.sleep(1)
""",
    "waits for data": "train(FOREVER, 8.0)",
    "waits now and then": "while True: train(4); time.sleep(random.uniform(4, 18))",
    "silent evaluations": "while True: train(25); work(15)",
    "evaluations with lines": """
while True:
    train(25)
    for batch in range(20): work(0.2); time.sleep(1.5); say(f"eval batch {batch + 1}/20")
""",
    "an empty bar first": "bar(); time.sleep(60); train(FOREVER, 0.5, bar)",
    "steps and a heartbeat": "beat(lambda: f'heartbeat: alive, uptime {since():.0f}s', 5)\ntrain(FOREVER, 2.0)",
}
HANG = "time.sleep(FOREVER)"
HUNG = {  # after 25 seconds, but for those that never begin
    "lock": "train(25)\nlock = threading.Lock(); lock.acquire(); lock.acquire()",
    "sleeps": f"train(25, 0.3, bar)\n{HANG}",
    "suspended": "train(25)\nos.kill(os.getpid(), signal.SIGSTOP)",
    "full pipe": "train(25)\n_, end = os.pipe()\nwhile True: os.write(end, bytes(4096))",
    "empty queue": "import queue\ntrain(25, 1.0, as_json)\nqueue.Queue().get()",
    "socket": "train(25)\nserver = socket.create_server(('127.0.0.1', 0)); server.accept()",
    "fifo": "train(25)\nos.mkfifo(sys.argv[1]); open(sys.argv[1])",
    "file lock": """
import fcntl
train(25)
holder = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True); time.sleep(9e5)"
child = subprocess.Popen([sys.executable, "-c", holder, sys.argv[1]], stdout=subprocess.PIPE); child.stdout.read(1)
fcntl.flock(open(sys.argv[1]), 2)
""",
    "heartbeat thread": f"beat(lambda: 'heartbeat: training is alive', 10)\ntrain(25)\n{HANG}",
    "the same line again": f"beat(lambda: 'INFO node-0 | collective in progress', 4)\ntrain(25)\n{HANG}",
    "retries": "train(25)\nrepeat(lambda: f'Connection refused, retry {since() // 4:.0f}, waiting 4s', 4)",
    "uptime": "train(25)\nrepeat(lambda: f'uptime {since():.0f} s, memory 1203 MB', 5)",
    "watchdog with times": "train(25)\nwhile True: time.sleep(5); stamp(f'[watchdog] rank 3 is late by {since():.0f}')",
    "bar drawn again": "train(25, 0.5, bar)\nwhile True: time.sleep(1); bar()",
    "the same step again": "train(25, 1.0, as_json)\nwhile True: time.sleep(3); as_json()",
    "polls": "train(25)\nwhile True: time.sleep(0.02)",
    "children deadlock": """
train(25)
stuck = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
[each.wait() for each in [subprocess.Popen([sys.executable, "-c", stuck]) for _ in range(2)]]
""",
    "niced": f"os.nice(19)\ntrain(25)\n{HANG}",
    "in an evaluation": f"train(25)\nsay('Running evaluation on 5 batches'); {HANG}",
    "never begins": f"say('loading the dataset')\n{HANG}",
}


@dataclass
class Program:
    """A running program; `found` is (seconds since its start, verdict) of the first stall, or that it is suspended."""

    name: str
    hangs: bool
    process: subprocess.Popen[bytes]
    watcher: TrainingWatcher
    began: float = field(default_factory=time.monotonic)
    found: tuple[float, str] | None = None
    last: str = ""
    looks: int = 0

    @property
    def is_right(self) -> bool:
        return bool(self.found) == self.hangs

    def look(self) -> None:
        verdict = self.watcher.poll().verdict
        assert verdict
        self.looks, self.last = self.looks + 1, f"{verdict.confidence}: {format_verdict(verdict)}"
        if verdict.state in ("stalled", "suspended") and self.found is None:
            self.found = time.monotonic() - self.began, self.last


def start(folder: Path, name: str, code: str, store: Store, *, hangs: bool) -> Program:
    log = folder / f"{'hung' if hangs else 'healthy'} {name}.log".replace(" ", "-")
    argv = [sys.executable, "-c", BEGIN + code, str(log.with_suffix(".data"))]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
    job = {"pid": process.pid, "log_file": str(log), "name": name}
    watcher = TrainingWatcher("local", job, {"stall_after": STALL_AFTER, "poll_interval": 10}, store=store)
    return Program(name, hangs, process, watcher)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for each in processes:
        os.killpg(each.pid, signal.SIGKILL)
    for each in processes:
        each.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=260.0, help="how long they are watched")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), Store(str(Path(name) / "state"))
        loop = [sys.executable, "-c", "while True: pass"]
        others = [subprocess.Popen(loop, start_new_session=True) for _ in range(os.cpu_count() or 1)]
        programs = [
            start(folder, each, code, store, hangs=hangs)
            for hangs, table in ((False, HEALTHY), (True, HUNG))
            for each, code in table.items()
            if arguments.only in each
        ]
        try:
            until = time.monotonic() + arguments.seconds
            with ThreadPoolExecutor(4) as pool:
                while time.monotonic() < until:
                    begun = time.monotonic()
                    list(pool.map(Program.look, programs))
                    time.sleep(max(0.0, 8.0 - (time.monotonic() - begun)))
        finally:
            end([*others, *(each.process for each in programs)])
    for program in programs:
        found = f"{program.found[0]:5.0f} s" if program.found else "      -"
        kind, mark = "hung" if program.hangs else "healthy", "" if program.is_right else "  WRONG"
        said = program.found[1] if program.found else program.last
        print(f"{kind:<8}{program.name:<26}{program.looks:3} looks  {found}  {said}{mark}")
    wrong = sum(not each.is_right for each in programs)
    print(f"{len(programs)} programs, {wrong} judged wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
