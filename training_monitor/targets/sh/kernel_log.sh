# What the kernel said of faulty GPUs, and of processes that it killed for memory or found waiting too long, where its log
# may be read. Its times are seconds since the boot.
# needs: most

# Of lines in a row that differ by their times alone, the last: a GPU that does not start is reported at every try.
select_lines() {
  grep -aE -e 'NVRM: Xid|SXid|NVRM: .*(fallen off|RmInitAdapter failed)|oom-kill:|of memory: Kill|blocked for more than' \
    -e 'PCIe Bus Error: severity=Uncorrect[a-z]* .Fatal|amdgpu .*(GPU reset begin|ring .* timeout|uncorrectable hardware)' |
    cut -c 1-500 | sed '$!N; /^[^];]*[];]\(.*\)\n[^];]*[];]\1$/!P; D' | tail -n "$most"
}

# Reading /dev/kmsg ends where nothing more is there; whoever cannot read it so does not wait for the next line either.
read_kmsg() { dd if=/dev/kmsg iflag=nonblock bs=8192 2>/dev/null; }

read_journal() { journalctl -k -q --no-pager -o short-monotonic "$@" 2>/dev/null; }

show_kernel_log() {
  read -r up _ </proc/uptime
  echo "up=$up"
  echo "namespace=$(ls -l /proc/self/ns/pid | sed 's/.*-> //')"
  if dmesg >/dev/null 2>&1; then echo log=read; dmesg | select_lines
  elif [ "$(read_kmsg | head -c 1)" ]; then echo log=read; read_kmsg | select_lines
  elif [ "$(read_journal -n 1 | head -c 1)" ]; then echo log=read; read_journal --since=-3h | select_lines
  else echo log=denied
  fi
  echo end
}
