"""Uploads from this machine, a pod and an ssh host, to a moto S3 server and, with the real hf, to a loopback hub."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.integration.conftest import Place, pids
from tests.integration.forked import forked
from tests.integration.test_targets import restricted_path
from tests.loopback.hub import TOKEN, Hub, blob_hash
from tests.loopback.storage import SECRET_KEY, StorageGate
from tests.requirements import require
from training_monitor.core.clock import SystemClock
from training_monitor.core.errors import CommandTimedOut
from training_monitor.core.outcomes import UploadReport
from training_monitor.uploads.hugging_face import IncompleteInfo, format_incomplete_card, upload_to_hugging_face
from training_monitor.uploads.presigned import upload_to_presigned_url

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
NAME = 'it\'s a "model" $(touch pwned) [1].safetensors'
PROGRAMS = ("sh cat head tail tr sed grep date stat sleep mkdir mv rm ls dd sort readlink setsid printf ln find cksum"
            " md5sum env wc").split()  # fmt: skip


class QuickClock(SystemClock):
    """The real time, in which nobody waits long."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.05))


CLOCK = QuickClock()


# Every kind of target runs the same scripts: one test tries all kinds, and each of the others tries one of them.
LOCAL, IN_POD, OVER_SSH = (
    pytest.mark.parametrize("target", [kind], indirect=True) for kind in ("local", "in_pod", "over_ssh")
)


class Held:
    """Something that waits until it is let go, and says that it waits."""

    def __init__(self) -> None:
        self.reached, self._go = threading.Event(), threading.Event()

    def hold(self, *_: object) -> None:
        self.reached.set()
        self._go.wait(20)

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


def model_file(target: Place, size: int = 100_000, name: str = NAME) -> Path:
    path = target.folder / "out put" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


def send(target: Place, path: Path | str, destination: Any, **more: Any) -> UploadReport:
    return upload_to_presigned_url(target.address, str(path), destination, clock=CLOCK, **more)


def send_parts(target: Place, path: Path, destination: Any, **more: Any) -> UploadReport:
    return send(target, path, destination, multipart_above=MIB, part_bytes=5 * MIB, **more)


UPLOAD_PARTS = """
from training_monitor.uploads.presign import Storage
upload_to_presigned_url("local", {path!r}, {storage!r}, clock=CLOCK, multipart_above=1, part_bytes=5 * MIB)
"""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDLOOPBACK", "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


def everything_written(target: Place) -> bytes:
    return b"".join(file.read_bytes() for file in target.jobs.rglob("*") if file.is_file())


def command_lines() -> bytes:
    found = b""
    for pid in pids():
        try:
            found += Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
    return found


def call_and_kill(act: str, held: Held, **environ: str) -> None:
    """A process of its own that uploads; kill -9 when its upload has begun; then let the upload go on."""
    with patch.dict(os.environ, environ), forked([], Path(os.devnull), partial(run_code, act)) as caller:
        assert held.reached.wait(20), "the upload did not begin"
        caller.send_signal(signal.SIGKILL)
        assert caller.wait(20) == -signal.SIGKILL
    held.let_go()


def run_code(act: str, _: Sequence[str]) -> None:
    exec(act, dict(globals()))


class TestPresigning:
    def test_the_botocore_that_is_installed_makes_the_same_urls(self) -> None:
        first_line = Path(require("moto_server")).read_text().splitlines()[0]
        code = (
            "import json; from tests.unit.uploads.botocore_table import *;"
            "print(json.dumps([presign_with_botocore(each) for each in requests()]))"
        )
        command = [first_line.removeprefix("#!"), "-c", code]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        from tests.unit.uploads.botocore_table import requests
        from tests.unit.uploads.test_presign import presign

        assert [presign(each) for each in requests()] == json.loads(result.stdout)


