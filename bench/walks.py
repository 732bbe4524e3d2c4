"""Count the files that a walk through the package crosses: `python3 bench/walks.py [FOLDER]`.

FOLDER is another checkout. A file is crossed when one of its functions runs; importing it, with the bodies of its
classes, is not enough. Prints a table of walk and number, and asserts nothing. The rented machine is that of a test, so
pytest must be installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WALKS = {
    "a line of a log to the screen (check)": """
from training_monitor.cli.main import main
with open("train.log", "w") as log:
    log.writelines(f"step {step}/1000 loss={4 / step:.4f}\\n" for step in range(1, 200))
main(["check", "train.log"])
""",
    "a stalled job to its restart (demo)": """
from training_monitor.cli.main import main
main(["demo"])
""",
    "a rented machine to its destruction": """
import pytest, sys
pytest.main(["-q", "-p", "no:cacheprovider", "-k", "a_variable_reaches_the_training", *sys.argv[1:]])
""",
}
TRACE = """
import inspect, json, os, sys, threading
package, out, walk = os.path.realpath(sys.argv.pop(1)) + os.sep, sys.argv.pop(1), sys.argv.pop(1)
crossed = set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.endswith(("comp>", "expr>")):
        crossed.add(code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
try:
    exec(compile(walk, "walk", "exec"))
finally:
    sys.setprofile(None)
    files = sorted(file[len(package):] for file in crossed if file.startswith(package))
    with open(out, "w") as found:
        json.dump(files, found)
"""


def main(root: Path) -> None:
    for name, walk in WALKS.items():
        files = crossed(root, walk)
        print(f"{name:<40} {len(files):>4} files in {len({Path(file).parent for file in files})} folders")


def crossed(root: Path, walk: str) -> list[str]:
    """The files of the package, by their paths in it, that run in a walk."""
    tests = sorted(map(str, root.glob("tests/unit/*/test_pipeline.py")))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "crossed.json"
        command = [sys.executable, "-c", TRACE, str(root / "training_monitor"), str(out), walk]
        environ = {"PYTHONPATH": str(root), "TRAINING_MONITOR_STATE_DIR": folder, "TRAINING_MONITOR_JOBS_DIR": folder}
        subprocess.run([*command, *tests], cwd=folder, env={**os.environ, **environ}, capture_output=True)
        return list(json.loads(out.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve())
