"""`python3 -m training_monitor`, and the program `training-monitor`."""

import signal
import sys


def main() -> int:
    """Run the command of this process and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to clean up, end without a traceback
    if sys.version_info < (3, 10):  # noqa: UP036  said before anything is imported that an older Python cannot read
        print("training_monitor needs Python 3.10 or newer; this is", sys.version.split()[0], file=sys.stderr)
        return 2
    from training_monitor.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
