"""Processes and files that imitate those of a job: no foreign process is signalled, and none of ours is forgotten."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.integration.conftest import Place, wait_until
from tests.integration.test_remote_runs import Folder
from tests.requirements import miss
from training_monitor.core.errors import SettingsError
from training_monitor.jobs.jobs import list_jobs, look_at_job
from training_monitor.jobs.process_jobs import (
    members_script,
    process_question,
    start_process_job,
    stop_process_question,
)
from training_monitor.jobs.ray_jobs import end_forgotten, pids_of_ray_job
from training_monitor.jobs.stopping import stop_job
from training_monitor.runs.local_runs import LocalRuns
from training_monitor.runs.values import Run
from training_monitor.targets.asking import Site
from training_monitor.targets.procfs import identify

ANOTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away: nothing here was tested")


@pytest.fixture
def mine() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user that no job and no run has anything to do with, the leader of a session."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def theirs() -> Iterator[subprocess.Popen[bytes]]:
    """A process of another user."""
    words = ["setpriv", f"--reuid={ANOTHER}", f"--regid={ANOTHER}", "--clear-groups", "sleep", "300"]
    with subprocess.Popen(words) as process:
        assert wait_until(lambda: f"\nUid:\t{ANOTHER}\t" in Path(f"/proc/{process.pid}/status").read_text())
        assert wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        yield process
        process.kill()


# ---------------------------------------------------------------- the file that names a process


def give_away(path: Path) -> None:
    os.chown(path, ANOTHER, ANOTHER, follow_symlinks=False)


def link_of_another(path: Path) -> None:
    """Another user's link to a file of ours."""
    path.rename(path.with_name(".hidden"))
    path.symlink_to(path.with_name(".hidden"))
    give_away(path)


def link_to_another(path: Path) -> None:
    """Our link to a file of another user."""
    link_of_another(path)
    os.chown(path, 0, 0, follow_symlinks=False)
    give_away(path.with_name(".hidden"))


def folder_of_another(path: Path) -> None:
    give_away(path.parent)


def link_to_folder(path: Path) -> None:
    """Another user's link to the folder of a run of ours."""
    path.parent.rename(path.parent.with_name(".elsewhere"))
    path.parent.symlink_to(".elsewhere")
    give_away(path.parent)


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


FORGED: dict[str, Callable[[Path], None]] = {
    "another user's": give_away,
    "another user's link": link_of_another,
    "a link to another user's": link_to_another,
    "in another user's folder": folder_of_another,
    "behind another user's link": link_to_folder,
    "open to all": open_to_all,
}


def looked(folder: Folder, kind: str, name: str) -> tuple[LocalRuns | object, Run]:
    source = LocalRuns(folder.path) if kind == "local" else folder.runs
    [run] = [run for run in source.look(frozenset()).runs if run.name == name]
    return source, run


@as_root
def test_no_process_is_signalled_on_the_word_of_another_user(
    local: Place, mine: subprocess.Popen[bytes], subtests: pytest.Subtests
) -> None:
    folder = Folder(local)
    for flat in (True, False):
        for number, (what, forge) in enumerate(FORGED.items()):
            if flat and "folder" in forge.__name__:
                continue
            name = f"{'flat' if flat else 'own'}-{number}"
            forge(folder.write(name, identify(mine.pid), flat=flat))
            for kind in ("local", "remote"):
                tried()
                with subtests.test(what, flat=flat, kind=kind):
                    source, run = looked(folder, kind, name)
                    [said] = source.send_signal((identify(mine.pid),), signal.SIGKILL, ((run,),))  # type: ignore[union-attr]
                    assert "no signal was sent" in said and "progress file" in said
                    assert mine.poll() is None


@as_root
def test_a_file_of_root_or_of_the_processs_user_is_enough(
    local: Place, mine: subprocess.Popen[bytes], theirs: subprocess.Popen[bytes]
) -> None:
    folder = Folder(local)
    own, by_root = folder.write("own", identify(theirs.pid)), folder.write("root", identify(theirs.pid))
    forged = folder.write("forged", identify(mine.pid))
    give_away(own)
    give_away(forged)
    assert by_root.stat().st_uid == 0
    both = (identify(mine.pid), identify(theirs.pid))
    for kind in ("local", "remote"):
        for name in ("own", "root"):
            tried(2)
            source, good = looked(folder, kind, name)
            source, bad = looked(folder, kind, "forged")
            said = source.send_signal(both, signal.SIGCONT, ((bad,), (bad, good)))  # type: ignore[union-attr]
            assert "no signal was sent" in said[0] and "SIGCONT was sent" in said[1], (kind, name, said)


