"""Every command on a target that returns false data: no traceback, a documented status, no verdict from garbage.

    TRAINING_MONITOR_FUZZ=200000 python3 -m pytest tests/hostile

TRAINING_MONITOR_FUZZ is a measure of how many answers are tried, TRAINING_MONITOR_FUZZ_SEED makes other ones, and
TRAINING_MONITOR_FUZZ_REPORT is a file to which each sweep appends what it found. The answers that are mutated are those
of the real sh about a small training. All failures of a sweep are reported, each once.
"""

from __future__ import annotations

import os
import random
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import target as hostile
from tests.hostile.mutations import NO_JSON, mutated, mutated_json
from tests.hostile.target import GARBAGE, MODES, Body, forge, forged, framed, save_answers
from tests.hostile.tries import tried
from tests.hostile.world import (
    COUNT,
    INTERRUPTED,
    POD,
    SEED,
    SSH,
    STATUSES,
    VAST,
    Report,
    Tape,
    TooLong,
    World,
    a_world,
    judge,
    look,
    place_of,
    time_limit,
    vast_document,
    vastai,
)
from tests.integration.commands import run_command
from training_monitor.targets.transport import LocalTransport

OK, BAD, USAGE, UNKNOWN = 0, 1, 2, 3
ACTING = ("destroy", "stop", "create", "start", "reboot", "recycle")
# What a garbled answer is there, if not unknown: `doctor` reports a target that does not answer as broken, and
# `upload` and `stop --notify` one that does not answer as not uploaded and not ended.
OF_GARBAGE = {"doctor": (OK, BAD), "upload": (BAD, UNKNOWN), "stop and notify": (BAD, UNKNOWN)}
# A job waits until vast.ai answers, and a worker has none here.
OF_JOBS = {"launch": (UNKNOWN, INTERRUPTED), "worker": (OK, UNKNOWN)}
# Supervision continues until the target answers again.
GOES_ON = ("run", "restart", "wait", "upload", "stop")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patches, a_world(patches) as found:
        yield found


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path.name)


def _as_json(argv: Sequence[str]) -> tuple[str, ...]:
    """The command with --json, where that is one answer: metrics are a text, and a worker has events alone."""
    words = argv[:2] if argv[0] == "rent" else argv[:1]
    return tuple(argv) if words[-1] in ("metrics", "worker") else (*words, "--json", *argv[len(words) :])


def _use(world: World, name: str) -> None:
    """Answer as the command `name` was answered, without changes."""
    world.wires.tape = world.tapes.get(name, Tape())
    world.wires.tapes = [tape for other, tape in world.tapes.items() if other != name]
    world.wires.change = lambda _, body: body
    world.wires.frames, world.wires.vastai = framed, vastai


