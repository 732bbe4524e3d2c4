"""How a job is told where to resume: exactly one value, quoted for the shell, nothing else of the command touched."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.jobs.attempts import (
    attempt_name,
    attempt_number,
    avoiding,
    check_job_config,
    format_resumed_command,
    format_resumed_env,
    is_attempt_of,
    next_attempt,
    training_name,
)

PATHS = [
    "/c/step_500",
    "/c/step 5",
    "/c/it's",
    '/c/"x"',
    "/c/$HOME",
    "/c/`id`",
    "/c/a;rm",
    "/c/epoch=1-step=5.ckpt",
    "-x",
]


def words(command: str, checkpoint: str | None, argument: str | None = None) -> list[str]:
    """The words of the resumed command as a real shell reads them."""
    line = format_resumed_command(command, checkpoint, argument)
    script = f"set -- {line}\nprintf '%s\\0' \"$@\""
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return found.stdout.split("\0")[:-1]


def test_the_placeholder_becomes_one_word_whatever_is_in_the_path() -> None:
    for path in [*PATHS, None]:
        for command in [
            "python train.py --resume {checkpoint} --lr 1",
            "python train.py --resume '{checkpoint}' --lr 1",
            'python train.py --resume "{checkpoint}" --lr 1',
            shlex.join(["python", "train.py", "--resume", "{checkpoint}", "--lr", "1"]),
        ]:
            assert words(command, path) == ["python", "train.py", "--resume", path or "", "--lr", "1"]
        for command in ["train --from={checkpoint}", "train '--from={checkpoint}'", 'train "--from={checkpoint}"']:
            assert words(command, path) == ["train", f"--from={path or ''}"]


def test_every_placeholder_is_filled_and_nothing_else_of_a_command() -> None:
    assert format_resumed_command("cp {checkpoint} x && train {checkpoint}", "/c/5") == "cp /c/5 x && train /c/5"
    assert words("train {checkpoint}", "/c/5", "--resume") == ["train", "/c/5"]
    for command in ["""train --set '{"lr": {"a": 1}}'""", "train --name {run} ${HOME} {a,b}", "awk '{print}'"]:
        for checkpoint in [None, "/c/5"]:
            assert format_resumed_command(command, checkpoint) == command
    assert format_resumed_command("python train.py", "/c/5") == "python train.py"


def test_an_option_is_given_once_with_the_new_value() -> None:
    for path in PATHS:
        given_before = [
            "",
            "--resume old",
            "--resume=old",
            "--resume",
            "--resume '/old path/5'",
            '--resume="/old path"',
        ]
        for given in [*given_before, "--resume="]:
            found = words(f"python train.py {given} --lr 1", path, "--resume")
            assert [word for word in found if "old" in word] == []
            place = found.index("--resume")
            assert found.count("--resume") == 1 and found[place + 1] == path
            assert found[:place] + found[place + 2 :] == ["python", "train.py", "--lr", "1"]


def test_an_option_is_taken_out_for_a_fresh_start() -> None:
    for given in ["--resume old", "--resume=old", "--resume", "--resume 'old path'", "--resume="]:
        assert words(f"python train.py {given} --lr 1", None, "--resume") == ["python", "train.py", "--lr", "1"]
        assert words(f"python train.py --lr 1 {given}", None, "--resume") == ["python", "train.py", "--lr", "1"]


def test_an_option_that_only_looks_alike_or_is_quoted_is_another_one() -> None:
    for other in ["--resume-from x", "--resume_from=x", "--resumed", "--no-resume", "x--resume"]:
        assert words(f"train {other}", "/c/5", "--resume") == ["train", *other.split(), "--resume", "/c/5"]
        assert words(f"train {other}", None, "--resume") == ["train", *other.split()]
    found = words("train --note 'always --resume old'", "/c/5", "--resume")
    assert found == ["train", "--note", "always --resume old", "--resume", "/c/5"]


def test_a_new_option_is_added_on_the_same_line_and_lines_are_kept() -> None:
    assert format_resumed_command("python train.py\n", "/c/5", "--resume") == "python train.py --resume /c/5"
    assert words("train \\\n  --resume \\\n old \\\n --lr 1", "/c/5", "--resume") == [
        "train", "--resume", "/c/5", "--lr", "1"
    ]  # fmt: skip
    for rest in ["&& echo done", "; echo done", "| tee log", "> log 2>&1", "2>&1"]:
        assert format_resumed_command(f"train --resume {rest}", "/c/5", "--resume") == f"train --resume /c/5 {rest}"


HYDRA = "trainer.resume_from_path="


@pytest.mark.parametrize("given", ["", f" {HYDRA}old", f" {HYDRA}", f" {HYDRA}'/old path/5'"])
def test_hydra_style_has_the_value_in_the_same_word(given: str) -> None:
    found = words(f"python -m verl{given} trainer.resume_mode=auto", "/c/step 5", HYDRA)
    assert sorted(found) == sorted(["python", "-m", "verl", f"{HYDRA}/c/step 5", "trainer.resume_mode=auto"])
    fresh = words(f"python -m verl{given} trainer.resume_mode=auto", None, HYDRA)
    assert fresh == ["python", "-m", "verl", "trainer.resume_mode=auto"]


def test_the_environment_names_the_checkpoint_of_this_start_alone() -> None:
    env = {"A": "1", "N": 5}
    assert format_resumed_env(env, "/c/5") == {"A": "1", "N": "5", "RESUME_FROM_CHECKPOINT": "/c/5"}  # type: ignore[arg-type]
    assert env == {"A": "1", "N": 5}
    assert format_resumed_env({"RESUME_FROM_CHECKPOINT": "/old", "A": "1"}, None) == {"A": "1"}


def test_the_next_attempt_follows_the_highest_number_of_its_training() -> None:
    names = ["run-attempt-2", "run-attempt-10", "run-attempt-x", "other-run-attempt-99", "run-attempt-50-b", "run"]
    assert next_attempt(names, "run") == 11
    assert next_attempt([], "run") == 1
    assert is_attempt_of("run-attempt-2", "run-attempt-2")
    assert is_attempt_of("run-attempt-2", "run")
    assert not is_attempt_of("other-run-attempt-2", "run")
    assert next_attempt(["run-attempt-2", "run-attempt-2-attempt-4"], "run-attempt-2") == 5
    assert next_attempt(["aXb-attempt-7"], "a.b") == 1


def test_an_attempt_is_told_from_its_training() -> None:
    for job_id, name, number in [
        (attempt_name("run", 3), "run", 3),
        ("process:run-attempt-12", "run", 12),
        ("run", "run", 0),
        ("run-attempt-x", "run-attempt-x", 0),
        ("run-attempt-2-attempt-1", "run-attempt-2", 1),
        ("-attempt-1", "-attempt-1", 0),
        ("run-attempt-20261122213735", "run-attempt-20261122213735", 0),  # a date, not a number to count on from
    ]:
        assert (training_name(job_id), attempt_number(job_id)) == (name, number)
        assert is_attempt_of(job_id, name)


def test_a_configuration_that_cannot_work_is_refused_with_the_key() -> None:
    for config in [
        {"entrypoint": "python train.py"},
        {"entrypoint": "x", "runtime_env": {"working_dir": "/app"}, "metadata": {"a": "b"}, "resume_argument": "--r"},
        {"entrypoint": "x", "runtime_env": None},
        {"command": "python train.py", "env": {"A": "1"}, "working_dir": "/app"},
        {"command": ["python", "train.py"]},
    ]:
        check_job_config(config)
    for config, key in [
        ({}, "job_config"),
        ({"runtime_env": {}}, "job_config"),
        ({"entrypoint": "x", "command": "y"}, "job_config"),
        ({"entrypoint": ""}, "job_config"),
        ({"command": []}, "job_config"),
        ({"entrypoint": ["python"]}, "job_config['entrypoint']"),
        ({"command": 5}, "job_config['command']"),
        ({"command": ["python", 5]}, "job_config['command']"),
        ({"entrypoint": "x", "runtime_env": "y"}, "job_config['runtime_env']"),
        ({"command": "x", "env": ["A=1"]}, "job_config['env']"),
        ({"command": "x", "working_dir": 5}, "job_config['working_dir']"),
        ({"entrypoint": "x", "resume_argument": True}, "job_config['resume_argument']"),
    ]:
        with pytest.raises(SettingsError) as caught:
            check_job_config(config)
        assert caught.value.key == key


def test_nodes_to_avoid_reach_commands_and_ray_jobs() -> None:
    command = {"command": "train", "env": {"A": "1"}}
    ray = {"entrypoint": "train", "runtime_env": {"pip": ["x"], "env_vars": {"A": "1"}}}
    told = {"A": "1", "TRAINING_MONITOR_AVOID_NODES": "gpu-1,gpu-2"}
    assert avoiding(command, ["gpu-1", "gpu-2"]) == {"command": "train", "env": told}
    assert avoiding(ray, ["gpu-1", "gpu-2"]) == {**ray, "runtime_env": {"pip": ["x"], "env_vars": told}}
    assert avoiding({"command": "train"}, ["gpu-1"])["env"] == {"TRAINING_MONITOR_AVOID_NODES": "gpu-1"}
    assert avoiding(command, []) is command
