"""Record anew the frames that the tests of the screens compare with: `python3 -m tests.record_frames`.

Writes tests/unit/ui/frames, deletes what no test draws any more, and prints the names of both. pytest must be
installed. What changed is shown by `git diff`.
"""

from __future__ import annotations

import os
import time

from tests.unit.ui import test_screens, test_top_screens, test_watch_screens
from tests.unit.ui.snapshots import FRAMES


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    drawn = dict(frame for module in (test_screens, test_top_screens, test_watch_screens) for frame in module.frames())
    for path in FRAMES.glob("*.txt"):
        if path.stem not in drawn:
            print(f"{path.name}: deleted")
            path.unlink()
    for name, text in drawn.items():
        path = FRAMES / f"{name}.txt"
        if not path.exists() or path.read_text("utf-8") != text:
            print(f"{path.name}: written")
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
