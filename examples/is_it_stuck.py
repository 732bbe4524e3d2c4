"""Report for each training on a target whether it is making progress, and why.

python3 examples/is_it_stuck.py TARGET [WHAT]

WHAT is a PID, a log file, a job or a name. Exit code: 0 if no training is stalled or failed, 1 if at least one is,
3 if unknown.
"""

import sys

from training_monitor import check_training

if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
    sys.exit(__doc__)

report = check_training(*sys.argv[1:])
for training in report["jobs"]:
    print(f"{training['name']} is {training['state']}: {training['reason']}")
    for remedy in training["remedies"]:
        print(f"  try: {remedy}")
if not report["jobs"]:
    print(report["reason"])

sys.exit({"ok": 0, "warning": 0, "failed": 1}.get(report["verdict"], 3))
