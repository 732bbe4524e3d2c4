"""The output of a unit of systemd, read by the real journalctl of a real journald in namespaces of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.integration.commands import PYTHON
from tests.requirements import require

ROOT = Path(__file__).parents[2]
# Instead of systemd, which would be process 1: the socket to the real journald, the variables and the cgroup of a unit.
START_UNIT = """
id=$(tr -d - </proc/sys/kernel/random/uuid)
mkdir -p /run/log /run/systemd; mount -t tmpfs none /run/log; mount -t tmpfs -o mode=755 none /run/systemd
mkdir -p /run/systemd/journal /run/systemd/units
ln -s $id /run/systemd/units/invocation:train.service
"$JOURNALD" >journald.log 2>&1 &
until [ -S /run/systemd/journal/stdout ]; do sleep 0.1; done
printf '%s:/system.slice/train.service\\n' 1:name=systemd 0: >cgroup
INVOCATION_ID=$id systemd-cat sh -c 'mount --bind cgroup /proc/$$/cgroup
  JOURNAL_STREAM=$(stat -L -c %d:%i /proc/$$/fd/1) exec "$@"' sh "$@" &
"""
PRINT = r"for n in 1 2 3; do echo step $n/9; done; until [ -e more ]; do sleep 0.1; done; printf '5%%\r6%%\n'; sleep 60"
READ = """
import json, os, pathlib, time
from training_monitor.core.errors import AccessDenied
from training_monitor.logs.sources import source_named
from training_monitor.targets.asking import Site
site, source = Site.of("local"), source_named("journal:train.service", "its output")
def read_until(line, cursor=None):
    while True:
        new = site.ask_one(source.read(cursor, 10_000))
        if line in new.text:
            return new
        time.sleep(0.1)
first = read_until("step 3")
pathlib.Path("more").touch()
second = read_until("6%", first.cursor)
third = site.ask_one(source.read(second.cursor, 10_000))
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    denied = site.ask_one(source.read(None, 10_000)).text
except AccessDenied as error:
    denied = str(error)
print(json.dumps([first.text, second.text, third.text, third.reset, second.by_lines, second.age, denied]))
"""


def test_each_line_of_a_unit_is_read_once_by_who_may_read_it(tmp_path: Path) -> None:
    words = [require("unshare"), "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    (tmp_path / "unit.sh").write_text(START_UNIT)
    (tmp_path / "read.py").write_text(READ)
    variables = {"JOURNALD": require("systemd-journald"), "PRINT": PRINT, "PY": PYTHON, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*words, 'sh unit.sh sh -c "$PRINT"; "$PY" read.py'],
        env={**os.environ, **variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    first, second, third, reset, by_lines, age, denied = json.loads(done.stdout)
    assert (first, second, third, reset) == ("step 1/9\nstep 2/9\nstep 3/9\n", "5%\r6%\n", "", None), done
    assert by_lines and 0 <= age < 30
    assert "no readable entries for train.service" in denied and "systemd-journal" in denied
