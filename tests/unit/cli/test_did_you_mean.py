"""A name that is not known is answered with the one that was probably meant, wherever names are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.commands import run_command
from training_monitor.core.errors import SettingsError, closest, did_you_mean, meant_name
from training_monitor.core.store import Store
from training_monitor.fleet.conditions import parse_condition
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.people import NotifiedUser
from training_monitor.rent.queue import TrainingQueue
from training_monitor.targets.target import parse_target
from training_monitor.vast.training_request import TrainingRequest


def test_a_typo_means_the_nearest_name_and_another_number_is_none() -> None:
    assert meant_name("lcoal", ["local", "nightly"]) == "local"
    assert did_you_mean("nighty", ["local", "nightly"]) == " (did you mean nightly?)"
    assert closest("intervall", ["interval", "budget"]) == "interval"
    assert meant_name("quux", ["local", "nightly"]) is None and did_you_mean("quux", []) == ""
    assert closest("quux", ["interval", "budget"]) == "one of interval, budget"
    for name, known in [
        ("gpu2", "gpu1"),
        ("ssh://me@gpu1:2222", "ssh://me@gpu1:2223"),
        ("vast://30007012", "vast://30007013"),
        ("lora-1", "lora-12"),
        ("A100", "H100 A200"),
    ]:
        assert meant_name(name, known.split()[-1:]) is None
    assert meant_name("gpu-2", ["gpu-1", "gpu_2"]) == "gpu_2"


def test_a_scheme_is_meant_whatever_comes_behind_it() -> None:
    for typed, meant in (("shh://me@gpu1", "ssh"), ("k8://a/b", "k8s"), ("vats://1", "vast")):
        with pytest.raises(SettingsError, match=rf"did you mean {meant}://\?"):
            parse_target(typed)
    with pytest.raises(SettingsError) as error:
        parse_target("ssh://a b")
    assert "did you mean" not in str(error.value)


def test_fields_of_conditions_users_and_jobs_are_meant(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="expected gpu_utilization at column 1"):
        parse_condition("gpu_utilisation < 5")
    with pytest.raises(SettingsError, match="expected berta$"):
        TrainingNotifier([], users={name: NotifiedUser(name) for name in ("anna", "berta")}).find_user("bertha")
    queue = TrainingQueue(Store(str(tmp_path)))
    job = queue.submit(TrainingRequest(name="portrait", command="true"))
    with pytest.raises(Exception, match=rf"did you mean {job.id}\?"):
        queue.get(job.id.replace("portrait", "potrait"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpu", "lcoal"), "did you mean local?"),
        (("status", "nighty"), "did you mean nightly?"),
        (("fleet", "--group", "nighty", "--once"), "expected a group (nightly)"),
        (("history", "vsat://"), "MEMBER"),
    ],
)
def test_targets_and_groups_are_meant(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"fleet": {"groups": {"nightly": ["local"]}}}))
    with Store(str(tmp_path / "state")).transaction() as execute:
        execute("INSERT INTO history_members (key, first, last) VALUES ('vast://7', 0, 1)")
    environ = {"TRAINING_MONITOR_SETTINGS": str(settings), "TRAINING_MONITOR_STATE_DIR": str(tmp_path / "state")}
    done = run_command(*words, **environ, HOME=str(tmp_path), KUBECONFIG="/dev/null", PATH="/nowhere")
    assert done.returncode in (2, 3) and said in done.stderr


def test_a_target_that_was_named_before_means_itself(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"fleet": {"groups": {"a": ["trainer-a"], "b": ["trainer-b"]}}}))
    done = run_command("gpu", "trainer-a", TRAINING_MONITOR_SETTINGS=str(settings), PATH="/nowhere")
    assert done.returncode == 3 and "did you mean" not in done.stderr
