"""Stand-ins for time, for the way to a target, and for a target on which process jobs run.

Nothing here sleeps, spawns or opens a connection: a test moves `FakeClock`, and what a job has done by then
follows from its `Behaviour`.
"""

from __future__ import annotations

import heapq
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from training_monitor.core.errors import CommandTimedOut, TargetUnreachable, TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.targets.replies import parse_fields

EPOCH = 1_750_000_000.0
OF_A_ROLL_CALL = ("roll_call", "stacks", "flight_recorder", "nccl_ras", "kernel_log", "blocked", "efa", "host", "waits")
MOST_WAITS = 5_000
ATTEMPT = re.compile(r"(.*?)(?:-attempt-\d+)?")
QUOTED = re.compile(r"'[^']*'(?:\"'\"'[^']*')*")
WORD = r"(?:[\w@%+=:,./-]|'[^']*'|\"[^\"]*\")*"  # with its quotes
Answer = Callable[[str], tuple[str, int]]
Program = Callable[[tuple[str, ...], str | None], CommandResult]


class FakeClock:
    """Time that moves only when somebody sleeps or waits; `at` schedules what happens meanwhile."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.slept: list[float] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return EPOCH + self.elapsed

    def monotonic(self) -> float:
        return 5000.0 + self.elapsed

    def sleep(self, seconds: float) -> None:
        self._pass(seconds, None)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self._pass(seconds, event)
        return event.is_set()

    def at(self, elapsed: float, act: Callable[[], None]) -> None:
        """Call `act` when `elapsed` seconds have passed since this clock was made."""
        heapq.heappush(self._due, (elapsed, len(self._due), act))

    def _pass(self, seconds: float, event: threading.Event | None) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < MOST_WAITS, "it waits for ever"
        end = self.elapsed + max(0.0, seconds)
        while not (event and event.is_set()) and self._due and self._due[0][0] <= end:
            when, _, act = heapq.heappop(self._due)
            self.elapsed = max(self.elapsed, when)
            act()
        if not (event and event.is_set()):
            self.elapsed = end


class FakeTransport:
    """Answers the questions of `ask` out of `answer(script) -> (output, exit code)`; other programs are registered.

    Whatever `answer` raises is what the transport raises.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []
        self.streamed: list[str | None] = []
        self._programs: list[tuple[tuple[str, ...], Program]] = []

    def register(self, start: Sequence[str], act: Program) -> None:
        """Let `act` answer every argv that begins with `start`."""
        self._programs.append((tuple(start), act))

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        words = tuple(argv)
        if words == ("sh", "-s"):
            return self.answer_all(words, input)
        for start, act in self._programs:
            if words[: len(start)] == start:
                return act(words, input)
        raise AssertionError(f"unexpected program: {words}")

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> FakeStream:
        if tuple(argv)[:2] == ("sh", "-c"):
            return FakeOutput(self.run(argv, timeout=1.0, input=input))
        assert tuple(argv)[-2:] == ("sh", "-s"), f"unexpected program: {argv}"
        self.streamed.append(input)
        return FakeStream()

    def answer_all(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        """What `sh -s` prints for a program of `format_script`; a plain command over ssh prints nothing."""
        if words[-1] == "true":
            return CommandResult(words, 0, "", "", 0.0)
        assert program, "no program for sh"
        nonce, scripts = read_program(program)
        self.asked.append(list(scripts.values()))
        frames = []
        for number, script in scripts.items():
            output, exit_code = self.answer(script)
            frames.append(f"\n{nonce} ask {number} 100.00 100.01\n{output}\n{nonce} exit {exit_code}\n")
        return CommandResult(words, 0, "".join(frames) + f"\n{nonce} close\n", "", 0.0)


class FakeStream:
    """A connection that breaks at once: it says nothing about the job."""

    def chunks(self) -> Iterator[bytes]:
        return iter(())

    def close(self) -> None:
        return None


class FakeOutput(FakeStream):
    """What a registered program says, and its exit code on a line, as the scripts of copying end."""

    def __init__(self, result: CommandResult) -> None:
        self.result = result

    def chunks(self) -> Iterator[bytes]:
        yield f"{self.result.stdout}{self.result.stderr}\nexit {self.result.exit_code}\n".encode()


def read_program(program: str) -> tuple[str, dict[int, str]]:
    """The nonce and the scripts by number of a program that `format_script` wrote."""
    nonce = re.search(r"^_nonce=(\w+)$", program, re.MULTILINE)
    assert nonce, "not a program of format_script"
    texts = re.findall(rf" [\d.]+ ({QUOTED.pattern})", program[program.rindex("\nask_all") :])
    return nonce[1], {number: text[1:-1].replace("'\"'\"'", "'") for number, text in enumerate(texts)}


@dataclass(frozen=True)
class Call:
    """A call of a function of `targets/sh/SUBJECT.sh`, and the variables it was given."""

    subject: str
    function: str
    given: dict[str, str]


@lru_cache(maxsize=100)
def read_call(script: str) -> Call | None:
    """What a script of `format_call` does, also one that guards another; None for any other script."""
    if not (found := re.match(rf"\(?: (\w+) (\w+)\n((?:\w+={WORD}\n)*)", script)):
        return None
    given = re.findall(rf"(\w+)=({WORD})\n", found[3])
    # Not by shlex.split, which reads letter by letter: tests ask thousands of questions.
    return Call(found[1], found[2], {name: re.sub(r"'([^']*)'|\"([^\"]*)\"", r"\1\2", word) for name, word in given})


def read_arguments(script: str) -> list[str]:
    """The arguments of the function that a script of `format_call` calls at its end."""
    call = read_call(script)
    assert call
    return shlex.split(script[script.rindex(f"\n{call.function} ") :])[1:]


def read_cursor(script: str) -> tuple[int | None, int]:
    """The inode (None: there is no cursor) and the offset that a question about a log begins at."""
    call = read_call(script)
    assert call and call.subject == "log"
    return int(call.given["inode"]) if call.given["inode"] else None, int(call.given["offset"])


def is_call(script: str, subject: str, function: str = "") -> bool:
    """Whether a script calls a function of a subject (any of them, where none is named)."""
    call = read_call(script)
    return call is not None and call.subject == subject and function in ("", call.function)


@dataclass(frozen=True)
class Behaviour:
    """What a job does: it makes one step every second from where it resumes, and saves every `save_every` steps.

    `crash_after` and `hang_after` count seconds from its start; `survivors` processes outlive a crash;
    `unkillable` is how often a stop leaves it running; a `quiet` job prints nothing.
    """

    total: int = 300
    save_every: int | None = 50
    crash_after: float | None = None
    hang_after: float | None = None
    exit_code: int = 1
    survivors: int = 0
    unkillable: int = 0
    quiet: bool = False
    last_words: str = ""
    ignores_checkpoint: bool = False
    evaluates: tuple[float, float] = (0.0, 0.0)  # seconds since its start, without steps
    line: str = "step {step}/{total} loss 0.5"  # also {left} steps after its beginning, as {done} of them


@dataclass
class FakeJob:
    name: str
    starter: str
    command: str
    env: dict[str, str]
    started: float
    first_step: int
    behaviour: Behaviour
    stopped_by: str | None = None
    stopped_at: float | None = None
    survivors: int = 0
    stop_tries: int = 0
    finished_at: float | None = None
    gone: bool = False

    def finish(self, now: float) -> None:
        """It ends well after all, at once."""
        self.finished_at = now

    def go_on(self, now: float) -> None:
        """It has hung, and makes steps again for some seconds."""
        hung = self.behaviour.hang_after or 0.0
        self.behaviour = replace(self.behaviour, hang_after=None, evaluates=(hung, now - 10 - self.started))

    def active(self, now: float) -> float:
        """Seconds in which it made steps."""
        does = self.behaviour
        ends = (now, self.stopped_at, *(self.started + each for each in (does.crash_after, does.hang_after) if each))
        active = max(0.0, min(each for each in ends if each is not None) - self.started)
        begin, end = does.evaluates
        return active - max(0.0, min(active, end) - begin)

    def step(self, now: float) -> int:
        return min(self.behaviour.total, self.first_step + int(self.active(now)))

    def exit(self, now: float) -> tuple[int, float] | None:
        """Its exit code and when; None while it runs."""
        does = self.behaviour
        ends: list[tuple[float, int]] = []
        if does.crash_after is not None:
            ends.append((self.started + does.crash_after, does.exit_code))
        if does.hang_after is None or self.first_step + does.hang_after >= does.total:
            ends.append(
                (self.started + max(0, does.total - self.first_step) + does.evaluates[1] - does.evaluates[0], 0)
            )
        ends += [(when, code) for when, code in ((self.finished_at, 0), (self.stopped_at, 143)) if when is not None]
        when, code = min(ends, default=(now + 1, 0))
        return (code, when) if when <= now else None

    def processes(self, now: float) -> int:
        """How many of its processes are there."""
        if self.gone:
            return 0
        ended = self.exit(now)
        if ended is None:
            return 1
        return self.survivors if ended[0] not in (0, 143) else 0

    def log(self, now: float) -> tuple[str, float]:
        """What it has written, and when it wrote last."""
        active, does = self.active(now), self.behaviour
        if does.quiet:
            return does.last_words if self.exit(now) else "", self.started
        first, step = self.first_step, self.step(now)
        numbers = range(max(first, step - 20) + 1, step + 1)
        left, total = does.total - first, does.total
        lines = [does.line.format(step=each, total=total, done=each - first, left=left) for each in numbers]
        if does.save_every and (saved := step // does.save_every * does.save_every) > first:
            lines.insert(0, f"Saving model checkpoint to /checkpoints/step_{saved}")
        begin, end = does.evaluates
        if begin <= now - self.started < end:
            lines.append("Running evaluation")
        if does.last_words and self.exit(now):
            lines.append(does.last_words)
        paused = end - begin if now - self.started >= end else 0.0
        return "".join(f"{line}\n" for line in lines), self.started + int(active + paused)


@dataclass
class FakeClaims:
    """The newest claim on each training: number, state, token, lease, when it was last written, words."""

    newest: dict[str, tuple[int, str, str, str, float, str]] = field(default_factory=dict)
    unwritable: bool = False

    def answer(self, call: Call, now: float) -> str:
        key, given = call.given["key"], call.given
        if call.function == "take":
            if self.unwritable:
                return "error=cannot create the folder of claims (disk full, or no permission)\n"
            number, words = int(given["new_number"]), f"{now:.0f} {given['new_owner']}"
            if self.newest.get(key, (0,))[0] < number:
                self.newest[key] = (number, "held", given["new_token"], given["new_lease"], now, words)
        elif call.function in ("write", "guard") and key in self.newest and not self.refuses(call):
            number, _, token, lease, _, words = self.newest[key]
            self.newest[key] = (number, given.get("new_state", "held"), token, lease, now, words)
        if key not in self.newest:
            return ""
        number, state, token, lease, beat, words = self.newest[key]
        return f"claim={number} {state} {token} {lease} {now - beat:.0f} {words}\n"

    def take_over(self, now: float, state: str = "held") -> None:
        """Another machine takes over the one claim there is, and is heard of now."""
        [(key, (number, _, _, lease, _, words))] = self.newest.items()
        others = " ".join([words.split()[0], "node7", "bob", *words.split()[3:]])
        self.newest[key] = (number + 1, state, "anotherstoken", lease, now, others)

    def beat(self, now: float) -> None:
        """The owners are heard of again."""
        for key, (number, state, token, lease, _, words) in self.newest.items():
            self.newest[key] = (number, state, token, lease, now, words)

    def refuses(self, call: Call) -> bool:
        """Whether what is done by its owner only is not done, since somebody else holds the claim."""
        key = call.given["key"]
        return key in self.newest and self.newest[key][2] != call.given["token_held"]


@dataclass
class FakeJobs:
    """A target in memory on which process jobs run; `FakeTransport(jobs.answer)` reaches it.

    Every start is recorded, and none may happen while anything else of the same name is there.
    """

    clock: FakeClock
    behaviours: list[Behaviour] = field(default_factory=lambda: [Behaviour()])
    checkpoints: dict[int, str | None] = field(default_factory=dict)  # step -> what is damaged
    keep_checkpoints: bool = True
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    gpus: str = ""
    saved_at: dict[int, float] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    claims: FakeClaims = field(default_factory=FakeClaims)
    starts: list[FakeJob] = field(default_factory=list)
    start_questions: list[str] = field(default_factory=list)
    lose_start_answers: int = 0
    drop_starts: int = 0
    slow_starts: int = 0
    outage_after_start: float = 0.0
    refuse_starts: str | None = None
    outages: list[tuple[float, float, TrainingMonitorError]] = field(default_factory=list)

    @property
    def now(self) -> float:
        return self.clock.time()

    def unreachable(self, begin: float, end: float, error: TrainingMonitorError | None = None) -> None:
        """No answer between two moments of the clock."""
        self.outages.append((begin, end, error or TargetUnreachable("connection refused")))

    def add(self, name: str, behaviour: Behaviour, *, started: float = 0.0) -> FakeJob:
        """A job that somebody else started, `started` seconds on the clock."""
        job = FakeJob(name, "somebody", "train", {}, EPOCH + started, 0, behaviour, survivors=behaviour.survivors)
        self.jobs[name] = job
        return job

    def stop_by_person(self) -> None:
        """A person stops what runs."""
        for job in self.running():
            job.stopped_by, job.stopped_at = "a person", self.now

    def lose_everything(self) -> None:
        """A new machine: it remembers no job."""
        for job in self.jobs.values():
            job.gone = True
        self.jobs.clear()

    def running(self) -> list[FakeJob]:
        return [job for job in self.jobs.values() if job.processes(self.now)]

    def answer(self, script: str) -> tuple[str, int]:
        """What the scripts of the package print here, recognised by what only they do."""
        for begin, end, error in self.outages:
            if begin <= self.clock.elapsed < end:
                raise error
        while (claim := read_call(script)) and claim.subject == "claims":
            script = script.partition(") || exit 75\n")[2]
            said = self.claims.answer(claim, self.now)
            if claim.function != "guard" or self.claims.refuses(claim):
                return said, 75 if claim.function == "guard" else 0
        return self.act(script) if script else ("", 0)

    def act(self, script: str) -> tuple[str, int]:
        """The same of a script that is not about claims."""
        self._write_checkpoints()
        if is_call(script, "log_samples"):
            return "", 0  # samples of a short log
        if is_call(script, "checkpoints"):
            return self._list_checkpoints(), 0
        if is_call(script, "gpu"):
            return (self.gpus, 0) if self.gpus else ("", 127)
        call = read_call(script)
        if call and (call.subject in OF_A_ROLL_CALL or call.function == "show_kills"):
            return "", 1  # nothing is known of its ranks
        acts = {
            ("job", "look"): self._look,
            ("job_start", "start"): self._start,
            ("job_stop", "stop"): self._stop,
            ("jobs", "list"): self._list,
            ("evidence", "look"): lambda given: "end\n",  # nothing is known of its processes
            ("file_age", "show"): self._show_file_age,
            ("former_attempts", "remove_all"): lambda given: "state=done\n",
            ("holds", "hold"): self._hold,
            ("holds", "show"): lambda given: self.held.get(given["key"], ""),
        }
        if call and (call.subject, call.function) == ("job", "look_at_all"):
            return self._look_at_all(read_arguments(script)), 0
        if call and (act := acts.get((call.subject, call.function))):
            return act(call.given), 0
        raise AssertionError(f"unexpected script: {script[-400:]}")

    def _show_file_age(self, given: dict[str, str]) -> str:
        return f"file {int(max(self.saved_at.values(), default=0))}\nnow {int(self.now)}\n"

    def _list(self, given: dict[str, str]) -> str:
        return "".join(f"{name}\n" for name in sorted(self.jobs, key=lambda each: -self.jobs[each].started))

    def _hold(self, given: dict[str, str]) -> str:
        self.held[given["key"]] = given["by"]
        return ""

    def _start(self, given: dict[str, str]) -> str:
        name, starter = given["_name"], given["_starter"]
        self.start_questions.append(name)
        if self.drop_starts:
            self.drop_starts -= 1
            raise CommandTimedOut("no answer within 50 s")
        if self.refuse_starts:
            return f"error={self.refuse_starts}\n"
        if name in self.jobs:
            state = "started" if self.jobs[name].starter == starter else "exists"
        else:
            state = "started"
            self._begin(name, starter, given)
        if self.outage_after_start:
            begin = self.clock.elapsed
            self.unreachable(begin, begin + self.outage_after_start)
            self.outage_after_start = 0.0
            raise CommandTimedOut("no answer within 50 s")
        if self.lose_start_answers:
            self.lose_start_answers -= 1
            raise CommandTimedOut("no answer within 50 s")
        if self.slow_starts:
            self.slow_starts -= 1
            return "error=the job's process did not appear within 5 s\n"
        return f"state={state}\n"

    def _begin(self, name: str, starter: str, given: dict[str, str]) -> None:
        family = ATTEMPT.fullmatch(name)
        assert family
        others = [job.name for job in self.running() if job.name.startswith(family[1])]
        assert not others, f"{name} was started beside {others}"
        env = dict(word.split("=", 1) for word in shlex.split(given["_exports"]) if word != "export")
        resumed = env.get("RESUME_FROM_CHECKPOINT")
        first_step = int(resumed.rpartition("_")[2]) if resumed else 0
        assert not resumed or self.checkpoints[first_step] is None, f"{name} resumes from a damaged checkpoint"
        does = self.behaviours[min(len(self.starts), len(self.behaviours) - 1)]
        first_step = 0 if does.ignores_checkpoint else first_step
        job = FakeJob(name, starter, given["_command"], env, self.now, first_step, does, survivors=does.survivors)
        self.jobs[name] = job
        self.starts.append(job)

    def _stop(self, given: dict[str, str]) -> str:
        job = self.jobs.get(given["_name"])
        if job is None:
            return "state=missing\n"
        if job.exit(self.now) is None:
            job.stopped_by = given["_by"]
            job.stop_tries += 1
            if job.stop_tries <= job.behaviour.unkillable:
                return "state=stopped\nleft=4242 D\n"
            job.stopped_at = self.now
        job.survivors = 0
        return "state=stopped\n"

    def _look(self, given: dict[str, str]) -> str:
        job = self.jobs.get(given["_name"])
        if job is None:
            return "state=missing\n"
        ended = job.exit(self.now)
        said, written = job.log(self.now)
        fields = ["state=running"]
        if ended:
            fields = ["state=exited", f"exit_code={ended[0]}", f"ended={int(ended[1])}"]
            fields.append(f"members={job.processes(self.now)}")
        if job.stopped_by:
            fields.append(f"stopped_by={job.stopped_by}")
        fields += [f"now={int(self.now)}", f"started={int(job.started)}"]
        size = 0 if job.behaviour.quiet else job.step(self.now) * 20
        fields += [f"log_size={size}", f"log_time={int(written)}", "log"]
        return "\n".join(fields) + f"\n{said}"

    def _look_at_all(self, names: list[str]) -> str:
        said, more = "", f"now={int(self.now)}\n"
        for name in names:
            fields, _ = parse_fields(self._look({"_name": name}))
            kept = ("state", "exit_code", "ended", "stopped_by")
            said += f"job={name}\n" + "".join(f"{key}={fields[key]}\n" for key in kept if key in fields)
            more += f"member={name}\n" * int(fields.get("members", 0))
            if "started" in fields:
                more += f"file={name}/command {fields['started']} 1\n"
                more += f"file={name}/log {fields['log_time']} {fields['log_size']}\n"
        return f"{said}{more}end\n"

    def _write_checkpoints(self) -> None:
        for job in self.jobs.values():
            every = job.behaviour.save_every
            if every and self.keep_checkpoints:
                first = job.first_step // every + 1
                for step in range(first * every, job.step(self.now) + 1, every):
                    self.checkpoints.setdefault(step, None)
                    self.saved_at.setdefault(step, job.started + step - job.first_step)

    def _list_checkpoints(self) -> str:
        lines = ["state=there", f"now {int(self.now)}", "looked ."]
        for step, problem in sorted(self.checkpoints.items()):
            lines.append(f"file 1000 {int(self.saved_at.get(step, EPOCH))} ./step_{step}/model.safetensors")
            if problem:
                lines.append(f"bad {problem.replace(' ', '_')} ./step_{step}/model.safetensors")
        return "\n".join(lines) + "\n"


IDLE, BUSY = 0, 97
_FILE = '{"path": "model.safetensors", "size": 1000, "hash": "a1"'
LISTED = f'{_FILE}, "held": {{"size": 1000, "hash": "a1"}}}}\nlisted'
MISSING = f"{_FILE}}}\nlisted"
NO_TOKEN = "no-token"
TRAINING = "training"


def gpu_answer(utilization: int, watts: int = 60) -> str:
    """What the GPU question prints for one GPU of 700 W."""
    return f"0, GPU-1, H100, {utilization}, 0, 100, 80000, {watts}, 700, 40, [N/A]\n-- processes --\n"


@dataclass
class FakeTraining(FakeJobs):
    """A target on which one training runs: known by its pid file and its log, or as `process:training`.

    Uploads to the hub run beside it as process jobs, which do `behaviours`; a try writes down `hub` at its end.
    """

    does: Behaviour = field(default_factory=Behaviour)
    behaviours: list[Behaviour] = field(default_factory=lambda: [Behaviour(total=4, save_every=None)])
    hub: str = LISTED
    pid: int = 100
    has_pid_file: bool = True
    has_log: bool = True
    log: str = ""
    inode: int = 7
    stops: list[float] = field(default_factory=list)  # when one was asked for
    log_reads: list[str] = field(default_factory=list)
    prints_every: int = 1
    printed: int = 0
    last_said: bool = False

    def __post_init__(self) -> None:
        self.jobs[TRAINING] = FakeJob(TRAINING, "somebody", "train", {}, self.now, 0, self.does)

    @property
    def training(self) -> FakeJob:
        return self.jobs[TRAINING]

    @property
    def uploads(self) -> list[str]:
        """The commands of the uploads that were started."""
        return [job.command for job in self.starts]

    def begin_again(self, does: Behaviour, *, pid: int = 101, first_step: int = 0) -> None:
        """Somebody starts the training again, with the same files."""
        self.jobs[TRAINING] = FakeJob(TRAINING, "somebody", "train", {}, self.now, first_step, does)
        self.pid, self.printed, self.last_said = pid, first_step, False

    def write(self, text: str) -> None:
        """The training writes this as well."""
        self._print_steps()
        self.log += text

    def act(self, script: str) -> tuple[str, int]:
        self._print_steps()
        call = read_call(script)
        if call and call.subject == "pid_file":
            return (self._end(call.given) if call.function == "stop" else self._find()), 0
        if is_call(script, "log"):
            return self._read_log(script), 0
        if call and call.subject == "upload_sources":
            return {
                "look_at_model": "state=folder\nidentity=42 1\n",
                "look_at_file": "state=file\nsize=1000\nidentity=1000 1\n",
                "list_files": "folder\n./model.safetensors\n",
            }[call.function], 0
        if call and (call.subject, call.function) == ("detached", "results"):
            ended = [self.jobs[name].exit(self.now) for name in call.given["names"].split()]
            return "".join(f"{self.hub}\n" for each in ended if each), 0
        return super().act(script)

    def _print_steps(self) -> None:
        job, does = self.training, self.training.behaviour
        if does.quiet:
            return
        step = job.step(self.now)
        told = [each for each in range(self.printed + 1, step + 1) if each % self.prints_every == 0 or each == step]
        self.log += "".join(f"step {each}/{does.total} loss 0.5\n" for each in told)
        self.printed = max(self.printed, step)
        if does.last_words and job.exit(self.now) and not self.last_said:
            self.log, self.last_said = f"{self.log}{does.last_words}\n", True

    def _find(self) -> str:
        if not self.has_pid_file:
            return "state=unknown\nreason=no such file\n"
        if not self.training.processes(self.now):
            return f"state=gone\nreason=no process {self.pid}\n"
        age = int(self.now - self.training.started)
        return f"state=running\npid={self.pid}\nstart={9000 + self.pid}\nboot=b\nage={age}\npids={self.pid}\n"

    def _end(self, given: dict[str, str]) -> str:
        self.stops.append(self.clock.elapsed)
        job = self.training
        if int(given["was_pid"]) != self.pid or not job.processes(self.now):
            return "state=missing\n"
        job.stop_tries += 1
        if job.stop_tries <= job.behaviour.unkillable:
            return "state=stopped\nleft=4242 D\n"
        job.stopped_at, job.survivors = self.now, 0
        return "state=stopped\n"

    def _read_log(self, script: str) -> str:
        self.log_reads.append(script)
        if not self.has_log:
            return "state=missing\n"
        inode, offset = read_cursor(script)
        reset = "rotated" if inode not in (None, self.inode) else ""
        start = 0 if inode is None or reset else offset
        new = self.log[start:]
        held = len(new) - new.rfind("\n") - 1
        fields = {"state": "read", "inode": self.inode, "offset": len(self.log) - held, "check": "c"}
        fields |= {"reset": reset, "skipped": 0, "held": held}
        return "".join(f"{key}={value}\n" for key, value in fields.items()) + f"log\n{new}"


@dataclass
class FakeVast:
    """The vastai CLI with an account, and ssh to its instances; `attach` puts both in front of a transport."""

    instances: list[str] = field(default_factory=lambda: ["7"])
    destroyed: list[str] = field(default_factory=list)
    refuses: bool = False
    lies: int = 0  # the number of listings to come that are empty
    on_destroy: Callable[[], None] = lambda: None

    def attach(self, transport: FakeTransport) -> FakeTransport:
        transport.register(["vastai"], self.run)
        transport.register(["ssh"], self.reach(transport))
        return transport

    def reach(self, transport: FakeTransport) -> Program:
        def ssh(words: tuple[str, ...], program: str | None) -> CommandResult:
            if self.instances:
                return transport.answer_all(words, program)
            return CommandResult(words, 255, "", "ssh: connect to host 1.2.3.4 port 22: Connection refused\n", 0.0)

        return ssh

    def run(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        said: object = ""
        if words[1:3] == ("show", "instance"):
            row = {"id": 7, "ssh_host": "1.2.3.4", "ssh_port": 22, "actual_status": "running"}
            said = row if words[3] in self.instances else {"instances": None}
        elif words[1:3] == ("show", "instances"):
            listed = [] if self.lies else self.instances
            self.lies = max(0, self.lies - 1)
            said = {"instances": [{"id": int(each)} for each in listed], "next_token": None}
        elif words[1:3] == ("destroy", "instance"):
            self.on_destroy()
            if words[3] not in self.instances:
                return CommandResult(words, 0, "", f"Failed with error 404: Instance {words[3]} not found\n", 0.0)
            if not self.refuses:
                self.instances.remove(words[3])
                self.destroyed.append(words[3])
            return CommandResult(words, 0, f"destroying instance {words[3]}.\n", "", 0.0)
        else:
            raise AssertionError(f"unexpected program: {words}")
        return CommandResult(words, 0, json.dumps(said), "", 0.0)
