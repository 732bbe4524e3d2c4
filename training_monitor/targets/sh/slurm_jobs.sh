# Jobs of Slurm that are supervised, where its commands are; jobs/slurm_jobs.py says what is in a job's folder, $_dir.
# All variables begin with `_`, so that none that the user exports is another one in the job.
# uses: jobs_folder slurm_former
# needs: _name _by _bytes _grace _exports _folder _from _shared _running _over

_jobs=$_base/.slurm
_mark=training_monitor:
export SLURM_TIME_FORMAT=%s

# Set $_dir, and $_number to the job that $_name means: a number, that of an attempt, or the newest of this name.
find_job() {
  _dir=$_jobs/$_name _number=''
  case $_name in
  *-attempt-[0-9]*)
    [ ! -f "$_dir/number" ] || read -r _number <"$_dir/number"
    case $_number in *[!0-9_]*) _number='' ;; esac
    ;;
  *[!0-9_]*)
    _said=$(squeue --me --noheader --states=all --name="$_name" --format='%A %T' 2>&1) || return
    _number=$(printf '%s\n' "$_said" | choose_newest)
    ;;
  *) _number=$_name ;;
  esac
}

# Print the last of lines `NUMBER STATE` that runs, or else that has not ended, or else the last of all.
choose_newest() {
  sort -n | {
    _last='' _waits='' _runs=''
    while read -r _each _state; do
      _last=$_each
      ! is_in "$_running" || _runs=$_each
      is_in "$_over" || _waits=$_each
    done
    echo "${_runs:-${_waits:-$_last}}"
  }
}

is_in() { case " $1 " in *" $_state "*) ;; *) return 1 ;; esac; } # STATES

refuse() { printf 'refused=%s\n' "$(show_said)"; }

show_said() { printf '%s' "$_said" | tr '\n' ' '; }

# Print what Slurm says of it: `job=`, or `former=` by the accounting where the controller has forgotten it. One of this
# number that does not carry the mark of the attempt is another one: a controller that lost its state counts again.
show_job() {
  find_job || { refuse; return; }
  [ "$_number" ] || { echo state=missing; return; }
  echo "number=$_number"
  if _said=$(scontrol show job "$_number" --oneliner 2>&1) && is_it "$_said"; then
    _job=$_said
    printf '%s\n' "$_job" | while IFS= read -r _each; do printf 'job=%s\n' "$_each"; done
    echo "count=$(printf '%s\n' "$_job" | grep -c .)"
    show_nodes
  else
    case $_said in JobId=*) ;; *) is_forgotten "$_said" || { refuse; return; } ;; esac
    [ -f "$_dir/job" ] || case $_name in *[!0-9_]*) ;; *) echo state=missing; return ;; esac
    echo state=forgotten
    _said=$(show_former "$_number") &&
      printf 'former=%s\n' "$(printf '%s\n' "$_said" | tail -n 1)" || printf 'unasked=%s\n' "$(show_said)"
    _job=''; [ ! -f "$_dir/job" ] || read -r _job <"$_dir/job"
  fi
  [ ! -f "$_dir/stopped" ] || { read -r _each <"$_dir/stopped" && printf 'stopped_by=%s\n' "$_each"; }
  echo "now=$(date +%s)"
}

is_it() { # LINE
  case $_name in *-attempt-[0-9]*) ;; *) return 0 ;; esac
  case "$1 " in *" Comment=$_mark$_name "*) ;; *) return 1 ;; esac
}

# Print its nodes, and those of them that do not respond.
show_nodes() {
  _each=${_job##* NodeList=}; _each=${_each%% *}
  case $_each in '' | *null*) return ;; esac
  echo "nodes=$(scontrol show hostnames "$_each" | tr '\n' ' ')"
  case $_job in *' JobState=NODE_FAIL '*) ;; *) return ;; esac
  echo "lost=$(sinfo --noheader --Node --nodes="$_each" --format='%N %t' | while read -r _node _state; do
    case $_state in *\* | down* | fail*) printf '%s ' "$_node" ;; esac
  done)"
}

