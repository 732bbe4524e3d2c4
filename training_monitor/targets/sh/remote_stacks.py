"""Ask another Python of this version, 3.14 or later, for its stacks, and print them as runs/stack_dump.py does.

    python -c PROGRAM PID WAY SOURCE

With WAY `remote_exec` the process runs a script that writes them: SOURCE, which defines `write_stacks(path)`. It does
so as soon as its main thread runs Python. A script that was not run within two seconds is emptied and left, since the
process would print an error where it cannot open it. Whoever owns the process owns the folder then: no link in it is
followed. With WAY `remote_debugging` the stacks are read from the memory of the process, whatever it waits for, by the
module behind `python -m asyncio pstree`, which may change from version to version.
"""

import json
import os
import sys
import tempfile
import time

MOST_BYTES, MOST_FRAMES = 1 << 20, 60


def main():
    pid, way, source = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    print(run_there(pid, source) if way == "remote_exec" else read_memory(pid))


def run_there(pid, source):
    path = tempfile.mkdtemp(prefix="training-monitor-stacks-")
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # the owner may put a link in its place
    file = os.open("ask.py", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        os.write(file, script_of(source, os.path.join(path, "said.json")).encode())
        owner = os.stat(f"/proc/{pid}")
        if owner.st_uid != os.geteuid():
            os.fchown(file, owner.st_uid, owner.st_gid)
            os.fchown(folder, owner.st_uid, owner.st_gid)
        sys.remote_exec(pid, os.path.join(path, "ask.py"))
    except BaseException:
        remove(path, folder)
        raise
    end = time.monotonic() + 2.0
    while "said.json" not in os.listdir(folder):
        if time.monotonic() > end:
            os.ftruncate(file, 0)
            sys.exit("its main thread was not running Python")
        time.sleep(0.02)
    said = os.open("said.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    text = os.read(said, MOST_BYTES).decode()
    remove(path, folder)
    return text


def remove(path, folder):
    for name in ("ask.py", "said.json"):
        if name in os.listdir(folder):
            os.unlink(name, dir_fd=folder)
    os.rmdir(path)


def script_of(source, answer):
    """Return a script that says nothing in the output of the training, and leaves no cycle of objects behind."""
    call = f"try:\n    write_stacks({answer!r}, with_caller=True)\nexcept Exception:\n    pass\nglobals().clear()\n"
    return f"{source}\n{call}"


def read_memory(pid):
    from _remote_debugging import RemoteUnwinder

    threads = RemoteUnwinder(pid, all_threads=True).get_stack_trace()
    threads.sort(key=lambda each: each.thread_id != pid)
    return json.dumps({"pid": pid, "threads": [describe(each, pid) for each in threads]})


def describe(thread, pid):
    frames = [[each.funcname, each.filename, each.lineno] for each in thread.frame_info[:MOST_FRAMES]]
    return {"name": "", "is_main": thread.thread_id == pid, "frames": frames}


if __name__ == "__main__":
    main()
