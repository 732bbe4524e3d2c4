"""`doctor`: check the tools, keys and targets here, and suggest a remedy for each problem."""

from __future__ import annotations

import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator

from training_monitor.cli.output import BAD, OK, paint, print_json, printable, put
from training_monitor.core.errors import TrainingMonitorError, last_lines
from training_monitor.core.frozen import dataclass
from training_monitor.core.models import CommandResult, Question
from training_monitor.core.settings import state_dir
from training_monitor.core.store import Store
from training_monitor.targets.asking import ask, read_text, side_by_side
from training_monitor.targets.transport import LocalTransport

TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. state: ok | missing (only a problem if you need it) | broken."""

    name: str
    state: str
    found: str
    remedy: str = ""


def doctor(args: Namespace) -> int:
    """Run the command; exit status 1 when an installed tool does not work, or a target does not answer."""
    calls: list[Callable[[], list[Check]]] = [_python, _state, _kubectl, _ssh, _vastai, _gpus]
    calls += [lambda target=target: [_target(target)] for target in args.targets]  # type: ignore[misc]
    checks = [check for found in side_by_side(calls) for check in _checks(found)]
    if args.json:
        print_json(checks)
    else:
        for check in checks:
            colour = {"ok": "green", "missing": "yellow", "broken": "red"}[check.state]
            put(f"{paint(f'{check.state:<8}', colour, sys.stdout)} {check.name:<18} {printable(check.found)}\n")
            if check.remedy and check.state != "ok":
                put(f"{'':<8} {'':<18} -> {check.remedy}\n")
    return BAD if any(check.state == "broken" for check in checks) else OK


def _checks(found: list[Check] | TrainingMonitorError) -> list[Check]:
    return [Check("?", "broken", str(found))] if isinstance(found, TrainingMonitorError) else found


def _run(*argv: str) -> CommandResult | str:
    try:
        return LocalTransport().run(argv, timeout=TIMEOUT)
    except TrainingMonitorError as error:
        return str(error)


def _said(result: CommandResult | str) -> str:
    return result if isinstance(result, str) else last_lines(result.stderr or result.stdout, 1) or "it said nothing"


def _works(result: CommandResult | str) -> bool:
    return not isinstance(result, str) and result.exit_code == 0


def _python() -> list[Check]:
    return [Check("python", "ok", f"{sys.version.split()[0]} {sys.executable}")]


def _state() -> list[Check]:
    try:
        return [Check("state folder", "ok", Store().folder)]
    except TrainingMonitorError as error:
        return [Check("state folder", "broken", str(error), f"make {state_dir()} writable")]


def _kubectl() -> list[Check]:
    if not shutil.which("kubectl"):
        return [
            Check(
                "kubectl", "missing", "not on PATH", "install it to reach pods: https://kubernetes.io/docs/tasks/tools/"
            )
        ]
    return list(_kubectl_checks())


def _kubectl_checks() -> Iterator[Check]:
    version = _run("kubectl", "version", "--client", "-o", "yaml")
    if isinstance(version, str) or not _works(version):
        yield Check("kubectl", "broken", _said(version), "install it anew: https://kubernetes.io/docs/tasks/tools/")
        return
    number = re.search(r"gitVersion: (\S+)", version.stdout)
    yield Check("kubectl", "ok", f"{shutil.which('kubectl')} {number[1] if number else ''}".strip())
    contexts = _run("kubectl", "config", "get-contexts", "-o", "name")
    names = contexts.stdout.split() if not isinstance(contexts, str) else []
    if not names:
        yield Check("kubectl contexts", "missing", "none", "get a kubeconfig for your cluster, or set KUBECONFIG")
        return
    current = _run("kubectl", "config", "current-context")
    now = current.stdout.strip() if not isinstance(current, str) else ""
    yield Check(
        "kubectl contexts",
        "ok" if now else "broken",
        f"{', '.join(names)} (current: {now or 'none'})",
        "kubectl config use-context NAME",
    )
    allowed = _run("kubectl", "auth", "can-i", "create", "pods", "--subresource=exec")
    answer = allowed.stdout.strip() if not isinstance(allowed, str) else ""
    if answer == "yes":
        yield Check("kubectl exec", "ok", f"allowed in {now}")
    elif answer == "no":
        yield Check("kubectl exec", "broken", "not allowed", "ask for the verb create on pods/exec in your namespace")
    else:
        yield Check("kubectl exec", "broken", _said(allowed), "check that the cluster is up and you are logged in")


def _ssh() -> list[Check]:
    if not shutil.which("ssh"):
        return [
            Check(
                "ssh", "missing", "not on PATH", "apt-get install openssh-client, to reach ssh:// and vast:// targets"
            )
        ]
    keys = _run("ssh-add", "-l")
    folder = os.path.expanduser("~/.ssh")
    files = sorted(name[:-4] for name in os.listdir(folder) if name.endswith(".pub")) if os.path.isdir(folder) else []
    if _works(keys) or files:
        return [
            Check("ssh", "ok", shutil.which("ssh") or ""),
            Check(
                "ssh keys", "ok", f"files: {', '.join(files) or 'none'}; agent: {'yes' if _works(keys) else 'no keys'}"
            ),
        ]
    return [
        Check("ssh", "ok", shutil.which("ssh") or ""),
        Check("ssh keys", "missing", "no key file, no agent", "ssh-keygen"),
    ]


def _vastai() -> list[Check]:
    if not shutil.which("vastai"):
        return [Check("vastai", "missing", "not on PATH", "pip install vastai, to use vast:// targets")]
    key = os.environ.get("VASTAI_API_KEY") or os.environ.get("VAST_API_KEY")
    files = [
        path
        for path in ("~/.config/vastai/vast_api_key", "~/.vast_api_key")
        if os.path.exists(os.path.expanduser(path))
    ]
    if not key and not files:
        return [Check("vastai", "missing", "no API key", "set VAST_API_KEY, or vastai set api-key")]
    answer = _run("vastai", "show", "user", "--raw")  # exits 0 with empty output when the key is refused
    if isinstance(answer, str) or not answer.stdout.strip().startswith("{"):
        return [Check("vastai", "broken", _said(answer), "look at https://cloud.vast.ai/account for the key")]
    return [Check("vastai", "ok", "the API key works"), _vast_ssh_key()]


def _vast_ssh_key() -> Check:
    """Check whether rented machines accept our ssh key."""
    from training_monitor.core.errors import SettingsError
    from training_monitor.vast.account import check_ssh_keys

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


def _gpus() -> list[Check]:
    from training_monitor.health.host import check_gpu_utilization

    if not shutil.which("nvidia-smi"):
        return [Check("nvidia-smi", "missing", "not on PATH", "only needed to watch GPUs of this machine")]
    report = check_gpu_utilization("local")
    return [
        Check(
            "nvidia-smi",
            "ok" if report["healthy"] else "broken",
            report["error"] or f"{report['gpu_count']} GPUs",
            "see what nvidia-smi itself says",
        )
    ]


def _target(target: str) -> Check:
    try:
        [answer] = ask(target, Question("hello", "uname -sr", read_text))
        return Check(target, "ok", (answer.get() or "").strip())
    except TrainingMonitorError as error:
        return Check(target, "broken", error.what, error.hint or "")
