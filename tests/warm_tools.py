"""Start a tool written in Python without waiting each time until its libraries are imported.

`python -m tests.warm_tools SOCKET SCRIPT PREFIX` runs the tool's own script once for its help, which imports all that
it needs, and forks for each call. The child takes over the caller's arguments, environment, working directory and
descriptors and runs the script, so what runs is the real tool. The tool ends when its caller does.

The modules of the tool itself (`PREFIX` and below) read some variables (`READ_AT_IMPORT`) and ask their service when
they are imported. So the child of the first call with other values imports them, and when that has succeeded, it forks
for further ones.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Nothing is imported that takes milliseconds: it is started for each call.
_PROGRAM = """#!{python} -IS
import _socket, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
call = marshal.dumps(({script!r}, sys.argv[1:], dict(os.environ), os.getcwd()))
descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(call).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
server.sendall(call)
os._exit(int(server.recv(8) or {lost}))
"""
_LOST = 70  # EX_SOFTWARE: the server is gone, or the tool ended without a status

Call = tuple[str, list[str], dict[str, str], str]  # the script, its arguments, environment and working directory


@contextmanager
def warm_tool(script: str, folder: Path, prefix: str, **environ: str) -> Iterator[Path]:
    """Yield a program that does what `script`, a Python tool, does; its libraries are imported once.

    Args:
        folder: an empty one, whose path is short enough for a socket's address (about 100 characters).
        prefix: the tool's own package, imported anew in every environment; empty where no import reads the environment.
        environ: in which the tool's libraries are imported.
    """
    first_line = Path(script).read_text().splitlines()[0]
    python = first_line.removeprefix("#!") if first_line.startswith("#!/") else sys.executable
    address, program = str(folder / "socket"), folder / Path(script).name
    program.write_text(_PROGRAM.format(python=python, address=address, script=script, lost=_LOST))
    program.chmod(0o755)
    command = [python, __file__, address, script, prefix]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={**os.environ, **environ}
    ) as server:
        assert server.stdout and server.stdout.readline() == b"ready\n"
        yield program
        server.kill()


def main(address: str, script: str, prefix: str) -> None:
    """Serve until killed."""
    sys.argv = [script, "--help"]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")
    names = [name for name in sys.modules if name.partition(".")[0] == prefix]
    for name in names:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # the children share these pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    importers = dict[tuple[str, ...], socket.socket]()  # to the children that have imported the tool, or do so
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("ready", flush=True)
        while True:
            caller, _ = server.accept()
            with caller:
                text, descriptors = _receive(caller)
                if text:
                    _pass_on(importers, server, names, text, caller, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)


def _pass_on(
    importers: dict[tuple[str, ...], socket.socket],
    server: socket.socket,
    names: Sequence[str],
    text: bytes,
    caller: socket.socket,
    descriptors: list[int],
) -> None:
    """Give a call to the child that has imported the tool with the values that it reads then, or to a new one."""
    call: Call = marshal.loads(text)
    key = tuple(f"{name}={value}" for name, value in sorted(call[2].items()) if _is_read_at_import(name))
    if key in importers and _hand_over(importers[key], text, caller, descriptors):
        return
    if key in importers:
        importers.pop(key).close()
    importers[key], other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        server.close()
        for importer in importers.values():
            importer.close()
        _serve_environment(other_end, names, call, caller, descriptors)
    other_end.close()


def _is_read_at_import(name: str) -> bool:
    return name == "HOME" or name.startswith("VAST") or (name.startswith("XDG_") and name.endswith("_HOME"))


def _receive(caller: socket.socket) -> tuple[bytes, list[int]]:
    """A call and its descriptors; no text when the caller is gone."""
    text, descriptors = b"", list[int]()
    with suppress(OSError):
        head, descriptors, _, _ = socket.recv_fds(caller, 4, 3)
        size = int.from_bytes(head, "big")
        while len(text) < size and (more := caller.recv(size - len(text))):
            text += more
        if len(text) == size:
            return text, descriptors
    return b"", descriptors


def _hand_over(importer: socket.socket, text: bytes, caller: socket.socket, descriptors: Sequence[int]) -> bool:
    """Give a call to the child that has imported the tool; False while it has not, and when it is gone."""
    try:
        if importer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            socket.send_fds(importer, [text], [caller.fileno(), *descriptors])
            return True
    except OSError:
        pass
    return False


def _serve_environment(
    server: socket.socket, names: Sequence[str], call: Call, caller: socket.socket, descriptors: list[int]
) -> None:
    """Import the tool in the environment of its first caller, who may leave meanwhile; run it for that and others."""
    os.environ.clear()
    os.environ.update(call[2])
    imported = threading.Event()
    threading.Thread(target=_end_with, args=(caller, imported), daemon=True).start()
    with suppress(Exception):  # the tool itself then says what is wrong
        for name in names:
            importlib.import_module(name)
        imported.set()
        gc.freeze()
        server.send(b"+")
    while True:
        if os.fork() == 0:
            server.close()
            _run_tool(call, caller, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        caller.close()
        text, received = b"", []
        with suppress(OSError):
            text, received, _, _ = socket.recv_fds(server, 1 << 20, 4)
        if not text or not imported.is_set():
            os._exit(0)
        call, caller, descriptors = marshal.loads(text), socket.socket(fileno=received[0]), received[1:]


def _end_with(caller: socket.socket, unless: threading.Event) -> None:
    """End this process with its caller."""
    with suppress(OSError), caller.dup() as connection:  # which is not held for longer: the caller waits for its end
        while not unless.is_set():
            if select.select([connection], [], [], 0.2)[0]:  # nothing is ever sent: this is the end of the caller
                os.kill(os.getpid(), signal.SIGKILL)


def _run_tool(call: Call, caller: socket.socket, descriptors: Sequence[int]) -> None:
    """Be the tool, and say at the end how it went."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(caller, threading.Event()), daemon=True).start()
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    script, words, environ, folder = call
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
    with suppress(OSError):
        sys.stdout.flush()
    with suppress(OSError):
        caller.sendall(str(code & 255 if isinstance(code, int) else int(code is not None)).encode())
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
