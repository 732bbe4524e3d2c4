"""Start a tool written in Python without waiting each time until its libraries are imported.

`python -m tests.warm_tools SOCKET PREFIX MODULE...` imports the modules, forgets those of the tool itself (`PREFIX` and
below: they read the environment when they are imported) and forks for each call. The child takes over the caller's
arguments, environment, working directory and descriptors and runs the tool's own script, so what runs is the real tool.
The tool ends when its caller does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PROGRAM = """#!{python} -IS
import array, json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    call = json.dumps([{script!r}, sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    descriptors = array.array("i", [0, 1, 2])
    server.sendmsg([len(call).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    server.sendall(call)
    code = int(server.recv(8) or {lost})
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
_LOST = 70  # EX_SOFTWARE: the server is gone


@contextmanager
def warm_tool(script: str, folder: Path, prefix: str, *modules: str) -> Iterator[Path]:
    """Yield a program that does what `script`, a Python tool, does; its libraries are imported once.

    Args:
        folder: an empty one, whose path is short enough for a socket's address (about 100 characters).
        prefix: the tool's own package, imported anew by every call.
        modules: what to import beforehand.
    """
    first_line = Path(script).read_text().splitlines()[0]
    python = first_line.removeprefix("#!") if first_line.startswith("#!/") else sys.executable
    address, program = str(folder / "socket"), folder / Path(script).name
    program.write_text(_PROGRAM.format(python=python, address=address, script=script, lost=_LOST))
    program.chmod(0o755)
    command = [python, __file__, address, prefix, *modules]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        assert server.stdout and server.stdout.readline() == b"ready\n"
        yield program
        server.kill()


def main(address: str, prefix: str, modules: Sequence[str]) -> None:
    """Serve until killed."""
    for name in modules:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == prefix]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # the children share these pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("ready", flush=True)
        while True:
            caller, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _attend(caller)
            caller.close()


def _attend(caller: socket.socket) -> None:
    """Run the tool in one more process, say how it ended, and end it when the caller is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, descriptors, _, _ = socket.recv_fds(caller, 4, 3)
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size and (more := caller.recv(size - len(text))):
        text += more
    tool = os.fork()
    if tool == 0:
        caller.close()
        os._exit(_run_tool(*json.loads(text), descriptors))
    for descriptor in descriptors:
        os.close(descriptor)
    threading.Thread(target=_end_with, args=(caller, tool), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(tool, 0)[1])
    with suppress(OSError):
        caller.sendall(str(code).encode())
    os._exit(0)


def _end_with(caller: socket.socket, tool: int) -> None:
    with suppress(OSError):
        caller.recv(1)  # nothing is ever sent: this ends with the caller
    with suppress(ProcessLookupError):
        os.kill(tool, signal.SIGKILL)


def _run_tool(script: str, words: list[str], environ: dict[str, str], folder: str, descriptors: list[int]) -> int:
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = [script, *words]
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    try:
        runpy.run_path(script, run_name="__main__")
        code: object = None
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code & 255 if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