def _deal(count: int, names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Each name about as often, in any order."""
    left: list[str] = []
    for _ in range(count):
        if not left:
            left = [*names]
            rng.shuffle(left)
        yield left.pop()


def _cases(count: int, names: Sequence[str], words: Sequence[str], what: str) -> Iterator[tuple[str, str, int]]:
    """Commands, each with a garbage and an exit code: each of both about as often."""
    rng = random.Random(f"{SEED} {what}")
    yield from (
        (name, word, rng.choice((0, 0, 0, 1)))
        for name, word in zip(*(_deal(count, each, rng) for each in (names, words)))
    )


class TestAnswers:
    def test_sound_answers_are_understood(self, world: World, report: Report) -> None:
        """What is below shows something only if the same answers, not garbled, are understood."""
        for target, part in ((SSH, slice(None)), (POD, slice(0, None, 9)), (VAST, slice(3, None, 9))):
            for name, argv in [*world.commands(target).items()][part]:
                _use(world, name)
                goes_on = name not in world.said
                told: tuple[int, ...] = (INTERRUPTED, *STATUSES) if goes_on else (world.said[name].returncode,)
                if name in ("fleet", "metrics", "doctor"):
                    told = (OK, BAD, UNKNOWN)  # alerts of disks and memory here; a late answer; tools that are not here
                if name == "upload":
                    told = (*OF_GARBAGE[name], INTERRUPTED)  # by the time that its process had while it was recorded
                look(world, report, name, argv if target == SSH else _as_json(argv), f"sound, {target}", allowed=told)
        report.check()

    def test_garbage_is_unknown(self, world: World, report: Report) -> None:
        bodies, commands = {**GARBAGE, "nothing": b""}, world.commands(SSH)
        for number, (name, word, code) in enumerate(_cases(COUNT // 90, [*commands], [*bodies], "garbage")):
            _use(world, name)
            told = OF_GARBAGE.get(name) or (UNKNOWN, *([INTERRUPTED] if name.split()[0] in GOES_ON else []))
            world.wires.change = lambda _, __: Body(bodies[word], code)  # noqa: B023
            words = _as_json(commands[name]) if number % 2 else commands[name]
            look(world, report, name, words, f"all answers are {word}, exit code {code}", allowed=told)
        report.check()

    def test_an_answer_that_is_garbage_beside_sound_ones_is_no_verdict(self, world: World, report: Report) -> None:
        """Each question of each command, answered by garbage; what is left may be enough for a verdict."""
        rng = random.Random(f"{SEED} beside")
        cases = [
            (name, asked)
            for name in world.commands(SSH)
            for asked in {each: None for names, _ in world.tapes[name].calls for each in names}
        ]
        rng.shuffle(cases)
        for number in range(COUNT // 120):
            name, asked = cases[number % len(cases)]
            word = rng.choice([*GARBAGE])
            _use(world, name)
            world.wires.change = lambda each, body: Body(GARBAGE[word]) if each == asked else body  # noqa: B023
            argv = world.commands(SSH)[name]
            words = _as_json(argv) if number % 2 else argv
            look(world, report, name, words, f"{asked} is {word}", allowed=self._beside(world, name))
        report.check()

    @staticmethod
    def _beside(world: World, name: str) -> tuple[int, ...]:
        """Never "failed" out of garbage, unless the sound answers say so."""
        sound = world.said[name].returncode if name in world.said else INTERRUPTED
        return (*OF_GARBAGE.get(name, ()), OK, UNKNOWN, INTERRUPTED, sound)

    def test_mutated_answers(self, world: World, report: Report) -> None:
        rng = random.Random(f"{SEED} mutated")
        commands = {target: world.commands(target) for target in (SSH, POD, VAST)}
        for number, name in enumerate(_deal(COUNT // 120, [*commands[SSH]], rng)):
            _use(world, name)
            seed, share = f"{SEED} {number}", rng.choice((0.1, 0.3, 1.0))
            said: list[str] = []

            def change(asked: str, body: Body, seed: str = seed, share: float = share, said: list[str] = said) -> Body:
                any_of = random.Random(f"{seed} {asked} {len(said)}")
                if any_of.random() > share:
                    return body
                new, what = mutated(body, any_of)
                said.append(f"{asked}: {what}")
                return new

            world.wires.change = change
            argv = commands[SSH if number % 10 else POD if number % 20 else VAST][name]
            words = _as_json(argv) if number % 3 else argv
            look(world, report, name, words, _Said(seed, said))  # type: ignore[arg-type]
        report.check()

    def test_forged_frames(self, world: World, report: Report) -> None:
        rng = random.Random(f"{SEED} forged")
        names = [name for name, _ in forged("n", [Body(b"x")])]
        commands = world.commands(SSH)
        cases = [("gpu", name) for name in names]
        cases += [(command, rng.choice(names)) for command in _deal(COUNT // 300, [*commands], rng)]
        for number, (command, name) in enumerate(cases):
            _use(world, command)
            world.wires.frames = lambda nonce, bodies: forge(name, nonce, bodies)  # noqa: B023
            words = _as_json(commands[command]) if number % 2 else commands[command]
            look(world, report, command, words, f"forged frames: {name}", allowed=self._beside(world, command))
        report.check()


class _Said:
    """What was changed, told when it is needed: the changes are made while the command runs."""

    def __init__(self, seed: str, said: list[str]) -> None:
        self._seed, self._said = seed, said

    def __str__(self) -> str:
        return f"[{self._seed}] {'; '.join(self._said)[:700]}"

    def __format__(self, _: str) -> str:
        return str(self)

    def __contains__(self, word: str) -> bool:
        return word in str(self)


class TestState:
    def test_what_a_lying_target_left_behind_harms_no_later_look(self, world: World, report: Report) -> None:
        """One state folder for all: the kept looks, the history and the claims of hostile answers, then sound ones."""
        rng = random.Random(f"{SEED} state")
        shutil.rmtree(world.state, ignore_errors=True)
        commands = world.commands(SSH)
        words = ("check", "status", "fleet", "watch", "health", "top")
        looking = [name for name in commands if name.split()[0] in words]
        for number in range(COUNT // 600):
            name = rng.choice(looking)
            _use(world, name)
            any_of = random.Random(f"{SEED} state {number}")
            world.wires.change = lambda _, body, any_of=any_of: mutated(body, any_of)[0]  # type: ignore[misc]
            look(world, report, name, commands[name], f"state {number}", fresh=False)
            if number % 5 == 4:
                for history in (("history",), ("history", "--json"), ("history", SSH), ("history", SSH, "--json")):
                    look(world, report, "history", history, f"after {number}", fresh=False)
        for name in looking:
            _use(world, name)
            look(world, report, name, _as_json(commands[name]), "sound, after hostile ones", fresh=False)
        report.check()


class TestVast:
    """A vastai whose JSON is hostile."""

    COMMANDS: dict[str, tuple[str, ...]] = {
        "instances": ("rent", "instances"),
        "instances ID": ("rent", "instances", "30007012"),
        "offers": ("rent", "offers", "--max-price", "9"),
        "offers of a GPU": ("rent", "offers", "--gpu", "4090", "--bid"),
        "credits": ("rent", "credits"),
        "keys": ("rent", "keys"),
        "launch": ("rent", "launch", "--watch", "--name", "x", "--command", "true", "--disk", "1"),
        "worker": ("rent", "worker", "--until-empty"),
        "metrics": ("metrics", VAST, "--once"),
        "sweep": ("rent", "sweep"),
        "sweep --force": ("rent", "sweep", "--force"),
        "vast": ("vast", "--once"),
        "vast instance": ("vast", "--instances", "30007012", "--once"),
        "fleet": ("fleet", VAST, "--once"),
        "check": ("check", VAST),
        "gpu": ("gpu", VAST),
        "doctor": ("doctor", VAST),
        "top": ("top", f"{VAST}/progress", "--once"),
    }

    def test_no_json_is_unknown(self, world: World, report: Report) -> None:
        big = [word for word in NO_JSON if word.startswith("10 MB")]
        small = [word for word in NO_JSON if word not in big]
        cases = [*_cases(COUNT // 150, [*self.COMMANDS], small, "no JSON")]
        cases += _cases(COUNT // 8000, [*self.COMMANDS], big, "no short JSON")
        for number, (name, word, code) in enumerate(cases):
            _use(world, name)
            world.wires.vastai = lambda _: (NO_JSON[word], code)  # noqa: B023
            words = _as_json(self.COMMANDS[name]) if number % 2 else self.COMMANDS[name]
            # no key pair here, which is known
            told = {"doctor": (OK, BAD), "keys": (BAD, UNKNOWN), **OF_JOBS}.get(name, (UNKNOWN,))
            look(world, report, f"vastai: {name}", words, f"vastai says {word}, exit code {code}", allowed=told)
            self._acts_on_nothing(world, report, name, word)
        report.check()

    def test_mutated_json(self, world: World, report: Report) -> None:
        rng = random.Random(f"{SEED} vast")
        for number, name in enumerate(_deal(COUNT // 120, [*self.COMMANDS], rng)):
            _use(world, name)
            seed = f"{SEED} {number}"
            said: list[str] = []

            def answer(argv: Sequence[str], seed: str = seed, said: list[str] = said) -> tuple[bytes, int]:
                text, what = mutated_json(vast_document(argv), random.Random(f"{seed} {len(said)}"))
                said.append(f"{' '.join(argv[1:4])}: {what}")
                return text, 0

            world.wires.vastai = answer
            argv = self.COMMANDS[name]
            words = _as_json(argv) if number % 2 else argv
            look(world, report, f"vastai: {name}", words, _Said(seed, said))  # type: ignore[arg-type]
        report.check()

    @staticmethod
    def _acts_on_nothing(world: World, report: Report, name: str, word: str) -> None:
        for argv in world.wires.argvs:
            if argv[0] == "vastai" and argv[1] in ACTING:
                report.add("acts on garbage", " ".join(argv), f"vastai: {name}", word)


class TestPrograms:
    """What takes a program in the place of ssh and kubectl: output without an end, silence, signals."""

    COMMANDS = ("gpu", "status job", "check", "checkpoints", "fleet", "top", "watch log", "health", "doctor", "logs")
    SECONDS = 0.7  # the limit of a round trip here

    def test_programs(self, world: World, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
        tools = world.folder / "fakes"
        tools.mkdir()
        for name in ("ssh", "kubectl"):
            shutil.copy(hostile.__file__, tools / name)
            (tools / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        save_answers(str(world.folder / "answers"), world.all_answers())
        monkeypatch.setenv("TM_HOSTILE_ANSWERS", str(world.folder / "answers"))
        real = LocalTransport.run

        def hurried(self: LocalTransport, argv: Sequence[str], *, timeout: float, input: str | None = None) -> Any:
            return real(self, argv, timeout=min(timeout, TestPrograms.SECONDS), input=input)

        monkeypatch.setattr(LocalTransport, "run", hurried)
        rng = random.Random(f"{SEED} programs")
        modes = [*MODES] * max(1, COUNT // 12000)
        for number, (mode, name) in enumerate(zip(modes, _deal(len(modes), self.COMMANDS, rng))):
            is_sound = MODES[mode]
            monkeypatch.setenv("TM_HOSTILE_MODE", mode)
            shutil.rmtree(world.state, ignore_errors=True)
            argv = world.commands(SSH if number % 3 else POD)[name]
            words = _as_json(argv) if number % 2 else argv
            sound = world.said[name].returncode if name in world.said else OK
            told = OF_GARBAGE.get(name) or (UNKNOWN, *([sound, OK] if is_sound else []))
            self._run(report, name, words, mode, told)
        report.check()

    def _run(self, report: Report, name: str, words: Sequence[str], mode: str, told: Sequence[int]) -> None:
        report.runs += 1
        tried()
        began = time.monotonic()
        try:
            with time_limit(30):
                done = run_command(*words)
        except (Exception, KeyboardInterrupt, TooLong) as error:
            said = "".join(traceback.format_exception(error)[-5:])[-1500:]
            report.add(f"{type(error).__name__} escapes", place_of(error), name, f"a program that: {mode}\n{said}")
            return
        report.statuses[str(done.returncode)] += 1
        judge(report, name, words, f"a program that: {mode}", done, told)
        if (took := time.monotonic() - began) > 20:
            report.add("slow", name, name, f"a program that: {mode}: {took:.0f} s")
