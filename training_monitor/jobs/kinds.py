"""The kinds of jobs beside those of Ray: each is one module of this folder, and one line here. Pure.

A kind is known by the prefix of its job ids. An id without one is that of a Ray job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from training_monitor.core.models import JobView, Question

if TYPE_CHECKING:
    from training_monitor.targets.asking import Site
    from training_monitor.targets.target import Target

PROCESS, RAY = "process:", ""
# By prefix: a module with the functions of `JobKind`.
KINDS: Mapping[str, str] = {PROCESS: "process_jobs", "slurm:": "slurm_jobs"}


class JobKind(Protocol):
    """What a module of KINDS has."""

    def look_question(self, job_id: str) -> Question[JobView | None]:
        """Ask for the status and the end of the log of a job; None if there is no such job."""

    def states_question(self, job_ids: Sequence[str]) -> Question[list[JobView | None]]:
        """Ask for the same of many jobs, without their logs."""

    def jobs_question(self) -> Question[Any]:
        """Ask for the names of all jobs of this kind, without the prefix."""

    def config_question(self, job_id: str) -> Question[dict[str, Any]] | None:
        """Ask for the configuration that starts a job again; None where that is not known."""

    def start_question(
        self, target: Target, job_id: str, command: str, env: Mapping[str, str], config: Mapping[str, Any]
    ) -> Question[str]:
        """Start a job unless its name is taken; the answer is `started`, or `exists`."""

    def stop_question(self, job_id: str, by: str, grace: float) -> Question[list[str]]:
        """Ask a job to end, and end it after `grace` seconds; the answer lists what is known to be left."""

    def wait_script(self, job_id: str) -> str:
        """Return a script that prints `ended` when the job is gone, see `ExitWatch`; "" if nothing waits for it."""

    def drain_command(self, nodes: Sequence[str]) -> str:
        """Return the command by which an administrator keeps all jobs off nodes; "" if there is none."""

    def log_expression(self, job_id: str) -> str:
        """Return the log of a job as a shell expression."""

    def members_script(self, job_id: str) -> str:
        """Return a script that prints the pids of the processes of a job, where they run."""

    def of_processes(self, job_id: str, questions: Sequence[Question[Any]]) -> list[Question[Any]]:
        """Return questions about the processes of a job, asked where these run."""

    def target_of(self, site: Site, job_id: str) -> Target | None:
        """Return where the processes of a job run; None where its log is. Raises CommandError."""


def prefix_of(job_id: str) -> str:
    """Return the prefix of the kind of a job; RAY for any other id."""
    return next((prefix for prefix in KINDS if job_id.startswith(prefix)), RAY)


def name_in(job_id: str) -> str:
    """Return a job id without the prefix of its kind."""
    return job_id.removeprefix(prefix_of(job_id))


def kind_of(job_id: str) -> JobKind | None:
    """Return the kind of a job, imported when it is first asked for; None for a Ray job."""
    prefix = prefix_of(job_id)
    return cast(JobKind, import_module(f"training_monitor.jobs.{KINDS[prefix]}")) if prefix else None


def prefix_of_config(config: Mapping[str, Any] | None) -> str:
    """Return the prefix of the jobs that a job configuration makes: a command, a scheduler's job again, or Ray's."""
    given = config or {}
    return PROCESS if "command" in given else prefix_of(str(given.get("job") or ""))
