"""The command line: `training-monitor COMMAND`, or `python3 -m training_monitor COMMAND`.

Exit code: 0 ok, 1 unhealthy or failed, 2 wrong use, 3 unknown, 4 taken over by another supervisor.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from training_monitor.cli.ending import Ending

_GUESSING = {"check": "what", "why": "what", "wait": "what", "logs": "job"}  # and how the argument is called
_JOB_COMMANDS = ("status", "logs", "stop", "watch")


def _open_what_is_closed() -> None:
    """Replace standard streams that were closed before the start by /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; without `argv`, the command of this process, which signals end."""
    _open_what_is_closed()
    if argv is not None:
        return _main(list(argv))
    endings: list[Ending] = []
    try:
        return _main(sys.argv[1:], lambda: _begin(endings))
    except KeyboardInterrupt:  # after the last line of the command
        return 130
    finally:
        for ending in endings:
            ending.finish()


def _begin(endings: list[Ending]) -> None:
    """Handle the signals that end this process; `--help` needs none of that."""
    from training_monitor.cli.ending import Ending

    endings.append(Ending())
    endings[0].begin()


def _main(words: list[str], begin: Callable[[], None] | None = None) -> int:
    """Run a command; `begin` is called before there is anything that a signal must clean up."""
    try:
        status = _run_words(words, begin)
        sys.stdout.flush()  # here a closed pipe is handled, at interpreter exit it would be an error
        return status
    except KeyboardInterrupt as interrupt:
        from training_monitor.cli.output import hint, interrupted_status

        hint("\ninterrupted; nothing was stopped")
        return interrupted_status(interrupt)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        from training_monitor.cli.output import OutputLost

        if not isinstance(error, OutputLost):
            raise
        return _tell_lost_output(error)


def _tell_lost_output(error: Exception) -> int:
    """Say, where that can still be said, that the answer is not where it should be: nobody has read it."""
    from training_monitor.cli.output import UNKNOWN, OutputLost, complain

    try:
        complain(f"{error}. Try: free some space, or write it elsewhere")
    except OutputLost:
        pass
    for stream in (sys.stdout, sys.stderr):  # what they still hold would be an error at interpreter exit
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return UNKNOWN


def _run_words(words: list[str], begin: Callable[[], None] | None) -> int:
    if words[:2] == ["completion", "--complete"] and len(words) > 3:  # a shell waits for it at each key
        from training_monitor.cli.candidates import complete

        sys.stdout.writelines(f"{line}\n" for line in complete(words[2], words[3:]))
        return 0
    began = time.monotonic()
    from training_monitor.cli.argument_types import WrongUse
    from training_monitor.cli.parsing import parse

    if begin:
        begin()
    try:
        args = parse(words)
        args.began = began
        status = _run(args)
    except WrongUse as error:
        if "--json" in (words[: words.index("--")] if "--" in words else words):
            from training_monitor.cli.output import print_error

            print_error(error.what, "SettingsError", error.hint)
        raise
    _suggest_target(args, status)
    return status


def _run(args: Namespace) -> int:
    from training_monitor.cli.output import OutputLost, exit_status, refuse
    from training_monitor.core.errors import TrainingMonitorError
    from training_monitor.core.masking import keep_secret, secrets_of

    keep_secret(*secrets_of(os.environ))
    try:
        if os.environ.get("TRAINING_MONITOR_LOG_FILE"):
            from training_monitor.core.logger import setup_logging

            setup_logging()
        _read_alone(args)
        if getattr(args, "namespace", "") is None:
            args.namespace = _namespace_of_context(args)
        return _call(args)
    except TrainingMonitorError as error:
        args.refused = error
        return refuse(error, args, exit_status(error))
    except (BrokenPipeError, OutputLost):
        raise
    except Exception as error:
        return _refuse_defect(error, args)


def _call(args: Namespace) -> int:
    """Run the function of a command; again with what is meant, where a target or a job is not what it was given as."""
    from training_monitor.cli.command_table import command_named
    from training_monitor.cli.output import hint
    from training_monitor.core.errors import TrainingMonitorError

    call = command_named(args.subcommand).run
    try:
        return call(args)
    except TrainingMonitorError as error:
        if _means_training_here(args, error):
            return _call(args)
        if args.subcommand not in _JOB_COMMANDS or not args.job:
            raise
        args.job = _meant_job(args, error)
        hint(f"it is {args.job}")
        return call(args)


def _suggest_target(args: Namespace, status: int) -> None:
    """Name the target that was probably meant, where one could not be asked that this machine does not know."""
    from training_monitor.cli.output import UNKNOWN, hint

    target = getattr(args, "target", None)
    if status == UNKNOWN and target not in (None, "local"):
        from training_monitor.cli.known_names import meant_target, pods_like
        from training_monitor.core.errors import TargetNotFound

        is_missing = isinstance(getattr(args, "refused", None), TargetNotFound)
        meant = meant_target(target, args.namespace)
        if names := [meant] if meant else pods_like(target, args.namespace) if is_missing else []:
            hint(f"did you mean {' or '.join(names)}?")
        if is_missing:
            from training_monitor.targets.target import parse_target

            for reason in parse_target(target, namespace=args.namespace).explain_no_pods():
                hint(reason)


def _refuse_defect(error: Exception, args: Namespace) -> int:
    """Report a defect of ours: what it is about is unknown, and its traceback may hold secrets and foreign text."""
    import traceback

    from training_monitor.cli.output import UNKNOWN, hint, refuse
    from training_monitor.core.errors import Defect

    hint(traceback.format_exc())
    what = f"unexpected {type(error).__name__}: {error}"
    return refuse(Defect(what, hint="report this error with the lines above"), args, UNKNOWN)


def _read_alone(args: Namespace) -> None:
    """Interpret a PID, a path or `process:NAME` without a target as one on this machine."""
    if not hasattr(args, "what") and args.subcommand not in ("status", "logs", "stop"):
        return
    from training_monitor.look.meant import is_path, is_pid, is_script

    word, name = args.target, "what" if hasattr(args, "what") else "job"
    if getattr(args, name) is None and (
        is_pid(word) or is_path(word) or is_script(word) or word.startswith("process:")
    ):
        args.target = "local"
        setattr(args, name, word)


def _namespace_of_context(args: Namespace) -> str:
    """Return the namespace for bare pod names: that of kubectl's context, which is asked only if there are some."""
    from training_monitor.targets.kinds import is_bare

    given = [getattr(args, "target", None) or "local"]
    given += [word for name in ("targets", "pods") for word in getattr(args, name, None) or ()]
    if not any(map(is_bare, given)):
        return "default"
    from training_monitor.targets.kinds.pod import namespace_of_context

    return namespace_of_context()


