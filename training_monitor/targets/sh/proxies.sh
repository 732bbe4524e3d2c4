# The proxy of the environment is for https, of which it sees no more than the host. What goes by http (tokens, presigned
# URLs, whole bodies) it would read.

hide_http_from_proxies() {
  _proxy=${https_proxy:-${HTTPS_PROXY:-${all_proxy:-${ALL_PROXY:-}}}}
  [ -z "$_proxy" ] || export https_proxy="$_proxy"
  unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
}
