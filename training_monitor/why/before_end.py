"""The roll call that is taken before a hang is ended, since that destroys the evidence; it is kept with the attempt.

It never takes longer than its bound, and whatever goes wrong in it never keeps a hang from being ended. A report lies
in a folder of its own below the state folder, compressed, at most 5 MB; a training keeps its last ten.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from training_monitor.core.engine import finish_within
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.masking import redact
from training_monitor.core.shown import text_of
from training_monitor.core.store import Store
from training_monitor.core.values import KeptRollCall, WatchedJob
from training_monitor.jobs.attempts import training_name
from training_monitor.jobs.kinds import kind_of
from training_monitor.look.kept_looks import save_roll_call
from training_monitor.look.meant import MeantTraining, find_one_at
from training_monitor.targets.asking import Site
from training_monitor.why.explain import call_roll
from training_monitor.why.report import Explained, ExplanationReport, format_explanation

ROLL_CALL_SECONDS = 20.0
_SHARE_OF_FINDING = 0.4  # of the time, where the job's processes run elsewhere
_RESERVE = 1.0  # seconds to put together what was said, after the last host had to answer
MOST_BYTES, MOST_KEPT = 5_000_000, 10
MOST_TEXT = 2000  # characters of a paragraph


def explain_before_end(
    site: Site, job: WatchedJob, store: Store, *, timeout: float = ROLL_CALL_SECONDS
) -> KeptRollCall:
    """Take the roll call of a training that is to be ended, keep it, and return what it says; never raises for it."""
    at = site.clock.time()
    try:
        told = finish_within(timeout, partial(_call_roll, site, job, timeout - _RESERVE), "roll call")
        kept = keep(told, at, job, store)
    except Exception as error:  # a hang must be ended, whatever happens to its explanation
        what = error.what if isinstance(error, TrainingMonitorError) else f"{type(error).__name__}: {text_of(error)}"
        if isinstance(error, TimeoutError):
            what = f"no answer within {timeout:g} s"
        text = redact(f"The cause of the hang is unknown, because the roll call failed: {what}")[:MOST_TEXT]
        kept = KeptRollCall(at, text, job_id=job.job_id)
    with suppress(TrainingMonitorError):  # the state folder is full: the caller has the text
        save_roll_call(store, site.target, job, kept)
    return kept


def _call_roll(site: Site, job: WatchedJob, timeout: float) -> Explained:
    """Take the roll call of a job, where its processes run."""
    end = site.clock.monotonic() + timeout
    kind = kind_of(job.job_id or "")
    place = kind.target_of(site, job.job_id or "") if kind else None
    if place is None:
        return call_roll(site, MeantTraining(job, job.label), timeout=timeout)
    site = site.at(place)
    meant = find_one_at(site, timeout=_SHARE_OF_FINDING * timeout)
    return call_roll(site, meant, timeout=end - site.clock.monotonic())


def keep(told: Explained, at: float, job: WatchedJob, store: Store) -> KeptRollCall:
    """Write the report of a roll call into a folder, and return what is kept beside it."""
    is_spread = len({each.node for each in told.seen.ranks if each.node}) > 1
    is_sure = told.explanation.confidence in ("medium", "high")
    report = format_explanation(told)
    folder = None
    try:
        folder = write_bundle(os.path.join(store.folder, "roll_calls"), job.label, report)
    except OSError as error:
        get_logger().warning("the roll call of %s could not be saved: %s", job.label, error.strerror)
    return KeptRollCall(
        at,
        report["explanation"][:MOST_TEXT],
        report["confidence"],
        job.job_id,
        folder=folder,
        suspect_nodes=told.explanation.nodes() if is_spread and is_sure else (),
        faulty_nodes=tuple(dict.fromkeys(each.node for each in told.seen.findings if each.is_hardware and each.node)),
    )


# ---------------------------------------------------------------- its folder


def write_bundle(base: str, name: str, report: ExplanationReport) -> str:
    """Write a report into a folder below `base`, complete as soon as it is there; return it. Raises OSError."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-80:].strip("._") or "training"
    training = os.path.join(base, training_name(safe))
    for each in (base, training):
        os.makedirs(each, mode=0o700, exist_ok=True)
    folder = os.path.join(training, f"{int(report['at']):011d}-{safe}")
    new = f"{folder}.{os.urandom(4).hex()}.new"
    os.mkdir(new, 0o700)
    _write(os.path.join(new, "explanation.txt"), f"{report['explanation']}\n".encode(errors="replace"))
    _write(os.path.join(new, "report.json.gz"), next(each for each in _forms(report) if len(each) <= MOST_BYTES))
    os.rename(new, folder)
    remove_old(training)
    return folder


def _forms(report: ExplanationReport) -> Iterator[bytes]:
    """Yield the report, compressed, each time with less in it."""
    yield _compressed(report)
    main: Any = [{**each, "stacks": [s for s in each["stacks"] if s["is_main"]]} for each in report["ranks"]]
    yield _compressed({**report, "ranks": main})
    bare: Any = [{**each, "stacks": [], "children": []} for each in report["ranks"]]
    yield _compressed({**report, "ranks": bare})
    yield _compressed({**report, "ranks": [], "findings": []})


def _compressed(report: Any) -> bytes:
    return gzip.compress(json.dumps(report).encode(), mtime=0)


def _write(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(data)


def remove_old(training: str) -> None:
    """Remove all but the newest folders of a training, and what a killed writer left; best effort."""
    names = sorted(os.listdir(training))
    kept = [name for name in names if not name.endswith(".new")][-MOST_KEPT:]
    for name in names:
        folder = os.path.join(training, name)
        if name in kept or (name.endswith(".new") and _is_young(folder)):
            continue
        shutil.rmtree(folder, ignore_errors=True)


def _is_young(folder: str) -> bool:
    try:
        return time.time() - os.stat(folder).st_mtime < 3600
    except OSError:
        return True
