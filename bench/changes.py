"""Measure what a typical change costs: `python3 bench/changes.py [NAME ...] [--no-tests]`.

Each change is a frozen patch in bench/changes/: NAME.before.patch was written against BASE, and NAME.after.patch, if it
exists, against the present tree, or the last one without what it adds. Each patch is applied to a scratch copy of its
tree, where the contract tests and the unit tests that the patch adds or changes are run. Without an after-patch, the
before-patch is tried on the present tree. The copy of the present tree has the tracked files, with changes that are not
committed yet.

Prints a table. Each cell counts the files that a patch touches, and the lines that it adds and deletes: in the package
without the pages of its skill, in the test files that it creates, in other tests, and in pages and examples. Asserts
nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "bench" / "changes"
BASE = "2b16674f3fa9c1831b6fa7b5b646698845d5d7d3"
CHANGES = {
    "pod2": "a kind of target: `pod2://NAMESPACE/POD`, which works like a pod",
    "source": "a kind of output: a container's log through the API (`kubectl logs`)",
    "hello": "a command with `--json` and its document",
    "channel": "a channel of notifications: a POST with a secret token",
    "column": "a column of the fleet: screen, page, history, rules, Prometheus",
    "memory": "a key of a document, of a value that a look has: `memory_bytes` in that of `check`",
    "key": "a key of a document, and the question for its value: `host_name` in that of `check`",
    "checkpoint": "a checkpoint layout: `snap-N/` with `DONE` as its mark",
    "logformat": "a log format",
    "failure": "a class of failures with action and advice",
}
# What the package has by now is measured on the last tree that did not have it.
LAST_WITHOUT = {"source": "adc22ed"}
# The most files of the package that a change should touch: one place, and a line of a table where there is one. The
# key with a question has three: the key, a line of a script, and a line of its parser.
GOALS = dict(pod2=2, source=2, hello=2, channel=2, column=1, memory=1, key=3, checkpoint=1, failure=1)
PLACES = ("package", "own test", "other tests", "pages")
Counts = dict[str, tuple[int, int]]  # by place: files and lines


class Tried(NamedTuple):
    """One patch on one tree: what it touches, and what came of its tests."""

    counts: Counts
    outcome: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CHANGES))
    parser.add_argument("--no-tests", action="store_true", help="only apply the patches and count")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(CHANGES):
        parser.error(f"no change {', '.join(sorted(unknown))}; there are {', '.join(CHANGES)}")
    present = _git("stash", "create") or _git("rev-parse", "HEAD")
    names, rows = arguments.names or [*CHANGES], []
    for number, name in enumerate(names, 1):
        print(f"{number}/{len(names)} {name}", file=sys.stderr, flush=True)
        rows.append((name, *_try_both(name, present, with_tests=not arguments.no_tests)))
    print("\n".join(_as_table(rows)))


def _try_both(name: str, present: str, *, with_tests: bool) -> tuple[Tried | None, Tried | None]:
    """Try a change on the base and on the present tree; None where it is not written, or the trees are the same."""
    before, after = (PATCHES / f"{name}.{when}.patch" for when in ("before", "after"))
    first = _try(before, BASE, with_tests=with_tests) if before.exists() else None
    if after.exists():
        return first, _try(after, LAST_WITHOUT.get(name, present), with_tests=with_tests)
    if first is None or not _differs(present):
        return first, None
    again = _try(before, present, with_tests=with_tests)
    return first, again._replace(outcome=f"the patch from before: {again.outcome}")


def _differs(present: str) -> bool:
    """Whether more than this bench was changed since the base."""
    return bool(_git("diff", "--name-only", BASE, present, "--", "training_monitor", "tests"))


def _try(patch: Path, tree: str, *, with_tests: bool) -> Tried:
    """Apply a patch to a scratch copy of a tree, and run the tests there."""
    counts, tests = _count(patch)
    print(f"  {patch.name} on {tree[:7]} ...", end=" ", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="changes-") as folder:
        _unpack(tree, folder)
        environ = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(folder), "PYTHONPATH": folder}
        applied = subprocess.run(["git", "apply", patch], cwd=folder, env=environ, stderr=subprocess.DEVNULL)
        if applied.returncode:
            outcome = "does not apply"
        elif with_tests:
            outcome = _run_tests(folder, environ, tests)
        else:
            outcome = "applies"
    print(outcome, file=sys.stderr, flush=True)
    return Tried(counts, outcome)


def _unpack(tree: str, folder: str) -> None:
    with subprocess.Popen(["git", "archive", tree], cwd=ROOT, stdout=subprocess.PIPE) as packed:
        subprocess.run(["tar", "-xf", "-"], cwd=folder, stdin=packed.stdout, check=True)


def _run_tests(folder: str, environ: dict[str, str], tests: list[str]) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n2", "-p", "no:cacheprovider", "tests/contract", *tests]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    failed = [line.removeprefix("FAILED ") for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return "pass" if done.returncode == 0 else f"fail: {' '.join(failed)}"


def _count(patch: Path) -> tuple[Counts, list[str]]:
    """Return what a patch touches by place, and the files of unit tests in it."""
    counted = _git("apply", "--numstat", str(patch)).splitlines()
    summary = _git("apply", "--summary", str(patch)).splitlines()
    created = {line.split()[-1] for line in summary if "create mode" in line}
    counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    tests = []
    for added, deleted, path in (line.split("\t") for line in counted):
        place = "pages"
        if path.startswith("training_monitor/") and not path.endswith(".md"):
            place = "package"
        elif path.startswith("tests/"):
            place = "own test" if path in created else "other tests"
        files, lines = counts[place]
        counts[place] = files + 1, lines + int(added) + int(deleted)
        if path.startswith("tests/unit/") and Path(path).name.startswith("test_"):
            tests.append(path)
    return dict(counts), tests


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _as_table(rows: list[tuple[str, Tried | None, Tried | None]]) -> Iterator[str]:
    """Format the rows in Markdown: by place, the files and lines of each patch, and what came of its tests."""
    head = [f"{when}: {each}" for when in ("before", "after") for each in (*PLACES, "outcome")]
    yield f"| change | goal | {' | '.join(head)} |"
    yield f"| --- | --- |{' --- |' * len(head)}"
    for name, *tried in rows:
        cells = [cell for each in tried for cell in _cells(each)]
        yield f"| {name}: {CHANGES[name]} | {_format_goal(name)} | {' | '.join(cells)} |"


def _format_goal(name: str) -> str:
    return f"at most {GOALS[name]} in the package" if name in GOALS else ""


def _cells(tried: Tried | None) -> list[str]:
    if tried is None:
        return [""] * (len(PLACES) + 1)
    return [*(_format_count(*tried.counts.get(place, (0, 0))) for place in PLACES), tried.outcome]


def _format_count(files: int, lines: int) -> str:
    return f"{files} file{'s' * (files > 1)}, {lines} lines" if files else ""


if __name__ == "__main__":
    main()
