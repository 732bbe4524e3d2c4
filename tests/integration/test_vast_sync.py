"""Copying to a real ssh server and back, with the real rsync and tar: what arrives, what is cut, what is hostile."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.integration.commands import PYTHON
from tests.integration.conftest import Place, SshServer, Surroundings, kill, wait_until
from training_monitor.core.errors import CommandError, CommandFailed, SettingsError
from training_monitor.rent import sync
from training_monitor.rent.file_lists import PARTIAL
from training_monitor.rent.instance_steps import check_instance
from training_monitor.rent.sync import SyncProgress, SyncReport, fetch_folder, push_folder

HOSTILE_NAMES = (
    "with space",
    "-rf",
    "--help",
    "it's",
    'say "hi"',
    "$(touch owned)",
    "`touch owned`",
    "a;b&c|d",
    "back\\slash\\n",
    "*",
    "[x]",
    "@archive",
    "host:path",
    "训练 é 🚀",
    "tab\there",
    "return\rhere",
    "#comment",
    "~root",
    "{a,b}",
    "x" * 200,
)
BATCH_BYTES = 1_000_000  # where a copying is interrupted between two
USUAL_TOOLS = "sh cat head tail tr grep find stat printf mkdir rm sleep df dirname basename".split()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(folder: Path, **files: bytes | str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_file(folder / name, content)
    return folder


def write_file(path: Path, content: bytes | str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def only_these_tools(folder: Path, *tools: str) -> str:
    """A PATH with nothing but these."""
    folder.mkdir()
    for tool in tools:
        (folder / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool}"))
    return str(folder)


def no_rsync(place: Place) -> None:
    place.set_environment({"PATH": only_these_tools(place.folder / "no rsync", *USUAL_TOOLS, "tar")})


def program(folder: Path, name: str, script: str) -> str:
    """A PATH that has this program in front."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.defpath}"


