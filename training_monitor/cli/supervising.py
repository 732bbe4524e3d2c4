"""Supervision in the foreground, for `run`, `restart` and `demo`: what happens is shown, and reported in the end."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from training_monitor.cli.live import LiveDisplay, print_summary
from training_monitor.cli.notifying import open_heartbeat, open_outbox
from training_monitor.cli.output import BAD, OK, hint, interrupted_status, print_json
from training_monitor.core.clock import SYSTEM_CLOCK
from training_monitor.core.errors import LeaseLost
from training_monitor.core.models import Event, OnEvent, OnLook
from training_monitor.core.read_fence import keep_found
from training_monitor.core.reports import RestartReport
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.look.training_command import folders_of_arguments
from training_monitor.notify import templates
from training_monitor.supervision.restart import auto_restart, find_run
from training_monitor.supervision.restart_notices import RestartNotices
from training_monitor.supervision.run_state import RunState
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target
from training_monitor.verdict.limits import OUTAGE_AFTER
from training_monitor.verdict.restart import RestartPolicy

_INTERRUPTED = {
    "starting": "{job} may be starting, without supervision",
    "watching": "{job} keeps running, without supervision",
    "stopping": "{job} was being stopped and may still be running",
    "waiting": "{name} is not running: its next attempt was due to start",
}


def let_read(args: Namespace, directory: str | None) -> None:
    """Let the checkpoint folder of a command that is run here be read where a fence stands."""
    if directory:
        keep_found(Site.of(args.target, args.namespace).target, [], [directory])


def named_folder(command: str) -> str | None:
    """Return the checkpoint folder named in a command, as `--output_dir DIR`; print it, as it was only inferred."""
    try:
        folders = folders_of_arguments(shlex.split(command), ".")
    except ValueError:  # an unclosed quote: the shell will report it
        return None
    said = f"looking for its checkpoints in {folders[0]}" if folders else "no checkpoint folder was found"
    hint(f"{said}; to change that, set --checkpoint-dir")
    return folders[0] if folders else None


def supervise(args: Namespace, name: str, directory: str | None, config: dict[str, Any] | None) -> int:
    display = LiveDisplay(args, heading=f"supervising {name} on {args.target}; Ctrl-C leaves it running")
    policy = RestartPolicy(
        max_retries=args.max_retries,
        retry_delay=args.retry_delay,
        stagnation_threshold=args.stall_after,
        check_interval=args.interval,
        fresh_start=args.fresh_start,
        keep_attempts=args.keep_attempts,
        roll_call_timeout=args.roll_call_timeout,
    )
    hearing = ExitStack()
    try:
        on_event, on_look, post = hearing.enter_context(_hearing(args, name, display))
        report = auto_restart(
            args.target,
            name,
            directory,
            job_config=config,
            initial_job_id=getattr(args, "job", None),
            namespace=args.namespace,
            policy=policy,
            take_over=args.take_over,
            standby=args.standby,
            on_event=on_event,
            on_look=on_look,
        )
    except (KeyboardInterrupt, BrokenPipeError) as error:
        left = describe_interrupted(find_run(args.target, name, args.namespace), name)
        hint(f"\n{left}. To resume supervision:\n  {_same_call(args.heartbeat)}")
        if isinstance(error, BrokenPipeError):
            raise
        return interrupted_status(error)
    except LeaseLost as error:
        post(templates.taken_over(name, reason=error.what, number=error.number))
        raise
    finally:
        display.clear()
        hearing.close()
    return show_result(report, args)


@contextmanager
def _hearing(
    args: Namespace, name: str, display: LiveDisplay
) -> Iterator[tuple[OnEvent, OnLook, Callable[[Notice], None]]]:
    """Return the callbacks for events, looks and notices, connected to the display, the outbox and the heartbeat."""
    from training_monitor.notify.heartbeat import Lookout

    target, store = str(parse_target(args.target, namespace=args.namespace)), Store()
    with ExitStack() as stack:
        heartbeat = stack.enter_context(open_heartbeat(args.heartbeat))
        outbox = stack.enter_context(open_outbox(args.notify, store))
        notices = RestartNotices(outbox, target, name)
        lookout = Lookout(
            f"run {target} {name}",
            name,
            notices.post,
            outage_after=OUTAGE_AFTER if args.outage_after is None else args.outage_after,
            store=store,
            clock=SYSTEM_CLOCK,
            heartbeat=heartbeat,
        )

        def show(event: Event) -> None:
            display.show(event)
            notices.show(event)

        yield show, lookout.note, notices.post


def describe_interrupted(run: RunState | None, name: str) -> str:
    """Describe what an interrupted supervisor leaves behind."""
    if run is None:
        return f"{name} was not started"
    return _INTERRUPTED[run.phase].format(job=run.job_id or name, name=name)


def show_result(report: RestartReport, args: Namespace) -> int:
    if not print_json(args, {"kind": "result", **report}):
        print_summary(report, f"{_program()} logs {getattr(args, 'target', 'local')} {report['job_id']}")
    return OK if report["success"] else BAD


def _same_call(secret: str | None) -> str:
    """Return the command line as typed, without the URL of the heartbeat: this text may end up in a log."""
    words = [word.replace(secret, "URL") if secret else word for word in sys.argv[1:]]
    return f"{_program()} {shlex.join(words)}"


def _program() -> str:
    return "python3 -m training_monitor" if os.path.basename(sys.argv[0]) == "__main__.py" else "training-monitor"
