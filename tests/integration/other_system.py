"""This machine as a Mac is to a client: without /proc and Linux's system calls, with BSD's forms of the local tools.

In a mount namespace of its own, an empty folder hides /proc from a command and from all that it starts. Where this user
may not make one, Python's own calls do not see /proc. Tools first on PATH refuse what only GNU's take, and note it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 120
_SITE = """
import os, select, signal, sys, time

GONE = {
    os: "pidfd_open sched_getaffinity sched_setaffinity posix_fallocate memfd_create eventfd splice copy_file_range",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    select: "epoll",
    time: "CLOCK_BOOTTIME",
}
for module, names in GONE.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "darwin"
uname = os.uname()
os.uname = lambda: os.uname_result(("Darwin", uname.nodename, "24.6.0", "Darwin Kernel", "arm64"))


def hiding(call):
    def hidden(path, *rest, **more):
        if isinstance(path, str) and (path + "/").startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *rest, **more)

    return hidden


for name in "stat lstat open listdir readlink access scandir".split():
    setattr(os, name, hiding(getattr(os, name)))
"""
_PROXIES = "def _get_proxy_settings(): return {}\ndef _get_proxies(): return {}\n"  # a module of a Mac's Python
_NOT_THERE = "timeout nproc tac sha256sum md5sum setsid free numfmt shuf getent ionice".split()
_REFUSED = {  # patterns of words that only GNU's (or Linux's) form of a tool takes
    "stat": "-c*|--*",
    "date": "*%N*|-d*|--*",
    "readlink": "-e|-m|--*",
    "ps": "--*|-eo*|f",
    "sed": "--*",
    "find": "-printf|-readable|-writable|--*",
    "head": "--*|-[nc]-*|-[nc]",
    "tail": "--*",
    "ls": "--*",
    "cp": "--*",
    "xargs": "-d*|--*",
    "du": "-b|--*",
    "df": "--*",
    "grep": "-P*|--*",
    "sort": "-V|--*",
    "mktemp": "--*",
    "touch": "--*",
    "tr": "--*",
    "cat": "--*|-A",
}


class OtherSystem:
    """Commands of this package as on a Mac."""

    def __init__(self, folder: Path) -> None:
        self._site, self._tools, self._refused = folder / "site", folder / "bsd", folder / "refused"
        self._empty = folder / "empty"
        for each in (folder, self._site, self._tools, self._empty):
            each.mkdir()
        (self._site / "sitecustomize.py").write_text(_SITE)
        (self._site / "_scproxy.py").write_text(_PROXIES)
        for name in _NOT_THERE:
            self._write(name, "exit 127")
        for name, refused in _REFUSED.items():
            told = f"{{ echo \"{name}: illegal option -- $word\" | tee -a '{self._refused}' >&2; exit 64; }}"
            real = f'PATH=${{PATH#*bsd:}} exec {name} "$@"'
            self._write(name, f"for word; do case $word in {refused}) {told};; esac; done\n{real}")
        self._write("uname", "echo Darwin")
        self._hides = self._try_to_hide()

    def _write(self, name: str, script: str) -> None:
        (self._tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._tools / name).chmod(0o755)

    def _try_to_hide(self) -> list[str]:
        """The beginning of a command that does not see /proc; empty where this user may not do that."""
        script = 'mount --bind "$0" /proc && exec "$@"'
        for options in (["-m"], ["-r", "-m"]):
            hides = ["unshare", *options, "sh", "-c", script, str(self._empty)]
            done = subprocess.run([*hides, "sh", "-c", "! [ -e /proc/self/stat ]"], capture_output=True)
            if done.returncode == 0:
                return hides
        return []

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """What `training-monitor ARGV` answers there."""
        return self.run_python("-m", "training_monitor", *argv)

    def run_python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What Python answers there."""
        paths = {"PATH": f"{self._tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": f"{self._site}:{ROOT}"}
        command = [*self._hides, sys.executable, *words]
        return subprocess.run(
            command,
            env={**os.environ, **paths},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )

    def forget_refused(self) -> list[str]:
        """What the tools refused since this was asked last."""
        lines = self._refused.read_text().splitlines() if self._refused.exists() else []
        self._refused.unlink(missing_ok=True)
        return lines
