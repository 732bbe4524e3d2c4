# What Slurm says of jobs, where its commands are.
# uses: slurm_former
# needs: wanted

# Say that Slurm refused, and in which words; of a job that the controller has forgotten, what the accounting has.
refuse() {
  is_forgotten "$1" || { printf 'refused %s\n' "$1"; return; }
  former=$(show_former "$wanted") || { printf 'refused %s\n' "$former"; return; }
  echo forgotten
  [ -z "$former" ] || printf '%s\n' "$former" | sed 's/^/job /'
  echo end
}

# Each job as scontrol prints it on one line, and behind it a line with its nodes: those that are $wanted, by a number, a
# number with its task, or the name of jobs of the caller; with nothing wanted, all of the caller's.
show_jobs() {
  command -v squeue >/dev/null && command -v scontrol >/dev/null || { echo missing; return; }
  case $wanted in
  '') numbers=$(squeue --noheader --me --format=%A 2>&1) || { refuse "$numbers"; return; } ;;
  *[!0-9_]*)
    numbers=$(squeue --noheader --me --states=all --name="$wanted" --format=%A 2>&1) || { refuse "$numbers"; return; }
    ;;
  *) numbers=$wanted ;;
  esac
  export SLURM_TIME_FORMAT=%s
  for number in $(printf '%s\n' "$numbers" | sort -nu); do
    jobs=$(scontrol show job "$number" --oneliner 2>&1) || { [ -z "$wanted" ] && continue; refuse "$jobs"; return; }
    printf '%s\n' "$jobs" | while IFS= read -r job; do
      printf 'job %s\n' "$job"
      nodes=${job##* NodeList=}
      nodes=${nodes%% *}
      case $nodes in
      '' | *null*) echo nodes ;;
      *) printf 'nodes %s\n' "$(scontrol show hostnames "$nodes" | tr '\n' ' ')" ;;
      esac
    done
  done
  printf 'user %s\nnow %s\n' "$(id -u)" "$(date +%s)"
  echo end
}
