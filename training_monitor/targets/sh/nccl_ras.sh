# What NCCL's RAS service says of all communicators of the job whose processes are here: two looks, a second apart.
# needs: seconds

# A client that does not know JSON prints nothing but its usage, on stderr. A second look that could take too long for
# the question is left out. This script is in the environment of the shell that runs it, so its pattern must not match
# itself.
show_ras() {
  command -v ncclras >/dev/null || return 127
  set -- -f json -t "$seconds"
  address=$(grep -ahos 'NCCL_RAS_ADDR[=][][A-Za-z0-9.:_-]*' /proc/[0-9]*/environ | head -n 1)
  address=${address#*=}
  case $address in
  *:*)
    host=${address%:*}; host=${host#\[}
    set -- "$@" -h "${host%\]}" -p "${address##*:}" ;;
  esac
  began=$(date +%s)
  ncclras "$@" 2>/dev/null || return 0
  [ $(($(date +%s) - began)) -le 1 ] || return 0
  sleep 1
  printf '\n--\n'
  ncclras "$@" 2>/dev/null || return 0
}
