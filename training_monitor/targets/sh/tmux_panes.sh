# The panes of this user's tmux servers: what they show, without a word to the programs in them.
# needs: tty lines
# paths: tty

_tmux() { env -i PATH="$PATH" tmux -S "$socket" "$@" </dev/null 2>/dev/null; }

# Print `TTY PANE TIME` of each pane, TIME is when its window last had output; set $socket for `show_pane`.
list_panes() {
  # shellcheck disable=SC3067
  for socket in "${TMUX_TMPDIR:-/tmp}/tmux-$(id -u)"/*; do
    [ -S "$socket" ] && [ -O "$socket" ] || continue
    panes=$(_tmux list-panes -a -F '#{pane_tty} #{pane_id} #{window_activity}') || continue
    echo "$panes"
    case $panes in *"$1 %"*) return ;; esac
  done
}

show_pane() {
  pane=$(list_panes "$tty" | grep "^$tty %") || { echo state=missing; return; }
  list_panes "$tty" >/dev/null
  pane=${pane#* }
  printf 'state=read\nage=%s\nlog\n' $(($(date +%s) - ${pane#* }))
  _tmux capture-pane -p -J -S "-$lines" -t "${pane%% *}"
}
