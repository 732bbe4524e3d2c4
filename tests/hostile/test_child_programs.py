"""Arguments and environments of all programs that commands start, here and on targets: no secret is in them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.faults import Shims
from tests.hostile.tries import tried
from tests.integration.commands import run_command
from tests.integration.conftest import SshServer
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.loopback.messaging import WEBHOOK_SECRET, Services
from tests.loopback.vast import VastApi
from tests.loopback.vast_rows import KEY
from training_monitor.core import masking
from training_monitor.rent.sync import fetch_folder, push_folder

RECORD = """\
#!/bin/sh
name=${{0##*/}}
printf '%s\\n' "$name $*" >>{folder}/words
{{ echo "== $name"; export -p; }} >>{folder}/environments.$$
exec {folder}/programs/$name "$@"
"""
OF_JOBS = "quiet-canary-of-a-job"  # --env: for the training alone
OF_A_FILE = "123456:quiet-canary-of-the-settings-file"  # for this process alone
SIGNATURE = "0123456789abcdef" * 4
OF_A_JOB = re.compile("^export TRAINING_MONITOR_JOB=", re.MULTILINE)  # a training, or an upload: for these it is meant
LOOKS = (
    ("check",), ("doctor",), ("status",), ("gpu",), ("health",), ("health", "--only", "ray"), ("fleet", "--once"),
)  # fmt: skip


class Recorder(Shims):
    """All programs of PATH, which write down how they are called."""

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        record = folder / "record"
        record.write_text(RECORD.format(folder=folder))
        record.chmod(record.stat().st_mode | stat.S_IXUSR)
        for program in self._farm.iterdir():
            (self.folder / program.name).symlink_to(record)

    def words(self) -> str:
        return (self.folder.parent / "words").read_text(errors="replace")

    def environments(self) -> list[str]:
        """The environments of all these programs, each after its name."""
        files = self.folder.parent.glob("environments.*")  # one for each process: several write at the same time
        return [each for file in files for each in file.read_text(errors="replace").split("== ")[1:]]


def carriers_of(environments: list[str], secret: str) -> set[tuple[str, str]]:
    """The programs, but those of jobs, that have a secret in a variable, and its name."""
    found = set[tuple[str, str]]()
    for program, *variables in (re.split("\nexport ", each) for each in environments if not OF_A_JOB.search(each)):
        found |= {(program, each.partition("=")[0]) for each in variables if secret in each}
    return found


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Recorder]:
    """Begin to record; to be called behind the fixtures that put tools on PATH."""

    def begin() -> Recorder:
        recorder = Recorder(tmp_path / "recorded", os.environ["PATH"])
        monkeypatch.setenv("PATH", recorder.path)
        return recorder

    monkeypatch.setattr(masking._Known, "values", ())
    return begin


def use(*argv: str, allowed: tuple[int, ...] = (0, 1, 3)) -> None:
    done = run_command(*argv)
    assert done.returncode in allowed and "Traceback" not in done.stderr, (argv, done)


def test_no_program_gets_a_secret_in_its_words(
    kube: KubernetesApi,
    pod: Pod,
    sshd: SshServer,
    vast: VastApi,
    record: Callable[[], Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = record()
    for give in (pod.env.update, sshd.set_environment):
        give({name: os.environ[name] for name in ("PATH", "TRAINING_MONITOR_JOBS_DIR")})
    settings, model = tmp_path / "settings.toml", tmp_path / "model.safetensors"
    model.write_bytes(b"x" * 100)
    script = tmp_path / "script.sh"
    script.write_text(f'echo step 1/9; test "$QUIET_TOKEN" = {OF_JOBS} && exit 3')
    monkeypatch.setenv("TRAINING_MONITOR_SETTINGS", str(settings))
    with Services() as services:
        settings.write_text(
            f'[notifications.telegram]\ntoken = "{OF_A_FILE}"\nchat_id = "1"\napi_url = "{services.url}"\n'
            f'[notifications.webhook]\nurl = "{services.webhook}"\n'
        )
        settings.chmod(0o600)
        url = f"{services.url}/bucket/model?X-Amz-Credential=AKIDX&X-Amz-Signature={SIGNATURE}"
        monkeypatch.setenv("PUT_URL", url)
        for number, target in enumerate(("local", sshd.address, "k8s://default/head")):
            named = ("--name", f"run{number}", "--interval", "0.2", "--env", f"QUIET_TOKEN={OF_JOBS}", "--notify")
            use("run", "--target", target, "--max-retries", "0", *named, "--", "sh", str(script), allowed=(1,))
            use("upload", target, str(model), "env:PUT_URL")
            for name, *more in LOOKS[number::3]:
                use(name, target, *more)
        assert services.asked, "nothing was told"
    use("rent", "instances")
    (tmp_path / "models").mkdir()
    model.rename(tmp_path / "models" / "model")
    assert push_folder(str(tmp_path / "models"), sshd.address, str(tmp_path / "there")).by == "rsync"
    assert fetch_folder(sshd.address, str(tmp_path / "there"), str(tmp_path / "back")).by == "rsync"
    words = recorder.words()
    tried(len(words.splitlines()))
    assert {"ssh", "kubectl", "sh", "vastai", "rsync"} <= {line.partition(" ")[0] for line in words.splitlines()}
    assert [each for each in (OF_JOBS, OF_A_FILE, WEBHOOK_SECRET, SIGNATURE, KEY) if each in words] == []
    environments = recorder.environments()
    tried(len(environments))
    assert [each for each in environments if OF_A_FILE in each or WEBHOOK_SECRET in each] == []
    assert carriers_of(environments, OF_JOBS) == {("sh", "TM_SCRIPT")}, "the shell of the script that starts a job"
    # PUT_URL is a variable of this process, and given to all programs as they are.
    assert {name for _, name in carriers_of(environments, SIGNATURE)} == {"PUT_URL", "TM_SCRIPT"}
    assert {program for program, name in carriers_of(environments, SIGNATURE) if name != "PUT_URL"} == {"sh"}
