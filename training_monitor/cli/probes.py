"""What `doctor` looks at. Each probe has time limits, changes nothing, and shows no secret."""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from training_monitor.cli.columns import terminal_columns
from training_monitor.cli.commands.completion import find_completion, how_to_complete
from training_monitor.cli.commands.config import check_settings
from training_monitor.cli.known_names import meant_target
from training_monitor.core.errors import LocalFailure, SettingsError, StateError, TrainingMonitorError, last_lines
from training_monitor.core.models import Question
from training_monitor.core.results import CommandResult
from training_monitor.core.settings import state_dir
from training_monitor.core.store import STATE_FILE, Store
from training_monitor.core.units import format_bytes, format_duration, name_some, plural
from training_monitor.notify.channel import Channel, Doors
from training_monitor.notify.people import NotifiedUser
from training_monitor.targets.asking import ask, read_text
from training_monitor.targets.kinds.local import check_this_machine
from training_monitor.targets.transport import LocalTransport

WORKS, MISSING, BROKEN = "ok", "missing", "broken"
MOST_SAID = 200  # characters of an answer
TIMEOUT = 15.0  # seconds for one program
LEAST_FREE = 100 * 1024 * 1024  # bytes on the disk of the state folder
MOST_SKEW = 5.0  # seconds between two clocks that are worth no word
_OPTIONAL_MODULES = ("curses", "sqlite3", "ssl")  # of Python, which some builds lack
_NAMED = 4  # contexts, keys and the like
_KUBECTL_PAGE = "https://kubernetes.io/docs/tasks/tools/"
_SEE_SETTINGS = "training-monitor config --check"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. state: ok | missing (only a problem if you need it) | broken."""

    name: str
    state: str
    found: str
    remedy: str = ""
    group: str = ""


def run_probe(group: str, probe: Callable[[], Iterable[Check]]) -> list[Check]:
    """Return what a probe finds, in its group; what it could not look at is broken."""
    found = list[Check]()
    try:
        for each in probe():
            found.append(Check(each.name, each.state, each.found, each.remedy, group))
    except (TrainingMonitorError, OSError, ImportError) as error:
        found.append(Check(group, BROKEN, str(error), group=group))
    return found


class _Hasty(LocalTransport):
    """Runs programs here, none for longer than TIMEOUT."""

    def run(self, argv: Sequence[str], *, timeout: float, **more: Any) -> CommandResult:
        return super().run(argv, timeout=min(timeout, TIMEOUT), **more)


def _run(*argv: str) -> tuple[bool, str, str]:
    """Run a program here; return whether it worked, its stdout, and the last line of what it said."""
    try:
        result = _Hasty().run(argv, timeout=TIMEOUT)
    except TrainingMonitorError as error:
        return False, "", str(error)
    said = last_lines(result.stderr or result.stdout, 1) or "it printed nothing"
    return result.exit_code == 0, result.stdout, said


def _path_of(program: str, *folders: str) -> str | None:
    """Return where a program is on PATH, or in one of these folders."""
    import shutil

    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *folders]))


# ---------------------------------------------------------------- this machine


def _python() -> Iterator[Check]:
    from importlib.util import find_spec

    found = f"{sys.version.split()[0]} {sys.executable}"
    if missing := [name for name in _OPTIONAL_MODULES if find_spec(f"_{name}") is None]:
        yield Check(
            "python", BROKEN, f"{found} was built without {', '.join(missing)}", "use a Python build that includes it"
        )
    else:
        yield Check("python", WORKS, found)


def _system() -> Iterator[Check]:
    try:
        check_this_machine()
    except LocalFailure as error:
        yield Check("target local", MISSING, error.what, error.hint or "")


def _settings() -> Iterator[Check]:
    check = check_settings()
    if not check.file:
        yield Check(
            "settings file", MISSING, "none: all settings have their defaults", "training-monitor config --init"
        )
    elif check.problems:
        lines = [f"line {each.line}" for each in check.problems if each.line]
        found = f"{plural(len(check.problems), 'problem')} ({name_some(lines, _NAMED) or 'of the whole'}): {check.file}"
        yield Check("settings file", BROKEN, found, _SEE_SETTINGS)
    else:
        yield Check("settings file", WORKS, check.file)


def _state() -> Iterator[Check]:
    try:
        folder = Store().folder
    except StateError as error:
        yield Check("state folder", BROKEN, error.what, error.hint or f"make {state_dir()} writable")
        return
    disk, mode = os.statvfs(folder), stat.S_IMODE(os.stat(os.path.join(folder, STATE_FILE)).st_mode)
    free = disk.f_bavail * disk.f_frsize
    if mode & 0o077:
        found = f"others can read {os.path.join(folder, STATE_FILE)} (mode {mode:04o})"
        yield Check("state folder", BROKEN, found, f"chmod -R go-rwx {shlex.quote(folder)}")
    else:
        yield Check("state folder", WORKS, f"{folder}, {format_bytes(free)} free")
    if free < LEAST_FREE:
        found = f"{format_bytes(free)} free on the disk of the state folder"
        remedy = f"free some space on the disk of {folder}, or set TRAINING_MONITOR_STATE_DIR"
        yield Check("disk space", BROKEN, found, remedy)


def _terminal() -> Iterator[Check]:
    from training_monitor.ui.kit.terminal import terminal_glyphs

    term = os.environ.get("TERM", "")
    if not sys.stdout.isatty():
        yield Check("terminal", WORKS, "the output is not a terminal: plain text without colours")
    elif term in ("", "dumb", "unknown"):
        yield Check("terminal", MISSING, f"TERM is {term or 'not set'}: no screens", "export TERM=xterm-256color")
    elif terminal_glyphs().ascii:
        yield Check("terminal", MISSING, f"{term} without UTF-8: screens are drawn in ASCII", "export LANG=C.UTF-8")
    else:
        size = os.get_terminal_size(sys.stdout.fileno())
        colours = "no colours (NO_COLOR)" if os.environ.get("NO_COLOR") else "colours"
        yield Check("terminal", WORKS, f"{term}, {terminal_columns()}x{size.lines}, UTF-8, {colours}")


def _completion() -> Iterator[Check]:
    shell = os.path.basename(os.environ.get("SHELL", ""))
    if (remedy := how_to_complete(shell)) is None:
        yield Check("completion", MISSING, f"not available for the shell {shell or '?'}, only for bash, zsh and fish")
    elif file := find_completion(shell):
        yield Check("completion", WORKS, f"{shell}, by {file}")
    else:
        yield Check("completion", MISSING, f"not set up for {shell}", remedy)


def _gpus() -> Iterator[Check]:
    from training_monitor.look import check_gpu_utilization
    from training_monitor.look.nvidia_smi import SMI_FOLDERS

    if not _path_of("nvidia-smi", *SMI_FOLDERS):
        yield Check("nvidia-smi", MISSING, "not on PATH", "only needed to watch GPUs of this machine")
        return
    report = check_gpu_utilization("local")
    found = report["error"] or f"{report['gpu_count']} GPUs"
    yield Check("nvidia-smi", WORKS if report["healthy"] else BROKEN, found, "run nvidia-smi to see its error")


# ---------------------------------------------------------------- pods


def _kubectl() -> Iterator[Check]:
    if not (path := _path_of("kubectl")):
        yield Check("kubectl", MISSING, "not on PATH", f"install it to reach pods: {_KUBECTL_PAGE}")
        return
    works, version, said = _run("kubectl", "version", "--client", "-o", "yaml")
    if not works:
        yield Check("kubectl", BROKEN, said, f"reinstall it: {_KUBECTL_PAGE}")
        return
    number = re.search(r"gitVersion: (\S+)", version)
    yield Check("kubectl", WORKS, f"{path} {number[1] if number else ''}".strip())


def _contexts() -> Iterator[Check]:
    if not _path_of("kubectl"):
        return
    works, listed, said = _run("kubectl", "config", "get-contexts", "-o", "name")
    contexts = listed.split()
    if not works:
        yield Check("kubectl contexts", BROKEN, said, "check the kubeconfig: kubectl config view")
    elif not contexts:
        yield Check("kubectl contexts", MISSING, "none", "get a kubeconfig for your cluster, or set KUBECONFIG")
    else:
        now = _run("kubectl", "config", "current-context")[1].strip()
        found = f"{name_some(contexts, _NAMED)} (current: {now or 'none'})"
        yield Check("kubectl contexts", WORKS if now else BROKEN, found, "kubectl config use-context NAME")


def _exec() -> Iterator[Check]:
    if not _path_of("kubectl") or not (now := _run("kubectl", "config", "current-context")[1].strip()):
        return
    _, answer, said = _run("kubectl", "auth", "can-i", "create", "pods", "--subresource=exec")
    if answer.strip() == "yes":
        yield Check("kubectl exec", WORKS, f"allowed in {now}")
    elif answer.strip() == "no":
        yield Check(
            "kubectl exec",
            BROKEN,
            "not allowed",
            "request permission for the verb create on pods/exec in your namespace",
        )
    else:
        yield Check("kubectl exec", BROKEN, said, "check that the cluster is up and you are logged in")


# ---------------------------------------------------------------- ssh and vast.ai


def _ssh() -> Iterator[Check]:
    if not (program := _path_of("ssh")):
        remedy = "apt-get install openssh-client, to reach ssh:// and vast:// targets"
        yield Check("ssh", MISSING, "not on PATH", remedy)
        return
    yield Check("ssh", WORKS, program)
    has_agent = _run("ssh-add", "-l")[0]
    folder = os.path.expanduser("~/.ssh")
    files = sorted(name[:-4] for name in os.listdir(folder) if name.endswith(".pub")) if os.path.isdir(folder) else []
    if has_agent or files:
        found = f"files: {name_some(files, _NAMED) or 'none'}; agent: {'yes' if has_agent else 'no keys'}"
        yield Check("ssh keys", WORKS, found)
    else:
        yield Check("ssh keys", MISSING, "no key file, no agent", "ssh-keygen")


def _rsync() -> Iterator[Check]:
    if not (path := _path_of("rsync")):
        yield Check(
            "rsync", MISSING, "not on PATH: files are copied to rented machines with tar", "apt-get install rsync"
        )
        return
    works, version, said = _run("rsync", "--version")
    number = re.search(r"version (\S+)", version)
    found = f"{path} {number[1] if number else ''}".strip() if works else said
    yield Check("rsync", WORKS if works else BROKEN, found, "reinstall it: apt-get install --reinstall rsync")


def _vastai() -> Iterator[Check]:
    if not _path_of("vastai"):
        yield Check("vastai", MISSING, "not on PATH", "pip install vastai, to use vast:// targets")
        return
    files = map(os.path.expanduser, ("~/.config/vastai/vast_api_key", "~/.vast_api_key"))
    has_key = os.environ.get("VASTAI_API_KEY") or os.environ.get("VAST_API_KEY") or any(map(os.path.exists, files))
    if not has_key:
        yield Check("vastai", MISSING, "no API key", "set VAST_API_KEY, or vastai set api-key")
        return
    _, user, said = _run("vastai", "show", "user", "--raw")  # exits 0 with empty output when the key is refused
    if user.strip().startswith("{"):
        yield Check("vastai", WORKS, "the API key works")
        yield _vast_ssh_key()
    else:
        yield Check("vastai", BROKEN, said, "check the key at https://cloud.vast.ai/account")


def _vast_ssh_key() -> Check:
    """Check whether rented machines accept our ssh key."""
    from training_monitor.vast import check_ssh_keys

    name, remedy = "vastai ssh key", "training-monitor rent keys --setup"
    try:
        report = check_ssh_keys(transport=_Hasty())
    except SettingsError as error:
        return Check(name, MISSING, error.what, remedy)
    except TrainingMonitorError as error:
        return Check(name, BROKEN, error.what, remedy)
    if report.usable:
        return Check(name, WORKS, report.private_key)
    if report.registered:
        return Check(
            name, BROKEN, f"others can read {report.private_key}", f"chmod 600 {shlex.quote(report.private_key)}"
        )
    return Check(name, BROKEN, "not registered", remedy)


# ---------------------------------------------------------------- notices and targets


def _notices() -> Iterator[Check]:
    from training_monitor.notify.configure import load_channels, load_users

    try:
        channels, users = load_channels(), load_users()
    except SettingsError:
        yield Check("channels", BROKEN, "their settings are wrong", _SEE_SETTINGS)
        return
    told = [NotifiedUser(), *users.values()]
    wrong = [(channel, obstacle) for channel in channels if (obstacle := _obstacle(channel, told))]
    for channel, obstacle in wrong:
        yield Check(channel.name, BROKEN, obstacle, "training-monitor notify --test")
    if not channels:
        remedy = "export TRAINING_MONITOR_NTFY=https://ntfy.sh/TOPIC, or another channel of docs/notifications.md"
        yield Check("channels", MISSING, "none: notices are only listed here", remedy)
    elif len(wrong) < len(channels):
        names = dict.fromkeys(channel.name for channel in channels if channel not in [each for each, _ in wrong])
        yield Check("channels", WORKS, f"{', '.join(names)}; `notify --test` sends a notice through each")


def _obstacle(channel: Channel, users: Sequence[NotifiedUser]) -> str | None:
    """Return why a channel can tell nobody, without sending; None if it may be able to."""
    if channel.program and not _path_of(channel.program):
        return f"{channel.program} is not on PATH"
    obstacles = [channel.obstacle(user, Doors(LocalTransport(), has_store=True)) for user in users]
    return obstacles[0] if all(obstacles) else None


def probe_target(target: str) -> Iterator[Check]:
    """Look whether a target answers, and what its clock says."""
    asked = time.time()
    try:
        [answer] = ask(target, Question("hello", "uname -sr; date +%s", read_text))
        system, _, clock = (answer.get() or "").strip()[:MOST_SAID].partition("\n")
    except TrainingMonitorError as error:
        meant = meant_target(target)
        yield Check(target, BROKEN, error.what, f"did you mean {meant}?" if meant else error.hint or "")
        return
    yield Check(target, WORKS, system + _clock_difference(clock, asked, time.time()))


def _clock_difference(clock: str, asked: float, answered: float) -> str:
    """Return how far a clock is off that was read between two times of ours; "" if it is not, or cannot be told."""
    if not (clock.isascii() and clock.isdigit() and len(clock) < 12):
        return ""
    ahead, behind = int(clock) - answered, asked - (int(clock) + 1)
    if max(ahead, behind) <= MOST_SKEW:
        return ""
    return f", its clock is {format_duration(max(ahead, behind))} {'ahead' if ahead > behind else 'behind'}"


PROBES: Sequence[tuple[str, Callable[[], Iterable[Check]]]] = (
    *(("this machine", probe) for probe in (_python, _system, _settings, _state, _terminal, _completion, _gpus)),
    *(("pods", probe) for probe in (_kubectl, _contexts, _exec)),
    *(("ssh", probe) for probe in (_ssh, _rsync)),
    ("vast.ai", _vastai),
    ("notices", _notices),
)