@pytest.fixture(params=["rsync", "tar"])
def by(request: pytest.FixtureRequest, over_ssh: Place) -> str:
    if request.param == "tar":
        no_rsync(over_ssh)
    return str(request.param)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return write(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "far away" / "it's there"


class TestPush:
    def test_all_files_arrive_with_their_times_in_a_folder_of_its_owner(
        self, over_ssh: Place, by: str, here: Path, there: Path
    ) -> None:
        write(here, a="one", b=os.urandom(300_000))
        write_file(here / "sub" / "deep" / "c", "")
        os.utime(here / "a", (1_700_000_000, 1_700_000_000))
        report = push_folder(str(here), over_ssh.address, str(there))
        assert tree(there) == tree(here)
        assert (there / "a").stat().st_mtime == 1_700_000_000
        assert stat.S_IMODE(there.stat().st_mode) == stat.S_IMODE(there.parent.stat().st_mode) == 0o700
        assert (report.files, report.total_bytes, report.by) == (3, 300_003, by)
        assert (report.sent_files, report.sent_bytes) == (3, 300_003)

    def test_again_only_what_changed_or_was_cut_on_the_other_side_is_sent(
        self, over_ssh: Place, by: str, here: Path, there: Path
    ) -> None:
        write(here, a="x" * 1000, b="two")
        push_folder(str(here), over_ssh.address, str(there))
        report = push_folder(str(here), over_ssh.address, str(there))
        assert (report.files, report.sent_files, report.sent_bytes, report.by) == (2, 0, 0, by)
        (here / "b").write_text("TWO")  # of equal size
        os.utime(here / "b", (1_700_000_000, 1_700_000_000))
        report = push_folder(str(here), over_ssh.address, str(there))
        assert (report.sent_files, report.sent_bytes) == (1, 3) and tree(there) == tree(here)
        os.truncate(there / "a", 400)
        assert push_folder(str(here), over_ssh.address, str(there)).sent_files == 1
        assert tree(there) == tree(here)

    def test_names_can_be_anything_that_is_a_line_of_utf8(
        self, over_ssh: Place, by: str, here: Path, there: Path
    ) -> None:
        for name in HOSTILE_NAMES:
            write_file(here / name, name)
            write_file(here / f"in {name}" / name, name)
        clock = FakeClock()
        pushed = push_folder(str(here), over_ssh.address, str(there), clock=clock)
        assert tree(there) == tree(here)
        fetched = fetch_folder(over_ssh.address, str(there), str(here.parent / "back"), clock=clock)
        assert pushed.sent_files == fetched.sent_files == 2 * len(HOSTILE_NAMES)
        assert clock.slept == [] and pushed.by == fetched.by == by
        assert tree(here.parent / "back") == tree(here)

    @pytest.mark.parametrize("name", [b"two\nlines", b"latin-\xe9", "replaced \ufffd".encode()])
    def test_a_name_that_no_listing_could_show_is_refused(
        self, over_ssh: Place, here: Path, there: Path, name: bytes
    ) -> None:
        Path(os.fsdecode(os.fsencode(here) + b"/" + name)).write_text("x")
        with pytest.raises(SettingsError, match="rename it"):
            push_folder(str(here), over_ssh.address, str(there))
        assert not there.exists()

    def test_links_to_files_are_copied_as_files_and_hidden_files_stay_here(
        self, over_ssh: Place, by: str, here: Path, there: Path
    ) -> None:
        write(here, a="one")
        write_file(here / ".git" / "config")
        write_file(here / ".env")
        write_file(here.parent / "shared" / "b", "two")
        (here / "link").symlink_to("a")
        (here / "out").symlink_to(here.parent / "shared" / "b")
        (here / "empty").mkdir()
        report = push_folder(str(here), over_ssh.address, str(there))
        assert tree(there) == {"a": b"one", "link": b"one", "out": b"two"}
        assert (report.files, report.skipped, report.hidden, report.empty) == (3, 0, 2, 1)
        assert not (there / "link").is_symlink() and not (there / "out").is_symlink()

    def test_an_empty_folder_arrives(self, over_ssh: Place, by: str, here: Path, there: Path) -> None:
        report = push_folder(str(here), over_ssh.address, str(there))
        assert there.is_dir() and (report.files, report.sent_files, report.by) == (0, 0, by)

    def test_hundreds_of_small_files_arrive_and_progress_is_told(
        self, over_ssh: Place, by: str, here: Path, there: Path
    ) -> None:
        for number in range(600):
            write_file(here / f"sub {number % 7}" / f"{number}.txt", str(number))
        told: list[SyncProgress] = []
        report = push_folder(str(here), over_ssh.address, str(there), on_progress=told.append)
        assert tree(there) == tree(here)
        assert (report.files, report.sent_files) == (600, 600)
        files = [each.files for each in told]
        assert files == sorted(files) and files[0] == 0 and files[-1] == 600 and 500 in files
        assert told[-1] == SyncProgress(600, 600, report.total_bytes, report.total_bytes)

    def test_a_relative_path_and_one_below_home_are_below_home(
        self, over_ssh: Place, by: str, here: Path, tmp_path: Path
    ) -> None:
        write(here, a="one")
        name = f"training-monitor-test-{os.getpid()}"
        home = Path("~").expanduser() if os.geteuid() else Path("/root")
        try:
            push_folder(str(here), over_ssh.address, f"~/{name}")
            assert tree(home / name) == {"a": b"one"}
            assert push_folder(str(here), over_ssh.address, name).sent_files == 0
        finally:
            shutil.rmtree(home / name, ignore_errors=True)

    def test_where_the_folder_cannot_be_made_it_says_so(self, over_ssh: Place, here: Path, tmp_path: Path) -> None:
        write(here, a="one")
        write_file(tmp_path / "file")
        for remote in (tmp_path / "file" / "folder", tmp_path / "file"):
            with pytest.raises(CommandFailed, match="it cannot be made"):
                push_folder(str(here), over_ssh.address, str(remote))
        assert (tmp_path / "file").read_text() == "x"

    def test_nothing_is_written_through_a_link_on_the_other_side(
        self, over_ssh: Place, by: str, here: Path, there: Path, tmp_path: Path
    ) -> None:
        write_file(here / "sub" / "a", "new")
        write_file(tmp_path / "elsewhere" / "a", "old")
        there.mkdir(parents=True)
        (there / "sub").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CommandFailed, match="is a symbolic link"):
            push_folder(str(here), over_ssh.address, str(there))
        assert tree(tmp_path / "elsewhere") == {"a": b"old"}

    def test_what_cannot_arrive_is_named_after_three_tries(
        self, over_ssh: Place, by: str, here: Path, there: Path
    ) -> None:
        write(here, good="good", bad="bad")
        write_file(there / "bad" / "a folder stands here")
        clock = FakeClock()
        with pytest.raises(CommandFailed) as caught:
            push_folder(str(here), over_ssh.address, str(there), clock=clock)
        assert "1 of 2 files did not arrive: 'bad'" in str(caught.value)
        assert "bad: Cannot open: File exists" in str(caught.value)  # tar's words: it makes the last try
        assert clock.slept == [2.0, 10.0]  # the first try brought the other file, three brought nothing

    def test_an_rsync_that_is_there_and_does_not_work_is_replaced_by_tar(
        self, over_ssh: Place, here: Path, there: Path, tmp_path: Path
    ) -> None:
        write(here, a="one")
        over_ssh.set_environment({"PATH": program(tmp_path / "broken", "rsync", "echo no libpopt >&2; exit 127")})
        report = push_folder(str(here), over_ssh.address, str(there), clock=FakeClock())
        assert tree(there) == {"a": b"one"} and report.by == "tar"

    def test_without_rsync_and_tar_it_says_what_to_install(
        self, over_ssh: Place, here: Path, there: Path, tmp_path: Path
    ) -> None:
        over_ssh.set_environment({"PATH": only_these_tools(tmp_path / "few", *USUAL_TOOLS)})
        with pytest.raises(CommandFailed, match="apt-get install rsync"):
            push_folder(str(here), over_ssh.address, str(there))

    def test_a_state_folder_with_quotes_and_spaces_does_not_break_the_ssh_options(
        self, over_ssh: Place, here: Path, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "it's my  state"))
        write(here, a="one")
        over_ssh.disconnect()
        assert push_folder(str(here), over_ssh.address, str(there)).by == "rsync"
        assert tree(there) == {"a": b"one"}


