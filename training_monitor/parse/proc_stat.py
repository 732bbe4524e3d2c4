"""Lines of /proc/PID/stat and /proc/PID/task/TID/stat (proc(5)), of which few fields are needed."""

from __future__ import annotations

from training_monitor.policy.run_values import ProcessSample

# Where a field stands behind the name's closing parenthesis: its number in proc(5), less 3.
_STATE, _PARENT, _UTIME, _STIME, _THREADS, _START, _RSS = 0, 1, 11, 12, 17, 19, 21


def parse_stat(line: str, page_size: int) -> ProcessSample | None:
    """Read one line; None when it is none, or cut.

    The name may hold spaces, parentheses and whole other lines: it ends at the last parenthesis. CPU ticks are those
    of the process itself (utime + stime), without the children it has waited for.
    """
    head, _, rest = line.rpartition(")")
    pid, opened, name = head.partition(" (")
    fields = rest.split(None, _RSS + 1)
    if not opened or len(fields) <= _RSS:
        return None
    try:
        return ProcessSample(
            int(pid),
            int(fields[_PARENT]),
            name,
            fields[_STATE],
            int(fields[_START]),
            int(fields[_UTIME]) + int(fields[_STIME]),
            int(fields[_RSS]) * page_size,
            int(fields[_THREADS]),
        )
    except ValueError:  # also of a number with more digits than Python reads
        return None
