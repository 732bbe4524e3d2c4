"""Start the ranks of a test training on one machine: launch.py FIRST COUNT [PORT], in a folder with its `plan.json`.

Without the port of a barrier it makes one. It and all ranks end with its standard input. The processes by rank, and the
port, are in `started-FIRST.json`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from barrier import serve_barrier


def main(first: int, count: int, port: int | None = None) -> None:
    if os.getpid() != os.getsid(0):
        os.setsid()
    plan = json.loads(Path("plan.json").read_text())
    listener = None
    if port is None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=plan["world"])
        port = listener.getsockname()[1]
        if not plan["is_barrier_in_rank_0"]:
            serve_barrier(listener, plan["world"], plan["mute_at"])
    end_with_parent = partial(ctypes.CDLL(None).prctl, 1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    processes = {}
    for rank in range(first, first + count):
        if plan["odd"].get(str(rank)) == "missing":
            continue
        variables = {"RANK": rank, "LOCAL_RANK": rank - first, "WORLD_SIZE": plan["world"], "LOCAL_WORLD_SIZE": count}
        variables |= {"MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"), "MASTER_PORT": port}
        descriptors: tuple[int, ...] = ()
        if rank == 0 and listener and plan["is_barrier_in_rank_0"]:
            descriptors, variables["BARRIER_FD"] = (listener.fileno(),), listener.fileno()
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        processes[rank] = subprocess.Popen(
            [sys.executable, "train.py"],
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=descriptors,
            preexec_fn=end_with_parent,
        )
    if plan["reaps"]:
        for process in processes.values():
            threading.Thread(target=process.wait, daemon=True).start()
    started = {"port": port, "launcher": os.getpid(), "ranks": {rank: each.pid for rank, each in processes.items()}}
    Path("writing.json").write_text(json.dumps(started))
    Path("writing.json").rename(f"started-{first}.json")
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
