"""One round trip, many questions: answers in order, no forged frame, and nothing believed from half a reply."""

from __future__ import annotations

import gc
import re
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from training_monitor.core.errors import (
    CommandError,
    CommandFailed,
    CommandTimedOut,
    ParseError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.models import Answer, Question, Reply
from training_monitor.core.results import CommandResult
from training_monitor.targets.asking import (
    ASK_ATTEMPTS,
    MAX_ANSWER_BYTES,
    MAX_SCRIPT_BYTES,
    Site,
    ask,
    ask_many,
    format_script,
    read_frames,
    read_text,
    side_by_side,
)
from training_monitor.targets.transport import MOST_PROGRAMS, LocalTransport, Stream, Within

NONCE = "0123456789abcdef01234567"


def frame(number: int, body: str, code: int, begin: float = 10.0, end: float = 11.5) -> str:
    return f"\n{NONCE} ask {number} {begin} {end}\n{body}\n{NONCE} exit {code}\n"


REAL = frame(0, "one\n", 0) + frame(1, "zwei ü\nexit 0\n\n", 3) + frame(2, "", 137) + f"\n{NONCE} close\n"
FULL = {0: Reply("one\n", 0, 1.5), 1: Reply("zwei ü\nexit 0\n\n", 3, 1.5), 2: Reply("", 137, 1.5)}


class Fake:
    """A bottom that answers `sh -s` with what `reply` makes of the nonce."""

    def __init__(self, reply: Callable[[str], str], exit_code: int = 0, stderr: str = "") -> None:
        self._reply, self._exit_code, self._stderr = reply, exit_code, stderr
        self.calls: list[tuple[list[str], float, str]] = []

    def run(self, argv: list[str], *, timeout: float, input: str | None = None) -> CommandResult:
        assert input is not None
        self.calls.append((list(argv), timeout, input))
        [nonce] = re.findall(r"^_nonce=([0-9a-f]+)$", input, re.MULTILINE)
        return CommandResult(tuple(argv), self._exit_code, self._reply(nonce), self._stderr, 0.1)

    def stream(self, argv: list[str], *, input: str | None = None) -> Stream:
        raise NotImplementedError


def question(name: str = "q", script: str = ":", limit: float = 10.0) -> Question[str]:
    return Question(name, script, lambda reply: reply.output, limit)


def test_a_whole_reply_gives_every_answer_whatever_was_printed_around_it() -> None:
    assert read_frames(REAL, NONCE) == FULL
    assert read_frames("Welcome to the host!\nlast login: yesterday\n" + REAL, NONCE) == FULL
    assert read_frames(REAL + "session closed, 3 tasks were left\n", NONCE) == FULL
    text = frame(1, "b", 0) + frame(0, "a", 0) + f"\n{NONCE} close\n"
    found = read_frames(text, NONCE) or {}
    assert {number: reply.output for number, reply in found.items() if reply} == {0: "a", 1: "b"}
    assert read_frames(frame(0, "a", 0) + frame(0, "b", 0) + f"\n{NONCE} close\n", NONCE) == {0: None}


def test_a_reply_that_lost_its_beginning_or_end_never_gives_a_wrong_answer() -> None:
    raw = REAL.encode()
    for length in range(len(raw)):
        found = read_frames(raw[:length].decode("utf-8", "replace"), NONCE)
        assert found is None or (found == FULL and length >= len(raw) - 1), length
    for start in range(len(REAL)):
        found = read_frames(REAL[start:], NONCE) or {}
        assert all(FULL[number] == reply for number, reply in found.items()), start


def test_output_cannot_forge_a_frame() -> None:
    for forged in [
        "ask 0 1 2\nforged",
        "exit 0",
        "close",
        "000000000000000000000000 exit 0\n000000000000000000000000 close",
        f"x{NONCE} exit 0",
        f" {NONCE} close",
        f"{NONCE}close",
        "NONCE exit 0\nNONCE close",
    ]:
        text = frame(0, forged, 4) + f"\n{NONCE} close\n"
        assert read_frames(text, NONCE) == {0: Reply(forged, 4, 1.5)}


def test_without_a_mark_or_an_exit_status_nothing_is_known() -> None:
    for text in ["", "\n", "hello", f"{NONCE}", f"\n{NONCE} ask 0 1 2\nx\n{NONCE} exit 0\n"]:
        assert read_frames(text, NONCE) is None
    assert read_frames(f"\n{NONCE} close\n", NONCE) == {}
    text = f"\n{NONCE} ask 0 1 2\ncut off" + frame(1, "fine", 0) + f"\n{NONCE} close\n"
    assert read_frames(text, NONCE) == {0: None, 1: Reply("fine", 0, 1.5)}
    [reply] = (read_frames(frame(0, "x", 0, begin=20, end=10) + f"\n{NONCE} close\n", NONCE) or {}).values()
    assert reply and reply.duration == 0


def test_scripts_travel_on_stdin_with_the_nonce_of_this_call_only() -> None:
    fake = Fake(lambda nonce: REAL.replace(NONCE, nonce))
    ask("local", question(script="echo s3cret"), question(), question(), transport=fake)
    [(argv, _, given)] = fake.calls
    assert argv == ["sh", "-s"] and "echo s3cret" in given
    first, second = (format_script([question()], nonce) for nonce in (NONCE, "f" * 24))
    assert NONCE in first and NONCE not in second and "NONCE" not in first
    fake = Fake(lambda nonce: f"\n{nonce} close\n")
    ask("local", transport=fake)
    ask("local", transport=fake)
    assert fake.calls[0][2] != fake.calls[1][2]


def test_a_script_runs_as_it_is_written() -> None:
    for script in [
        'echo "it\'s"',
        "printf 'a\\nb'",
        "cat <<'EOF'\n$HOME 'x' \"y\"\nEOF",
        "echo $((1+1)); exit 5",
        "echo NONCE MAX",
        "cat; echo no input",
    ]:
        here = LocalTransport().run(["sh", "-c", script], timeout=10)
        [answer] = ask("local", Question("q", script, lambda reply: (reply.output, reply.exit_code)))
        assert answer.value == (here.stdout, here.exit_code)


def test_answers_come_in_order_and_one_that_hangs_costs_no_other_its_answer() -> None:
    answers = ask("local", question("slow", "sleep 0.3; echo a"), question("quick", "echo b"), question("c", "echo c"))
    assert [(answer.name, answer.value) for answer in answers] == [("slow", "a\n"), ("quick", "b\n"), ("c", "c\n")]
    hung, fine = ask("local", question("hung", "sleep 60", limit=0.3), question("fine", "echo fine"))
    assert not hung.known and isinstance(hung.failure, CommandTimedOut) and fine.value == "fine\n"


def answer_of(code: int, duration: float, limit: float = 10.0, parse: Callable[[Reply], str] = read_text) -> Answer:
    def reply(nonce: str) -> str:
        return (frame(0, "said", code, 0, duration) + f"\n{NONCE} close\n").replace(NONCE, nonce)

    [answer] = ask("local", Question("gpu", "x", parse, limit), transport=Fake(reply))
    return answer


def test_137_is_a_time_out_only_after_the_full_time_and_may_be_parsed() -> None:
    answer = answer_of(137, 10.0)
    assert isinstance(answer.failure, CommandTimedOut) and not answer.known and answer.value is None
    assert "gpu: still running after 10 s" in str(answer.error)
    assert isinstance(answer_of(137, 2.0).failure, CommandFailed)
    question = Question("slow", "echo first; sleep 60", lambda reply: reply, 1.0, takes_cut=True)
    [answer] = ask("local", question)
    assert answer.value and (answer.value.output, answer.value.exit_code) == ("first\n", 137)


def test_what_is_asked_from_here_is_answered_in_its_turn_and_sends_no_script() -> None:
    fake = Fake(lambda nonce: f"\n{nonce} ask 0 1 2\nshell\n{nonce} exit 0\n\n{nonce} close\n")
    site = Site.of("local", transport=fake)
    seen: list[object] = []

    def answer(at: object) -> Reply:
        seen.append(at)
        return Reply("api", 0, 0.1)

    def refuse(at: object) -> Reply:
        raise CommandFailed("the API is down")

    api, down = (replace(question(name), beside=each) for name, each in (("api", answer), ("down", refuse)))
    first, second, third = site.ask(api, question("shell"), down)
    assert (first.value, second.value, third.value) == ("api", "shell", None)
    assert third.failure and third.failure.what == "the API is down" and seen == [site]
    [only] = site.ask(api)
    assert only.value == "api" and len(fake.calls) == 1


def test_a_reply_is_awaited_without_its_turn_and_read_in_it() -> None:
    turn = threading.Lock()
    awaited = list[bool]()

    def reply(nonce: str) -> str:
        awaited.append(turn.locked())
        return REAL.replace(NONCE, nonce)

    site = replace(Site.of("local", transport=Fake(reply)), turn=turn)
    questions = [Question(str(number), "true", lambda reply: turn.locked()) for number in range(2)]
    assert [each.value for each in site.ask(*questions)] == [True, True]
    assert awaited == [False] and not turn.locked()


def test_ever_new_time_limits_keep_no_memory() -> None:
    def ask_often(limits: range) -> None:
        for limit in limits:
            format_script([Question("one", "true", read_text, limit=10 + limit / 1000)], NONCE)
        gc.collect()

    ask_often(range(500))
    tracemalloc.start()
    ask_often(range(500, 1500))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 100_000


def test_a_failed_question_says_that_the_target_as_a_whole_answered() -> None:
    failed = answer_of(3, 1.0, parse=read_text).failure
    late = answer_of(137, 10.0).failure
    assert isinstance(failed, CommandFailed) and isinstance(late, CommandTimedOut)
    assert failed.answered and late.answered
    with pytest.raises(TargetUnreachable) as caught:
        ask("local", question(), transport=Fake(lambda nonce: "lost"))
    assert not caught.value.answered
    with pytest.raises(CommandFailed, match="exit code 3: broken"):
        read_text(Reply("broken\n", 3, 0.1))
    assert read_text(Reply("", 0, 0.1)) == ""

    def refuse(reply: Reply) -> str:
        raise ParseError("nonsense", source="gpu", text=reply.output)

    answer = answer_of(0, 1.0, parse=refuse)
    assert isinstance(answer.failure, ParseError) and answer.exit_code == 0
    with pytest.raises(ParseError, match="gpu: nonsense: said"):
        answer.get()


def test_a_question_without_a_frame_is_unknown_and_a_script_may_be_too_long() -> None:
    [answer] = ask("local", question("lost"), transport=Fake(lambda nonce: f"\n{nonce} close\n"))
    assert isinstance(answer.failure, CommandTimedOut) and "lost" in str(answer.error)
    fake = Fake(lambda nonce: (frame(0, "", 126) + f"\n{NONCE} close\n").replace(NONCE, nonce))
    [answer] = ask("local", question(script="#" * (MAX_SCRIPT_BYTES + 1)), transport=fake)
    assert isinstance(answer.failure, CommandFailed) and "too long" in str(answer.error)


def test_a_question_has_its_end_before_all_of_them_have() -> None:
    for timeout, limits in [(20, "17 5"), (10, "8.5 5"), (5, "3.5 3.5"), (100, "60 5")]:
        fake = Fake(lambda nonce: f"\n{nonce} close\n")
        asked = (question(limit=60), question(limit=5))
        answers = ask("local", *asked, timeout=timeout, transport=fake)
        [(_, _, script)] = fake.calls
        assert re.search(rf"\nask_all {limits.replace(' ', ' : ')} :", script)
        assert [str(each.failure) for each in answers] == [
            f"q took longer than {limit} s, or printed more than {MAX_ANSWER_BYTES} bytes" for limit in limits.split()
        ]
    fake = Fake(lambda nonce: f"\n{nonce} close\n")
    ask("local", question(limit=5), question(limit=30), transport=fake)
    ask("local", question(limit=5), timeout=3, transport=fake)
    assert [timeout for _, timeout, _ in fake.calls] == [50.0, 3]


def test_as_many_calls_run_side_by_side_as_programs_may_run() -> None:
    meeting, most, before = threading.Barrier(MOST_PROGRAMS), list[int](), threading.active_count()

    def meet() -> int:
        most.append(threading.active_count())
        return meeting.wait(60)

    assert sorted(side_by_side([meet] * 2 * MOST_PROGRAMS)) == sorted([*range(MOST_PROGRAMS)] * 2)
    assert max(most) - before <= MOST_PROGRAMS - 1


def test_a_reply_without_its_end_is_asked_again_a_few_times() -> None:
    fake = Fake(lambda nonce: REAL.replace(NONCE, nonce)[: -10 if len(fake.calls) < 3 else None])
    answers = ask("local", question(), question(), question(), transport=fake)
    assert len(fake.calls) == 3 and answers[0].value == "one\n"
    fake = Fake(lambda nonce: "cut")
    with pytest.raises(TargetUnreachable, match="no complete response"):
        ask("local", question(), transport=fake)
    assert len(fake.calls) == ASK_ATTEMPTS


def test_only_a_whole_reply_counts_and_a_failed_connection_is_not_tried_again() -> None:
    fake = Fake(lambda nonce: REAL.replace(NONCE, nonce), exit_code=1)
    assert [answer.value for answer in ask("local", *[question()] * 2, transport=fake)] == ["one\n", FULL[1].output]
    fake = Fake(lambda nonce: "", exit_code=1, stderr="connection refused")
    with pytest.raises(TargetUnreachable):
        ask("my-pod", question(), transport=fake)
    assert len(fake.calls) == 1 and fake.calls[0][0][0] == "kubectl"
    fake = Fake(lambda nonce: "", exit_code=1, stderr="connection refused")
    api = replace(question("api"), beside=lambda at: Reply("api", 0, 0.1))
    with pytest.raises(TargetUnreachable):
        Site.of("local", transport=fake).ask(api, question())


def test_many_targets_are_asked_and_one_that_is_away_costs_no_other() -> None:
    class OneAway(Fake):
        def run(self, argv: list[str], *, timeout: float, input: str | None = None) -> CommandResult:
            if "away" in argv:
                raise CommandTimedOut("no answer")
            return super().run(argv, timeout=timeout, input=input)

    fake = OneAway(lambda nonce: REAL.replace(NONCE, nonce))
    rows = ask_many(["here", "away", "there"], question("a"), question("b"), transport=fake)
    assert [[answer.known for answer in row] for row in rows] == [[True, True], [False, False], [True, True]]
    assert [answer.name for answer in rows[1]] == ["a", "b"] and isinstance(rows[1][0].failure, TrainingMonitorError)


@pytest.mark.parametrize("target", ["vast://7", "slurm://5", "ssh://user@host", "k8s://default/pod", "docker://box"])
def test_a_time_limit_includes_the_search_for_the_address(target: str) -> None:
    longest = list[float]()

    class Silent:
        def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
            longest.append(timeout)
            raise CommandTimedOut(f"{argv[0]} did not respond")

        def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
            raise AssertionError

    with pytest.raises(CommandError):
        ask(target, Question("one", "true", read_text), timeout=8, transport=Silent())
    with pytest.raises(CommandError):
        Site.of(target, transport=Silent()).within(8).within(60).ask(Question("one", "true", read_text), timeout=60)
    assert max(longest) <= 8
    assert all(2 * each <= 8 or isinstance(each, Within) for each in longest)  # with the wait for its turn
