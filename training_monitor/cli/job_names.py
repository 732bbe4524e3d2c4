"""Job names as people type them: a run's name, or a process job's id without `process:`."""

from __future__ import annotations

import difflib
from argparse import Namespace

from training_monitor.cli.output import hint
from training_monitor.errors import SettingsError, TrainingMonitorError
from training_monitor.policy.resume import next_attempt
from training_monitor.probes.process_jobs import PREFIX, jobs_question
from training_monitor.targets.asking import ask


def find_meant_job(args: Namespace, error: TrainingMonitorError) -> str:
    """The process job that is meant by a name under which `error` found none; raises the error when none is."""
    if isinstance(error, SettingsError):
        raise error
    try:
        [answer] = ask(args.target, jobs_question(), namespace=args.namespace)
        names = answer.get() or []
    except TrainingMonitorError:
        raise error from None
    typed = args.job.removeprefix(PREFIX)
    meant = typed if typed in names else f"{typed}-attempt-{next_attempt(names, typed) - 1}"
    if meant in names and PREFIX + meant != args.job:
        return PREFIX + meant
    if close := difflib.get_close_matches(typed, names, 3):
        hint("process jobs with such names: " + ", ".join(PREFIX + name for name in close))
    raise error
