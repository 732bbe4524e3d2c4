"""Paths that a language model passes to the MCP server: it reads logs and checkpoints of trainings, no other file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.tries import tried
from tests.integration.conftest import KINDS, MARK, Place, Surroundings, wait_until
from tests.mcp_client import Client
from tests.requirements import miss, require
from training_monitor.cli.commands.mcp import open_tools
from training_monitor.core.command_arguments import NO_VALUE
from training_monitor.core.errors import AccessDenied
from training_monitor.core.models import Answer
from training_monitor.core.read_fence import READ_UNDER, fence_reading, keep_found
from training_monitor.jobs.jobs import check_job_status
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.logs.following import FileSource, newest_of
from training_monitor.look.find_trainings import FoundFile, FoundTrainings
from training_monitor.look.meant import read_all
from training_monitor.targets.asking import Site

CANARY = "c4n4ry-0f-the-netrc"
OPTION = "--read-under"
PROGRAM = """
import os, sys, time
log = open("train.log", "a", buffering=1)
os.dup2(log.fileno(), 1); os.dup2(log.fileno(), 2)
for step in range(9000):
    print(f"step {step}/9000 loss 0.5", flush=True)
    time.sleep(0.2)
"""


class Scene:
    """A training that runs in a folder, and a secret in the folder beside it."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.work, self.home = surroundings.folder / "work", surroundings.folder / "private"
        self.output = self.work / "out"
        for folder in (self.work, self.home, self.output / "checkpoint-5"):
            folder.mkdir(parents=True)
        self.secret, self.log = self.home / ".netrc", self.work / "train.log"
        self.secret.write_text(f"machine a login b password {CANARY}\nstep 1/5 loss {CANARY}\n")
        self.secret.chmod(0o600)
        (self.home / "secret.log").write_text(f"step 1/5 {CANARY}\n")
        (self.work / "train.py").write_text(PROGRAM)
        (self.output / "checkpoint-5" / "model.safetensors").write_bytes(b"")
        command = [sys.executable, "train.py", "--output_dir", str(self.output)]
        self.process = subprocess.Popen(command, cwd=self.work, env={**os.environ, MARK: surroundings.mark})
        assert wait_until(lambda: self.log.exists() and self.log.stat().st_size > 100)

    def forms(self) -> dict[str, str]:
        """The ways to name the secret."""
        (self.work / "link.log").symlink_to(self.secret)
        (self.work / "linked").symlink_to(self.home)
        (self.work / "hard.log").hardlink_to(self.secret)
        (self.output / "link.log").symlink_to(self.secret)
        (self.output / "hard.log").hardlink_to(self.secret)
        (self.work / "train.log\n.log").symlink_to(self.secret)
        (self.home / "x\n.log").write_text(CANARY)
        pid = self.process.pid
        descriptor = os.open(self.secret, os.O_RDONLY)  # of this process
        forms = {
            "its path": str(self.secret),
            "a log's name": str(self.home / "secret.log"),
            "a link": str(self.work / "link.log"),
            "a link to its folder": str(self.work / "linked" / ".netrc"),
            "a hard link": str(self.work / "hard.log"),
            "a link among the checkpoints": str(self.output / "link.log"),
            "a hard link among the checkpoints": str(self.output / "hard.log"),
            "two dots": f"{self.output}/../../private/.netrc",
            "slashes": f"//{self.secret}",
            "the root of a process": f"/proc/{pid}/root{self.secret}",
            "our own root": f"/proc/self/root{self.secret}",
            "the folder of a process": f"/proc/{pid}/cwd/../private/.netrc",
            "a descriptor": f"/proc/{os.getpid()}/fd/{descriptor}",
            "a pattern": f"{self.home}/.net*",
            "a pattern of folders": f"{self.work.parent}/*/secret.log",
            "brackets": f"{self.home}/[s]ecret.log",
            "a line end": str(self.home / "x\n.log"),
            "a link with a line end": str(self.work / "train.log\n.log"),
            "a slash behind it": f"{self.secret}/",
            "from home": "~/private/.netrc",
            "relative": f"./{os.path.relpath(self.secret)}",
            "variables of a process": f"/proc/{pid}/environ",
            "passwords": "/etc/passwd",
            "a device": "/dev/zero",
            "its folder": str(self.home),
            "the root": "/",
        }
        return forms