class TestEveryTarget:
    def test_a_folder_goes_there_and_comes_back(self, target: Place, here: Path, there: Path, tmp_path: Path) -> None:
        write(here, a="one", b=os.urandom(100_000))
        write_file(here / "sub" / "it's c", "three")
        assert push_folder(str(here), target.address, str(there)).sent_files == 3
        report = fetch_folder(target.address, str(there), str(tmp_path / "back"))
        assert tree(tmp_path / "back") == tree(there) == tree(here)
        assert report.by == ("tar" if target.address.startswith("k8s") else "rsync")


class TestInterrupted:
    @pytest.fixture(autouse=True)
    def small_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sync, "BATCH_BYTES", BATCH_BYTES)

    @pytest.mark.parametrize("push", [True, False])
    def test_only_the_rest_is_sent_after_the_connection_was_cut(
        self, over_ssh: Place, sshd: SshServer, by: str, here: Path, there: Path, push: bool
    ) -> None:
        for name in "abc":
            write_file(here / name, name * (BATCH_BYTES // 2 + 1))
        if not push:
            push_folder(str(here), over_ssh.address, str(there))
            here, there = there, here.parent / "back"

        def copy(on_progress: Callable[[SyncProgress], None] | None = None) -> SyncReport:
            if push:
                return push_folder(str(here), over_ssh.address, str(there), on_progress=on_progress, clock=FakeClock())
            return fetch_folder(over_ssh.address, str(here), str(there), on_progress=on_progress, clock=FakeClock())

        def cut(seen: SyncProgress) -> None:
            if seen.files == 1:
                sshd.stop()

        with pytest.raises(CommandError):
            copy(cut)
        assert (there / "a").read_bytes() == (here / "a").read_bytes()
        sshd.start()
        report = copy()
        assert tree(there) == tree(here)
        assert (report.files, report.sent_files) == (3, 2)

    def test_a_dropped_connection_is_bridged_within_one_call(
        self, over_ssh: Place, sshd: SshServer, by: str, here: Path, there: Path
    ) -> None:
        for name in "abc":
            write_file(here / name, bytes(BATCH_BYTES // 2 + 1))
        drops = []

        def drop(seen: SyncProgress) -> None:
            if seen.files == 1 and not drops:
                drops.append(seen)
                over_ssh.disconnect()
                sshd.stop()
                sshd.start()

        push_folder(str(here), over_ssh.address, str(there), on_progress=drop, clock=FakeClock())
        assert tree(there) == tree(here) and drops

    def test_a_large_file_resumes_and_never_has_its_name_while_partial(
        self, over_ssh: Place, surroundings: Surroundings, here: Path, there: Path
    ) -> None:
        write(there, model=b"old")
        write_file(here / "model", os.urandom(100_000_000))
        seen: list[bytes] = []

        def is_growing() -> bool:
            return any(path.stat().st_size > 1_000_000 for path in there.rglob("model.*"))

        def cut() -> None:
            if wait_until(is_growing, 30):
                seen.append((there / "model").read_bytes())
                for pid, line in surroundings.processes().items():
                    if line.startswith("rsync -tOs"):
                        kill(pid)

        cutting = threading.Thread(target=cut)
        cutting.start()
        clock = FakeClock()
        report = push_folder(str(here), over_ssh.address, str(there), clock=clock)
        cutting.join()
        assert seen == [b"old"]
        assert (there / "model").read_bytes() == (here / "model").read_bytes()
        assert sorted(os.listdir(there)) == ["model"]
        assert clock.slept == [] and report.sent_files == 1  # what the other side kept of it counts as progress

    @pytest.mark.parametrize("push", [True, False])
    def test_partial_files_no_longer_wanted_are_removed(
        self, over_ssh: Place, surroundings: Surroundings, here: Path, there: Path, push: bool
    ) -> None:
        write_file(here / "sub" / "model", os.urandom(100_000_000))
        write_file(here / "sub" / "config", "x")
        write_file(there / "sub" / ".mine" / "a", "hidden, and none of ours")

        def copy() -> SyncReport:
            if push:
                return push_folder(str(here), over_ssh.address, str(there), clock=FakeClock())
            return fetch_folder(over_ssh.address, str(here), str(there), clock=FakeClock())

        def is_growing() -> bool:
            return any(path.stat().st_size > 1_000_000 for path in there.rglob("model.*"))

        def cut() -> None:
            if wait_until(is_growing, 30):
                (here / "sub" / "model").unlink()
                for pid, line in surroundings.processes().items():
                    if line.startswith("rsync"):
                        kill(pid)

        write_file(there / "sub" / PARTIAL / "former", "what was cut of a file that is gone")
        cutting = threading.Thread(target=cut)
        cutting.start()
        copy()
        cutting.join()
        assert set(tree(there)) == {"sub/config", "sub/.mine/a"}
        assert {path.name for path in there.rglob(".*")} == {".mine"}


class TestFetch:
    def test_all_files_come_with_their_times(self, over_ssh: Place, by: str, here: Path, there: Path) -> None:
        write(there, a="one", b=os.urandom(300_000))
        write_file(there / "sub" / "c", "")
        write_file(there / ".hidden")
        (there / "link").symlink_to("/etc/passwd")
        os.utime(there / "a", (1_700_000_000, 1_700_000_000))
        report = fetch_folder(over_ssh.address, str(there), str(here / "new"))
        shown = {name: content for name, content in tree(there).items() if name not in (".hidden", "link")}
        assert tree(here / "new") == shown
        assert sorted(os.listdir(here / "new")) == ["a", "b", "sub"]
        assert (here / "new" / "a").stat().st_mtime == 1_700_000_000
        assert (report.files, report.sent_files, report.by, report.skipped) == (3, 3, by, 1)
        assert fetch_folder(over_ssh.address, str(there), str(here / "new")).sent_files == 0

    def test_only_what_was_named_comes(self, over_ssh: Place, by: str, here: Path, there: Path) -> None:
        for name in ("checkpoint-5/model", "checkpoint-5/sub/optimizer", "checkpoint-50/model", "-x.pt", "log"):
            write_file(there / name, name)
        report = fetch_folder(over_ssh.address, str(there), str(here), only=["checkpoint-5", "-x.pt"])
        assert set(tree(here)) == {"checkpoint-5/model", "checkpoint-5/sub/optimizer", "-x.pt"} and report.files == 3

    def test_one_file_comes_under_its_own_name(self, over_ssh: Place, by: str, here: Path, there: Path) -> None:
        write(there, other="x")
        write_file(there / "lora it's.safetensors", "weights")
        report = fetch_folder(over_ssh.address, str(there / "lora it's.safetensors"), str(here))
        assert tree(here) == {"lora it's.safetensors": b"weights"} and report.files == 1

    def test_what_is_not_there_is_said_and_never_an_empty_folder(
        self, over_ssh: Place, here: Path, there: Path
    ) -> None:
        with pytest.raises(CommandFailed, match="does not exist"):
            fetch_folder(over_ssh.address, str(there), str(here))
        write(there, a="one")
        with pytest.raises(CommandFailed, match="not found, or not a regular file: 'b'"):
            fetch_folder(over_ssh.address, str(there), str(here), only=["a", "b"])
        assert tree(here) == {}

    def test_a_name_outside_of_the_folder_cannot_be_asked_for(self, here: Path) -> None:
        for name in ("../x", "/etc/passwd", "a/../../b", ".", "", ".ssh", "a\nb", "a\0b", "a//b"):
            with pytest.raises(SettingsError, match="only"):
                fetch_folder("local", str(here), str(here.parent / "back"), only=[name])

    def test_names_that_no_listing_can_show_are_told_of(self, over_ssh: Place, here: Path, there: Path) -> None:
        write(there, good="x")
        write_file(there / "two\nlines" / "deep")
        with pytest.raises(CommandFailed, match="newlines"):
            fetch_folder(over_ssh.address, str(there), str(here))
        assert fetch_folder(over_ssh.address, str(there), str(here), only=["good"]).files == 1
        Path(os.fsdecode(os.fsencode(there) + b"/latin-\xe9")).write_text("x")
        shutil.rmtree(there / "two\nlines")
        with pytest.raises(CommandFailed, match="not UTF-8"):
            fetch_folder(over_ssh.address, str(there), str(here))

    def test_nothing_is_written_through_a_link_here(
        self, over_ssh: Place, by: str, here: Path, there: Path, tmp_path: Path
    ) -> None:
        write_file(there / "sub" / "a", "new")
        write_file(tmp_path / "elsewhere" / "a", "old")
        (here / "sub").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CommandFailed, match="is a symbolic link on this machine"):
            fetch_folder(over_ssh.address, str(there), str(here))
        assert tree(tmp_path / "elsewhere") == {"a": b"old"}


# --- a host that lies

EVIL_LISTINGS = (
    "file 3 1700000000 ./../escaped",
    "file 3 1700000000 ./.ssh/authorized_keys",
    "file -3 1700000000 ./a",
    "file 99999999999999999999 1 ./a",
    "run 3 1700000000 ./a",
)


def test_a_listing_that_leads_out_of_the_folder_is_refused(over_ssh: Place, here: Path, there: Path) -> None:
    write(there, a="abc")
    listing = there.parent / "listing"
    over_ssh.set_environment(
        {"PATH": program(there.parent / "evil", "find", f"case $* in *stat*) cat '{listing}';; esac")}
    )
    for line in EVIL_LISTINGS:
        listing.write_text(f"{line}\n")
        with pytest.raises(CommandError):
            fetch_folder(over_ssh.address, str(there), str(here), clock=FakeClock())
        assert tree(here) == {}, line
    assert not (here.parent / "escaped").exists()


EVIL_ARCHIVES = (  # tests/hostile/test_archives.py has all of them
    "ln -s .. up; mkdir b; echo abc > b/a; tar -cf - ./up --transform 's,^./b,up,' ./b",
    "echo abc > escaped; tar -P -cf - --transform 's,^./,ROOT/,' ./escaped",
    "cat /dev/zero",
    ":",
)


def test_an_archive_with_anything_else_than_the_files_writes_nothing(
    over_ssh: Place, there: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    write(there, a="abc")
    few = only_these_tools(there.parent / "few", *USUAL_TOOLS, "ln")
    script = f"""[ $1 = --version ] && exit
cd '{tmp_path}/work' && rm -rf ./*
tar() {{ {shutil.which("tar")} "$@"; }}
. '{tmp_path}/evil.sh'
"""
    over_ssh.set_environment({"PATH": program(there.parent / "evil", "tar", script).partition(":")[0] + ":" + few})
    write(tmp_path / "state")
    write(tmp_path / "work")
    for number, evil in enumerate(EVIL_ARCHIVES):
        with subtests.test(evil=evil):
            here = write(tmp_path / f"here {number}")
            (tmp_path / "evil.sh").write_text(evil.replace("ROOT", str(tmp_path)))
            before = set(os.listdir(tmp_path))
            with pytest.raises(CommandFailed, match="1 of 1 file did not arrive"):
                fetch_folder(over_ssh.address, str(there), str(here), clock=FakeClock())
            assert [name for name in os.listdir(here) if not name.startswith(".training_monitor")] == []
            assert set(os.listdir(tmp_path)) == before


def test_an_rsync_that_sends_links_for_files_makes_none(over_ssh: Place, here: Path, there: Path) -> None:
    file = write(there, a="abc") / "a"
    script = f"""mv "{file}" "{file}.kept"; ln -s /etc/passwd "{file}"
{shutil.which("rsync")} "$@"; status=$?; mv -f "{file}.kept" "{file}"; exit $status
"""
    over_ssh.set_environment({"PATH": program(there.parent / "evil", "rsync", script)})
    report = fetch_folder(over_ssh.address, str(there), str(here), clock=FakeClock())
    assert tree(here) == {"a": b"abc"} and not (here / "a").is_symlink() and report.by == "tar"


def test_an_rsync_that_sends_more_than_was_asked_for_writes_nothing(
    over_ssh: Place, here: Path, there: Path, tmp_path: Path
) -> None:
    """It swallows the request and sends a folder of its own choice, with what it likes best."""
    write(there, a="abc")
    write_file(tmp_path / "gift" / ".ssh" / "authorized_keys", "key")
    (tmp_path / "gift" / "a").symlink_to("/etc/passwd")
    gift = f"{tmp_path / 'gift'}/"
    script = f"""
import os
request = b""
while not request.endswith(b"\\0\\0"):
    request += os.read(0, 1) or exit(9)
os.execv({shutil.which("rsync")!r}, ["rsync", "--server", "--sender", "-rlte.LsfxCIvu", ".", {gift!r}])
"""
    evil = program(
        tmp_path / "evil",
        "rsync",
        f"""case $* in *--server*) exec {PYTHON} -c '{script.replace("'", '"')}';; esac""",
    )
    over_ssh.set_environment({"PATH": evil})
    report = fetch_folder(over_ssh.address, str(there), str(here), clock=FakeClock())
    assert tree(here) == {"a": b"abc"} and report.by == "tar"


# --- what a machine must show

GPUS = (
    "0, GPU-1, NVIDIA GeForce RTX 4090, 0, 0, 12, 24564, 20.00, 450.00, 35, [N/A]\\n"
    "1, GPU-2, NVIDIA GeForce RTX 4090, 0, 0, 12, 24564, 20.00, 450.00, 35, [N/A]\\n"
)


def test_a_machine_with_its_gpus_and_its_disk_passes(over_ssh: Place, tmp_path: Path) -> None:
    script = f"case $* in *--query-gpu*) printf '{GPUS}';; esac"
    over_ssh.set_environment({"PATH": program(tmp_path / "gpus", "nvidia-smi", script)})
    report = check_instance(
        over_ssh.address,
        num_gpus=2,
        min_vram_gb=24,
        min_disk_gb=0.001,
        folder=str(tmp_path / "not" / "there yet"),
        command='test "it\'s" = "it\'s" && exit 0',
    )
    assert report.ok and report.problems == () and len(report.gpus) == 2
    assert report.free_disk_gb is not None and report.free_disk_gb > 0.001


def test_a_machine_that_is_not_what_was_rented_says_why(over_ssh: Place, tmp_path: Path) -> None:
    script = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    over_ssh.set_environment({"PATH": program(tmp_path / "gpus", "nvidia-smi", script)})
    report = check_instance(over_ssh.address, min_disk_gb=1e9, command="echo no torch >&2; exit 3")
    assert not report.ok and report.gpus == ()
    mismatch, disk, command = report.problems
    assert "version mismatch" in mismatch and "are needed" in disk
    assert command == "the check command exited with 3: no torch"