# Print the path behind StdOut or StdErr in $_job.
show_path() { # KEY
  case $_job in *" $1=/"*) ;; *) return ;; esac
  _path=${_job##*" $1="}
  _path=${_path%%" "[A-Z]*=*}
  printf '%s\n' "${_path%"${_path##*[! ]}"}"
}

# Print the files to which it prints, the one written last at the end.
list_files() {
  _out=$(show_path StdOut) _err=$(show_path StdErr)
  [ -f "$_out" ] || _out=''
  [ -f "$_err" ] && [ "$_err" != "$_out" ] || _err=''
  [ -z "$_out$_err" ] || ls -1tr ${_out:+"$_out"} ${_err:+"$_err"}
}

# Print the last $_bytes of a file, without what other attempts had written when this one was submitted.
show_end() { # FILE
  _first=0 _size=$(stat -L -c %s "$1")
  [ ! -f "$_dir/offsets" ] || while read -r _each _path; do
    [ "$_path" != "$1" ] || [ "$_each" -gt "$_size" ] || _first=$_each
  done <"$_dir/offsets"
  [ $((_size - _first)) -le "$_bytes" ] || _first=$((_size - _bytes))
  tail -c "+$((_first + 1))" "$1"
}

look() {
  show_job
  [ "${_job:-}" ] || return 0
  _files=$(list_files)
  [ "$_files" ] || { echo log; return; }
  stat -L -c 'log_size=%s
log_time=%Y' "$(printf '%s\n' "$_files" | tail -n 1)"
  echo log
  printf '%s\n' "$_files" | while IFS= read -r _file; do show_end "$_file"; done
}

# The same of many without their logs, each after a line `name=`.
look_at_all() { # NAME...
  for _name; do
    printf 'name=%s\n' "$_name"
    show_job
  done
  echo end
}

# Print the newest of the files to which it prints.
show_output() {
  find_job && [ "$_number" ] && _job=$(scontrol show job "$_number" --oneliner 2>/dev/null) || return
  list_files | tail -n 1
}

# Print `NUMBER|ID|STATE|COMMENT` of all jobs that Slurm still knows.
list_submitted() { squeue --me --noheader --states=all --format='%A|%i|%T|%k' 2>&1; }

# Print the names of all attempts of which Slurm knows, or which have a folder.
list_jobs() {
  _said=$(list_submitted) || { refuse; return; }
  { ls -1 "$_jobs" 2>/dev/null
    printf '%s\n' "$_said" | while IFS='|' read -r _ _ _ _each; do
      case $_each in "$_mark"*) _each=${_each#"$_mark"}; printf '%s\n' "${_each%% *}" ;; esac
    done; } | sort -u
  echo '|end'
}

# Keep its batch script, which the controller forgets, and print what describes it. A script that was kept of another
# submission may be that of another job with this number.
keep() {
  show_job
  [ "${_job:-}" ] || return 0
  umask 077
  _each=${_job##* SubmitTime=} _kept=''
  [ ! -s "$_dir/script" ] || read -r _kept 2>/dev/null <"$_dir/job"
  case "$_kept " in *" SubmitTime=${_each%% *} "*) ;; *)
    mkdir -p "$_dir" && _said=$(scontrol write batch_script "$_number" - 2>"$_dir/script.said") || {
      printf 'error=the batch script of the job cannot be read: %s\n' "$(head -c 300 "$_dir/script.said" | tr '\n' ' ')"; return
    }
    rm -f "$_dir/script.said"
    printf '%s\n' "$_said" >"$_dir/script.new" && mv "$_dir/script.new" "$_dir/script" || {
      echo "error=cannot write to $_dir"; return
    }
    ;;
  esac
  keep_line
}

keep_line() { (umask 077; printf '%s\n' "$_job" | head -n 1 >"$_dir/job.new" && mv "$_dir/job.new" "$_dir/job"); }

# Print the numbers of this attempt by the listing $_said, the first one first.
list_own() {
  printf '%s\n' "$_said" | while IFS='|' read -r _each _ _ _comment; do
    [ "${_comment%% *}" != "$_mark$_name" ] || echo "$_each"
  done | sort -n
}

# Print `:NUMBER` of each other job of this training that Slurm knows: nothing starts before all of them have ended.
list_others() {
  _training=${_name%-attempt-*}
  printf '%s\n' "$_said" | while IFS='|' read -r _each _id _ _comment; do
    case "|$_each|$_id|" in *"|$_from|"*) printf ':%s' "$_id"; continue ;; esac
    case $_comment in "$_mark$_name" | "$_mark$_name "*) ;; "$_mark$_training"-attempt-*) printf ':%s' "$_id" ;; esac
  done
}

# Submit it held, unless it is there already: a reply may have been lost. Of several the first one is released, and the
# others, which were never released, are cancelled.
start() { # WORDS of sbatch...
  find_job
  cd -- "$_folder" 2>/dev/null || { echo "error=the folder $_folder does not exist"; return; }
  reserve || return
  _said=$(list_submitted) || { refuse; return; }
  _is=exists
  [ "$_number" ] || [ "$(list_own)" ] || { _is=started; _answer=$(submit "$@" 2>&1); _said=$(list_submitted) || { refuse; return; }; }
  _own=$(list_own)
  _first=${_number:-$(printf '%s\n' "$_own" | head -n 1)}
  [ "$_first" ] || {
    _said=$_answer
    case $_answer in *contact* | *'timed out'* | *'try again'*) refuse ;; *) printf 'error=%s\n' "$(show_said)" ;; esac
    return
  }
  for _each in $_own; do [ "$_each" = "$_first" ] || scancel "$_each" 2>/dev/null; done
  [ "$_number" ] || release || { refuse; return; }
  echo "state=$_is"
}