@pytest.fixture
def scene(surroundings: Surroundings) -> Iterator[Scene]:
    found = Scene(surroundings)
    yield found
    found.process.kill()
    found.process.wait()


def said_of(answer: Any) -> str:
    assert CANARY not in json.dumps(answer), answer
    return json.dumps(answer["structuredContent"])


def test_the_server_refuses_other_files_in_every_form_whatever_folders_trainings_name(
    scene: Scene, surroundings: Surroundings, mcp_code: str
) -> None:
    """All forms meet the fence itself in test_every_target_reads_what_is_allowed_and_refuses_the_rest."""
    home, forms = str(scene.work.parent), scene.forms()
    command, environ = [sys.executable, "train.py", "--output_dir"], {**os.environ, MARK: surroundings.mark}
    folders = (home, "/", "/etc")
    others = [subprocess.Popen([*command, folder], cwd=scene.work, env=environ) for folder in folders]
    words = [("logs", {"job": named}) for named in (forms["a line end"], forms["from home"], "/etc/passwd")]
    words += [("checkpoints", {"directory": each}) for each in ("/", home)]
    with Client(HOME=home, code=mcp_code) as client:
        found = client.call("check", target="local", max_characters=1_000_000)["structuredContent"]
        assert len(found["jobs"]) > len(others), found
        for tool, named in words:
            tried()
            answer = client.call(tool, target="local", **named)
            assert answer["isError"] and OPTION in said_of(answer) and "root:" not in said_of(answer), (named, answer)
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.parametrize("target", ["local", "over_ssh"], indirect=True)
def test_what_belongs_to_a_training_is_read_also_after_its_end(target: Place, scene: Scene, mcp_code: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("logs", {"job": str(scene.log)}),
        ("logs", {"job": str(scene.process.pid)}),
        ("health", {"checkpoint_dir": str(scene.output), "job": str(scene.log)}),
        ("check", {"what": str(scene.process.pid)}),
        ("checkpoints", {"directory": f"{scene.output}/"}),
    ]
    calls = calls if target.address == "local" else [calls[0], calls[-1]]
    with Client(code=mcp_code) as client:
        found = client.call("check", target=target.address, max_characters=1_000_000)["structuredContent"]
        assert [each["step"] for each in found["jobs"] if each["log"] == str(scene.log)], found
        if target.address == "local":
            fleet = client.call("fleet", targets=[f"local#{scene.log}"])
            assert [each["step"] for each in fleet["structuredContent"]["members"] if each["step"]], fleet
    scene.process.kill()
    scene.process.wait()
    with Client(code=mcp_code) as client:  # another server: the state folder remembers
        answers = [client.call(tool, target=target.address, **words) for tool, words in calls]
    for (tool, words), answer in zip(calls, answers, strict=True):
        assert not answer["isError"] and OPTION not in said_of(answer), (tool, words, answer)
        assert tool != "logs" or "step " in said_of(answer), answer
        jobs = answer["structuredContent"]["jobs"] if tool == "check" else []
        assert [(each["state"], each["log"]) for each in jobs] == [("failed", str(scene.log))] * (tool == "check")


def test_a_log_without_a_training_is_listed_only_if_it_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [FoundFile(str(tmp_path / folder / "x.log"), 1.0, 5) for folder in ("a", "b")]
    asked = [FoundTrainings(()), (), False, (), tuple(logs)]
    answers = [Answer(str(number), value) for number, value in enumerate(asked)]

    def listed() -> list[str]:
        return [each.name for each in read_all(Site.of("local"), answers).trainings]

    assert listed() == [logs[0].path]
    for folders, expected in (([], []), ([str(tmp_path / "b")], [logs[1].path])):
        monkeypatch.setenv(READ_UNDER, json.dumps(folders))
        assert listed() == expected


def test_of_panes_and_units_only_those_of_a_training_that_was_found_are_read(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch, mcp_code: str
) -> None:
    require("tmux")
    monkeypatch.setenv("TMUX_TMPDIR", str(surroundings.sockets))
    (surroundings.folder / "train.py").write_text(
        "import time\nfor n in range(9000): print('step', n); time.sleep(0.1)"
    )
    shown = ["-P", "-F", "#{pane_tty}", "-c", str(surroundings.folder)]
    of_training, of_person = (
        subprocess.check_output(["tmux", "new-session", "-d", *shown, command], text=True).strip()
        for command in (f"{sys.executable} -u train.py", f"echo step 1/2 {CANARY}; sleep 900")
    )
    try:
        with Client(code=mcp_code) as client:
            found = client.call("check")["structuredContent"]["jobs"]
            assert [each["step"] for each in found if each["log"] == of_training] > [0], found
            assert "step " in said_of(client.call("logs", target="local", job=f"terminal:{of_training}"))
            for source in (f"terminal:{of_person}", "terminal:/dev/pts/1\n/dev/pts/0", "journal:ssh.service"):
                tried()
                answer = client.call("logs", target="local", job=source)
                assert answer["isError"] and OPTION in said_of(answer), (source, answer)
    finally:
        subprocess.run(["tmux", "kill-server"], check=False)


