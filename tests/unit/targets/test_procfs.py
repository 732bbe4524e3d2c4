"""What /proc says, compared with what Python knows of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from training_monitor.targets.procfs import MachineReader, identify, read_process, read_threads

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this machine has no /proc")


def test_a_process_is_identified_if_it_is_there() -> None:
    me = identify()
    assert (me.pid, me.hostname) == (os.getpid(), os.uname().nodename)
    assert me.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert me.pid_namespace == os.readlink("/proc/self/ns/pid")
    assert me.start_ticks and identify(os.getpid()) == me
    assert identify(2**22 + 5).start_ticks is None
    assert read_process(2**22 + 5) is None and read_threads(2**22 + 5) == ()
    assert read_process(2**70) is None


def test_a_look_has_the_machine_and_this_process() -> None:
    reader = MachineReader()
    first, second = reader.read(), reader.read()
    me = second.processes[os.getpid()]
    assert (me.parent, me.start_ticks) == (os.getppid(), identify().start_ticks)
    assert me.rss_bytes > 2**20 and me.cpu_ticks > 0
    assert first.at < second.at and second.ticks == os.sysconf("SC_CLK_TCK")
    assert second.memory_bytes and second.available_bytes and second.memory_bytes > second.available_bytes
    assert second.cores == os.cpu_count() and second.identity == identify()
    assert second.sees_all == (1 in second.processes)
    assert (second.threads, second.gpu_mib, second.gpu_error) == ({}, None, None)


def test_a_later_look_has_later_numbers_and_no_ended_process() -> None:
    reader = MachineReader()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        first = reader.read().processes[child.pid]
        later = first
        while later.cpu_ticks <= first.cpu_ticks:
            later = reader.read().processes[child.pid]
        assert later.start_ticks == first.start_ticks and later.parent == os.getpid()
    finally:
        child.kill()
        child.wait()
    assert child.pid not in reader.read().processes


def test_threads_are_read_of_those_processes_that_were_asked_for() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        look = MachineReader().read(frozenset({os.getpid(), 2**22 + 5}))
    finally:
        ended.set()
        thread.join()
    assert list(look.threads) == [os.getpid()]
    assert {os.getpid(), thread.native_id} <= {sample.pid for sample in look.threads[os.getpid()]}
    assert look.processes[os.getpid()].threads >= 2
