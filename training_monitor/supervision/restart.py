"""auto_restart: one call that keeps a job going until it is done.

What it needs is imported by the call: scripts import this function at their top, and often never come to call it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import SettingsError
from training_monitor.core.models import OnEvent, OnLook, RunOutcome
from training_monitor.core.reports import RestartReport
from training_monitor.core.store import Store
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.restart import RestartPolicy

if TYPE_CHECKING:
    from training_monitor.supervision.run_state import RunState
    from training_monitor.supervision.supervisor import Supervisor

_INTERRUPTED = "the supervision of {} has ended, but the training has not; repeat the same call to resume supervision"


def auto_restart(
    head_pod: str | Target,
    job_name: str,
    checkpoint_dir: str | None,
    max_retries: int = 10,
    retry_delay: float = 60,
    stagnation_threshold: float = 300,
    check_interval: float = 30,
    job_config: Mapping[str, Any] | None = None,
    initial_job_id: str | None = None,
    namespace: str = "default",
    *,
    policy: RestartPolicy | None = None,
    take_over: bool = False,
    standby: bool = False,
    on_event: OnEvent | None = None,
    on_look: OnLook | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RestartReport:
    """Supervise a job until it succeeds, restarting it from its newest complete checkpoint. Blocks.

    Args:
        head_pod: a Ray head pod, or any other target (see `Target`). A job of a scheduler such as Slurm is adopted, and
            is resubmitted for each restart.
        job_name: the NAME in the job IDs, NAME-attempt-N. If a job that is already running has this name in its ID or
            metadata, that job is adopted and no other job is started.
        checkpoint_dir: a folder on the target (see `list_checkpoints`); None: the job writes no checkpoints, and every
            attempt starts from step 0.
        max_retries: maximum number of consecutive restarts without progress; see `decide_restart`.
        retry_delay: seconds before a restart. The delay doubles while there is no progress, up to 15 minutes, with
            jitter.
        stagnation_threshold: seconds without progress after which a running job counts as stalled.
        check_interval: seconds between looks. The exit of a process job is detected at once.
        job_config: see `submit_job_with_resume`; default: the configuration of the latest Ray job with this name,
            otherwise of the latest Ray job whose entrypoint contains this name as a word. For a scheduler's job, `env`
            and `resume_argument` are added to the scheduler's own configuration.
        initial_job_id: the ID or name of an existing job to supervise.
        policy: all limits in one object, instead of the arguments above; see `RestartPolicy`.
        take_over: take over the training from an active supervisor on another machine; that supervisor then exits.
        standby: wait while a supervisor on another machine is active, and continue when that supervisor has died or was
            interrupted. If the other supervisor has supervised the job to its end, the result of that supervision is
            returned and nothing is restarted. If a job with this name is running again, that job is adopted.
        on_event: called with each event; default: each event is printed to stdout, unless logging is configured (see
            `setup_logging`).
        on_look: called after every look: with the error if the look failed, otherwise with None.

    Returns:
        A report with success, final_step, total_retries, outcome (completed | max_retries_reached | stopped |
        no_checkpoint_found | restart_failed), reason (begins with the outcome), job_id, attempts, steps_lost, goodput
        (0..1 or None), duration, and explanation (the cause of the last hang).

    Raises:
        AlreadySupervised: another active supervisor supervises this training. A dead supervisor is replaced.
        LeaseLost: another supervisor took over the training.
        JobNotFound: no configuration was given, and there is no job whose configuration could be used.
        SettingsError: an argument is invalid.
        CommandError: the target could not be queried at the start.
        KeyboardInterrupt: the call was interrupted. The job keeps running; to resume the supervision, repeat the call.
    """
    from training_monitor.core.interrupts import only_looking
    from training_monitor.core.logger import logging_of_loop
    from training_monitor.supervision.run_state import RunState
    from training_monitor.supervision.supervisor import Supervisor
    from training_monitor.targets.asking import Site

    limits = (max_retries, retry_delay, stagnation_threshold, check_interval)
    policy = _policy_of(limits, policy)
    site, store = Site.of(head_pod, namespace, transport, clock), store or Store()
    key = _key(site.target, job_name)
    scheduled = site.target.scheduled
    if scheduled:
        site, initial_job_id = site.at(scheduled[0]), initial_job_id or scheduled[1]
    _check(job_name, job_config, adds=scheduled is not None)
    new = RunState(key, str(site), job_name, checkpoint_dir or "", clock.time(), config=job_config)
    with logging_of_loop(prints=on_event is None), store.hold(new.key):
        made = Supervisor(store, site, policy, on_event, take_over=take_over, standby=standby, on_look=on_look)
        with closing(made) as supervisor, only_looking(_INTERRUPTED.format(job_name)):
            return _supervise(supervisor, new, initial_job_id)


def _policy_of(limits: tuple[int, float, float, float], policy: RestartPolicy | None) -> RestartPolicy:
    """Return the policy of a call. Raises SettingsError if it gives one, and limits beside it."""
    names = ("max_retries", "retry_delay", "stagnation_threshold", "check_interval")
    usual = RestartPolicy()
    given: dict[str, Any] = {name: value for name, value in zip(names, limits) if value != getattr(usual, name)}
    if policy and given:
        raise SettingsError(*next(iter(given.items())), "no separate value: `policy` already sets this option")
    return policy or RestartPolicy(**given)


def _supervise(supervisor: Supervisor, new: RunState, initial_job_id: str | None) -> RestartReport:
    """Run to the end, continuing from where an earlier supervisor stopped."""
    from training_monitor.jobs.claims import SupervisionEnded

    kept = supervisor.store.load_run(new.key, type(new))
    run = kept or new
    try:
        run = supervisor.go_on(kept, new) if kept else supervisor.begin(new, initial_job_id)
        while run.phase != "done":
            run = supervisor.step(run)
    except SupervisionEnded as error:
        outcome, now = error.outcome, supervisor.clock.time()
        success = outcome is RunOutcome.COMPLETED
        run = replace(run, phase="done", success=success, outcome=outcome, reason=error.what, ended_at=now)
        if kept:
            supervisor.save(run)
    return run.report()


def _check(job_name: str, job_config: Mapping[str, Any] | None, *, adds: bool) -> None:
    """Raise SettingsError for a job that cannot be supervised; `adds`: its scheduler knows what it runs."""
    from training_monitor.jobs.attempts import check_job_config, is_whole

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", job_name):
        raise SettingsError("job_name", job_name, "letters, digits, '.', '_' and '-'")
    if job_config is not None and (is_whole(job_config) or not adds):
        check_job_config(job_config)


def find_run(
    head_pod: str | Target, job_name: str, namespace: str = "default", *, finished: bool = False
) -> RunState | None:
    """Return this machine's unfinished run that `auto_restart` would continue, or the one that has `finished`."""
    from training_monitor.supervision.run_state import RunState

    return Store().load_run(_key(parse_target(head_pod, namespace=namespace), job_name), RunState, finished=finished)


def _key(target: Target, job_name: str) -> str:
    return f"{target} {job_name}"
