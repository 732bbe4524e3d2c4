"""Find the job that a user names: by its id, by the name of its training, or by a word of a Ray job's entrypoint.

A Ray job has the id that Ray made up (`raysubmit_…`) unless whoever submitted it chose one. The name of its training is
then in its metadata, as `job_name`, or only in its command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from training_monitor.core.errors import Hint, JobNotFound, SettingsError
from training_monitor.core.masking import redact
from training_monitor.core.models import RayJob
from training_monitor.core.units import name_some
from training_monitor.jobs.attempts import attempt_number, training_name
from training_monitor.jobs.ray_jobs import OWN_ID, is_active, jobs_question
from training_monitor.targets.asking import Site

_MOST_NAMED = 5
_MOST_CHARACTERS = 60


def is_called(job: RayJob, name: str) -> bool:
    """Whether a Ray job is called NAME or NAME-attempt-N, or belongs to the training NAME by its metadata."""
    return name in (job.submission_id, training_name(job.submission_id), job.metadata.get("job_name"))


def ray_jobs_called(jobs: Sequence[RayJob], name: str) -> list[RayJob]:
    """Return the Ray jobs (newest last) that a name means: the one with this id, or else those of this training.

    Of a training these are the jobs that wait or run, or else the newest one.
    """
    if same := [each for each in jobs if each.submission_id == name]:
        return same
    called = [each for each in jobs if is_called(each, name)]
    return list(filter(is_active, called)) or called[-1:]


def ray_jobs_with(jobs: Sequence[RayJob], word: str) -> list[RayJob]:
    """Return the Ray jobs with a word in their entrypoint: those that wait or run, or else those that have ended.

    The id of a job is not looked for there: an entrypoint may name a folder after an earlier attempt.
    """
    if word.startswith(OWN_ID) or attempt_number(word):
        return []
    pattern = word_pattern(word)
    found = [each for each in jobs if pattern.search(each.entrypoint or "")]
    return list(filter(is_active, found)) or found


def word_pattern(word: str) -> re.Pattern[str]:
    """Return a pattern of a word of a command line: also of a part of a path, without its ending."""
    return re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])")


def describe_jobs(named: Iterable[tuple[str, str | None, str | None]]) -> str:
    """Format jobs, each with its id, the name of its training, and its command, as far as there is room."""
    return name_some([_describe(*each) for each in named], _MOST_NAMED, "; ")


def _describe(job_id: str, name: str | None, command: str | None) -> str:
    more = ": ".join(_shorten(each) for each in (name, redact(command) if command else None) if each)
    return f"{_shorten(job_id)} ({more})" if more else _shorten(job_id)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"


def describe_running(jobs: Iterable[RayJob]) -> str:
    """Format the Ray jobs that wait or run."""
    running = describe_jobs(_parts(each) for each in jobs if is_active(each))
    return f"Ray has {running}" if running else "no Ray job is running"


def _parts(job: RayJob) -> tuple[str, str | None, str | None]:
    return job.submission_id, job.metadata.get("job_name"), job.entrypoint


def find_ray_job(site: Site, name: str) -> str:
    """Return the id of the Ray job that a name means.

    Raises:
        JobNotFound: there is none. SettingsError: there are several. CommandError: the target could not be asked.
    """
    jobs = site.ask_one(jobs_question())
    found = ray_jobs_called(jobs, name) or ray_jobs_with(jobs, name)
    if len(found) > 1:
        raise several_named(name, map(_parts, found))
    if not found:
        raise JobNotFound(
            f"{site}: no Ray job named {name!r}; {describe_running(jobs)}",
            hint=Hint("list the trainings with {find_trainings}"),
        )
    return found[0].submission_id


def several_named(name: str, named: Iterable[tuple[str, str | None, str | None]]) -> SettingsError:
    """Return the error about a name that means several jobs."""
    found = list(named)
    return SettingsError(
        f"jobs named {name!r}", len(found), f"exactly one; select one by its ID: {describe_jobs(found)}"
    )