def _means_training_here(args: Namespace, error: Exception) -> bool:
    """Take a single word that is no target for a training on this machine, if it names one; say so.

    Only for commands that read: those that act never guess.
    """
    from training_monitor.cli.output import hint
    from training_monitor.core.errors import (
        SettingsError,
        TargetEnded,
        TargetUnreachable,
        ToolNotFound,
        TrainingMonitorError,
    )

    word = getattr(args, "target", None)
    name = _GUESSING.get(args.subcommand)
    is_single = name and getattr(args, name) is None and word and "://" not in word and word != "local"
    is_unknown = isinstance(error, TargetUnreachable | ToolNotFound) and not isinstance(error, TargetEnded)
    if not name or not is_single or not is_unknown:
        return False
    from training_monitor.look.remembered import find_known
    from training_monitor.targets.asking import Site

    try:
        found = f"{find_known(Site.of('local'), word).name} on this machine"
    except SettingsError:  # there are several: the command names them
        found = "a training on this machine"
    except TrainingMonitorError:
        return False
    hint(f"no target {word} responds: assuming {found}")
    args.target = "local"
    setattr(args, name, word)
    return True


def _meant_job(args: Namespace, error: Exception) -> str:
    """Return the job or PID that an unknown job name refers to; raises the error if there is none."""
    from training_monitor.core.errors import (
        CommandTimedOut,
        IncompleteAnswer,
        JobNotFound,
        SettingsError,
        TargetUnreachable,
        TrainingMonitorError,
    )
    from training_monitor.look.meant import find_one_at, find_process_job, named_job, reach
    from training_monitor.look.remembered import find_known
    from training_monitor.targets.asking import Site

    if isinstance(error, SettingsError) or named_job(args.job).job_id is None:
        raise error
    if args.subcommand == "stop" and isinstance(error, CommandTimedOut):  # Ray may have a job of that name
        raise error
    try:
        if args.job.startswith("process:"):
            meant = find_process_job(args.target, args.job.removeprefix("process:"), args.namespace)
        else:
            site = reach(Site.of(args.target, args.namespace))
            find = find_known if args.subcommand in _GUESSING or args.subcommand == "status" else find_one_at
            job = find(site, args.job).job
            args.target = str(site)
            meant = job.job_id or str(job.pid)
    except (SettingsError, IncompleteAnswer):
        raise
    except TrainingMonitorError as other:
        # without Ray, all jobs were listed; a Ray that could not be asked may have a job of that name
        has_no_job = isinstance(other, JobNotFound) and isinstance(error, TargetUnreachable) and error.has_no_ray
        raise (other if has_no_job or type(other) is type(error) else error) from None
    if meant == args.job:
        raise error
    return meant
