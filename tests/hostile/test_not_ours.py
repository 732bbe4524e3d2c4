"""Processes and files made to look like ours: nothing of others is signalled, and nothing of ours is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.integration.conftest import Place, wait_until
from tests.integration.test_remote_runs import Folder
from training_monitor.core.errors import SettingsError
from training_monitor.jobs.process_jobs import stop_process_question
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
                    assert "nothing was sent" in said and "progress file" in said
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
            assert "nothing was sent" in said[0] and "SIGCONT was sent" in said[1], (kind, name, said)


@as_root
def test_a_pid_file_of_another_user_stops_no_process(
    local: Place, mine: subprocess.Popen[bytes], theirs: subprocess.Popen[bytes]
) -> None:
    file, site = local.folder / "pid", Site.of(local.address)
    file.write_text(f"{mine.pid}\n")
    local.folder.chmod(0o755)
    give_away(file)
    for forge in (lambda: None, lambda: link_of_another(file), lambda: (file.unlink(), file.touch(), open_to_all(file))):
        tried()
        forge()
        with pytest.raises(SettingsError, match="a file of root or of the user of process"):
            site.ask_one(stop_process_question(identify(mine.pid), 0.2, str(file)))
        assert mine.poll() is None
    file.unlink()
    file.touch()
    give_away(file)
    assert site.ask_one(stop_process_question(identify(theirs.pid), 0.2, str(file))) == []
    assert theirs.wait(10) == -signal.SIGTERM
