from __future__ import annotations

import os
import select
import threading

import pytest

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.ui.kit.terminal import Bell, choose_glyphs, open_terminal


def test_signs_are_ascii_where_the_locale_is_not_utf8() -> None:
    for environ, encoding, is_ascii in [
        ({"LANG": "en_US.UTF-8"}, "UTF-8", False),
        ({"LANG": "de_DE.utf8"}, "utf8", False),
        ({"LANG": "de_DE"}, "ISO-8859-1", True),
        ({"LC_ALL": "C"}, "ANSI_X3.4-1968", True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "UTF-8", True),
        ({"LC_CTYPE": "C.UTF-8"}, "UTF-8", True),
        ({"LANG": "C.UTF-8"}, "UTF-8", False),
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, "UTF-8", False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8", "LC_ALL": "C.UTF-8"}, "UTF-8", False),
        ({"LANG": "en_US.UTF-8", "TRAINING_MONITOR_ASCII": "1"}, "UTF-8", True),
        ({"LC_ALL": "C", "TRAINING_MONITOR_ASCII": "0"}, "ANSI_X3.4-1968", False),
    ]:
        assert choose_glyphs(environ, encoding).ascii is is_ascii, environ


def is_awake(bell: Bell) -> bool:
    return bool(select.select([bell.reader], [], [], 0)[0])


def test_a_bell_wakes_until_it_is_silenced_and_never_waits() -> None:
    bell = Bell()
    assert not is_awake(bell)
    bell.ring()
    assert is_awake(bell)
    bell.silence()
    assert not is_awake(bell)
    bell.close()
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    bell.close()


def test_a_closed_bell_writes_to_nobody_elses_file() -> None:
    bell = Bell()
    bell.close()
    reader, writer = os.pipe()  # takes the numbers that are free again
    threads = [threading.Thread(target=bell.ring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not select.select([reader], [], [], 0)[0]
    os.close(reader)
    os.close(writer)


def test_without_a_terminal_there_is_no_screen() -> None:
    with pytest.raises(TrainingMonitorError, match="requires a terminal.*--once"), open_terminal():
        pass
