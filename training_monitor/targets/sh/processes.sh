# All processes in one pass over /proc: two programs start, however many processes there are.

# Print `PID STATE PARENT GROUP SESSION ... (NAME` for each stat file. A name holds at most 15 bytes, of any kind: a line
# that does not end in numbers goes on in the next one, and the name ends at the last parenthesis. Threads of the kernel
# (children of process 2 outside of all sessions, without memory) are left out: in a pid namespace, process 2 may be any
# program, and all sessions outside. A zombie with threads left is none: its main thread has ended, and the others go on.
read_stats() { # FILE...
  cat "$@" 2>/dev/null | sed -n '
:join
/[)] .* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]*$/!{
$d
N
b join
}
s/\n/ /g
s/^\([0-9]*\) (\(.*\)) \(.*\)/\1 \3 (\2/
s/^\([0-9]*\) Z \(\([-0-9]* \)\{16\}[2-9] \)/\1 S \2/
s/^\([0-9]*\) Z \(\([-0-9]* \)\{16\}[1-9][0-9][0-9]* \)/\1 S \2/
/^[0-9]* [^Z] 2 0 0 \([-0-9]* \)\{16\}0 /d
p
'
}

# Print `PID STATE PARENT GROUP SESSION` for all of them, which is less to go through. Each line of a stat file (a name may
# hold line ends) begins with its path here, so that none can pass for that of another process.
read_kinship() {
  grep -aHs ')' /proc/[0-9]*/stat |
    sed -n 's|^/proc/\([0-9]*\)/stat:.*) \([A-Za-z] [0-9]* [0-9]* [0-9]*\) .*|\1 \2|p'
}
