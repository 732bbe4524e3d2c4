"""Run a command that may not look into some processes: python forbid_ptrace.py PID,... COMMAND [ARGUMENT ...]

For it and all that it starts, ptrace(2) and process_vm_readv(2) fail with EPERM, and /proc/PID/mem of these processes
cannot be opened, as without the right to attach to them (SYS_PTRACE, ptrace_scope). The rest of /proc can be read. This
takes the rights of root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
ALLOW, ERROR = 0x7FFF0000, 0x00050000
CLONE_NEWNS, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4, 32, 4096, 16384, 1 << 18
CALLS = {"x86_64": (101, 310), "aarch64": (117, 270)}  # ptrace, process_vm_readv


def check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def hide_memory(pids: list[int]) -> None:
    """Cover /proc/PID/mem by a device where devices may not be opened. Raises OSError without the right to mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    for pid in pids:
        memory = f"/proc/{pid}/mem".encode()
        check(libc.mount(b"/dev/null", memory, None, MS_BIND, None))
        check(libc.mount(None, memory, None, MS_REMOUNT | MS_BIND | MS_NODEV, None))


def forbid_calls() -> None:
    """Raises OSError where the kernel takes no filter, KeyError on another processor."""
    ptrace, read = CALLS[platform.machine()]
    steps = [
        (LOAD, 0, 0, 0),  # the number of the system call
        (JUMP_IF_EQUAL, 1, 0, ptrace),
        (JUMP_IF_EQUAL, 0, 1, read),
        (RETURN, 0, 0, ERROR | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)):
        check(prctl(*words))


if __name__ == "__main__":
    hide_memory([int(pid) for pid in sys.argv[1].split(",")])
    forbid_calls()
    os.execvp(sys.argv[2], sys.argv[2:])
