# Requests to presigned URLs. Such a URL is a secret: it reaches curl on stdin, stands in no argv and in no file, and is
# cut out of whatever curl says.
# uses: proxies
# needs: url method body seconds

# Request $url: prints headers, body, then a line with the status. The user's .curlrc is not read. When nothing moves for
# 5 minutes, it gives up. What it sends is its fd 3, since its stdin carries the URL.
curl_url() { # OPTION...
  hide_http_from_proxies
  printf 'url = "%s"\n' "$url" | curl -q --config - --globoff --path-as-is --silent --show-error --include \
    --connect-timeout 30 --speed-limit 1 --speed-time 300 --write-out '\nhttp=%{http_code}\n' "$@"
}

hide_urls() { tr -d '\000\r' | sed 's|https*://[^ <>"]*|(URL)|g'; }

request() {
  command -v curl >/dev/null || { echo no-curl; return; }
  case $method in
  HEAD) set -- --head ;;
  POST) set -- --request POST --header 'Content-Type:' --data-binary @/dev/fd/3 ;;
  *) set -- --request "$method" ;;
  esac
  {
    printf '%s' "$body" | { curl_url "$@" --max-time "$seconds" 2>&1; echo "curl=$?"; } 3<&0
  } | head -c 1000000 | hide_urls
}