@as_root
def test_a_pid_file_of_another_user_stops_no_process(
    local: Place, mine: subprocess.Popen[bytes], theirs: subprocess.Popen[bytes]
) -> None:
    file, site = local.folder / "pid", Site.of(local.address)
    file.write_text(f"{mine.pid}\n")
    local.folder.chmod(0o755)
    give_away(file)
    for forge in (None, link_of_another, lambda file: (file.unlink(), file.touch(), open_to_all(file))):
        tried()
        if forge:
            forge(file)
        with pytest.raises(SettingsError, match="a file owned by root or by the user of process"):
            site.ask_one(stop_process_question(identify(mine.pid), 0.2, str(file)))
        assert mine.poll() is None
    file.unlink()
    file.touch()
    give_away(file)
    assert site.ask_one(stop_process_question(identify(theirs.pid), 0.2, str(file))) == []
    assert theirs.wait(10) == -signal.SIGTERM


# ---------------------------------------------------------------- the processes of a job


class World:
    """A job that runs, and processes beside it, each the leader of a session of its own."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self.place, self.stack, self.run = place, stack, place.jobs / "job"
        self.others: dict[str, subprocess.Popen[bytes]] = {}
        self.first = 300 + int.from_bytes(os.urandom(3), "big") * 10  # no other test sleeps so long

    def sleeping(self, *numbers: int) -> set[int]:
        """The processes that run SLEEP1, SLEEP2 ... of a command."""
        words = "|".join(f"sleep {self.first + number}" for number in numbers)
        found = subprocess.run(["pgrep", "-xf", words], capture_output=True, text=True, check=False)
        return {int(each) for each in found.stdout.split()}

    def begin(self, command: str) -> None:
        """Start the job, whose command makes the file `ready` when all of it runs."""
        command = re.sub(r"SLEEP(\d)", lambda found: f"sleep {self.first + int(found[1])}", command)
        start_process_job("local", f"{command}\ntouch '{self.place.folder}/ready'\nwait", "job")
        assert wait_until((self.place.folder / "ready").exists)

    def beside(self, what: str, script: str, env: Mapping[str, str] | None = None, **more: object) -> None:
        """Start a process that is not the job's."""
        words = ["sh", "-c", f"{script}\n:"]
        plain = {"PATH": os.environ["PATH"], "RUN": str(self.run), **(env or {})}
        process = subprocess.Popen(words, env=plain, start_new_session=True, **more)  # type: ignore[call-overload]
        self.stack.callback(process.wait)
        self.stack.callback(os.killpg, process.pid, signal.SIGKILL)
        self.others[what] = process

    def leader(self) -> int:
        return int((self.run / "pid").read_text().split()[0])

    def members(self, shell: str = "sh") -> set[int]:
        """The job's processes as a shell finds them; with busybox, also by its tools, and a grep without -z."""
        tools, (program, *words) = self.place.folder / "busybox", shell.split()
        if words:
            tools.mkdir()
            for name in ("ls", "sort", "stat", "tr"):
                (tools / name).symlink_to(shutil.which(program) or program)
            (tools / "grep").write_text('#!/bin/sh\ncase $1 in -*z*) exit 1 ;; esac\nexec busybox grep "$@"\n')
            (tools / "grep").chmod(0o755)
        environment = {**os.environ, "LC_ALL": "C", "PATH": f"{tools}:{os.environ['PATH']}"}
        script = members_script("process:job")
        said = subprocess.run(
            [program, *words], input=script, text=True, capture_output=True, check=True, env=environment
        )
        return {int(each) for each in said.stdout.split()}

    def stop(self) -> None:
        """Stop the job, and see that everything beside it still runs and is not counted to it."""
        stop_job("local", "process:job", grace=0.3)
        assert look_at_job("local", "process:job").survivors == 0
        ended = [what for what, process in self.others.items() if process.poll() is not None]
        assert not ended, ended


@pytest.fixture
def world(local: Place) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(local, stack)


