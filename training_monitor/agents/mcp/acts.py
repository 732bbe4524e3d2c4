"""The tools that act. Without `confirm` each only says what it would do; without --allow-write there are none.

What takes long (supervising, uploading) is started in a process of its own, see `work.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from training_monitor.agents.mcp.calls import command_line, options, positional, run_command, shown_command
from training_monitor.agents.mcp.documents import ActDocument, StartedDocument, functions_in
from training_monitor.agents.mcp.work import start_command

ASK = "nothing was done: ask the user, then call again with confirm: true"


def _act(confirm: bool, would: str, *words: str) -> ActDocument:
    """Run a command, or say what it would do."""
    return _plan(would, words) if not confirm else cast(ActDocument, {**run_command(*words), "done": True})


def _start(confirm: bool, would: str, *words: str) -> StartedDocument:
    """Start a command that continues without this server, or say what it would do."""
    return cast(StartedDocument, _plan(would, words)) if not confirm else {**start_command(words), "done": True}


def _plan(would: str, words: Sequence[str]) -> ActDocument:
    """Say what a command would do. Raises SettingsError for a secret among the words, as running it does."""
    command_line(words)
    return {"done": False, "would": would, "command": shown_command(words), "confirm": ASK}


def stop_job(
    target: str, job: str, stop_grace: float = 10.0, namespace: str = "default", confirm: bool = False
) -> ActDocument:
    """Stop a job or process: TERM to all of it, then KILL, and see that nothing is left. It is not restarted.

    Args:
        job: a Ray submission id, process:NAME, a PID, a log file, or a name, as in check_training.
        stop_grace: seconds between TERM and KILL.
    """
    words = ["stop", *options(namespace=namespace, stop_grace=stop_grace), *positional(target=target, job=job)]
    return _act(confirm, f"stop {job} on {target}", *words)


def terminate_training(
    target: str,
    what: str | None = None,
    upload_to: Sequence[str] = (),
    destroy: bool = False,
    reason: str = "Ended by hand",
    more: Sequence[str] = (),
    namespace: str = "default",
    confirm: bool = False,
) -> StartedDocument:
    """End a training for good: stop it, upload its newest checkpoint, and destroy what was rented, if asked to.

    Args:
        upload_to: hf:OWNER/NAME or s3://BUCKET/PREFIX, the next where one fails; env:NAME for a presigned URL.
        destroy: destroy the vast.ai instance once the upload is verified.
        reason: why, for notices.
        more: more options of `training-monitor stop`.
    """
    given = options(namespace=namespace, upload=list(upload_to), destroy=destroy, reason=reason)
    words = ["stop", *given, *more, *positional(target=target, what=what)]
    return _start(confirm, f"end the training {what or 'that runs'} on {target}", *words)


def upload_checkpoint(target: str, path: str, destination: str, confirm: bool = False) -> StartedDocument:
    """Upload a file or folder from a target, and see that it arrived.

    Args:
        path: on the target.
        destination: hf:OWNER/NAME[@BRANCH] or s3://BUCKET/PREFIX.
    """
    words = ["upload", *positional(target=target, path=path, destination=destination)]
    return _start(confirm, f"upload {path} from {target} to {destination}", *words)


def run_training(
    command: Sequence[str],
    target: str = "local",
    checkpoint_dir: str | None = None,
    name: str | None = None,
    more: Sequence[str] = (),
    confirm: bool = False,
) -> StartedDocument:
    """Run a training command and supervise it: it is restarted from its checkpoints when it fails or stalls.

    Args:
        command: the words of the command; {checkpoint} stands for the checkpoint that it resumes from.
        checkpoint_dir: a folder on the target. Default: the one that the command names.
        name: of the job. Default: made from the command, so that the same call adopts the same job.
        more: more options of `training-monitor run`, such as --max-retries=3 or --notify.
    """
    given = options(target=target, checkpoint_dir=checkpoint_dir, name=name)
    words = ["run", *given, *more, "--", *command]
    return _start(confirm, f"run {' '.join(command)} on {target} and supervise it", *words)


def restart_training(
    target: str,
    job_name: str,
    checkpoint_dir: str | None = None,
    more: Sequence[str] = (),
    namespace: str = "default",
    confirm: bool = False,
) -> StartedDocument:
    """Supervise a Ray job: adopt it if it runs, restart it from its newest complete checkpoint when it fails or stalls.

    Args:
        target: the head pod.
        job_name: jobs are called NAME or NAME-attempt-N.
        checkpoint_dir: a folder on the head. Default: the one that its command names.
        more: more options of `training-monitor restart`, such as --max-retries=3.
    """
    given = options(namespace=namespace, checkpoint_dir=checkpoint_dir)
    words = ["restart", *given, *more, *positional(target=target, job_name=job_name)]
    return _start(confirm, f"supervise {job_name} on {target} and restart it", *words)


def watch_training(
    target: str,
    what: str | None = None,
    more: Sequence[str] = (),
    namespace: str = "default",
    confirm: bool = False,
) -> StartedDocument:
    """Watch a training until it ends, send notices, and end it when it stalls, if the options say so.

    Args:
        more: options of `training-monitor watch`, such as --notify, or --terminate --upload=hf:OWNER/NAME.
    """
    words = ["watch", "--poll", *options(namespace=namespace), *more, *positional(target=target, what=what)]
    return _start(confirm, f"watch {what or 'the training'} on {target}", *words)


def launch_training(id: str, more: Sequence[str], confirm: bool = False) -> ActDocument:
    """Queue a training for a rented machine. It costs money once a worker rents; the same id never rents twice.

    Args:
        id: of the job, your own; the same call again goes on with it.
        more: options of `training-monitor rent launch`, such as --dataset=DIR --name=NAME --trigger=WORD --budget=5.
    """
    return _act(confirm, f"queue the training {id}, which spends money", "rent", "launch", *options(id=id), *more)


def run_worker(more: Sequence[str] = ("--until-empty",), confirm: bool = False) -> StartedDocument:
    """Work through the queue: rent machines, train, save, destroy. It spends money.

    Args:
        more: options of `training-monitor rent worker`.
    """
    return _start(confirm, "rent machines for the queued trainings, which spends money", "rent", "worker", *more)


def cancel_queued(job: str, reason: str = "cancelled by hand", confirm: bool = False) -> ActDocument:
    """End a training on rented machines: save what there is, destroy its machine.

    Args:
        job: its id.
        reason: why.
    """
    words = ["rent", "queue", "--cancel", *options(reason=reason), *positional(job=job)]
    return _act(confirm, f"end {job} and destroy its machine", *words)


def sweep_instances(confirm: bool = False) -> ActDocument:
    """Destroy the rented instances that no training needs; `plan_sweep` says which. What is on them is lost."""
    return _act(confirm, "destroy the rented instances that no training needs", "rent", "sweep", "--force")


def send_notice(
    message: str,
    user: str | None = None,
    priority: str = "normal",
    channel: Sequence[str] = (),
    confirm: bool = False,
) -> ActDocument:
    """Send a notice to a person by the configured channels.

    Args:
        message: what to say.
        user: one of the settings file's users. Default: the channels' own.
        priority: low, normal, high or urgent.
        channel: only by these.
    """
    words = ["notify", *options(user=user, priority=priority, channel=list(channel)), *positional(message=message)]
    return _act(confirm, f"send: {message}", *words)


def test_channels(confirm: bool = False) -> ActDocument:
    """Send a test by every configured channel."""
    return _act(confirm, "send a test by every configured channel", "notify", "--test")


def setup_ssh_key(confirm: bool = False) -> ActDocument:
    """Make an ssh key for rented machines if there is none, and register it with vast.ai."""
    return _act(confirm, "make an ssh key and register it with vast.ai", "rent", "keys", "--setup")


ACTS = functions_in(globals())
