"""A `tee` between descriptors that are open already: the one program that is not run for its answer."""

from __future__ import annotations

import os
import shutil


def start_tee(path: str, *, reading: int, writing: int) -> int:
    """Start a `tee` that appends what it reads from one descriptor to a file, and writes it to another one, too.

    It has a process group of its own, and Ctrl-C does not end it: it goes with what it reads from.

    Returns:
        Its pid: whoever starts it waits for it.

    Raises:
        OSError: there is no `tee`, or no process can be started.
    """
    tee = shutil.which("tee")
    if tee is None:
        raise FileNotFoundError("there is no `tee` on PATH")
    actions = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_DUP2, writing, 1)]
    return os.posix_spawn(tee, ["tee", "-a", "-i", "--", path], dict(os.environ), file_actions=actions, setpgroup=0)