MARK = "TRAINING_MONITOR_JOB="
ENVIRONMENTS: dict[str, Callable[[str], dict[str, str]]] = {
    "the mark in another variable": lambda run: {"NOTE": f"{MARK}{run}/"},
    "the mark on a line of another variable": lambda run: {"NOTE": f"a\n{MARK}{run}/\nb"},
    "a variable that ends like the mark": lambda run: {f"X{MARK[:-1]}": f"{run}/"},
    "a variable that begins like the mark": lambda run: {f"{MARK[:-1]}S": f"{run}/"},
    "the mark of a job below": lambda run: {MARK[:-1]: f"{run}/more/"},
    "the mark of a job with a longer name": lambda run: {MARK[:-1]: f"{run}-2/"},
    "the mark of a job with a shorter name": lambda run: {MARK[:-1]: f"{run[:-1]}/"},
    "the mark without its end": lambda run: {MARK[:-1]: run},
    "the mark in capitals": lambda run: {MARK[:-1]: f"{run}/".upper()},
    "the mark with more behind it": lambda run: {MARK[:-1]: f"{run}/ "},
    "the mark of another folder": lambda run: {MARK[:-1]: f"/elsewhere{run}/"},
}
SCRIPTS = {
    "a file whose name begins with the log's": 'exec sleep 300 >>"$RUN/log.analysis" 2>&1',
    "the log's copy": 'exec sleep 300 >>"$RUN/log.1"',
    "a file that looks like a deleted log": 'exec sleep 300 >>"$RUN/log (deleted)"',
    "a file of that name elsewhere": 'mkdir -p "$RUN/x" && exec sleep 300 >>"$RUN/x/log"',
    "a name that holds an arrow to the log": 'mkdir -p "$RUN/a -> $RUN" && exec sleep 300 >>"$RUN/a -> $RUN/log"',
    "a name that is a pattern of the log's": 'exec sleep 300 >>"$RUN/[l]og"',
    "a reader of the log": 'exec tail -f "$RUN/log" >/dev/null',
    "a reader that writes beside it": 'exec tail -f "$RUN/log" >"$RUN/log.filtered"',
    "the log as its stdin": 'exec sleep 300 <"$RUN/log"',
    "the log as its stdout, for reading": 'exec sleep 300 1<"$RUN/log" 2<"$RUN/log"',
    "the log for writing, but not as its output": 'exec 7>>"$RUN/log"; exec sleep 300',
    "the folder of the job": 'cd "$RUN"; exec sleep 300',
    "the job in its command line": 'exec sleep 300 # process:job training-job',
    "the name of the job's process": "printf 'training-job' >/proc/$$/comm; while :; do sleep 1; done",
    "a name like a line of /proc": "printf ') S 1 1 1 ' >/proc/$$/comm; while :; do sleep 1; done",
}  # fmt: skip
# A child with no environment in a session of its own, once with the log as its output; one in the job's session; and a
# child of such a child.
OURS = """
env -i SLEEP1 >/dev/null 2>&1 </dev/null &
env -i setsid SLEEP2 >/dev/null 2>&1 </dev/null &
(env -i setsid SLEEP3 &)
env -i setsid sh -c 'SLEEP4 & wait' >/dev/null 2>&1 </dev/null &
setsid SLEEP5 >/dev/null 2>&1 </dev/null &
"""


def test_a_job_has_its_own_processes_and_no_others(world: World) -> None:
    world.begin(OURS)
    for what, script in SCRIPTS.items():
        world.beside(what, script)
    for what, environment in ENVIRONMENTS.items():
        world.beside(what, "exec sleep 300", environment(str(world.run)))
    tried(len(world.others) + 5)
    ours = [world.sleeping(number) for number in range(1, 6)]
    assert [len(each) for each in ours] == [1] * 5
    assert wait_until(lambda: Path(f"/proc/{world.others['a reader of the log'].pid}/comm").read_text() == "tail\n")
    strangers = {pid: what for what, process in world.others.items() for pid in {process.pid, *children(process.pid)}}
    for shell in ("dash", "bash", "busybox sh"):
        shutil.which(shell.split()[0]) or miss("sh", f"{shell} is not there")
        found = world.members(shell)
        assert set.union(*ours) | {world.leader()} <= found, shell
        assert not [strangers[pid] for pid in found if pid in strangers], shell
    world.stop()
    assert not world.sleeping(1, 2, 3, 4, 5)


def children(pid: int) -> set[int]:
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@pytest.mark.parametrize("kind", ["symbolic", "to itself", "directory"])
def test_what_a_link_in_place_of_the_log_leads_to_is_not_the_jobs(world: World, kind: str) -> None:
    world.begin("SLEEP1 &")
    file = world.place.folder / "file of others"
    world.beside("a writer of a file", f"exec sleep 300 >>'{file}' 2>&1")
    world.beside("a writer of the log", "exec sleep 300", stdout=file.open("a"), stderr=file.open("a"))
    assert wait_until(file.exists)
    log = world.run / "log"
    log.unlink()
    if kind == "symbolic":
        log.symlink_to(file)
    elif kind == "to itself":
        log.symlink_to("log")
    else:
        log.mkdir()
    tried(2)
    world.stop()
    assert not world.sleeping(1)


