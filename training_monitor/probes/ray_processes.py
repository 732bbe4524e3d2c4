"""Ray's drivers and workers among the processes of a machine, without asking Ray, which may have forgotten them.

Measured with Ray 2.60: the submission id is in the environment of the entrypoint and what it starts. A worker that was
started in advance has `ffffffff` for its job there; only its stdout, a file named after its pid, begins with the job's
number (`:job_id:02000000`), and a driver has that number in the name of its own log, which it keeps open.
"""

from __future__ import annotations

import shlex

# `_ray_workers` prints `PID NUMBER` for each worker that has a job; `_ray_number PID` the number of a driver's job.
RAY_PROCESSES = r"""
_ray_workers() {
  _newline='
'
  _files=$(ls -ln /proc/[0-9]*/fd/1 2>/dev/null |
    sed -n 's|.* -> \(/.*/worker-[0-9a-f]*-[0-9a-f]*-[0-9]*\.out\)$|\1|p')
  [ "$_files" ] || return 0
  (set -f; IFS=$_newline; head -c 4096 $_files /dev/null) |
    sed -n -e 's|^==> /.*-\([0-9]*\)\.out <==$|\1|p' -e 's|^:job_id:\([0-9a-f]\{8\}\)$|:\1|p' |
    while read -r _word; do case $_word in :*) echo "$_pid ${_word#:}";; *) _pid=$_word;; esac; done
}
_ray_number() {
  ls -ln "/proc/$1/fd" 2>/dev/null | sed -n 's|.*/python-core-driver-\([0-9a-f]\{8\}\)[0-9a-f]*_[0-9]*\.log$|\1|p'
}
"""

_OF_JOB = r"""
_id=ID
_files=$(grep -lsF -e "\"job_submission_id\": \"$_id\"" -e "\"job_submission_id\":\"$_id\"" /proc/[0-9]*/environ)
_numbers=' '
for _file in $_files; do
  _file=${_file#/proc/}; _pid=${_file%/environ}; echo "$_pid"
  for _number in $(_ray_number "$_pid"); do _numbers="$_numbers$_number "; done
done
[ "$_numbers" = ' ' ] || _ray_workers | while read -r _pid _number; do
  case $_numbers in *" $_number "*) echo "+$_pid";; esac
done
"""


def pids_of_ray_job(job_id: str) -> str:
    """A script that prints the pids of a Ray job's driver, and of its workers on the same machine with a `+`.

    Workers may have been started long before the job.
    """
    return RAY_PROCESSES + _OF_JOB.replace("ID\n", shlex.quote(job_id) + "\n", 1)