def test_no_argument_of_any_tool_leads_to_another_file(scene: Scene, mcp_code: str) -> None:
    """Each text that a tool takes is the path of a secret: a tool that forgot the fence shows it here."""
    secret = scene.home / "secret.json"
    secret.write_text(json.dumps({"status": CANARY, "current_step": 1, CANARY: CANARY, "message": CANARY}))
    job = start_process_job("local", "sleep 60", "waits")
    usual = {"target": "local", "job": job, "directory": str(scene.output), "folder": str(scene.output)}
    usual |= {"path": str(scene.output), "destination": "hf:a/b", "job_name": "x", "id": "x", "message": "x"}
    more = dict.fromkeys(("directory", "folder", "path", "checkpoint_dir", "dataset"), str(scene.home))
    more["targets"], asked = f"local#{secret}", list[tuple[str, dict[str, Any]]]()
    for tool in open_tools(allow_write=True).values():
        for action, takes in tool.takes.items():
            needed: dict[str, Any] = {"action": action} if action else {}
            needed |= {key: usual.get(key, ["true"]) for key, each in takes.items() if each.is_required}
            for key, each in takes.items():
                if each.values == NO_VALUE or key in ("target", "namespace") and tool.name != "logs":  # all are alike
                    continue
                paths = filter(None, (str(secret), more.pop(key, "")))
                asked += [(tool.name, {**needed, key: path}) for path in paths]
    with Client("--allow-write", code=mcp_code) as client:
        numbers = [client.request("tools/call", name=name, arguments=words) for name, words in asked]
        answers = {each["id"]: each for each in (client.read(300.0) for _ in numbers)}
    tried(len(asked))
    shown = [words for number, words in zip(numbers, asked) if CANARY in json.dumps(answers[number])]
    assert shown == []


def test_what_python_reads_on_this_machine_and_what_acts_read_is_fenced_too(scene: Scene) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("rentals", {"action": "dataset", "path": str(scene.home)}),
        ("runs", {"folder": str(scene.work / "linked")}),
        ("rent", {"action": "launch", "name": "a", "trigger": "x", "dataset": str(scene.home), "confirm": True}),
        ("upload", {"target": "local", "path": str(scene.secret), "destination": "hf:a/b", "confirm": True}),
        ("start", {"action": "watch", "target": "local", "what": str(scene.secret), "confirm": True}),
    ]
    scene.forms()
    with Client("--allow-write") as client:
        for tool, words in calls:
            tried()
            answer = client.call(tool, **words)
            if not answer["isError"]:  # the watch has not ended yet
                handle = answer["structuredContent"]["handle"]
                assert wait_until(lambda job=handle: check_job_status("local", job) == "FAILED")
                answer = client.call("logs", target="local", job=handle)
            assert OPTION in said_of(answer), (tool, answer)
    with Client(OPTION, str(scene.home)) as client:
        for tool, words in calls[:2]:
            answer = client.call(tool, **words)
            assert OPTION not in json.dumps(answer), (tool, answer)


@pytest.mark.parametrize("target", ["local", "in_pod"], indirect=True)
def test_links_among_progress_files_show_nothing(target: Place, scene: Scene, mcp_code: str) -> None:
    secret = {"status": "running", "current_step": 1, "total_steps": 5, "message": CANARY, "error": CANARY, CANARY: 1}
    (scene.home / "secret.json").write_text(json.dumps(secret))
    runs = scene.work.parent / "runs"
    for name in ("own", "linked"):
        (runs / name).mkdir(parents=True)
    (runs / "own" / "progress.json").write_text(json.dumps({"status": "running", "current_step": 7, "total_steps": 9}))
    (runs / "linked" / "progress.json").symlink_to(scene.home / "secret.json")
    (runs / "flat.json").symlink_to(scene.home / "secret.json")
    (scene.home / "progress.json").write_text(json.dumps(secret))
    (runs / "folder").symlink_to(scene.home)
    where = str(runs) if target.address == "local" else f"head:{runs}"
    with Client(OPTION, str(runs), code=mcp_code) as client:
        answer = client.call("runs", folder=where)
        tried(3)
        assert "own" in said_of(answer) and not answer["isError"], answer


