"""Write docs/failures.md: what a job can fail of, and what follows.

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

`check`, `status`, `auto_restart` and `classify_failure` name one category from the end of a log, the exit status and
the pod. What comes last decides: training steps, a loss or a new attempt cancel every error before them. A warning
decides only if nothing else does, and the source code that a traceback quotes never does. Of chained exceptions the
last one decides, unless the first is "the direct cause" and names hardware, memory, storage, network or the like.

The action is what `auto_restart` does: `restart_elsewhere` avoids the node, and `restart_previous_checkpoint` the
checkpoint. A `user` failure is tried once more if the run made progress before; `loss_nan` never is.

| category | class | action | what happened | try |
|---|---|---|---|---|
"""


def write_failures() -> str:
    """Return the page."""
    rows = []
    for name, row in CATEGORIES.items():
        others = {each.action for each in SIGNATURES if each.category == name and each.action} - {row.action}
        action = "by its number" if name == "xid" else " or ".join([row.action, *sorted(others)])
        rows.append(f"| `{name}` | {row.error_class} | {action} | {row.meaning} | {row.advice} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(write_failures(), encoding="utf-8")
