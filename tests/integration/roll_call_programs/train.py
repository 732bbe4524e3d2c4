"""A rank of a test training: each step it meets the others at a barrier, until `plan.json` has it do something else.

Before it waits for anything, it says so in a file `rank-RANK`.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from barrier import serve_barrier
from data import load_batch, read_remote, wait_for_storage

Plan = dict[str, Any]


def main() -> None:
    plan: Plan = json.loads(Path("plan.json").read_text())
    rank = int(os.environ["RANK"])
    if "BARRIER_FD" in os.environ:
        listener = socket.socket(fileno=int(os.environ["BARRIER_FD"]))
        serve_barrier(listener, plan["world"], plan["mute_at"])
    if plan["with_monitor"]:
        from training_monitor import TrainingMonitor

        TrainingMonitor("progress/run.json").start_monitoring()
    if plan["measures_gaps"]:
        threading.Thread(target=measure_gaps, args=(rank,), daemon=True).start()
    connection = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    train(rank, plan, connection)


def train(rank: int, plan: Plan, connection: socket.socket) -> None:
    kind = plan["odd"].get(str(rank), "")
    for step in range(1, plan["steps"] + 1):
        time.sleep(plan["step_seconds"])
        if kind and step == plan["odd_step"]:
            say(rank, "odd")
            be_odd(kind)
        say(rank, f"waits {step}")
        meet(connection)  # waits: the call
        if os.environ["LOCAL_RANK"] == "0":
            print(f"step {step}/{plan['steps']} loss {1 / step:.3f}", flush=True)


def meet(connection: socket.socket) -> None:
    connection.sendall(b".")
    if not connection.recv(1):  # waits: the place
        sys.exit("the barrier is gone")


def be_odd(kind: str) -> None:
    if kind == "dead":
        os._exit(1)
    odd = {"pipe": load_batch, "sleep": wait_for_storage, "socket": read_remote, "lock": take_lock, "busy": spin}
    odd[kind]()


def take_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # odd: lock


def spin() -> None:
    while True: pass  # noqa: E701 # odd: busy  # fmt: skip


def say(rank: int, what: str) -> None:
    Path(f"rank-{rank}").write_text(what)


def measure_gaps(rank: int) -> None:
    """Keep the largest gap between two readings of the clock in this rank's number of the file `gaps`."""
    with open("gaps", "r+b") as file:
        numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
    last = time.monotonic()
    while True:
        time.sleep(0.005)
        now = time.monotonic()
        if now - last > numbers[rank]:
            numbers[rank] = now - last
        last = now


if __name__ == "__main__":
    main()
