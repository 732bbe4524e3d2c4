"""Print a single report on GPUs, network, checkpoints, Ray, pods and disks.

python3 examples/health_report.py HEAD_POD CHECKPOINT_DIR [OTHER_POD ...]
"""

import sys

from training_monitor import get_training_health, print_training_health

if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
head_pod, checkpoint_dir, *other_pods = sys.argv[1:]

report = get_training_health(head_pod=head_pod, checkpoint_dir=checkpoint_dir, all_pods=[head_pod, *other_pods])
print_training_health(report)

sys.exit(0 if report["healthy"] else 3 if report["verdict"] == "unknown" else 1)
