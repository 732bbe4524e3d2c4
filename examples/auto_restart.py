"""Keep a training command running on any target, resuming from its most recent complete checkpoint.

    python3 examples/auto_restart.py TARGET NAME CHECKPOINT_DIR COMMAND

TARGET is local, ssh://user@host, a pod, k8s://namespace/pod or vast://ID. For an existing Ray job, omit
COMMAND: entrypoint and runtime_env are taken from the most recent Ray job named NAME.
"""

import sys

from training_monitor import auto_restart, setup_logging

if len(sys.argv) < 4 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
target, name, checkpoint_dir, *command = sys.argv[1:]
setup_logging("INFO")

result = auto_restart(
    head_pod=target,
    job_name=name,
    checkpoint_dir=checkpoint_dir,
    max_retries=10,
    retry_delay=5,
    stagnation_threshold=600,
    job_config={"command": command[0], "resume_argument": "--resume"} if command else None,
)
if result["success"]:
    print(f"Training completed at step {result['final_step']}")
else:
    print(f"Training failed after {result['total_retries']} retries: {result['reason']}")
sys.exit(0 if result["success"] else 1)
