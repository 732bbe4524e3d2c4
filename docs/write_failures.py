"""Write docs/failures.md: the causes of failure, and the action after each.

python3 docs/write_failures.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from training_monitor.verdict.failure_table import CATEGORIES, SIGNATURES  # noqa: E402

PAGE = ROOT / "docs" / "failures.md"
HEAD = """# Why a job failed

`check`, `status`, `auto_restart` and `classify_failure` all report the same category for a failure. The category is
determined from the end of the log, the exit code and the state of the pod.

* The most recent evidence determines the category: an error is ignored if a training step, a loss or another attempt
  follows it in the log.
* A warning determines the category only if there is no other evidence.
* Source code that a traceback quotes is ignored.
* In a chain of exceptions, the last exception usually determines the category. However, if the traceback calls an
  earlier exception "the direct cause" of a later one, and the earlier exception has an external cause (such as
  hardware, memory, storage or the network), the earlier exception determines the category.

The *action* column shows how `auto_restart` reacts: `restart_elsewhere` restarts the job but avoids the node on which
it failed, and `restart_previous_checkpoint` restarts the job from a checkpoint other than the damaged one. After a
failure of class `user`, `auto_restart` restarts the job once if the run had made progress. After `loss_nan`, it never
restarts the job.

| category | class | action | what happened | try |
|---|---|---|---|---|
"""


def write_failures() -> str:
    """Return the page."""
    rows = []
    for name, row in CATEGORIES.items():
        others = {each.action for each in SIGNATURES if each.category == name and each.action} - {row.action}
        action = "depends on the Xid" if name == "xid" else " or ".join([row.action, *sorted(others)])
        rows.append(f"| `{name}` | {row.error_class} | {action} | {row.meaning} | {row.advice} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(write_failures(), encoding="utf-8")
