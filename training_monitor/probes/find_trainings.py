"""Which trainings run on a target, and which logs were written there lately.

The target chooses roughly (whatever could be a training by its command line, or has a GPU's driver loaded) and prints
what there is to know of these processes; `parse/found_trainings.py` decides. Of their environment only a few variables
are read there, by name: what else is in it stays on the target.
"""

from __future__ import annotations

import re
import secrets

from training_monitor.models import Question, Reply
from training_monitor.parse.found_trainings import FoundFile, FoundTrainings, parse_files, parse_trainings
from training_monitor.parse.seen_processes import COMMAND_BYTES
from training_monitor.policy.run_values import RANK_VARIABLES
from training_monitor.probes.process_table import FILTERS, PROCESS_TABLE
from training_monitor.probes.ray_processes import RAY_PROCESSES
from training_monitor.progress.remote_scripts import spell_path

MAX_PROCESSES = 1000
MAX_FILES = 40
_ENVIRONMENT_BYTES = 6 * 2**20  # the kernel gives no process more of it
_ROUGHLY = (
    "python|pypy|train|tune|torch|deepspeed|accelerate|mpirun|mpiexec|srun|axolotl|llamafactory|lightning|fabric"
    "|composer|litgpt|swift|nemo|ray::|sft|dpo|grpo|ppo|rlhf"
)

# Paths are spelled in a random way, so that no name can hold the lines that `head` and `ls` print before each of them.
# A child with the command line of its parent is a data worker or the like: there may be hundreds, and they open what
# their parent has opened.
_FIND = (
    PROCESS_TABLE
    + RAY_PROCESSES
    + r"""
_part() { printf '\nWORD %s\n' "$1"; }
_pids_in() { set -f; for _file in $1; do _file=${_file#/proc/}; echo "${_file%%/*}"; done; }
_paths() { set -- "$1" $_chosen; _what=$1; shift; for _pid do echo "SPELLINGproc/$_pid/$_what"; done; }
read -r _boot </proc/sys/kernel/random/boot_id
read -r _now _ </proc/uptime
_part facts; printf 'boot=%s\nself=%s\nup=%s\nhz=%s\n' "$_boot" $$ "$_now" "$(getconf CLK_TCK || echo 100)"
_all=$(_table /proc/[0-9]*/stat)
_part table; _show all
_rough=" $(_pids_in "$(grep -lsE 'ROUGHLY' /proc/[0-9]*/cmdline)" | tr '\n' ' ')"
set --
set -f; IFS='
'
for _line in $_all; do
  _pid=${_line%% *}
  case "$_rough" in *" $_pid "*) continue;; esac
  case "${_line#* \(}" in FILTERS) _rough="$_rough$_pid ";; *) set -- "$@" "/proc/$_pid/maps";; esac
done
unset IFS
_on_gpu=$([ $# -eq 0 ] || grep -lsE 'libcuda\.so|libamdhip64|libhsa-runtime|libtpu' "$@")
for _pid in $(_pids_in "$_on_gpu"); do _rough="$_rough$_pid "; done
_part driver; for _pid in $(_pids_in "$_on_gpu"); do echo "$_pid"; done
set --
for _pid in $_rough; do set -- "$@" "/proc/$_pid/cmdline"; done
_sums='s|^\([0-9]*\) \([0-9]*\) /proc/\([0-9]*\)/.*|\3=\1.\2|p'
for _line in $([ $# -eq 0 ] || cksum "$@" | sed -n "$_sums"); do
  eval "_sum${_line%%=*}=${_line#*=}"
done
IFS='
'
_chosen= _count=0 _unlisted=0
for _line in $_all; do
  _pid=${_line%% *}
  case "$_rough" in *" $_pid "*) ;; *) continue;; esac
  _up=${_line#* * }; _up=${_up%% *}
  eval "_own=\$_sum$_pid _its=\$_sum$_up"
  [ "$_own" != "$_its" ] || [ -z "$_own" ] || continue
  if [ $_count -lt MAX_PROCESSES ]; then _chosen="$_chosen $_pid" _count=$((_count + 1))
  else _unlisted=$((_unlisted + 1)); fi
done
set +f; unset IFS
_part unlisted; echo $_unlisted
_part command
head -c COMMAND_BYTES $(_paths cmdline) /dev/null | tr '\000' '\037'
_part links
ls -ldn $(_paths cwd) $(_paths ns/mnt) SPELLINGproc/self/ns/mnt
_part environment
head -c ENVIRONMENT_BYTES $(_paths environ) /dev/null | tr '\000' '\n' | sed -n -e '\|^==> SPELLINGproc/|p' \
  -e '/^\(RANK_NAMES\)=[0-9]\{1,9\}$/p' \
  -e 's/^RAY_JOB_CONFIG_JSON_ENV_VAR=.*"job_submission_id": *"\([^"]*\)".*/submission=\1/p' \
  -e '/^RAY_JOB_ID=[0-9a-f]\{8\}$/p' -e '/^TRAINING_MONITOR_JOB=/p'
_part workers; _ray_workers
_part files
ls -ln $(_paths fd) SPELLINGproc/self/ns |
  grep -Ev ' -> (socket:|anon_inode:|/memfd:|/dev/(null|zero|shm/|urandom))| [0-9]+ -> /.*\.so(\.[0-9]+)*$'
_part end
"""
)