class TestPresignedUploads:
    def test_a_file_arrives_and_is_sent_once(self, target: Place, gate: StorageGate) -> None:
        path, storage, told = model_file(target), gate.storage("runs/ü +~/it's $(x)//k"), list[str]()
        report = send(target, path, storage, on_progress=told.append)
        assert (report.verified, report.error, report.attempts) == (True, None, 1)
        [file] = report.files
        assert (file.size_bytes, file.etag) == (100_000, hashlib.md5(path.read_bytes()).hexdigest())
        assert gate.content(storage.key) == path.read_bytes()
        assert send(target, path, storage) == report
        assert gate.count("PUT") == 1
        assert not (target.folder / "out put" / "pwned").exists()

    @OVER_SSH
    def test_no_url_stands_in_a_file_or_an_argv(self, target: Place, gate: StorageGate) -> None:
        held = Held()
        gate.on_request = held.hold
        path, storage = model_file(target), gate.storage("k")
        thread = threading.Thread(target=send, args=(target, path, storage))
        thread.start()
        assert held.reached.wait(20)
        lines = command_lines()
        held.let_go()
        thread.join(20)
        assert b"curl" in lines and b"X-Amz" not in lines
        assert gate.content("k") == path.read_bytes()
        written = everything_written(target)
        assert b"X-Amz" not in written and SECRET_KEY.encode() not in written
        assert {file.stat().st_mode & 0o077 for file in target.jobs.rglob("*")} == {0}

    @LOCAL
    def test_parts(self, target: Place, gate: StorageGate) -> None:
        path, storage = model_file(target, 11 * MIB + 7), gate.storage("a b/parts")
        report = send_parts(target, path, storage)
        assert (report.verified, report.error) == (True, None)
        assert gate.content(storage.key) == path.read_bytes()
        assert report.files[0].etag is not None and report.files[0].etag.endswith("-3")
        assert send_parts(target, path, storage) == report
        assert gate.count("PUT") == 3

    def test_what_is_empty_is_sent_and_what_changed_or_was_deleted_there_is_sent_again(
        self, local: Place, gate: StorageGate
    ) -> None:
        storage = gate.storage("k")
        assert send(local, model_file(local, 0), storage).verified and gate.content("k") == b""
        path = model_file(local)
        assert send(local, path, storage).verified and gate.content("k") == path.read_bytes()
        gate.forward("DELETE", storage.sign("DELETE").removeprefix(gate.address), b"")
        assert send(local, path, storage).verified and gate.content("k") == path.read_bytes()

    @LOCAL
    def test_one_url(self, target: Place, gate: StorageGate) -> None:
        path, url = model_file(target), gate.storage("k").sign("PUT")
        report = send(target, path, url)
        assert (report.verified, report.destination) == (True, f"{gate.address}/loopback-bucket/k")
        assert gate.requests == ["PUT /loopback-bucket/k"]
        assert send(target, path, url).verified and gate.count("PUT") == 1


