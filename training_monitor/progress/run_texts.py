"""From the texts of a run's files to the run, here and on other machines alike."""

from __future__ import annotations

from dataclasses import replace

from training_monitor.errors import ParseError
from training_monitor.parse.progress_file import NotAProgressFile, parse_progress_file
from training_monitor.policy.run_values import Run
from training_monitor.progress.files import RunFiles

_MAX_ERROR = 300


def read_run(files: RunFiles, text: str, control: str | None, before: Run | None) -> Run | None:
    """The run that these texts are of; what cannot be read is the run of before, with the reason.

    Args:
        files: with absolute paths.
        control: text of its control file, None when there is none.

    Returns:
        None for a file that is JSON of something else, unless it stands where only a run's can stand.
    """
    try:
        return parse_progress_file(
            text,
            name=files.name,
            path=files.progress_path,
            control_path=files.control_path,
            folder=files.folder,
            control=control,
        )
    except ParseError as error:
        is_of_others = isinstance(error, NotAProgressFile) and files.folder is None
        return None if is_of_others else unread_run(files, before, error.what)


def unread_run(files: RunFiles, before: Run | None, error: str) -> Run:
    """The run of before, if there was one, with the reason why its file cannot be read."""
    run = before or Run(files.name, files.progress_path, files.control_path, files.folder)
    return replace(run, error=error[:_MAX_ERROR])
