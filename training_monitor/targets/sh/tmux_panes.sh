# The panes of this user's tmux servers: what they show, without a word to the programs in them.
# needs: tty lines
# paths: tty

_tmux() { env -i PATH="$PATH" tmux -S "$socket" "$@" </dev/null 2>/dev/null; }

# Print `TTY PANE TIME SOCKET` of each pane; TIME is when its window last had output.
list_panes() {
  # shellcheck disable=SC3067
  for socket in "${TMUX_TMPDIR:-/tmp}/tmux-$(id -u)"/*; do
    [ -S "$socket" ] && [ -O "$socket" ] || continue
    _tmux list-panes -a -F "#{pane_tty} #{pane_id} #{window_activity} $socket"
  done
}

show_pane() {
  list_panes | grep "^$tty %" | {
    read -r _ pane time socket || { echo state=missing; return; }
    printf 'state=read\nage=%s\nlog\n' $(($(date +%s) - time))
    _tmux capture-pane -p -J -S "-$lines" -t "$pane"
  }
}
