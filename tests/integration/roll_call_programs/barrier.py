"""A barrier over sockets, served by a thread of the launcher or of rank 0."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


def serve_barrier(listener: socket.socket, world: int, mute_at: int | None) -> None:
    """Let all ranks go on whenever each has arrived, in a thread; at step `mute_at`, for ever silent.

    A rank that is gone is not noticed: the others wait for it.
    """
    threading.Thread(target=_serve, args=(listener, world, mute_at), daemon=True).start()


def _serve(listener: socket.socket, world: int, mute_at: int | None) -> None:
    connections = [listener.accept()[0] for _ in range(world)]
    step = 0
    with contextlib.suppress(OSError):
        while all(connection.recv(1) for connection in connections):
            step += 1
            if step == mute_at:
                break
            for connection in connections:
                connection.sendall(b".")
    while True:
        time.sleep(3600)
