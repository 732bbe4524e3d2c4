"""`run`, `restart` and `demo`: supervise a command, an existing job or a small training, and show what happens."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from training_monitor.cli.live import LiveDisplay, print_summary
from training_monitor.cli.notifying import open_heartbeat, open_outbox
from training_monitor.cli.output import BAD, OK, hint, interrupted_status, print_json, say
from training_monitor.core.clock import SYSTEM_CLOCK
from training_monitor.core.errors import LeaseLost, SettingsError
from training_monitor.core.interrupts import cleaned_up
from training_monitor.core.models import Event, OnEvent, OnLook
from training_monitor.core.read_fence import keep_found
from training_monitor.core.reports import RestartReport
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.look.training_command import folders_of_arguments
from training_monitor.supervision.restart import auto_restart, find_run
from training_monitor.supervision.restart_notices import RestartNotices
from training_monitor.supervision.run_state import RunState
from training_monitor.targets.asking import Site
from training_monitor.targets.procfs import identify
from training_monitor.targets.target import parse_target
from training_monitor.verdict.limits import OUTAGE_AFTER

DEMO_NAME = "demo"
_INTERRUPTED = {
    "starting": "{job} may just be starting, unsupervised",
    "watching": "{job} keeps running, unsupervised",
    "stopping": "{job} was being ended and may still run",
    "waiting": "nothing of {name} runs now: its next attempt was waited for",
}


def run(args: Namespace) -> int:
    """Start a command on a target, or resume supervising it, and keep it running."""
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise SettingsError("COMMAND", "", "the command to supervise after --")
    config: dict[str, Any] = {"command": words[0] if len(words) == 1 else shlex.join(words)}
    directory = args.checkpoint_dir or _named_folder(config["command"])
    if args.target == "local":
        directory = os.path.abspath(os.path.expanduser(directory)) if directory else directory
        config["working_dir"] = os.getcwd()
    if args.working_dir:
        config["working_dir"] = args.working_dir
    if args.resume_argument:
        config["resume_argument"] = args.resume_argument
    if args.env:
        config["env"] = dict(_variable(text) for text in args.env)
    _let_read(args, directory)
    return supervise(args, args.name or default_name(words, config.get("working_dir"), directory), directory, config)


def _let_read(args: Namespace, directory: str | None) -> None:
    """Let the checkpoint folder of a command that is run here be read where a fence stands."""
    if directory:
        keep_found(Site.of(args.target, args.namespace).target, [], [directory])


def _named_folder(command: str) -> str | None:
    """Return the checkpoint folder named in a command, as `--output_dir DIR`; print it, as it was only inferred."""
    try:
        folders = folders_of_arguments(shlex.split(command), ".")
    except ValueError:  # an unclosed quote: the shell will report it
        return None
    said = f"its checkpoints are looked for in {folders[0]}" if folders else "it is not told where its checkpoints are"
    hint(f"{said} (--checkpoint-dir says where)")
    return folders[0] if folders else None


def default_name(words: list[str], working_dir: str | None, directory: str | None) -> str:
    """Return a name unique to command, folder and checkpoint folder, so that the same call finds its job again."""
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0].split()[0])
    stem = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(script).rpartition(".")[0] or os.path.basename(script))
    digest = hashlib.sha256("\0".join([*words, working_dir or "", directory or ""]).encode()).hexdigest()[:6]
    return f"{stem.strip('-')[:40] or 'job'}-{digest}"


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:  # NAME alone keeps a secret off the command line
        if name not in os.environ:
            raise SettingsError("--env", text, "NAME=VALUE, or the NAME of a variable that is set here")
        value = os.environ[name]
    return name, value


def restart(args: Namespace) -> int:
    """Supervise a Ray job: adopt it if it runs, else restart it from its newest complete checkpoint."""
    config: dict[str, Any] | None = None
    if args.entrypoint:
        config = {"entrypoint": args.entrypoint}
        if args.resume_argument:
            config["resume_argument"] = args.resume_argument
    named = _named_folder(args.entrypoint) if args.entrypoint and not args.checkpoint_dir else None
    _let_read(args, named)
    return supervise(args, args.job_name, args.checkpoint_dir or named, config)


def supervise(args: Namespace, name: str, directory: str | None, config: dict[str, Any] | None) -> int:
    from training_monitor.notify import templates

    display = LiveDisplay(args, heading=f"supervising {name} on {args.target}; Ctrl-C leaves it running")
    hearing = ExitStack()
    try:
        on_event, on_look, post = hearing.enter_context(_hearing(args, name, display))
        report = auto_restart(
            args.target,
            name,
            directory,
            args.max_retries,
            args.retry_delay,
            args.stall_after,
            args.interval,
            config,
            getattr(args, "job", None),
            args.namespace,
            fresh_start=args.fresh_start,
            take_over=args.take_over,
            keep_attempts=args.keep_attempts,
            roll_call_timeout=args.roll_call_timeout,
            on_event=on_event,
            on_look=on_look,
        )
    except (KeyboardInterrupt, BrokenPipeError) as error:
        left = describe_interrupted(find_run(args.target, name, args.namespace), name)
        hint(f"\n{left}. Go on supervising it:\n  {_same_call(args.heartbeat)}")
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
        return f"nothing of {name} was started"
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


def demo(args: Namespace) -> int:
    """Run the demo in a temporary folder; folder and training are removed however it ends."""
    with tempfile.TemporaryDirectory(prefix="training-monitor-demo-", ignore_cleanup_errors=True) as folder:
        os.environ["TRAINING_MONITOR_JOBS_DIR"] = os.path.join(folder, "jobs")
        with cleaned_up(lambda: _end_demo(folder)):
            try:
                return _run_demo(folder, args)
            except KeyboardInterrupt as interrupt:
                hint("\nthe demo was interrupted; its training process is ended, its folder removed")
                return interrupted_status(interrupt)


def _run_demo(folder: str, args: Namespace) -> int:
    output = os.path.join(folder, "checkpoints")
    script = os.path.join(os.path.dirname(__file__), "demo_training.py")
    command = [sys.executable, script, "--output", output, "--end-with", str(os.getpid())]
    config: dict[str, object] = {
        "command": command,
        "resume_argument": "--resume",
        "working_dir": folder,
        "env": {"TRAINING_MONITOR_JOBS_DIR": os.path.join(folder, "jobs")},
    }
    if not args.json:
        say(
            "A real training process, 200 steps, a checkpoint every 20. It will crash once,\n"
            "leaving a damaged checkpoint, and hang once. auto_restart supervises it here:\n"
            f"  {shlex.join(command)}\n"
        )
    display = LiveDisplay(args)
    store = Store(os.path.join(folder, "state"))
    try:
        report = auto_restart("local", DEMO_NAME, output, 5, 0.5, 2.5, 0.4, config, on_event=display.show, store=store)
    finally:
        display.clear()
    return show_result(report, args)


def _end_demo(folder: str) -> None:
    """Kill what runs of the demo, and remove its folder: each attempt has a session and a group of its own."""
    jobs = os.path.join(folder, "jobs")
    for name in os.listdir(jobs) if os.path.isdir(jobs) else ():
        with suppress(OSError, ValueError):
            with open(os.path.join(jobs, name, "pid"), encoding="ascii") as file:
                pid, start_ticks, _ = file.read().split()
            if identify(int(pid)).start_ticks == int(start_ticks):
                os.killpg(int(pid), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
