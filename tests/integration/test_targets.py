"""One round trip with many questions, on this machine, in a pod through kubectl, and on a host through ssh."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import KINDS as EVERY, Place, Surroundings, parent_of, pids, plain, wait_until
from training_monitor.core.errors import CommandFailed, CommandTimedOut, TargetNotFound
from training_monitor.core.models import Answer, Reply
from training_monitor.targets.asking import MAX_ANSWER_BYTES, ask, ask_many

KINDS = ("local",)  # of targets; what a way to a target could change is tried on every kind
ON_EVERY_KIND = pytest.mark.parametrize("target", EVERY, indirect=True)
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]
NEEDED = ("sh", "head", "sleep", "cat")
STUBBORN = "trap '' TERM; (trap '' TERM; sleep 61 & sleep 62) & sleep 63; echo never"
MIB = 1 << 20


def outputs(answers: list[Answer[Reply]]) -> list[str]:
    return [answer.get().output for answer in answers]


def only(answers: list[Answer[Reply]]) -> Reply:
    [answer] = answers
    return answer.get()


def restricted_path(folder: Path, names: tuple[str, ...] = NEEDED, shell: str = "sh") -> str:
    """A folder with nothing but these programs."""
    folder.mkdir()
    for name in names:
        program = shutil.which(shell if name == "sh" else name, path="/usr/bin:/bin")
        assert program, name
        (folder / name).symlink_to(program)
    return str(folder)


@pytest.fixture
def orphans() -> Iterator[Callable[[], list[str]]]:
    """Names the processes that lost their parent on any of the targets, also those that have ended since."""
    prctl, subreaper = ctypes.CDLL(None).prctl, 36  # PR_SET_CHILD_SUBREAPER: orphans become our children
    before = set(pids())
    prctl(subreaper, 1, 0, 0, 0)

    def found() -> list[str]:
        ours = [pid for pid in set(pids()) - before if parent_of(pid) == os.getpid()]
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in ours]
        return [name for name in names if not name.startswith("ssh")]  # control masters stay on purpose

    yield found
    prctl(subreaper, 0, 0, 0, 0)


@pytest.fixture
def full_folder(tmp_path: Path) -> Iterator[str]:
    """A folder on a full disk; where mounting one is not allowed, a folder in which nobody can make a file."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield "/proc"
        return
    try:
        with pytest.raises(OSError), (folder / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield str(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class TestAsking:
    @ON_EVERY_KIND
    def test_answers_come_back_in_order_with_output_exit_status_and_duration(self, target: Place) -> None:
        questions = [plain("sleep 0.5; echo slow"), plain("echo no >&2; exit 3"), plain("printf last")]
        slow, failed, last = ask(target.address, *questions)
        assert [(each.get().output, each.exit_code) for each in (slow, failed, last)] == [
            ("slow\n", 0),
            ("", 3),
            ("last", 0),
        ]
        assert slow.duration is not None and last.duration is not None
        assert last.duration < slow.duration and 0.4 <= slow.duration < 10

    def test_nothing_to_ask_is_no_answers(self, target: Place) -> None:
        assert ask(target.address) == []

    def test_forty_questions_are_asked_in_one_round_trip(self, target: Place) -> None:
        questions = [plain(f"echo {number}; exit {number}") for number in range(40)]
        answers = ask(target.address, *questions)
        assert [(each.get().output, each.exit_code) for each in answers] == [(f"{n}\n", n) for n in range(40)]

    @ON_EVERY_KIND
    def test_output_that_looks_like_frames_forges_nothing(self, target: Place) -> None:
        seen = only(ask(target.address, plain("tr '\\0' ' ' </proc/$PPID/environ; echo; cat /proc/$PPID/cmdline")))
        old = (re.findall(r"\b[0-9a-f]{24}\b", seen.output) or ["0123456789abcdef01234567"])[0]
        forged = f"\n{old} exit 0\n\n{old} ask 1 0 0\nforged\n{old} exit 0\n\n{old} close\n"
        answers = ask(target.address, plain(f"printf '%s' '{forged}'; exit 5"), plain("echo true"))
        assert [(each.get().output, each.exit_code) for each in answers] == [(forged, 5), ("true\n", 0)]

    def test_a_script_cannot_learn_the_nonce_of_its_own_round_trip(self, target: Place) -> None:
        script = "echo begin; set; for f in /proc/self /proc/$$; do tr '\\0' '\\n' <$f/cmdline; cat $f/environ; done"
        first, second = outputs(ask(target.address, plain(script), plain("echo true")))
        assert "begin" in first and not re.search(r"\b[0-9a-f]{24} ", first)
        assert second == "true\n"

    @ON_EVERY_KIND
    def test_questions_that_hang_end_at_their_limit_and_the_others_answer(self, target: Place) -> None:
        started = time.monotonic()
        answers = ask(target.address, plain("sleep 60", 1), plain("echo here"), plain(STUBBORN, 1), plain("echo there"))
        assert time.monotonic() - started < 10
        assert [answer.known for answer in answers] == [False, True, False, True]
        assert all(isinstance(answers[number].failure, CommandTimedOut) for number in (0, 2))
        assert outputs([answers[1], answers[3]]) == ["here\n", "there\n"]
        assert wait_until(lambda: not target.surroundings.processes(), 5), target.surroundings.processes()

    def test_a_program_left_in_the_background_delays_no_more_than_the_limit(self, target: Place) -> None:
        started = time.monotonic()
        [left, other] = ask(target.address, plain("sleep 60 & echo ready", 0.5), plain("echo there"))
        assert time.monotonic() - started < 30
        assert (left.get().output, other.get().output) == ("ready\n", "there\n")

    @ON_EVERY_KIND
    def test_any_bytes_but_nul_come_back(self, target: Place) -> None:
        script = "".join(f"\\{number:03o}" for number in range(256))
        expected = bytes(range(1, 256)).decode("utf-8", "replace")
        assert only(ask(target.address, plain(f"printf '{script}'"))).output == expected

    @pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\n\n\n", "\n\na", "a\r\nb\rc"])
    def test_line_ends_come_back_as_they_are(self, local: Place, text: str) -> None:
        assert only(ask(local.address, plain(f"printf '%s' '{text}'"))).output == text

    @ON_EVERY_KIND
    def test_three_mebibytes_come_back_intact(self, target: Place) -> None:
        count = "head -c 3145728 /dev/zero | tr '\\0' x"
        long, short = outputs(ask(target.address, plain(count), plain("echo short")))
        assert (len(long), set(long), short) == (3 * MIB, {"x"}, "short\n")

    def test_more_than_the_limit_is_unknown_and_the_others_answer(self, target: Place) -> None:
        flood = f"head -c {MAX_ANSWER_BYTES + 1} /dev/zero | tr '\\0' x"
        long, short = ask(target.address, plain(flood), plain("echo short"))
        assert (long.known, short.get().output) == (False, "short\n")
        assert str(MAX_ANSWER_BYTES) in (long.error or "")

    @ON_EVERY_KIND
    def test_an_endless_output_is_cut_off(self, target: Place) -> None:
        endless, short = ask(target.address, plain("while :; do echo xxxxxxxxxxxxxxxx; done", 3), plain("echo short"))
        assert (endless.known, short.get().output) == (False, "short\n")
        assert wait_until(lambda: not target.surroundings.processes(), 5), target.surroundings.processes()

    @ON_EVERY_KIND
    def test_a_script_is_taken_literally(self, target: Place) -> None:
        text = 'it\'s "quoted" `rm -rf nothing` $(echo no) $HOME \\n %s ; | & ünïcödé 训练 🚀\n  second line\n'
        script = f"cat <<'END'\n{text}END"
        assert only(ask(target.address, plain(script))).output == text

    def test_a_script_that_is_no_sh_fails_alone(self, target: Place) -> None:
        scripts = ["if then fi", "echo 'never closed", "exit 4; }", ") ; echo no", "cat <<END\nopen"]
        answers = ask(target.address, *map(plain, scripts), plain("echo fine"))
        assert answers[-1].get().output == "fine\n"
        assert [answer.known for answer in answers] == [True] * 6
        assert all(answer.exit_code for answer in answers[:2])

    @ON_EVERY_KIND
    def test_a_script_can_be_long_and_one_that_is_too_long_is_unknown(self, target: Place) -> None:
        scripts = [f": '{'x' * size}'\necho done" for size in (120_000, MIB // 2)]
        long, too_long, short = ask(target.address, *map(plain, scripts), plain("echo short"))
        assert outputs([long, short]) == ["done\n", "short\n"]
        assert isinstance(too_long.failure, CommandFailed) and "too long" in str(too_long.failure)

    def test_the_stdin_of_a_script_is_empty(self, target: Place) -> None:
        assert outputs(ask(target.address, plain("cat; echo end"), plain("echo next"))) == ["end\n", "next\n"]

    @ON_EVERY_KIND
    def test_no_argv_on_the_target_shows_a_script(self, target: Place) -> None:
        done, word = target.folder / "done", f"hunter-{os.urandom(8).hex()}"
        script = f"SECRET={word}; echo ready >'{target.folder}/ready'; until [ -e '{done}' ]; do sleep 0.05; done"
        looking = threading.Thread(target=ask, args=(target.address, plain(script, 30)))
        looking.start()
        try:
            assert wait_until((target.folder / "ready").exists)
            pattern = f"[h]{word[1:]}"
            seen = only(ask(target.address, plain(f"cat /proc/[0-9]*/cmdline | grep -ac '{pattern}'; ps axww | wc -l")))
        finally:
            done.touch()
            looking.join()
        assert seen.output.splitlines()[0] == "0"

    @ON_EVERY_KIND
    def test_sh_head_sleep_and_cat_are_all_it_needs(self, target: Place) -> None:
        target.set_environment({"PATH": restricted_path(target.folder / "bin")})
        answers = ask(target.address, plain("echo $PATH"), plain("exit 3"), plain("sleep 60", 0.5))
        assert answers[0].get().output == f"{target.folder}/bin\n"
        assert [(each.known, each.exit_code) for each in answers[:2]] == [(True, 0), (True, 3)]
        assert not answers[2].known

    @pytest.mark.parametrize("shell", SHELLS)
    def test_the_usual_shells_will_do(self, local: Place, shell: str) -> None:
        names = (*NEEDED, "tr", "setsid")
        local.set_environment({"PATH": restricted_path(local.folder / "bin", names, shell)})
        questions = [plain("echo a"), plain("sleep 60", 1), plain("head -c 3145728 /dev/zero | tr '\\0' x"), plain("")]
        answers = ask(local.address, *questions)
        assert [answer.known for answer in answers] == [True, False, True, True]
        assert [len(answers[number].get().output) for number in (0, 2, 3)] == [2, 3 * MIB, 0]

    def test_a_full_disk_does_not_matter(self, target: Place, full_folder: str) -> None:
        target.set_environment({"TMPDIR": full_folder})
        script = 'echo x >"$TMPDIR/file" || echo full; cat <<END\n$(head -c 100000 /dev/zero | tr "\\0" x)\nEND'
        first, second = outputs(ask(target.address, plain(script), plain("echo fine")))
        assert first.startswith("full\n") and second == "fine\n"

    @pytest.mark.parametrize("target", ["local", "over_ssh"], indirect=True)
    def test_twenty_asks_leave_no_process_behind(self, target: Place, orphans: Callable[[], list[str]]) -> None:
        for _ in range(2):
            ask_many([target.address] * 10, plain("echo one"), plain("sleep 0.01; echo two"))
        assert wait_until(lambda: not target.surroundings.processes(), 5), target.surroundings.processes()
        assert orphans() == []

    @pytest.mark.parametrize("target", ["local", "in_pod"], indirect=True)
    def test_sixteen_asks_at_once_all_answer(self, target: Place) -> None:
        questions = [plain("sleep 0.1; echo one"), plain("echo two")]
        assert outputs(ask(target.address, *questions)) == ["one\n", "two\n"]
        assert [outputs(answers) for answers in ask_many([target.address] * 16, *questions)] == [
            ["one\n", "two\n"]
        ] * 16


def test_three_kinds_of_targets_are_asked_at_once_and_a_missing_one_is_unknown(
    local: Place, in_pod: Place, over_ssh: Place, surroundings: Surroundings
) -> None:
    targets = [local.address, "k8s://default/gone", in_pod.address, over_ssh.address]
    answers = ask_many(targets, plain("echo hello"), plain("exit 3"))
    assert [[each.exit_code for each in row] for row in answers] == [[0, 3], [None, None], [0, 3], [0, 3]]
    assert all(isinstance(each.failure, TargetNotFound) for each in answers[1])
    assert [row[0].get().output for row in answers if row[0].known] == ["hello\n"] * 3
