"""Watch a job in a background thread while the program does other work.

python3 examples/background_monitor.py HEAD_POD JOB_ID
"""

import sys

from training_monitor import start_background_monitor

if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
head_pod, job_id = sys.argv[1:]

thread = start_background_monitor(
    head_pod,
    job_id,
    check_interval=2,
    on_finish=lambda report: print(f"Job {report['job_id']} ended: {report['status']} at step {report['final_step']}"),
)
print("The program does other work while the job is being watched.")
thread.join()
