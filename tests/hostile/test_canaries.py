"""Every command, run on a training with many secrets in its logs and settings: none shows, sends or keeps one.

A training prints, holds in its command line, environment, progress file and settings what the tables of secrets list,
each with a canary of its own; tools fail with such texts. All commands of the table run before it, and everything that
they produce is searched: stdout, stderr, JSON, notices, the web page, the state folder, and the words that those tools
get; test_child_programs.py has those of every program.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.hostile.test_endings import WORDS
from tests.hostile.tries import tried
from tests.integration.conftest import Surroundings, wait_until
from tests.integration.forked import forked
from tests.loopback.messaging import TELEGRAM_TOKEN, Services
from tests.secret_cases import letters
from tests.unit.core.test_masking import forms
from training_monitor.core import masking
from training_monitor.jobs.process_jobs import start_process_job

ROOT = Path(__file__).parents[2]
LONGEST = 40.0  # seconds of a command that ends by itself, on a busy machine
ENDLESS = {"web", "top", "metrics", "rent worker", "restart", "rent sweep", "demo", "watch", "doctor", "mcp"}
ENOUGH = 4.0  # seconds of one that does not
AT_ONCE = 8
# These show a training as text and in JSON; of the others, every other one answers in JSON.
OF_A_TRAINING = ("check", "why", "status", "logs", "run", "watch")
OF_A_POD = ("check", "fleet", "run", "doctor")  # of which kubectl says what all commands would get
FAILING = '#!/bin/sh\necho "$0 $*" >>{words}\ncat {texts} >&2\nexit 1\n'
TRAIN = """\
import sys, time
sys.path.insert(0, {root!r})
from training_monitor import TrainingMonitor
monitor = TrainingMonitor({progress!r} + "/canaries.json", run_name="canaries", interval=0.1)
monitor.track_variables({{"api_key": {variable!r}, "lr": 1e-4}})
monitor.update_metrics(loss=0.5, wandb_token={metric!r})
monitor.start_monitoring()
texts = open({texts!r}).read()
for step in range(1, 100000):
    print(f"step {{step}}/100000 loss: {{2 / step:.4f}} lr: 1e-05", flush=True)
    if step < 4:
        print(texts, flush=True)
        print("RuntimeError: CUDA error: " + texts.splitlines()[step], flush=True)
    time.sleep(0.5)
