# Ray's drivers and workers among the processes of a machine; jobs/ray_jobs.py says how they are known.

# Print `PID NUMBER` for each worker that has a job.
list_ray_workers() {
  files=$(ls -ln /proc/[0-9]*/fd/1 2>/dev/null |
    sed -n 's|.* -> \(/.*/worker-[0-9a-f]*-[0-9a-f]*-[0-9]*\.out\)$|\1|p')
  [ "$files" ] || return 0
  (set -f; IFS='
'; head -c 4096 $files /dev/null) |
    sed -n -e 's|^==> /.*-\([0-9]*\)\.out <==$|\1|p' -e 's|^:job_id:\([0-9a-f]\{8\}\)$|:\1|p' |
    while read -r line; do case $line in :*) echo "$each ${line#:}";; *) each=$line;; esac; done
}