@pytest.fixture
def fenced(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(READ_UNDER, "[]")
    fence_reading([])


@pytest.mark.usefixtures("fenced")
def test_a_file_that_is_swapped_while_it_is_read_shows_nothing(scene: Scene) -> None:
    keep_found("local", [str(scene.log)], [])
    kept, link, is_over = scene.work / "kept.log", scene.work / "swap.log", threading.Event()
    kept.hardlink_to(scene.log)
    link.symlink_to(scene.secret)
    scene.log.rename(scene.work / "own.log")
    kept.unlink()

    def swap() -> None:
        while not is_over.is_set():
            (scene.work / "new.log").symlink_to(scene.secret)
            (scene.work / "new.log").rename(scene.log)
            (scene.work / "new.log").write_text("step 1/9 loss 0.5\n")
            (scene.work / "new.log").rename(scene.log)

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    try:
        for _ in range(10):
            answers = Site.of("local").ask(*[FileSource.named(str(scene.log), "log").read() for _ in range(10)])
            tried(len(answers))
            for answer in answers:
                assert answer.failure or CANARY not in answer.value.text
    finally:
        is_over.set()
        thread.join(10)


def source_of(path: str) -> FileSource:
    return FileSource(newest_of((path,), ""), path) if {*"*["} & {*path} else FileSource.named(path, path)


@pytest.mark.usefixtures("fenced")
@pytest.mark.parametrize("kind", ["dash", "bash", "busybox", "in_pod", "over_ssh"])
def test_every_target_reads_what_is_allowed_and_refuses_the_rest(
    scene: Scene, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kind: str
) -> None:
    address = "local"
    if kind in KINDS:
        address = request.getfixturevalue(kind).address
    else:
        program = require(kind) if kind == "busybox" else shutil.which(kind) or miss("sh", f"{kind} is not there")
        (surroundings.tools / "sh").unlink(missing_ok=True)
        if kind == "busybox":
            subprocess.run([program, "--install", "-s", str(surroundings.tools)], check=True)
        else:
            (surroundings.tools / "sh").symlink_to(program)
        monkeypatch.setenv("HOME", str(scene.work.parent))
    keep_found(Site.of(address).target, [str(scene.log)], [str(scene.output)])
    (scene.output / "eval.log").write_text("step 3/9\n")
    (scene.output / ".hidden.log").write_text(CANARY)
    allowed = [str(scene.log), str(scene.output / "eval.log"), f"{scene.output}/../train.log"]
    refused = [str(scene.output / ".hidden.log"), *scene.forms().values()]
    # Folders of the option, of which one is a link.
    runs, opened, others = (scene.work.parent / name for name in ("runs", "opened", "runs-of-others"))
    (runs / "a").mkdir(parents=True)
    (runs / "a" / "old.log").write_text("step 7/9 loss 0.5\n")
    (runs / "a" / "link.log").symlink_to(scene.secret)
    (runs / "a" / "hard.log").hardlink_to(scene.secret)
    others.mkdir()
    (others / "b.log").write_text(CANARY)
    opened.symlink_to(runs)
    fence_reading([str(opened), "/nowhere"])
    allowed += [f"{runs}/{name}" for name in ("a/old.log", "a/o*.log", "../opened/a/old.log")]
    names = ("a/link.log", "a/hard.log", "../runs-of-others/b.log", "a/../../private/secret.log")
    refused += [f"{runs}/{name}" for name in names]
    paths = [*allowed, *refused, f"{runs}/a/none.log"]
    answers = Site.of(address).ask(*[source_of(path).read() for path in paths])
    texts = {path: answer.get().text for path, answer in zip(allowed, answers)}
    assert [path for path, text in texts.items() if "step " not in text] == []
    tried(len(refused))
    for path, answer in zip(refused, answers[len(allowed) : -1]):
        assert isinstance(answer.failure, AccessDenied), (path, answer)
    assert not isinstance(answers[-1].failure, AccessDenied), answers[-1]