# What is written after the job began needs its space now.
reserve() {
  _said=$([ -z "$_shared" ] || show_openness)
  [ -z "$_said" ] || { echo "error=the jobs folder is not safe, $_said: $_base"; return 1; }
  [ -s "$_dir/number" ] || (umask 077; mkdir -p "$_dir" && printf '%40s\n' '' >"$_dir/number") || {
    echo "error=cannot write to $_dir (disk full?)"; return 1
  }
}

# Requeue the job $_from as this attempt, unless it was: it keeps its number, and its comment gets the attempt's name. Its
# files may be emptied then: their ends are copied first.
requeue() { # EXCLUDED
  _attempt=$_name _name=$_from
  find_job && _first=$_number || { refuse; return; }
  _job=$(scontrol show job "$_first" --oneliner 2>&1) || { _said=$_job; refuse; return; }
  is_it "$_job" && _is_from=yes || _is_from=''
  _name=$_attempt; find_job || { refuse; return; }
  [ "$_is_from" ] || is_it "$_job" || { echo "error=job $_first is another job by now"; return; }
  reserve || return
  _is=exists
  is_it "$_job" || {
    _number=$_first; see_state || { refuse; return; }
    case $_state in
    COMPLETING) _said="job $_first is COMPLETING"; refuse; return ;;
    '')
      (umask 077; list_files | while IFS= read -r _file; do tail -c "$_bytes" "$_file"; done >"$_dir/former_log")
      _said=$(scontrol requeue "$_first" 2>&1) || { printf 'error=%s\n' "$(show_said)"; return; }
      _is=started
      ;;
    esac
  }
  _said=$(scontrol update JobId="$_first" Comment="$_mark$_name" ${1:+ExcNodeList="$1"} 2>&1) && release ||
    { refuse; return; }
  echo "state=$_is"
}

submit() {
  _after=$(list_others)
  unset LC_ALL SLURM_TIME_FORMAT TM_ASK TRAINING_MONITOR_READ_UNDER
  set -- --parsable --hold --comment="$_mark$_name" --export=ALL ${_after:+--dependency="afterany$_after"} "$@"
  eval "$_exports"
  exec sbatch "$@" </dev/null
}

# Let $_first run, and write down that this is the attempt.
release() {
  _job=$(scontrol show job "$_first" --oneliner 2>&1) || { _said=$_job; return 1; }
  keep_line
  for _file in "$(show_path StdOut)" "$(show_path StdErr)"; do
    [ ! -f "$_file" ] || printf '%s %s\n' "$(stat -L -c %s "$_file")" "$_file"
  done >"$_dir/offsets"
  case $_job in *' Reason=JobHeldUser '*) _said=$(scontrol release "$_first" 2>&1) || return 1 ;; esac
  printf '%s\n' "$_first" 1<>"$_dir/number"
}

# Write down who stops it, send SIGTERM to all of it, and after $_grace seconds let Slurm end it. One that `look` calls
# forgotten has ended: its number may be another job's.
stop() {
  find_job || { refuse; return; }
  [ "$_number" ] || { echo state=missing; return; }
  _said=$(scontrol show job "$_number" --oneliner 2>&1) && ! is_it "$_said" && { echo state=asked; return; }
  see_state || { refuse; return; }
  [ -z "$_state" ] || [ -e "$_dir/stopped" ] || (umask 077; mkdir -p "$_dir" && printf '%s\n' "$_by" >"$_dir/stopped")
  ! is_in "$_running" || scancel --full --signal=TERM "$_number" 2>/dev/null
  while [ "$_grace" -gt 0 ] && [ "$_state" != COMPLETING ] && is_in "$_running"; do
    sleep 0.5; _grace=$((_grace - 50))
    see_state || :
  done
  [ -z "$_state" ] || [ "$_state" = COMPLETING ] || _said=$(scancel "$_number" 2>&1) || { refuse; return; }
  echo state=asked
}

# Set $_state to that of the job, "" if it has ended; without an answer it stays as it was.
see_state() {
  _said=$(squeue --noheader --jobs="$_number" --format=%T 2>&1) || { is_forgotten "$_said" && _said='' || return; }
  _state=$_said
}

# Print the pids of the job on this node, beside which this step runs, without those of the step itself.
list_members() {
  [ "${SLURM_JOB_ID:-}" ] || return 0
  for _file in $(grep -lzsxFe "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/[0-9]*/environ); do
    ! grep -qzsxFe "SLURM_STEP_ID=$SLURM_STEP_ID" "$_file" && grep -qzsxFe "SLURMD_NODENAME=$SLURMD_NODENAME" "$_file" || continue
    _each=${_file#/proc/}; echo "${_each%/environ}"
  done
}