def find_question() -> Question[FoundTrainings]:
    """The trainings that run on a target: launchers, training scripts and what has a GPU, one for each process tree.

    It looks at MAX_PROCESSES processes that could be one, and counts the others.
    """
    word, spelling = secrets.token_hex(12), spell_path()
    parts = {
        "WORD": word,
        "SPELLING": spelling,
        "ROUGHLY": _ROUGHLY,
        "FILTERS": FILTERS,
        "MAX_PROCESSES": str(MAX_PROCESSES),
        "RANK_NAMES": r"\|".join(RANK_VARIABLES),
        "COMMAND_BYTES": str(COMMAND_BYTES),
        "ENVIRONMENT_BYTES": str(_ENVIRONMENT_BYTES),
    }
    script = re.sub("|".join(parts), lambda found: parts[found.group()], _FIND)

    def parse(reply: Reply) -> FoundTrainings:
        return parse_trainings(reply.output, word, spelling)

    return Question("trainings", script, parse, limit=15.0)


# The folders in which something runs that could be a training, the home folder, and where rented machines keep their
# work.
_FILES = r"""
_newline='
'
_folders=
set -f; IFS=$_newline
set -- $(ls -ldn $(grep -lsE 'ROUGHLY' /proc/[0-9]*/cmdline | sed 's|cmdline$|cwd|') | sed -n 's/.* -> //p' | sort -u)
unset IFS; set +f
for _folder in "$@" "$HOME" /workspace; do
  case $_folder in '' | / | /proc* | /sys* | /dev* | /run*) continue;; esac
  [ ! -d "$_folder/." ] || _folders=$_folders$_newline$_folder/.
done
set -f; IFS=$_newline
set -- $_folders
unset IFS; set +f
_newest() {
  [ $# -eq 0 ] || find "$@" -maxdepth 3 \( -name '.?*' -o -name node_modules -o -name site-packages -o -name 'wandb' \
    -o -name '*conda*' -o -name 'debug*.log' -o -name 'python-core-*' \) -prune -o -type f -size +0 -mtime -1 \
    \( -name '*.log' -o -name '*.out' -o -name 'log*.txt' \) \
    -exec stat -c 'file %Y %s %n' {} + 2>/dev/null | sort -k 2,2nr | head -n MAX_FILES
}
_newest "$@"
echo "now $(date +%s)"
"""


def files_question() -> Question[tuple[FoundFile, ...]]:
    """Logs written within the last day near whatever could be a training, below the home folder and in /workspace.

    It is a question of its own, since a file system that hangs must not hide the processes. The newest come first, and
    what one answer has no room for is older than these.
    """
    parts = {"ROUGHLY": _ROUGHLY, "MAX_FILES": str(MAX_FILES)}
    script = re.sub("|".join(parts), lambda found: parts[found.group()], _FILES)

    def parse(reply: Reply) -> tuple[FoundFile, ...]:
        return parse_files(reply.output)

    return Question("recent logs", script, parse, limit=10.0)
