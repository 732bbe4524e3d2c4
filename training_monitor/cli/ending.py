"""How a signal ends a command: within a second, cleaned up, and by that signal itself, which shells and systemd see.

The first signal raises KeyboardInterrupt in the main thread, later ones do nothing. Where the main thread does not come
to its end in time, because it waits inside C (a locked database, a name server, a full pipe), another thread ends the
process.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ORDERLY_SECONDS = 0.7  # for the main thread to clean up
_LAST_SECONDS = 0.1  # for the functions of atexit, when it did not


class Ending:
    """The signals of one process; `number` is the one that ends it."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._is_over = False
        self._handled = list[int]()

    def begin(self) -> None:
        """Handle the signals from now on; one that was ignored from the start stays ignored."""
        sys.unraisablehook, sys.excepthook = self._drop_lost, self._drop_late
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with suppress(RuntimeError):  # no thread is left: then nothing hurries the main thread
            threading.Thread(target=self._hurry, args=(reading,), name="training_monitor end", daemon=True).start()
        for number in SIGNALS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, self._interrupt)
                self._handled.append(number)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)  # C writes there, whatever the main thread does

    def finish(self) -> None:
        """End this process by the signal that came; return if none did, and let the next one end it at once."""
        self._is_over = True
        for number in self._handled:
            if self.number is None:
                signal.signal(number, signal.SIG_DFL)
        if self.number is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        atexit._run_exitfuncs()
        signal.signal(self.number, signal.SIG_DFL)
        os.kill(os.getpid(), self.number)
        os._exit(128 + self.number)  # process 1 of a container cannot end by a signal of its own

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            if not self._is_over:
                raise KeyboardInterrupt(number)

    def _hurry(self, reading: int) -> None:
        """Wait for a signal, and end the process if it is still there a moment later."""
        while not (came := [number for number in os.read(reading, 64) if number in self._handled]):
            pass
        time.sleep(ORDERLY_SECONDS)
        last = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
        with suppress(RuntimeError):
            last.start()
            last.join(_LAST_SECONDS)
        with suppress(Exception):  # Python lets only the main thread restore how a signal is handled
            from ctypes import CDLL

            CDLL(None).signal(came[0], None)
            os.kill(os.getpid(), came[0])
        os._exit(128 + came[0])

    def _drop_lost(self, lost: Any) -> None:
        """Print no traceback for an interrupt that came inside a finaliser; `_hurry` ends the process."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)

    def _drop_late(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """Print no traceback for an interrupt that came after the command."""
        if issubclass(kind, KeyboardInterrupt):
            self.finish()
        sys.__excepthook__(kind, error, trace)
