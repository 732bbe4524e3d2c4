"""`doctor` and `config`: whether the tools, keys and targets work here, and what is in the settings file.

A problem in the settings has line, key, value and what was expected; values that may be secret are left out.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from training_monitor.cli.output import BAD, OK, paint, print_json, put
from training_monitor.core.errors import LocalFailure, SettingsError, TrainingMonitorError, last_lines
from training_monitor.core.frozen import dataclass
from training_monitor.core.models import Question
from training_monitor.core.settings import state_dir
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.store import Store
from training_monitor.targets.asking import ask, read_text, side_by_side
from training_monitor.targets.connect import check_this_machine
from training_monitor.targets.transport import LocalTransport

if TYPE_CHECKING:
    pass

MOST_SAID = 200  # characters of an answer
TIMEOUT = 15.0
_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. state: ok | missing (only a problem if you need it) | broken."""

    name: str
    state: str
    found: str
    remedy: str = ""


def doctor(args: Namespace) -> int:
    """Run the command; exit status 1 when an installed tool does not work, or a target does not answer."""
    own = (_python, _this_machine, _state, _kubectl, _ssh, _vastai, _gpus)
    subjects = [*own, *(partial(_target, each) for each in args.targets)]
    answers = side_by_side([lambda subject=subject: list(subject()) for subject in subjects])  # type: ignore[misc]
    checks = [
        check
        for found in answers
        for check in ([Check("?", "broken", str(found))] if isinstance(found, TrainingMonitorError) else found)
    ]
    if args.json:
        print_json(args, {"checks": checks})
    else:
        for check in checks:
            colour = {"ok": "green", "missing": "yellow", "broken": "red"}[check.state]
            put(f"{paint(f'{check.state:<8}', colour, sys.stdout)} {check.name:<18} {shown_lines(check.found)}\n")
            if check.remedy and check.state != "ok":
                put(f"{'':<8} {'':<18} -> {shown(check.remedy)}\n")
    return BAD if any(check.state == "broken" for check in checks) else OK


def _run(*argv: str) -> tuple[bool, str, str]:
    """Run a program here; return whether it worked, its stdout, and the last line of what it said."""
    try:
        result = LocalTransport().run(argv, timeout=TIMEOUT)
    except TrainingMonitorError as error:
        return False, "", str(error)
    said = last_lines(result.stderr or result.stdout, 1) or "it said nothing"
    return result.exit_code == 0, result.stdout, said


def _python() -> Iterator[Check]:
    yield Check("python", "ok", f"{sys.version.split()[0]} {sys.executable}")


def _this_machine() -> Iterator[Check]:
    try:
        check_this_machine()
    except LocalFailure as error:
        yield Check("target local", "missing", error.what, error.hint or "")


def _state() -> Iterator[Check]:
    try:
        yield Check("state folder", "ok", Store().folder)
    except TrainingMonitorError as error:
        yield Check("state folder", "broken", str(error), f"make {state_dir()} writable")


def _kubectl() -> Iterator[Check]:
    import shutil

    page = "https://kubernetes.io/docs/tasks/tools/"
    if not shutil.which("kubectl"):
        yield Check("kubectl", "missing", "not on PATH", f"install it to reach pods: {page}")
        return
    works, version, said = _run("kubectl", "version", "--client", "-o", "yaml")
    if not works:
        yield Check("kubectl", "broken", said, f"install it anew: {page}")
        return
    number = re.search(r"gitVersion: (\S+)", version)
    yield Check("kubectl", "ok", f"{shutil.which('kubectl')} {number[1] if number else ''}".strip())
    contexts = _run("kubectl", "config", "get-contexts", "-o", "name")[1].split()
    if not contexts:
        yield Check("kubectl contexts", "missing", "none", "get a kubeconfig for your cluster, or set KUBECONFIG")
        return
    now = _run("kubectl", "config", "current-context")[1].strip()
    found = f"{', '.join(contexts)} (current: {now or 'none'})"
    yield Check("kubectl contexts", "ok" if now else "broken", found, "kubectl config use-context NAME")
    _, answer, said = _run("kubectl", "auth", "can-i", "create", "pods", "--subresource=exec")
    if answer.strip() == "yes":
        yield Check("kubectl exec", "ok", f"allowed in {now}")
    elif answer.strip() == "no":
        yield Check("kubectl exec", "broken", "not allowed", "ask for the verb create on pods/exec in your namespace")
    else:
        yield Check("kubectl exec", "broken", said, "check that the cluster is up and you are logged in")


