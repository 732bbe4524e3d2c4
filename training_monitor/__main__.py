"""`python3 -m training_monitor`."""

import sys

from training_monitor.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
