"""Implement custom restart logic with the functions that auto_restart uses.

    python3 examples/custom_restart.py TARGET JOB_ID CHECKPOINT_DIR COMMAND

`{checkpoint}` in COMMAND is replaced by the checkpoint's path. For Ray jobs, use "entrypoint" instead of "command".
"""

import sys
import time

from training_monitor import check_job_status, find_latest_checkpoint, submit_job_with_resume

if len(sys.argv) != 5 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
target, job_id, checkpoint_dir, command = sys.argv[1:]
retry_count, max_retries = 0, 5

while True:
    status = check_job_status(target, job_id)
    if status == "SUCCEEDED":
        print("Training completed successfully!")
        break
    if status == "STOPPED":
        sys.exit("The job was stopped by someone: not restarting it")
    if status == "FAILED":
        if retry_count == max_retries:
            sys.exit(f"Job failed after {max_retries} restarts: giving up")
        retry_count += 1
        checkpoint_path = find_latest_checkpoint(checkpoint_dir, target)  # raises if all checkpoints are damaged
        job_id = submit_job_with_resume(target, checkpoint_path, config={"command": command}, job_name="custom")
        print(f"Restart {retry_count} of {max_retries}: {job_id} from {checkpoint_path}")
    time.sleep(1)  # also if UNKNOWN: the query failed, which does not mean that the job failed