def _ssh() -> Iterator[Check]:
    import shutil

    program = shutil.which("ssh")
    if not program:
        remedy = "apt-get install openssh-client, to reach ssh:// and vast:// targets"
        yield Check("ssh", "missing", "not on PATH", remedy)
        return
    yield Check("ssh", "ok", program)
    has_agent = _run("ssh-add", "-l")[0]
    folder = os.path.expanduser("~/.ssh")
    files = sorted(name[:-4] for name in os.listdir(folder) if name.endswith(".pub")) if os.path.isdir(folder) else []
    if has_agent or files:
        found = f"files: {', '.join(files) or 'none'}; agent: {'yes' if has_agent else 'no keys'}"
        yield Check("ssh keys", "ok", found)
    else:
        yield Check("ssh keys", "missing", "no key file, no agent", "ssh-keygen")


def _vastai() -> Iterator[Check]:
    import shutil

    if not shutil.which("vastai"):
        yield Check("vastai", "missing", "not on PATH", "pip install vastai, to use vast:// targets")
        return
    files = map(os.path.expanduser, ("~/.config/vastai/vast_api_key", "~/.vast_api_key"))
    has_key = os.environ.get("VASTAI_API_KEY") or os.environ.get("VAST_API_KEY") or any(map(os.path.exists, files))
    if not has_key:
        yield Check("vastai", "missing", "no API key", "set VAST_API_KEY, or vastai set api-key")
        return
    _, user, said = _run("vastai", "show", "user", "--raw")  # exits 0 with empty output when the key is refused
    if user.strip().startswith("{"):
        yield Check("vastai", "ok", "the API key works")
        yield _vast_ssh_key()
    else:
        yield Check("vastai", "broken", said, "look at https://cloud.vast.ai/account for the key")


def _vast_ssh_key() -> Check:
    """Check whether rented machines accept our ssh key."""
    from training_monitor.vast import check_ssh_keys

    name, remedy = "vastai ssh key", "training-monitor keys --setup"
    try:
        report = check_ssh_keys()
    except SettingsError as error:
        return Check(name, "missing", error.what, remedy)
    except TrainingMonitorError as error:
        return Check(name, "broken", error.what, remedy)
    if report.usable:
        return Check(name, "ok", report.private_key)
    open_to_others = f"others can read {report.private_key}"
    found = "not registered" if not report.registered else open_to_others
    return Check(name, "broken", found, f"chmod 600 {report.private_key}" if report.registered else remedy)


def _gpus() -> Iterator[Check]:
    import shutil

    from training_monitor.health import check_gpu_utilization

    if not shutil.which("nvidia-smi"):
        yield Check("nvidia-smi", "missing", "not on PATH", "only needed to watch GPUs of this machine")
        return
    report = check_gpu_utilization("local")
    found = report["error"] or f"{report['gpu_count']} GPUs"
    yield Check("nvidia-smi", "ok" if report["healthy"] else "broken", found, "see what nvidia-smi itself says")


def _target(target: str) -> Iterator[Check]:
    try:
        [answer] = ask(target, Question("hello", "uname -sr", read_text))
        yield Check(target, "ok", (answer.get() or "").strip()[:MOST_SAID])
    except TrainingMonitorError as error:
        yield Check(target, "broken", error.what, error.hint or "")
