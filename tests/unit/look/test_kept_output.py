"""What trackers keep of a training, out of what a target prints of it."""

from __future__ import annotations

from tests.unit.look.test_found_trainings import SPELLING, TRAIN, found

PIPE = {**TRAIN, "fds": "1 -> pipe:[5]|2 -> pipe:[5]"}
RUN = "/w/wandb/offline-run-20261127_134315-cd7znr90"
COPY = f"{RUN}/files/output.log"
TABLE = f"{SPELLING}proc/10/cwd/lightning_logs/version_2/metrics.csv"


def kept(text: str, fds: str = f"|6 -> {RUN}/logs/debug.log", **changes: str) -> list[tuple[str, ...]]:
    return [each.sources for each in found({**PIPE, "fds": PIPE["fds"] + fds, **changes}, kept=text)]


def test_the_wandb_output_is_that_of_the_open_run_and_tells_more_than_a_table() -> None:
    assert kept(f"btime 1000\n1990 {COPY}\n1999 /w/wandb/run-2-other/files/output.log") == [(COPY,)]
    assert kept(f"btime 1000\n1990 {COPY}", fds="") == [()]
    assert kept("btime 1000\n") == [()], "nothing was kept"
    fds = "|7 -> /root/.cache/wandb/logs/core-debug-20261127_134602.log|8 -> /w/wandb/run-1/logs/debug-internal.log"
    assert found({**PIPE, "fds": PIPE["fds"] + fds})[0].logs == ()
    assert kept(f"btime 1000\n1990 {TABLE}\n1990 {COPY}")[0][0] == COPY


def test_a_table_counts_that_was_written_since_the_training_began() -> None:
    assert kept(f"btime 1000\n1050 {TABLE}") == [("metrics:/w/lightning_logs/version_2/metrics.csv",)]
    assert kept(f"btime 1000\n1040 {TABLE}") == [()], "it began 50 seconds after the boot"
    assert kept(f"btime 1000\n{TABLE}") == kept(f"{TABLE}") == kept("btime 1000\n1999 /x/metrics.csv") == [()]


def test_a_table_in_the_folder_of_two_trainings_is_nobodys() -> None:
    other = {**PIPE, "pid": "11", "start": "6000", "command": "python train_other.py"}
    assert [each.sources for each in found(PIPE, other, kept=f"btime 1000\n1990 {TABLE}")] == [(), ()]
    filter_beside = {"pid": "11", "command": "cat", "cwd": "/w", "fds": "0 -> pipe:[5]"}
    assert len(found(PIPE, filter_beside, kept=f"btime 1000\n1990 {TABLE}")[0].sources) == 1


def test_what_a_notebooks_server_prints_is_not_the_output_of_its_kernels() -> None:
    kernel = {**PIPE, "command": "python -m ipykernel_launcher -f /k.json"}
    inherited = {**kernel, "fds": f"{PIPE['fds']}|41 -> /w/jupyter.log|44 -> /w/jupyter.log"}
    direct = {**kernel, "fds": "1 -> /w/jupyter.log|2 -> /w/jupyter.log"}
    for each in (kernel, inherited, direct, {**kernel, "fds": f"{PIPE['fds']}|41 -> /w/nohup.out"}):
        [training] = found({**each, "environment": "submission=x"})
        assert training.logs == () and "appears only in the notebook" in training.hints[0]
    [training] = found({**inherited, "fds": f"{inherited['fds']}|9 -> /w/own.log", "environment": "submission=x"})
    assert training.logs == ("/w/own.log",) and training.hints == ()