class TestKilledCallers:
    def test_killed_while_a_file_is_sent(self, over_ssh: Place, gate: StorageGate) -> None:
        held = Held()
        gate.on_request = held.hold
        path = model_file(over_ssh)
        act = (
            f"from training_monitor.uploads.presign import Storage\n"
            f"upload_to_presigned_url({over_ssh.address!r}, {str(path)!r}, {gate.storage('k')!r}, clock=CLOCK)"
        )
        call_and_kill(act, held, **CREDENTIALS)
        assert send(over_ssh, path, gate.storage("k")).verified
        assert gate.count("PUT") == 1

    @pytest.mark.parametrize("may_list", [True, False])
    def test_killed_while_the_second_part_is_sent(self, local: Place, gate: StorageGate, may_list: bool) -> None:
        held = Held()
        gate.may_list = may_list
        gate.on_request = lambda method, part: held.hold() if part == "2" else None
        path = model_file(local, 12 * MIB)
        call_and_kill(UPLOAD_PARTS.format(path=str(path), storage=gate.storage("k")), held, **CREDENTIALS)
        assert send_parts(local, path, gate.storage("k")).verified
        assert sorted(each[-1] for each in gate.requests if each.startswith("PUT")) == ["1", "2", "3"]
        assert gate.content("k") == path.read_bytes() and gate.unfinished() == []

    def test_killed_and_written_again_before_the_next_call(self, local: Place, gate: StorageGate) -> None:
        held = Held()
        gate.on_request = lambda method, part: held.hold() if part == "2" else None
        path = model_file(local, 12 * MIB)
        call_and_kill(UPLOAD_PARTS.format(path=str(path), storage=gate.storage("k")), held, **CREDENTIALS)
        model_file(local, 11 * MIB)
        assert send_parts(local, path, gate.storage("k")).verified
        assert gate.content("k") == path.read_bytes() and gate.unfinished() == []

    def test_the_job_is_killed_between_parts(self, local: Place, gate: StorageGate) -> None:
        def kill_once(method: str, part: str | None) -> None:
            if part == "2" and not killed:
                killed.append(part)
                for file in local.jobs.glob("*/pid"):
                    os.killpg(int(file.read_text().split()[0]), signal.SIGKILL)

        killed: list[str] = []
        gate.on_request = kill_once
        path = model_file(local, 12 * MIB)
        report = send_parts(local, path, gate.storage("k"))
        assert (report.verified, report.attempts) == (True, 2)
        assert sorted(each[-1] for each in gate.requests if each.startswith("PUT"))[0::3] == ["1", "3"]

    def test_a_time_limit_leaves_the_upload_running(self, local: Place, gate: StorageGate) -> None:
        held = Held()
        gate.on_request = held.hold
        path = model_file(local)
        with pytest.raises(CommandTimedOut, match="still running"):
            send(local, path, gate.storage("k"), timeout=0)
        held.let_go()
        assert send(local, path, gate.storage("k")).verified and gate.count("PUT") == 1


class TestRefusals:
    def refused(self, local: Place, gate: StorageGate, destination: Any) -> str:
        before = gate.count("PUT")
        report = send(local, model_file(local), destination)
        assert (report.verified, report.attempts) == (False, 1)
        assert report.error is not None and "X-Amz" not in report.error and SECRET_KEY not in report.error
        assert gate.count("PUT") <= before + 1
        return report.error

    def test_a_wrong_signature_a_bucket_that_there_is_not_and_an_expired_url(
        self, local: Place, gate: StorageGate
    ) -> None:
        error = self.refused(local, gate, gate.storage("k", "another key"))
        assert "403" in error and "SignatureDoesNotMatch" in error
        url = gate.storage("k").sign("PUT")
        assert "403" in self.refused(local, gate, url.replace("loopback-bucket", "another-bucket"))
        gate.seconds_late = 1000
        assert "expired" in self.refused(local, gate, url)

    def test_expired_urls_are_signed_again(self, local: Place, gate: StorageGate) -> None:
        gate.expire_next = 2
        report = send(local, model_file(local), gate.storage("k"))
        assert (report.verified, report.attempts) == (True, 3)

    def test_an_upload_in_parts_that_is_given_up_is_aborted(self, local: Place, gate: StorageGate) -> None:
        gate.failures = [0, 0, 500, 500, 500]
        report = send_parts(local, model_file(local, 11 * MIB), gate.storage("k"))
        assert not report.verified and "500" in (report.error or "")
        assert gate.count("DELETE") == 1 and gate.unfinished() == []

    def test_an_upload_in_parts_that_somebody_else_began_is_never_aborted(
        self, local: Place, gate: StorageGate
    ) -> None:
        theirs = gate.begin_parts("k")
        gate.failures = [500, 500, 500]
        assert not send_parts(local, model_file(local, 11 * MIB), gate.storage("k")).verified
        assert gate.unfinished() == [theirs]

    def test_content_that_changed_on_its_way(self, local: Place, gate: StorageGate) -> None:
        gate.corrupt = True
        report = send(local, model_file(local), gate.storage("k"))
        assert (report.verified, report.attempts) == (False, 3) and "a different object" in (report.error or "")

    def test_etags_that_are_no_md5(self, local: Place, gate: StorageGate) -> None:
        gate.kms = True
        assert send(local, model_file(local), gate.storage("k")).verified
        assert "cannot be verified" in (send(local, model_file(local), gate.storage("k2").sign("PUT")).error or "")

    def test_nobody_may_look(self, local: Place, gate: StorageGate) -> None:
        gate.may_look = False
        assert send(local, model_file(local), gate.storage("k")).verified

    @OVER_SSH
    def test_files_that_cannot_be_sent(self, target: Place, gate: StorageGate) -> None:
        storage = gate.storage("k")
        assert "the file does not exist" in (send(target, target.folder / "nothing", storage).error or "")
        assert "not a regular file" in (send(target, target.folder, storage).error or "")
        assert gate.requests == []