"""
# Each needs what the test has: a job, a log, a folder of progress files. By the name of a command: its words.
OTHER_WORDS = {
    "run": ("--name", "bFORM", "--interval", "0.3", "--max-retries", "0", "--notify", "--", *("sh", "TEXTS.sh")),
    "restart": ("local", "process:a", "--max-retries", "0", "--interval", "1", "--notify"),
    "watch": ("local", "process:a", "--once", "--notify"),
    "wait": ("local", "process:a", "--for", "log=RuntimeError", "--timeout", "3"),
    "notify": ("--test",),
    "config": ("--check",),
    "mcp": (),
}


def canaries() -> tuple[dict[str, str], list[str]]:
    """The secrets, line by line, and the texts that hold them."""
    left_out = ("private key", "end of a")  # their parts have tests of their own
    made = {name: each for name, each in forms().items() if not name.startswith(left_out)}
    return {name: secret for name, (secret, _) in made.items()}, [text for _, text in made.values()]


def cases() -> list[tuple[str, str, str]]:
    """The commands, each with its target and form."""
    local, forms = "local", ("", "--json")
    found = [(name, local, form) for name in OF_A_TRAINING for form in forms]
    found += [(name, local, forms[at % 2]) for at, name in enumerate(sorted({*WORDS} - {*OF_A_TRAINING, "web"}))]
    found += [("web", local, ""), *((name, "k8s://default/pod", forms[at % 2]) for at, name in enumerate(OF_A_POD))]
    return sorted(found, key=lambda case: case[0] in ENDLESS)


def run_all(folder: Path) -> dict[str, str]:
    """Run every command; return what each printed."""
    printed, all_cases = {}, cases()
    values = {"FOLDER": str(folder), "PROGRESS": str(folder / "progress"), "TEXTS": str(folder / "texts")}
    with ExitStack() as stack:
        for first in range(0, len(all_cases), AT_ONCE):
            running = []
            for name, target, form in all_cases[first : first + AT_ONCE]:
                values |= {"FORM": form, "TARGET": target}
                words = OTHER_WORDS.get(name, WORDS[name]) if target == "local" else WORDS[name]
                for key, value in values.items():
                    words = tuple(word.replace(key, value) for word in words)
                at = words.index("--") if "--" in words else len(words)
                argv = [*name.split(), *words[:at], *form.split(), *words[at:]]
                out = folder / "printed" / f"{name}{form} {re.sub(r'[^a-z0-9]', '', target)}"
                out.parent.mkdir(exist_ok=True)
                running.append((name, out, stack.enter_context(forked(argv, out))))
            began = time.monotonic()
            for name, out, process in running:
                if name == "web":
                    printed[f"page of {out.name}"] = page_of(out)
                process.wait(max(0.1, began + (ENOUGH if name in ENDLESS else LONGEST) - time.monotonic()))
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) is not None, name
                printed[out.name] = out.read_text(errors="replace")
    return printed


def page_of(out: Path) -> str:
    """What the page shows of the fleet, of one member and in its metrics, signed in by the link that was printed."""
    if not wait_until(lambda: "once=" in out.read_text(errors="replace"), 40):
        return ""
    found = re.search(r"(http://127\.0\.0\.1:\d+)(/open\?once=\w+)", out.read_text())
    assert found
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    texts = [opener.open(found[1] + found[2], timeout=5).read().decode()]
    with opener.open(found[1] + "/events", timeout=10) as events:
        first, until = b"", time.monotonic() + 20.0
        with suppress(OSError):
            while b"step" not in first and time.monotonic() < until:
                first += events.readline()
        texts.append(first.decode())
    for key in {*re.findall(r'"id": ?"([^"]+)"', texts[-1])}:
        with suppress(OSError):
            texts.append(
                opener.open(f"{found[1]}/api/member?id={urllib.request.quote(key)}", timeout=5).read().decode()
            )

    def metrics() -> str:
        with suppress(OSError):
            return str(opener.open(f"{found[1]}/metrics", timeout=5).read().decode())
        return ""

    wait_until(lambda: "training_monitor_learning_rate" in metrics(), max(0.0, until - time.monotonic()))
    return "\n".join([*texts, metrics()])


def test_no_command_shows_sends_or_keeps_a_secret(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking._Known, "values", ())
    folder, (secrets, texts) = surroundings.folder, canaries()
    given = {name: letters(24) for name in ("variable", "metric", "env", "own environment", "argv", "config")}
    given["settings"] = TELEGRAM_TOKEN.partition(":")[2]
    (folder / "progress").mkdir()
    (folder / "texts").write_text("\n".join(texts) + "\n")
    (folder / "texts.sh").write_text(
        f"echo step 1/9; cat {folder}/texts; echo RuntimeError: $(tail -n 5 {folder}/texts); exit 1\n"
    )
    script = folder / "train.py"
    script.write_text(
        TRAIN.format(
            root=str(ROOT), progress=str(folder / "progress"), texts=str(folder / "texts"),
            variable=given["variable"], metric=given["metric"],
        )
    )  # fmt: skip
    for tool in ("kubectl", "vastai", "nvidia-smi"):
        (surroundings.tools / tool).write_text(
            FAILING.format(texts=shlex.quote(f"{folder}/texts"), words=shlex.quote(f"{folder}/words"))
        )
        (surroundings.tools / tool).chmod(0o755)
    with Services() as services:
        settings = folder / "settings.toml"
        settings.write_text(
            f'[notifications.telegram]\ntoken = "{TELEGRAM_TOKEN}"\nchat_id = "1"\napi_url = "{services.url}"\n'
            f'[notifications.command]\nargv = ["sh", "-c", "cat {shlex.quote(str(folder))}/texts >&2; exit 1", '
            f'"Authorization: Bearer {given["config"]}"]\n'
        )
        settings.chmod(0o600)
        changes = {
            "PYTHONPATH": str(ROOT), "HOME": str(folder), "TRAINING_MONITOR_SETTINGS": str(settings),
            "VASTAI_API_KEY": "0" * 64, "MY_API_TOKEN": given["own environment"],
        }  # fmt: skip
        for name, value in changes.items():
            monkeypatch.setenv(name, value)
        command = [sys.executable, str(script), "--api-key", given["argv"], *(f"# {text}" for text in texts)]
        start_process_job("local", shlex.join(command), name="a", env={"HF_TOKEN": given["env"]})
        assert wait_until(lambda: any((folder / "progress").rglob("*.json")), 20)
        printed = run_all(folder)
        notices = "\n".join(repr(each.body) for each in services.asked)
    state = {
        str(path): path.read_bytes().decode("utf-8", "replace")
        for path in (folder / "state").rglob("*")
        if path.is_file()
    }
    words = (folder / "words").read_text()
    places = {**printed, **state, "words": words, "notices": notices}
    assert "RuntimeError" in notices
    assert "training_monitor_learning_rate" in printed["page of web local"]
    assert words.count("\n") > 20
    assert sum("step" in text for text in printed.values()) > 10
    every = {**secrets, **{f"given: {name}": secret for name, secret in given.items()}}
    tried(len(every) * len(places))
    leaks = {(place, name) for place, text in places.items() for name, secret in every.items() if secret in text}
    assert not leaks, json.dumps(sorted(leaks), indent=1)
