# Ray's dashboard over REST, and the `ray` command where it does not answer within $_seconds.
# uses: proxies ray_signs
# needs: _seconds _environment

_address=${RAY_API_SERVER_ADDRESS:-}
if [ -z "$_address" ]; then
  case ${RAY_ADDRESS:-} in http://* | https://*) _address=$RAY_ADDRESS ;; *) _address=http://127.0.0.1:8265 ;; esac
fi
_address=${_address%/}
_token=''
case ${RAY_AUTH_MODE:-token} in [Tt][Oo][Kk][Ee][Nn])
  _token=${RAY_AUTH_TOKEN:-$(cat "${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}" 2>/dev/null)} ;;
esac
_python='
import os, sys, urllib.error, urllib.request as r
body, token = os.environ["TM_BODY"].encode() or None, os.environ["TM_TOKEN"]
headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
try:
    with r.build_opener(r.ProxyHandler({})).open(
            r.Request(sys.argv[2], body, headers, method=sys.argv[1]), timeout=float(sys.argv[3])) as reply:
        text, code = reply.read().decode(), reply.status
except urllib.error.HTTPError as error:
    text, code = error.read().decode(), error.code
print(text, "http %d" % code, sep="\n")
'

# Print the body and a last line `http CODE`; fail when nobody answered. The token is on stdin of curl, never in argv.
call_rest() { # METHOD PATH [BODY]
  if command -v curl >/dev/null 2>&1; then
    {
      [ "$_token" ] && printf 'header = "Authorization: Bearer %s"\n' "$_token"
      [ "${3:-}" ] && printf 'header = "Content-Type: application/json"\ndata-binary = "%s"\n' \
        "$(printf '%s' "$3" | sed 's/[\\"]/\\&/g')"
    } | curl -sS -m "$_seconds" --noproxy '*' -X "$1" -K - -w '\nhttp %{http_code}\n' "$_address$2" 2>&1
  else
    TM_TOKEN=$_token TM_BODY=${3:-} python3 -c "$_python" "$1" "$_address$2" "$_seconds" 2>&1
  fi
}

# Whether nothing was said that counts: a web page, such as a login, whatever its status says; or a status without the
# report that the second autoscaler keeps to itself (`"clusterStatus": null`).
is_void() { # PATH ANSWER
  case $1 in */cluster_status) case $2 in *'"usage"'*) ;; *'http 200') return ;; esac ;; esac
  case $2 in '{'* | '['*) return 1 ;; *'http 200' | *'http 3'??) ;; *) return 1 ;; esac
}

ask_rest() { # METHOD PATH BODY COMMAND...
  if _said=$(call_rest "$1" "$2" "$3") && ! is_void "$2" "$_said"; then printf '%s\n' "$_said"
  else
    shift 3
    ask_command "$@"
  fi
}

ask_command() { # COMMAND...
  hide_http_from_proxies
  echo cli
  "$@" 2>&1
  printf '\nray exit %s\n' $?
}

# The command takes a second of a processor, for nothing on a machine that has it and no Ray.
list_by_command() {
  [ "$(show_signs)" != none ] || { echo 'no sign of Ray'; return 1; }
  ray job list
}

# The runtime environment may hold secrets: it is on stdin.
submit_by_command() { # OPTION...
  printf '%s' "$_environment" | ray job submit --no-wait "$@"
}

show_cluster() {
  case ${RAY_ADDRESS:-} in http*) unset RAY_ADDRESS ;; esac
  ray status
}
