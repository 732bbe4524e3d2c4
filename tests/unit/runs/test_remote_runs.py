"""Runs of a target that is a function: what is asked, what is made of answers, what is not done twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import FakeClock, FakeTransport, is_call, read_call
from training_monitor.core.errors import (
    AccessDenied,
    CommandFailed,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.results import CommandResult
from training_monitor.runs.local_runs import LocalRuns, open_runs
from training_monitor.runs.remote_runs import RemoteRuns
from training_monitor.runs.values import Run
from training_monitor.targets.proc_stat import Identity

STAT = "S 1 7 7 0 -1 4194560 100 0 0 0 12 3 0 0 20 0 4 0 5000 9000000 250 1844 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"
GPUS = "0, H100, 97, 40211, 81559\n-- processes --\n4711, python, GPU-a, 40000\n"


def progress(status: str = "RUNNING", **more: object) -> str:
    return json.dumps(
        {"status": status, "metadata": {"pid": 7}, "variables": {"lr": {"value": 1.0, "type": "float"}}} | more
    )


class Machine:
    """A target that answers by what a script is about."""

    def __init__(self, files: Mapping[str, str | None]) -> None:
        self.files = dict(files)  # None: it may not be read
        self.more: tuple[str, ...] = ()
        self.answers: dict[str, Callable[[str], tuple[str, int]]] = {}
        self.clock = FakeClock()
        self.transport = FakeTransport(self.answer)
        self.gpus: tuple[str, int] = (GPUS, 0)
        self.has_proc = True

    def runs(self) -> RemoteRuns:
        return RemoteRuns("local", "/runs", transport=self.transport, clock=self.clock)

    def answer(self, script: str) -> tuple[str, int]:
        if is_call(script, "gpu"):
            return self.gpus
        call = read_call(script)
        assert call
        if act := self.answers.get(call.function):
            return act(call.given.get("word", ""))
        assert call.subject == "run_look", call
        machine = self.processes(call.given["word"]) if call.function == "look" and self.has_proc else ""
        return machine + self.listing(call.given["word"], call.given["spelling"]), 0

    def listing(self, word: str, spelling: str) -> str:
        read = {name: text for name, text in self.files.items() if text is not None}
        text = f"\n{word} now\n1700000000\n\n{word} root\n/runs\n"
        text += "".join(f"\n{word} name\n{name}" for name in self.files)
        text += "".join(f"\n{word} denied\n{name}" for name in self.files if name not in read)
        text += "".join(f"\n{word} {each}" for each in self.more)
        text += f"\n{word} files\n==> {spelling}dev/null <==\n"
        text += "".join(f"\n==> .{spelling}{name} <==\n{body}" for name, body in read.items())
        return f"{text}\n==> {spelling}dev/null <==\n"

    def processes(self, word: str) -> str:
        facts = "pid=9\nhost=gpu-1\nboot=b\nnamespace=pid:[4]\nticks=100\npage=4096\ncores=8\nuptime=50.0\n"
        body = f"==> /proc/1/stat <==\n1 (init) {STAT}\n\n==> /dev/null <==\n"
        return f"\n{word} began\n1699999999\n\n{word} facts\n{facts}\n{word} memory\n\n{word} processes\n{body}"

    def given(self) -> dict[str, str]:
        """What the last script that was asked was given."""
        call = read_call(self.transport.asked[-1][0])
        assert call
        return call.given

    def change(self, function: str, *answers: tuple[str, str]) -> None:
        """How this script answers, one time after another."""
        left = list(answers)
        self.answers[function] = lambda word: ("\n{} {}\n{}".format(word, *left.pop(0)), 0)


def looked(files: Mapping[str, str | None]) -> tuple[Machine, RemoteRuns, Run]:
    """A machine whose folder was looked at, and the first run there."""
    machine = Machine(files)
    runs = machine.runs()
    return machine, runs, runs.look(frozenset()).runs[0]


class TestLooking:
    def test_one_look_is_one_round_trip(self) -> None:
        machine = Machine(
            {"run-10.json": progress(), "run-2.json": progress("FINISHED"), "b/progress.json": progress()}
        )
        look = machine.runs().look(frozenset({7}))
        assert len(machine.transport.asked) == 1
        seen = [(run.name, run.status) for run in look.runs]
        assert seen == [("b", "RUNNING"), ("run-2", "FINISHED"), ("run-10", "RUNNING")]
        assert [run.path for run in look.runs[:2]] == ["/runs/b/progress.json", "/runs/run-2.json"]
        assert (look.runs[0].folder, look.runs[0].control_path) == ("/runs/b", "/runs/b/control.json")
        assert (look.processes_at, look.timestamp) == (1_699_999_999.0, 1_700_000_000.0)
        assert machine.given()["file_bytes"] == "262145"
        assert look.machine and look.machine.gpu_mib == {4711: 40000.0} and look.machine.gpu_total_mib == 81559.0

    def test_an_edit_that_is_not_answered_yet_is_pending(self) -> None:
        _, _, run = looked({"a.json": progress(), "control_a.json": '{"lr": 0.5}'})
        assert run.variables[0].pending == "0.5"

    def test_a_file_that_cannot_be_read_is_the_run_of_before_with_the_reason(self, subtests: pytest.Subtests) -> None:
        for text in ["", "{", "[" * 100_000, '{"a": ' * 9000, "\ufffd", "x" * 262_145]:
            with subtests.test(text=text):
                machine, runs, _ = looked({"a.json": progress(state={"epoch": 3})})
                machine.files["a.json"] = text
                [run] = runs.look(frozenset()).runs
                assert run.epoch == 3 and run.error
                machine.files["a.json"] = progress(state={"epoch": 4})
                [run] = runs.look(frozenset()).runs
                assert (run.epoch, run.error) == (4, None)

    def test_what_was_not_read_is_told_and_not_left_out(self) -> None:
        _, _, run = looked({"a.json": None})
        assert (run.name, run.status, run.error) == ("a", None, "cannot be read: Permission denied")
        machine = Machine({"a.json": progress()})
        machine.more = ("name\nold.json", "some\n")
        new, old = machine.runs().look(frozenset()).runs
        assert (new.error, old.name) == (None, "old")
        assert old.error == "not read: this folder has too many files, or they are too large"

    def test_a_file_that_is_gone_is_no_run_and_other_json_is_none(self) -> None:
        machine = Machine({"a.json": progress(), "results.json": '{"accuracy": 0.9}', "list.json": "[1]"})
        runs = machine.runs()
        assert [run.name for run in runs.look(frozenset()).runs] == ["a"]
        del machine.files["a.json"]
        assert runs.look(frozenset()).runs == ()

    def test_a_machine_without_proc_shows_its_runs_and_one_without_an_answer_none(self) -> None:
        machine = Machine({"a.json": progress()})
        machine.has_proc = False
        look = machine.runs().look(frozenset())
        assert (len(look.runs), look.machine) == (1, None)
        assert "no /proc" in str(look.machine_error)

        def refuse(script: str) -> tuple[str, int]:
            raise TargetUnreachable("connection refused")

        with pytest.raises(TargetUnreachable):
            RemoteRuns("local", "/runs", transport=FakeTransport(refuse)).look(frozenset())

    def test_threads_are_read_of_numbers_only(self) -> None:
        machine = Machine({})
        machine.runs().look(frozenset({12, 7}))
        assert machine.given()["threads_of"] == "7 12"


class TestGpus:
    def test_nvidia_smi_that_gave_no_answer_is_left_alone_for_a_minute(self) -> None:
        machine = Machine({})
        machine.gpus = ("", 127)
        runs = machine.runs()
        for _ in range(3):
            sample = runs.look(frozenset()).machine
            assert sample and (sample.gpu_mib, sample.gpu_error) == (None, "nvidia-smi was not found")
        assert [len(scripts) for scripts in machine.transport.asked] == [2, 1, 1]
        machine.clock.sleep(60.0)
        machine.gpus = (GPUS, 0)
        sample = runs.look(frozenset()).machine
        assert sample and sample.gpu_mib == {4711: 40000.0}
        assert len(machine.transport.asked[-1]) == 2


class TestEditing:
    def edited(self, *answers: tuple[str, str], control: str | None = None) -> tuple[str, dict[str, str]]:
        """The number of an edit of lr, and what the last script was given."""
        machine, runs, run = looked({"a.json": progress()} | ({"control_a.json": control} if control else {}))
        machine.change("edit", *answers)
        return runs.edit(run, {"lr": "0.5"}), machine.given()

    def test_an_edit_stands_beside_those_that_are_not_answered_yet(self) -> None:
        control = '{"edits": {"lr": {"value": "2", "edit": "x"}, "wd": {"value": "3", "edit": "y"}}}'
        edit_id, given = self.edited(("written", ""), control=control)
        assert re.fullmatch(r"[0-9a-f]{16}", edit_id) and edit_id in given["new"]
        assert '"value": "0.5"' in given["new"] and '"value": "3"' in given["new"]

    def test_what_somebody_else_wrote_meanwhile_is_kept_unless_it_is_no_text(self) -> None:
        _, given = self.edited(("changed", '{"wd": 7}'), ("written", ""))
        assert '"value": "7"' in given["new"] and given["old"] == '{"wd": 7}'
        assert self.edited(("written", ""), control="\ufffd\ufffd")[1]["is_any"] == "yes"

    def test_an_edit_that_was_not_written_says_why(self) -> None:
        for answers, reason in [
            ([("changed", "{}"), ("changed", "{ }")], "another process is editing the file. Try: retry the same call"),
            ([("busy", "")], "another process has been editing"),
            ([("failed", "sh: 1: cannot create ./x: Permission denied\n")], "Permission denied"),
            ([("gone", "")], "no longer exists"),
            ([("moved", "")], "replaced since the last refresh"),
        ]:
            with pytest.raises(CommandFailed, match=reason):
                self.edited(*answers)

    def test_what_nobody_would_read_is_not_written(self) -> None:
        machine, runs, run = looked({"a.json": progress()})
        for values, wrong in (
            ({"lr": "1"}, replace(run, status="FINISHED")),
            ({"no such": "1"}, run),
            ({"lr": "1" * 1001}, run),
            ({"lr": "1"}, replace(run, path="/etc/passwd")),
        ):
            with pytest.raises(TrainingMonitorError):
                runs.edit(wrong, values)
        assert len(machine.transport.asked) == 1


class TestSignals:
    def test_each_process_gets_its_sentence_and_process_1_none_of_it(self) -> None:
        machine = Machine({})
        machine.answers["signal_all"] = lambda word: (f"\n{word} 0\nnever\n\n{word} 1\nended\npython", 0)
        said = machine.runs().send_signal((Identity(1, 5, "h", "b", "n"), Identity(7, 5, "h", "b", "n")), 15)
        assert said == (
            "process 1: no signal was sent, because signals to it are not allowed",
            "process 7 (python): SIGTERM was sent, and the process has ended",
        )
        assert (machine.given()["processes"], machine.given()["number"]) == ("1 5 h b n 7 5 h b n", "15")

    def test_hundreds_of_processes_are_one_round_trip(self) -> None:
        machine = Machine({})
        machine.answers["signal_all"] = lambda word: (f"\n{word} 0\ngone\n", 0)
        said = machine.runs().send_signal(tuple(Identity(pid, 5, "h", "b", "n") for pid in range(2, 1002)), 15)
        assert len(said) == 1000 and len(machine.transport.asked) == 1
        assert said[300] == "process 302 has ended: no signal was sent"
        assert said[301] == "process 303: the effect of SIGTERM is unknown"

    def test_a_number_that_is_no_signal_is_refused_and_nothing_to_signal_asks_nobody(self) -> None:
        machine = Machine({})
        assert machine.runs().send_signal((), 9) == ()
        for number in (-1, 0, 65, 1000):
            with pytest.raises(SettingsError):
                machine.runs().send_signal((Identity(7, 5),), number)
        assert machine.transport.asked == []

    def test_an_answer_that_was_lost_is_not_asked_for_again(self) -> None:
        class Losing(FakeTransport):
            def answer_all(self, words: tuple[str, ...], program: str | None) -> CommandResult:
                super().answer_all(words, program)
                return CommandResult(words, 0, "", "", 0.0)

        transport = Losing(lambda script: ("", 0))
        runs = RemoteRuns("local", "/runs", transport=transport)
        with pytest.raises(TargetUnreachable, match="it is unknown whether the signal was sent"):
            runs.send_signal((Identity(7, 5, "h", "b", "n"),), 10)
        assert len(transport.asked) == 1


class TestDeleting:
    def test_it_is_judged_by_what_the_file_says_now(self) -> None:
        process = {"pid": 99, "start_ticks": 4, "hostname": "h"}
        machine, runs, run = looked({"a.json": progress("FINISHED", metadata=process)})
        machine.files["a.json"] = progress(metadata=process)
        machine.change("delete", ("alive", ""))
        with pytest.raises(CommandFailed, match="was not deleted: its process 99 is alive: terminate it first"):
            runs.delete(run)
        assert (machine.given()["process"], machine.given()["is_running"]) == ("99 4 h '' ''", "yes")

    def test_what_was_not_deleted_says_why(self, subtests: pytest.Subtests) -> None:
        for state, reason in [
            ("heard", "within the last minute"),
            ("unsure", "may belong to it"),
            ("link", "is a link: delete it by hand"),
            ("left", "exists again"),
            ("failed", "Read-only file system"),
        ]:
            with subtests.test(state=state, reason=reason):
                machine, runs, run = looked({"a/progress.json": progress()})
                machine.change("delete", (state, "rm: cannot remove 'x': Read-only file system\n"))
                with pytest.raises(CommandFailed, match=reason):
                    runs.delete(run)

    def test_a_file_that_became_something_else_and_a_run_that_is_not_there_are_kept(self) -> None:
        machine, runs, run = looked({"a.json": progress("FINISHED")})
        elsewhere = [
            replace(run, path=each, folder="/etc") for each in ("/etc/passwd", "/runs/../x.json", "/runs/b.json")
        ]
        machine.files["a.json"] = '{"hidden_size": 4096}'
        for gone in (run, *elsewhere):
            with pytest.raises(TrainingMonitorError, match="is no longer in '/runs' on local"):
                runs.delete(gone)


WITH_OUTPUT = {"a.json": progress(metadata={"stdout_path": "/logs/out.log"})}


class TestOutput:
    def test_only_pieces_of_outputs_that_a_run_names_are_read(self) -> None:
        machine, runs, _ = looked(WITH_OUTPUT)
        for path in ("/etc/passwd", "", "/logs/../etc/passwd"):
            with pytest.raises(TrainingMonitorError, match="is not the output of any run"):
                runs.read_output(path, 0, 10)
        assert len(machine.transport.asked) == 1
        machine, runs, _ = looked(WITH_OUTPUT)
        said = "state=read\nsize=5000\nstart=4100\nbegin=4096\ncoding=base64\nlog\nYWJjZGVmZw==\n"
        machine.answers["show"] = lambda word: (said, 0)
        chunk = runs.read_output("/logs/out.log", -900, 10**9)
        assert (chunk.size, chunk.start, chunk.data) == (5000, 4100, b"efg")
        assert machine.given()["length"] == "262144"

    def test_a_file_that_cannot_be_read_is_an_error(self) -> None:
        errors = {"missing": CommandFailed, "other": CommandFailed, "denied": AccessDenied, "": TrainingMonitorError}
        for state, error in errors.items():
            machine, runs, _ = looked(WITH_OUTPUT)
            machine.answers["show"] = lambda word, state=state: (f"state={state}\n", 0)
            with pytest.raises(error):
                runs.read_output("/logs/out.log", 0, 10)


class TestOpening:
    def test_a_place_names_a_target_and_a_folder(self, subtests: pytest.Subtests) -> None:
        for where, target, folder in [
            ("ssh://gpu/runs", "ssh://gpu", "/runs"),
            ("ssh://me@gpu:2222/my runs/it's", "ssh://me@gpu:2222", "/my runs/it's"),
            ("ssh://gpu/~/runs", "ssh://gpu", "~/runs"),
            ("ssh://gpu/~", "ssh://gpu", "~/"),
            ("ssh://gpu/~x/runs", "ssh://gpu", "/~x/runs"),
            ("ssh://gpu/", "ssh://gpu", "/"),
            ("ssh://[::1]:22/runs", "ssh://[::1]:22", "/runs"),
            ("k8s://team/head:/runs:/x", "k8s://team/head", "/runs:/x"),
            ("k8s://team/head/main:~/runs", "k8s://team/head/main", "~/runs"),
            ("k8s://team/head?context=arn:aws:eks:x:/runs", "k8s://team/head?context=arn:aws:eks:x", "/runs"),
            ("vast://123/workspace/progress", "vast://123", "/workspace/progress"),
            ("head-0:/runs", "k8s://ml/head-0", "/runs"),
        ]:
            with subtests.test(where=where, target=target, folder=folder):
                runs = open_runs(where, namespace="ml")
                assert isinstance(runs, RemoteRuns)
                assert (str(runs.target), runs.folder) == (target, folder)

    def test_anything_else_says_what_was_expected(self, subtests: pytest.Subtests) -> None:
        places = "ssh://gpu ssh:///runs ssh://-oProxyCommand=x/runs vast://abc/runs vast://5 k8s://team/head"
        places += " k8s://head:/runs Head:/runs -n:/runs head:runs head:~you/runs http://host/runs head:/a\0b"
        for where in ["", "no such folder", *places.split()]:
            with subtests.test(where=where):
                with pytest.raises(SettingsError, match=r"expected an existing folder, .*ssh://\[user@\]host"):
                    open_runs(where)

    def test_a_folder_here_wins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "head:" / "runs").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        assert isinstance(open_runs("head:/runs"), LocalRuns)
