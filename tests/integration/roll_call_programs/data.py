"""Where a rank of a test training gets its batches, and how that may last for ever."""

from __future__ import annotations

import os
import socket
import time


def load_batch() -> bytes:
    reading, _ = os.pipe()
    return os.read(reading, 1)  # odd: pipe


def wait_for_storage() -> None:
    time.sleep(3600)  # odd: sleep


def read_remote() -> bytes:
    server = socket.create_server(("127.0.0.1", 0))
    connection = socket.create_connection(server.getsockname())
    return connection.recv(1)  # odd: socket
