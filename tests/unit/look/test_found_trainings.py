"""The trainings among the processes of a target, out of what it prints of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.look.printed_processes import SPELLING, WORD, reply
from training_monitor.core.errors import ParseError
from training_monitor.look.find_trainings import FoundFile, FoundTraining, parse_files, parse_trainings
from training_monitor.look.seen_processes import COMMAND_BYTES
from training_monitor.targets.proc_stat import Meeting


def found(*processes: dict[str, str], **parts: str) -> list[FoundTraining]:
    return list(parse_trainings(reply(*processes, **parts), WORD, SPELLING).trainings)


TRAIN = {"pid": "10", "command": "python train.py", "cwd": "/w", "fds": "1 -> /w/a.log|2 -> /w/a.log"}


def test_a_process_is_described_by_what_is_known_of_it() -> None:
    known: dict[str, Any] = {"has_gpu": False, "pids": (10,), "age": 950.0, "script": "train.py"}
    known["sources"] = ("/w/a.log",)
    assert found(TRAIN) == [FoundTraining(10, 5000, "b0", 1, "python train.py", "/w", ("/w/a.log",), **known)]
    assert found(TRAIN)[0].process == "10 5000 b0"


def test_whoever_asks_and_what_has_ended_is_no_training() -> None:
    asker = {"pid": "900", "parent": "10", "name": "sh"}
    child = {"pid": "11", "parent": "10", "command": "python train.py", "cwd": "/w"}
    assert [each.pid for each in found(TRAIN, asker, child)] == [11]
    assert found({**TRAIN, "state": "Z"}) == []


def test_ranks_below_a_starter_are_one_training_with_the_rank_of_its_processes() -> None:
    step = {"pid": "5", "name": "slurmstepd"}
    ranks = [{**TRAIN, "pid": str(pid), "parent": "5", "environment": f"SLURM_PROCID={pid}"} for pid in (20, 21)]
    [training] = found(step, *ranks)
    assert (training.pid, training.pids, training.rank) == (20, (20, 21), 20)
    agent = {"pid": "10", "command": "torchrun x.py", "environment": "SLURM_PROCID=1"}
    rank = {"pid": "28", "parent": "10", "command": "python x.py --lr 1", "environment": "SLURM_PROCID=1\nRANK=8"}
    ranks = [rank, {**rank, "pid": "29", "environment": "SLURM_PROCID=1\nRANK=9"}]
    assert [each.rank for each in found(agent, *ranks)] == [8]


def test_srun_and_the_ranks_of_its_job_are_one_training_for_each_step() -> None:
    for other, trainings in [("12", 1), ("13", 2), ("", 2)]:
        srun = {"pid": "9", "command": "srun python train.py --lr 1", "environment": "SLURM_JOB_ID=12"}
        known = f"SLURM_PROCID=0\nSLURM_STEP_ID=0\nSLURM_JOB_ID={other}"
        rank = {**TRAIN, "pid": "20", "parent": "5", "environment": known}
        each = found(srun, {"pid": "5", "name": "slurmstepd"}, rank)
        assert len(each) == trainings and 20 in [one.pid for one in each]
    sruns = [{"pid": pid, "command": "srun python train.py --lr 1", "environment": "SLURM_JOB_ID=12"} for pid in "89"]
    steps = [{"pid": pid, "name": "slurmstepd"} for pid in "56"]
    known = "SLURM_PROCID=0\nSLURM_STEP_ID=0\nSLURM_JOB_ID=12"
    ranks = [{**TRAIN, "pid": f"2{each}", "parent": each, "environment": known} for each in "56"]
    assert sorted(each.pid for each in found(*sruns, *steps, *ranks)) == [8, 9, 25, 26]


def rank_of(pid: int, port: int, network: str = "net:[1]", **more: str) -> dict[str, str]:
    place = f"MASTER_ADDR=127.0.0.1\nMASTER_PORT={port}\nRANK={pid % 10}\nWORLD_SIZE=2"
    return {"pid": str(pid), "command": "python main.py", "environment": place, "network": network, **more}


def test_a_process_with_a_rank_in_a_world_is_a_training_of_those_it_meets() -> None:
    [training] = found(rank_of(20, 1))
    assert (training.rank, training.script) == (0, "main.py")
    assert training.meeting == Meeting("127.0.0.1", "1", "b0 net:[1]")
    assert found({**rank_of(20, 1), "environment": "RANK=0"}) == found({**rank_of(20, 1), "command": "bash"}) == []
    shell = {"session": "5"}
    ranks = [rank_of(20, 1, **shell), rank_of(21, 1), rank_of(30, 2, **shell), rank_of(40, 1, "net:[2]", **shell)]
    assert [each.pids for each in found(*ranks)] == [(20, 21), (30,), (40,)]


def test_processes_on_gpus_come_first_and_what_looks_like_no_training_is_counted() -> None:
    unnamed = {"pid": "30", "start": "9000", "command": "python app.py", "cwd": "/w", "fds": "5 -> /dev/nvidia0"}
    assert [(each.pid, each.has_gpu) for each in found(TRAIN, unnamed)] == [(30, True), (10, False)]
    loaded = {"pid": "31", "command": "./a.out"}
    assert [(each.pid, each.has_gpu) for each in found(loaded, driver="31")] == [(31, True)]
    assert found({**unnamed, "command": "ollama serve"}) == []
    other = {"pid": "50", "command": "python -c pass"}
    answer = parse_trainings(reply(TRAIN, other, {"pid": "51", "command": "bash train.sh"}), WORD, SPELLING)
    assert (len(answer.trainings), answer.unrecognized, answer.hides_others) == (1, 1, True)


def test_workers_of_ray_belong_to_the_job_of_their_driver() -> None:
    driver = {
        **TRAIN,
        "command": "python app.py",
        "environment": "submission=raysubmit_1",
        "fds": "1 -> /tmp/ray/session_1/logs/job-driver-raysubmit_1.log"
        "|9 -> /tmp/ray/session_1/logs/python-core-driver-02000000ffff_10.log"
        "|8 -> /tmp/ray/session_1/logs/events/event_CORE_WORKER_10.log",
    }
    worker = {"pid": "40", "start": "1", "command": "ray::TrainWorker", "cwd": "/w"}
    worker["environment"] = "RAY_JOB_ID=ffffffff"
    [training] = found(driver, worker, workers="40 02000000")
    assert (training.pid, training.pids, training.ray_job) == (10, (10, 40), "raysubmit_1")
    assert training.logs == ("/tmp/ray/session_1/logs/job-driver-raysubmit_1.log",)
    [alone] = found(worker, workers="40 02000000")
    assert (alone.pid, alone.ray_job) == (40, "02000000")
    assert [each.ray_job for each in found(worker)] == [None]


def test_logs_are_outputs_first_and_no_sockets_devices_or_internals() -> None:
    internal = "8 -> /w/wandb/run-1/logs/debug.log|9 -> pipe:[7]|4 -> /w/x.bin"
    fds = f"7 -> /w/other.log|1 -> /w/out file|2 -> /dev/pts/1|{internal}"
    [training] = found({**TRAIN, "fds": fds})
    assert training.logs == ("/w/out file", "/w/other.log")
    assert training.checkpoint_folders == ("/w",)


def test_the_log_at_the_end_of_several_pipes_or_of_a_recorded_terminal_is_found() -> None:
    grep = {"pid": "11", "name": "grep", "fds": "0 -> pipe:[5]|1 -> pipe:[6]|2 -> /w/errors.log"}
    tee = {"pid": "12", "name": "tee", "fds": "0 -> pipe:[6]|1 -> pipe:[6]|3 -> /w/all.log"}
    other = {"pid": "13", "name": "tee", "fds": "0 -> pipe:[7]|3 -> /w/other.log"}
    assert found({**TRAIN, "fds": "1 -> pipe:[5]"}, grep, tee, other)[0].logs == ("/w/all.log",)
    script = {"pid": "9", "name": "script", "fds": "1 -> /dev/pts/1|4 -> /dev/ptmx|5 -> /w/typescript"}
    for output, logs in (("/dev/pts/2", ("/w/typescript",)), ("/w/a.log", ("/w/a.log",))):
        assert found(script, {**TRAIN, "parent": "9", "fds": f"1 -> {output}"})[0].logs == logs


def test_a_pipe_with_a_name_is_no_log_and_leads_to_that_of_its_reader() -> None:
    [alone] = found({**TRAIN, "fds": "1 -> /w/out|2 -> /w/out"}, pipes="3:7 /proc/10/fd/1\n3:7 /proc/10/fd/2")
    assert (alone.logs, alone.sources) == ((), ()) and "prints to a pipe" in alone.hints[0]
    # a container may have the same pipe at another path, and another pipe at the same path
    for path, inode, logs in ("/w/out", "3:7", ("/w/all.log",)), ("/in", "3:7", ("/w/all.log",)), ("/w/out", "4:7", ()):
        tee = {"pid": "12", "name": "tee", "fds": f"0 -> {path}|1 -> /dev/null|3 -> /w/all.log"}
        pipes = f"3:7 /proc/10/fd/1\n{inode} /proc/12/fd/0"
        assert found({**TRAIN, "fds": "1 -> /w/out"}, tee, pipes=pipes)[0].logs == logs
    first = {"pid": "1", "command": "sh", "parent": "0", "fds": "1 -> /w/out"}
    assert found(first, {**TRAIN, "fds": "1 -> /w/out"}, pipes="3:7 /proc/1/fd/1\n3:7 /proc/10/fd/1")[0].sources == ()


def test_files_of_a_container_are_reached_through_its_process_if_it_is_known() -> None:
    [training] = found({**TRAIN, "space": "mnt:[2]", "command": "python train.py --output_dir out"})
    assert training.logs == ("/proc/10/root/w/a.log",)
    assert training.checkpoint_folders == ("/proc/10/root/w/out",)
    assert found({**TRAIN, "space": "mnt:[1]"})[0].logs == ("/w/a.log",)
    unreadable = "".join(f"l--------- 1 0 0 0 Nov 22 10:28 {SPELLING}proc/{name}\n" for name in ("11/cwd", "11/ns/mnt"))
    readable = f"l--------- 1 0 0 0 Nov 22 10:28 {SPELLING}proc/10/ns/mnt -> mnt:[1]\n"
    own = f"l--------- 1 0 0 0 Nov 22 10:28 {SPELLING}proc/self/ns/mnt -> mnt:[1]\n"
    assert found(TRAIN, links=readable + unreadable + own)[0].logs == ("/w/a.log",)


def test_what_may_not_be_read_is_not_known_and_said() -> None:
    [training] = found({"pid": "10", "command": "python train.py"})
    assert (training.cwd, training.logs, training.has_gpu, training.rank) == (None, (), None, None)
    assert "no permission to read" in training.hints[0]
    for output, said in [("/dev/pts/3", "terminal"), ("pipe:[5]", "pipe")]:
        assert said in found({**TRAIN, "fds": f"1 -> {output}"})[0].hints[0]


def test_what_systemd_starts_is_read_from_the_journal_where_it_prints_there() -> None:
    start = "800b3339a0e14c8bba90cc9e18aa6d79"
    unit = f"JOURNAL_STREAM=9:31066\nINVOCATION_ID={start}"
    prints = {"fds": "1 -> socket:[31066]|2 -> socket:[31066]", "environment": unit}
    assert found({**TRAIN, **prints})[0].sources == (f"journal:{start}",)
    unset = {"environment": f"INVOCATION_ID={start}"}
    for other in ({"fds": "1 -> socket:[7]"}, {"fds": "9 -> socket:[31066]"}, unset):
        assert found({**TRAIN, **prints, **other})[0].sources == ()


def test_a_command_line_is_shown_without_secrets_and_its_cut_is_said() -> None:
    [training] = found({**TRAIN, "command": f"python train.py --hf_token hf_abcdefghij --x {'y' * 1000}"})
    assert "hf_abcdefghij" not in training.command and len(training.command) == 400
    words = "python train.py"
    for more, hints in ((COMMAND_BYTES - len(words) - 3, 0), (COMMAND_BYTES - len(words) - 1, 1)):
        [training] = found({**TRAIN, "command": f"{words} {'y' * more}"})
        assert len([hint for hint in training.hints if "command line" in hint]) == hints


def test_a_reply_without_its_end_is_refused_and_what_it_left_out_counted() -> None:
    for text in ["", f"\n{WORD} end\n", f"\n{WORD} facts\nboot=b\n", reply(TRAIN).rpartition(WORD)[0]]:
        with pytest.raises(ParseError):
            parse_trainings(text, WORD, SPELLING)
    assert parse_trainings(reply(TRAIN, unlisted="7"), WORD, SPELLING).unlisted == 7
    with pytest.raises(ParseError):
        parse_trainings(reply(TRAIN, unlisted=""), WORD, SPELLING)


def test_mutilated_replies_never_crash() -> None:
    whole, chance = reply(TRAIN, {**TRAIN, "pid": "11", "parent": "11"}, workers="11 02000000"), random.Random(7)
    for _ in range(2000):
        cut = sorted(chance.randrange(len(whole)) for _ in range(2))
        noise = "".join(chance.choice("\n\x1f= 0->l/:[]Δ9") for _ in range(chance.randrange(9)))
        try:
            trainings = parse_trainings(whole[: cut[0]] + noise + whole[cut[1] :], WORD, SPELLING)
        except ParseError:
            continue
        assert all(len(each.command) <= 400 and each.pid in each.pids for each in trainings.trainings)


def test_recent_files_are_read_once_each_and_those_of_the_future_are_new() -> None:
    text = "file 90 5 /w/./a b.log\nfile 200 6 /w/c.log\nfile 90 5 /w/a b.log\nnoise\nfile x 1 /w/d.log\nnow 100\n"
    assert parse_files(text) == (FoundFile("/w/a b.log", 10.0, 5), FoundFile("/w/c.log", 0.0, 6))
    with pytest.raises(ParseError):
        parse_files("file 90 5 /w/a.log\n")