def test_a_session_whose_number_was_reused_is_not_the_jobs(world: World) -> None:
    """The number is another process's, or of one that ended and left others in its session."""
    world.begin("SLEEP1 &")
    _, _, boot = (world.run / "pid").read_text().split()
    os.killpg(world.leader(), signal.SIGKILL)
    assert wait_until(lambda: not world.sleeping(1))
    world.beside("a session", "sleep 300 & wait")
    world.beside("a session without its leader", "sleep 301 & wait")
    alive, dead = world.others.values()
    for process in (alive, dead):
        assert wait_until(lambda process=process: children(process.pid))
    [orphan] = children(dead.pid)
    starts = {process: int(stat(process.pid)[19]) for process in (alive, dead)}
    dead.kill()
    dead.wait()
    world.others.pop("a session without its leader")
    for process, start in starts.items():
        for written in (start - 1, start) if process is dead else (start - 1,):
            tried()
            (world.run / "pid").write_text(f"{process.pid} {written} {boot}\n")
            assert world.members() == set()
            world.stop()
            assert stat(orphan)[0] == "S"


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_what_a_killed_leader_left_in_its_session_is_the_jobs(world: World) -> None:
    """What carries the mark shows that the session is still the job's, also for what does not."""
    world.begin("SLEEP1 & env -i SLEEP2 >/dev/null 2>&1 </dev/null &")
    os.kill(world.leader(), signal.SIGKILL)
    tried(2)
    assert wait_until(lambda: look_at_job("local", "process:job").survivors == 3)  # and the shell of the command
    world.stop()
    assert not world.sleeping(1, 2)


def test_each_process_is_counted_to_its_own_job(world: World) -> None:
    names = ("job", "job-2")
    for name in names:
        start_process_job("local", f"exec sleep {world.first}", name)
        leader = world.run.with_name(name) / "pid"
        assert wait_until(lambda leader=leader: len(children(int(leader.read_text().split()[0]))) == 1)
        os.kill(int(leader.read_text().split()[0]), signal.SIGKILL)
    world.beside("the mark of a fourth job", "exec sleep 300", {MARK[:-1]: f"{world.run}-3/"})
    for gone in range(2):
        tried(2)
        left = {view.job_id: view.survivors for view in list_jobs("local")}
        assert left == {f"process:{name}": int(at >= gone) for at, name in enumerate(names)}
        stop_job("local", f"process:{names[gone]}", grace=0.3)
    assert world.others["the mark of a fourth job"].poll() is None


def test_a_process_that_began_after_its_pid_file_was_written_is_not_meant(
    local: Place, mine: subprocess.Popen[bytes]
) -> None:
    file = local.folder / "pid"
    file.write_text(f"{mine.pid}\n")
    began = file.stat().st_mtime
    for before in (3600, 60, 30, 10, 5):
        tried()
        os.utime(file, (began, began - before))
        view = Site.of("local").ask_one(process_question(str(file), None))
        assert view.running is False and "another process" in (view.reason or ""), before
    os.utime(file, (began, began + 1))
    assert Site.of("local").ask_one(process_question(str(file), None)).running is True


def test_who_writes_a_log_that_was_named_writes_exactly_that_file(local: Place, world: World) -> None:
    log = local.folder / "train.log"
    log.touch()
    world.beside("a name that is a pattern of the log's", f"exec sleep 300 >>'{local.folder}/*.log'")
    world.beside("a deleted file of that name", f"exec sleep 300 >>'{local.folder}/old.log'")
    assert wait_until(lambda: (local.folder / "old.log").exists() and (local.folder / "*.log").exists())
    (local.folder / "old.log").unlink()
    tried(2)
    view = Site.of("local").ask_one(process_question(None, f"'{log}'"))
    assert view.running is None
    world.beside("its writer", f"exec sleep 300 >>'{log}'")
    writer = world.others["its writer"].pid
    assert wait_until(lambda: Site.of("local").ask_one(process_question(None, f"'{log}'")).running)
    assert Site.of("local").ask_one(process_question(None, f"'{log}'")).identity.pid == writer


RAY = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def test_no_process_of_another_ray_job_is_ended(world: World) -> None:
    def says(job: str) -> str:
        return json.dumps({"metadata": {"job_submission_id": job}})

    for what, name, said in (
        ("an attempt with a unique name", RAY, says("apart-attempt-final")),
        ("an attempt of an attempt", RAY, says("apart-attempt-1-attempt-2")),
        ("another variable", "NOTE", says("apart-attempt-1")),
        ("a line of another variable", "NOTE", f"a\n{RAY}={says('apart')}\n"),
        ("a variable with a longer name", f"X{RAY}", says("apart-attempt-1")),
        ("another job that names it", RAY, f'{{"env_vars": {says("apart")}, "metadata": {says("other")}}}'),
    ):  # fmt: skip
        tried()
        world.beside(what, "exec sleep 300", {name: said})
    assert end_forgotten(Site.of("local"), "apart", "apart-attempt-1").ended == 0
    assert [what for what, process in world.others.items() if process.poll() is not None] == []
    script = pids_of_ray_job("apart-attempt-1")
    assert subprocess.run(["sh"], input=script, text=True, capture_output=True, check=True).stdout == ""
