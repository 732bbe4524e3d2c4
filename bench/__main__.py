"""Measure everything that has a goal, and print it as the tables of docs/performance.md.

    python3 -m bench [PART ...] [--growth]

PART is one of those below; by default all are measured, which takes some minutes. Every row was measured beside its
reference, in turn, in this run; takes and references are medians. Nothing is asserted. A part whose tools are missing
says so. With --growth, how costs grow is measured too.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.table import Row, as_table

PARTS = "startup logs top writer streaming health scripts history fleet many web roll_call".split()

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python3 -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--growth", action="store_true", help="also measure how costs grow")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    rows: list[Row] = []
    grown: list[str] = []
    for part in arguments.parts or PARTS:
        print(f"{part} ...", file=sys.stderr, flush=True)
        module = importlib.import_module(f"bench.{part}")
        try:
            rows += module.rows()
            if arguments.growth and hasattr(module, "growth"):
                grown += ["", *module.growth()]
        except (ImportError, OSError) as error:
            print(f"{part} was not measured: {error}", file=sys.stderr)
    print("\n".join([*as_table(rows), *grown]))
