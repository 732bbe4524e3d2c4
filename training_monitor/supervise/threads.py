"""Threads that nobody waits for, and a machine that has none left."""

from __future__ import annotations

import threading
from collections.abc import Callable

from training_monitor.supervise.logs import get_logger


def begin_thread(work: Callable[[], None], name: str) -> bool:
    """Begin a daemon thread; False where this machine has none left: then it is to be tried again."""
    try:
        threading.Thread(target=work, name=f"training_monitor {name}", daemon=True).start()
    except RuntimeError as error:
        get_logger().warning("no thread for a %s: %s", name, error)
        return False
    return True
