"""A tee between descriptors that are open already: the one program that is not run for its answer."""

from __future__ import annotations

import os
import re
import sys

from training_monitor.targets import tee_process


def start_tee(file: int, *, reading: int, writing: int) -> int:
    """Start a process that copies what it reads from one descriptor to another one and into a file.

    It has a process group of its own, and Ctrl-C does not end it: it goes with what it reads from.

    Returns:
        Its pid: whoever starts it waits for it.

    Raises:
        OSError: No process can be started, or there is no Python to run in it, as in a program that embeds it.
    """
    if getattr(sys, "frozen", False) or not re.match(r"python|pypy", os.path.basename(sys.executable or "")):
        raise FileNotFoundError("there is no Python interpreter to copy them with")
    ends = ((reading, tee_process.INPUT), (writing, tee_process.OUTPUT), (file, tee_process.FILE))
    actions = [(os.POSIX_SPAWN_DUP2, ours, its) for ours, its in ends]
    argv = [sys.executable, "-I", "-S", tee_process.__file__]
    return os.posix_spawn(sys.executable, argv, dict(os.environ), file_actions=actions, setpgroup=0)