# --- the hub


@pytest.fixture
def hf_path() -> str:
    return f"{Path(require('hf')).parent}:/usr/bin:/bin"


@pytest.fixture
def use_hub(hub: Hub, hf_path: str) -> Callable[..., None]:
    """Make a target use the loopback hub, with a token unless it is told otherwise."""

    def use(target: Place, **more: str) -> None:
        home = target.folder / "home"
        home.mkdir(exist_ok=True)
        target.set_environment({**hub.environ, "PATH": hf_path, "HF_TOKEN": TOKEN, "HOME": str(home), **more})

    return use


def model_folder(target: Place) -> Path:
    folder = target.folder / "it's $(touch pwned) [a]"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("not for the hub")
    (folder / "model.safetensors").write_bytes(os.urandom(100_000))
    (folder / "sub" / '-f "x" ü').write_text("one")
    (folder / "sub" / "new\nline").write_text("two")
    (folder / "empty").write_text("")
    return folder


def give(target: Place, path: Path, repo: str = "me/model", **more: Any) -> UploadReport:
    return upload_to_hugging_face(target.address, str(path), repo, clock=CLOCK, **more)


INFO = IncompleteInfo("My Model", 4000, 3500, tags=("flux", "lora"))


class TestHuggingFace:
    @OVER_SSH
    def test_a_folder_arrives_and_is_sent_once(self, target: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(target)
        folder = model_folder(target)
        report = give(target, folder, incomplete=INFO)
        assert (report.verified, report.error, report.attempts) == (True, None, 1)
        held = hub.files("me/model")
        assert held["README.md"].decode() == format_incomplete_card(INFO)
        assert held["model.safetensors"] == (folder / "model.safetensors").read_bytes()
        assert set(held) == {"README.md", "model.safetensors", "empty", 'sub/-f "x" ü', "sub/new\nline"}
        sums = {file.path: file.etag for file in report.files}
        assert sums["model.safetensors"] == hashlib.sha256(held["model.safetensors"]).hexdigest()
        assert sums['sub/-f "x" ü'] == blob_hash(b"one")
        assert set(sums) == set(held) and hub.repos["me/model"].private
        asked = len(hub.requests)
        assert give(target, folder, incomplete=INFO) == report and len(hub.requests) == asked
        assert not (folder / "pwned").exists() and not (folder / "README.md").exists()

    @OVER_SSH
    def test_no_token_stands_in_a_file_or_an_argv(self, target: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(target)
        held = Held()
        hub.before_put = held.hold
        thread = threading.Thread(target=give, args=(target, model_folder(target)))
        thread.start()
        assert held.reached.wait(30)
        lines = command_lines()
        held.let_go()
        thread.join(30)
        assert b"me/model" in lines and TOKEN.encode() not in lines
        assert TOKEN.encode() not in everything_written(target)

    def test_a_file_to_a_branch(self, local: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(local)
        path = model_file(local)
        report = give(local, path, revision="early", path_in_repo="-in/a [1].safetensors", private=False)
        assert (report.verified, report.destination) == (True, "hf://me/model@early/-in/a [1].safetensors")
        assert hub.files("me/model", "early") == {"-in/a [1].safetensors": path.read_bytes()}
        assert hub.files("me/model") == {} and not hub.repos["me/model"].private

    def test_a_readme_that_is_there_stays(self, local: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(local)
        hub.add("me/model", "README.md", b"written by a person")
        assert give(local, model_file(local), incomplete=INFO).verified
        held = hub.files("me/model")
        assert held["README.md"] == b"written by a person"
        assert held["INCOMPLETE.md"].decode() == format_incomplete_card(INFO)

    def test_killed_while_it_uploads(self, over_ssh: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(over_ssh)
        held = Held()
        hub.before_put = held.hold
        path = model_folder(over_ssh)
        call_and_kill(f"upload_to_hugging_face({over_ssh.address!r}, {str(path)!r}, 'me/model', clock=CLOCK)", held)
        assert give(over_ssh, path).verified
        assert len(hub.puts) == 1 and len(hub.repos["me/model"].commits) == 1

    def test_a_hub_that_is_busy(self, local: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(local)
        path = model_file(local)
        hub.before_put = lambda: hub.failures.append(500)  # the commit that follows
        report = give(local, path)
        assert report.verified and report.attempts == 2 and hub.files("me/model") == {NAME: path.read_bytes()}

    def test_content_that_changed_on_its_way(self, local: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(local)
        hub.corrupt = True
        report = give(local, model_folder(local))
        assert not report.verified and len(report.files) == 3
        assert report.error == "1 of 4 files are missing from the hub or differ there: model.safetensors"

    def test_refusals(self, local: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(local)
        path = model_file(local)
        hub.refused.add("me/closed")
        report = give(local, path, "me/closed")
        assert (report.verified, report.attempts) == (False, 1) and "403" in (report.error or "")
        use_hub(local, HF_TOKEN="hf_wrongwrongwrong")
        report = give(local, path)
        assert (report.verified, report.attempts) == (False, 1) and "401" in (report.error or "")
        assert "wrongwrong" not in (report.error or "")

    def test_nothing_to_upload(self, local: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(local)
        (local.folder / "empty").mkdir()
        assert "no file" in (give(local, local.folder / "empty").error or "")
        assert "no such file" in (give(local, local.folder / "nothing").error or "")


class TestTokenAndTool:
    @IN_POD
    def test_no_token(self, target: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        use_hub(target, HF_TOKEN="")
        assert "no token" in (give(target, model_file(target)).error or "")
        assert hub.requests == []

    def test_the_token_of_a_login(self, local: Place, use_hub: Callable[..., None]) -> None:
        use_hub(local, HF_TOKEN="", HF_HOME=str(local.folder / "hf home"))
        (local.folder / "hf home").mkdir()
        (local.folder / "hf home" / "token").write_text(f"{TOKEN}\n")
        assert give(local, model_file(local)).verified

    def test_token_and_tool_of_the_training(
        self, over_ssh: Place, hub: Hub, use_hub: Callable[..., None], hf_path: str
    ) -> None:
        path = restricted_path(over_ssh.folder / "bin", tuple(PROGRAMS))
        use_hub(over_ssh, HF_TOKEN="", PATH=path)
        environ = {"PATH": hf_path, "MY_TOKEN": TOKEN}
        with subprocess.Popen(["sleep", "60"], env=environ) as training:
            report = give(over_ssh, model_file(over_ssh), token_env="MY_TOKEN", pid=training.pid)
            training.kill()
        assert (report.verified, report.error) == (True, None)

    @OVER_SSH
    def test_no_tool(self, target: Place, use_hub: Callable[..., None]) -> None:
        use_hub(target, PATH=restricted_path(target.folder / "bin", tuple(PROGRAMS)))
        assert "pip install -U huggingface_hub" in (give(target, model_file(target)).error or "")

    def test_the_older_name_of_the_tool(self, local: Place, hub: Hub, use_hub: Callable[..., None]) -> None:
        path = restricted_path(local.folder / "bin", tuple(PROGRAMS))
        (local.folder / "bin" / "huggingface-cli").symlink_to(require("hf"))
        use_hub(local, PATH=path)
        assert give(local, model_file(local)).verified and len(hub.puts) == 1
