"""How long the first command takes, `check TARGET`, for each place where a training may run.

    python3 bench/places.py [--write]

The trainings of tests/integration/test_places.py are asked one after the other, in all their states. Printed are the
medians, and the ratio to a bare interpreter (`python3 -c pass`), which ran just before each. --write puts the seconds
into the table of docs/verdicts.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.table import Row, as_table  # noqa: E402

PAGE = ROOT / "docs" / "verdicts.md"
TEST = "tests/integration/test_places.py"


def measure() -> list[Row]:
    """Return a row for each place, in the order in which the tests name them."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        words = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:xdist", TEST]
        subprocess.run(words, cwd=ROOT, env={**os.environ, "TRAINING_MONITOR_TIMES": file.name}, check=True)
        lines = [json.loads(line) for line in file]
    rows = []
    for place in dict.fromkeys(line["place"] for line in lines):
        times, bare = zip(*((line["seconds"], line["bare"]) for line in lines if line["place"] == place), strict=True)
        rows.append(Row(place, median(times), "s", median(bare), "python3 -c pass", ""))
    return rows


def write(rows: list[Row]) -> None:
    """Put the seconds into the third column of the table of the page."""
    page = PAGE.read_text(encoding="utf-8")
    for row in rows:
        page = re.sub(rf"(?m)^(\| {re.escape(row.what)} \| [^|]* \|)[^|]*", rf"\1 {row.ours:.1f} s ", page)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the seconds into docs/verdicts.md")
    is_kept = parser.parse_args().write
    measured = measure()
    if is_kept:
        write(measured)
    print("\n".join(as_table(measured)))
