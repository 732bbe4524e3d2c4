"""`python3 -m training_monitor`."""

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036  said before anything is imported that an older Python cannot read
        print("training_monitor needs Python 3.10 or newer; this is", sys.version.split()[0], file=sys.stderr)
        sys.exit(2)
    from training_monitor.cli.main import main

    sys.exit(main())
