"""Claims: who supervises a training, recorded on its target, so that every machine sees it.

    ${TRAINING_MONITOR_JOBS_DIR:-~/.training_monitor/jobs}/.claims/KEY/NUMBER

There is one file per owner, and the highest number is the claim: the next owner makes NUMBER+1 with link(2), which
succeeds only once. The highest file is never removed, so that no number is reused. A beat overwrites its line in place
(a full disk does not matter). The age of a claim comes from the target's uptime; after a reboot, or if several machines
share the folder, from the file system, which dates both the beat and the look.

A question made by `only_as_owner` does nothing on the target once another owner holds the claim, however late it
arrives. `Claiming` takes the claim on a training, renews it while the training is supervised, and lets it go. How the
supervision ended stays in a claim that was let go at its end, so that a standby does not begin it anew.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from training_monitor.core.engine import begin_thread
from training_monitor.core.errors import (
    AccessDenied,
    AlreadySupervised,
    CommandFailed,
    Hint,
    LeaseLost,
    ParseError,
    SettingsError,
    StateError,
    TrainingMonitorError,
)
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Question, Reply, RunOutcome
from training_monitor.core.settings import LEASE
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration, parse_duration
from training_monitor.core.values import WatchedJob
from training_monitor.jobs.attempts import training_name
from training_monitor.targets.asking import Site
from training_monitor.targets.procfs import identify
from training_monitor.targets.replies import parse_fields
from training_monitor.targets.scripts import format_call
from training_monitor.targets.target import Target

LEASE_SECONDS = 120.0
LONGEST_LEASE = 7 * 86400.0
BEATS_A_LEASE = 6.0
STANDBY_SECONDS = 20.0  # between the looks of a standby
ROUNDING_SECONDS = 1.5  # ages are whole seconds
T = TypeVar("T")
Guard = Callable[[Question[Any]], Question[Any]]  # makes an act conditional, as `only_as_owner` does
MOST_LISTED = 200
_LINE = 1000  # characters of a claim, fixed so that a beat needs no more space
_WORD = 400  # characters of a name in a claim
_REFUSED = 75
_OUTCOMES = [outcome.value for outcome in RunOutcome]
_NOTHING: Question[None] = Question("claim", "", lambda reply: None)
Tell = Callable[[str, str], None]  # the kind of an event, and its text


@dataclass(frozen=True, slots=True)
class Owner:
    """A supervising process: its host, user, pid, boot of the host, and state folder."""

    host: str
    user: str
    pid: int
    boot: str
    folder: str

    def is_same_place(self, other: Owner) -> bool:
        """Whether both are the same supervisor, restarted on the same machine with the same state folder."""
        return (self.host, self.user, self.boot, self.folder) == (other.host, other.user, other.boot, other.folder)

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (process {self.pid})"


class Claim(NamedTuple):
    """The newest claim on a training. `age` and `lease` are seconds by the target's clock, `since` UTC epoch seconds.

    `number` grows with every owner. `held` is False once the owner has let go, or if its line is damaged. `outcome` is
    how the supervision ended, if its owner let go of the claim for that; else None.
    """

    name: str
    number: int
    token: str
    held: bool
    lease: float
    age: float
    since: float
    owner: Owner
    is_damaged: bool = False
    outcome: RunOutcome | None = None

    @property
    def is_live(self) -> bool:
        """Whether its owner may still act."""
        return self.held and self.age <= self.lease

    def __str__(self) -> str:
        return f"{self.owner}, last seen {format_duration(max(0.0, self.age))} ago"


class SupervisionEnded(AlreadySupervised):
    """The last owner of a claim supervised the training to its end, with this outcome."""

    def __init__(self, owner: Owner, outcome: RunOutcome) -> None:
        super().__init__(f"{outcome}: {owner} supervised the training until it ended")
        self.outcome = outcome


def claim_name(job: WatchedJob) -> str:
    """Return the name under which a watched training is claimed: that of its attempts, or else its log or process."""
    if job.job_id:
        return training_name(job.job_id)
    return job.log_file or ", ".join(job.log_paths) or job.pid_file or f"pid {job.pid}"


def decide_claim(
    found: Claim | None, me: Owner, *, take_over: bool, silence: float | None = None
) -> Literal["take", "wait", "refuse"]:
    """Decide whether `me` may claim a training.

    A dead owner blocks nobody for good: a second supervisor waits until the lease ends or the owner renews it.
    `silence` is the age that the claim would have without a beat since the first look; None at the first look.
    """
    if found is None or take_over or not found.is_live or found.owner.is_same_place(me):
        return "take"
    return "wait" if silence is None or found.age > silence - ROUNDING_SECONDS else "refuse"


class Claims(NamedTuple):
    """The claims that were not let go, the last renewed first; `is_cut`: there are more than were listed."""

    claims: tuple[Claim, ...] = ()
    is_cut: bool = False

    def of(self, name: str) -> Claim | None:
        """Return the live claim on a training; None without one. Raises CommandFailed if that is unknown."""
        found = next((each for each in self.claims if each.name == name and each.is_live), None)
        if found is None and self.is_cut:
            raise CommandFailed(f"there are more than {MOST_LISTED} claims, so not all were read")
        return found


def this_owner(state_folder: str, target: Target) -> Owner:
    """Return this process as the owner of claims on a target."""
    import getpass
    import hashlib

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    try:
        info = os.stat(state_folder)
        folder = f"{state_folder} {info.st_dev}:{info.st_ino} {target}"
    except OSError:
        folder = state_folder
    here, digest = identify(), hashlib.sha256(folder.encode(errors="replace")).hexdigest()[:16]
    return Owner((here.hostname or "?")[:64], user[:32], here.pid, (here.boot_id or "")[:36], digest)


def look_question(name: str) -> Question[Claim | None]:
    """Ask for the newest claim on a training; None if there never was one."""
    return Question("claim", _call("show", name), _parse_one)


def list_question() -> Question[Claims]:
    """Ask for the claims on a target, at most MOST_LISTED."""

    def parse(reply: Reply) -> Claims:
        lines = re.findall(r"^claim=(.*)$", reply.output, re.MULTILINE)
        claims = tuple(claim for claim in map(_parse_claim, lines) if not claim.is_damaged)
        return Claims(claims, reply.output.rstrip().endswith("cut=1"))

    return Question("claims", format_call("claims", "list", key="", most=MOST_LISTED), parse)


def take_question(name: str, owner: Owner, token: str, number: int, lease: float) -> Question[Claim]:
    """Claim a training as the next owner after `number` (0: the first); the answer is the claim that then holds.

    It is ours if it carries `token`. The answer is unknown (CommandFailed) if no claim can be written.
    """
    from urllib.parse import quote

    words = [owner.host, owner.user, str(owner.pid), owner.boot or "-", owner.folder, name]
    line = " ".join(quote(word, safe="", errors="replace")[:_WORD] for word in words)
    script = _call("take", name, new_number=number + 1, new_token=token, new_lease=round(lease), new_owner=line)

    def parse(reply: Reply) -> Claim:
        fields, _ = parse_fields(reply.output)
        found = _parse_one(reply)
        if found is None:
            raise CommandFailed(fields.get("error") or f"the claim could not be created: {reply.output.strip()[-300:]}")
        return found

    return Question("claim", script, parse)


def write_question(claim: Claim, state: Literal["held", "free"] | RunOutcome) -> Question[Claim | None]:
    """Renew a claim or let go of it, if it is still ours; the answer is the claim that now holds.

    A claim that is let go because the supervision ended gets its outcome as its state.
    """
    script = _call("write", claim.name, token_held=claim.token, new_state=str(state))
    return Question("claim", script, _parse_one)


def only_as_owner(question: Question[T], claim: Claim) -> Question[T]:
    """Make a question act only while no other owner holds the claim. Raises LeaseLost if one does."""
    guard = _call("guard", claim.name, number_held=claim.number, token_held=claim.token)
    read: Callable[[Reply], T] = question.parse

    def parse(reply: Reply) -> T:
        if reply.exit_code == _REFUSED and (now := _parse_one(reply)):
            raise claim_lost(now)
        return read(reply)

    return replace(question, script=f"({guard}) || exit {_REFUSED}\n{question.script}", parse=parse)


def unguarded(question: Question[Any]) -> Question[Any]:
    """Return the question unchanged: the guard for callers without a claim."""
    return question


def claim_lost(now: Claim) -> LeaseLost:
    """Return the error for the former holder of a claim."""
    return LeaseLost(
        f"{now.name} was taken over by {now.owner}",
        hint=Hint("leave the job to that supervisor, or take it back with {take_over=True}"),
        owner=str(now.owner),
        number=now.number,
    )


def _call(function: str, name: str, **variables: str | int) -> str:
    import hashlib

    key = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32]
    return format_call("claims", function, key=key, width=_LINE, **variables)


def _parse_one(reply: Reply) -> Claim | None:
    line = re.search(r"^claim=(.*)$", reply.output, re.MULTILINE)
    return _parse_claim(line[1]) if line else None


def _parse_claim(line: str) -> Claim:
    """Parse a claim; a damaged one counts as not held, so that it does not block anyone forever."""
    from urllib.parse import unquote

    number = line.partition(" ")[0]
    if not re.fullmatch("[0-9]{1,9}", number):
        raise ParseError("invalid claim", source="a claim on the target", text=line)
    try:
        _, state, token, lease, age, since, *words = line.split()
        host, user, pid, boot, folder, name = (unquote(word) for word in words)
        owner = Owner(host, user, int(pid), boot, folder)
        times = float(lease), float(age), float(since)
        if not (0 <= times[0] <= LONGEST_LEASE and all(map(math.isfinite, times))):
            raise ValueError("an implausible time")
        outcome = RunOutcome(state) if state in _OUTCOMES else None
        return Claim(name, int(number), token, state == "held", *times, owner, outcome=outcome)
    except ValueError:
        return Claim("it", int(number), "", False, 0.0, 0.0, 0.0, Owner("?", "?", 0, "", ""), is_damaged=True)


def lease_seconds() -> float:
    """Return how long to wait for a silent supervisor: TRAINING_MONITOR_LEASE, default 120 s."""
    text = os.environ.get(LEASE, "").strip()
    try:
        seconds = parse_duration(text) or float(text or LEASE_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 3 <= seconds <= 86_400:
        raise SettingsError(LEASE, text, "3 to 86400 seconds, or a duration such as 2m")
    return round(seconds)


class Claiming:
    """The claim of one supervisor on one training.

    On this machine a lock of the store decides, which the kernel releases when its process dies; between machines, the
    claim on the target. A thread renews the claim, so that a long upload or a slow stop does not lose it.

    A standby is not refused: it waits as long as another machine's supervisor lives. It never acts without a claim, and
    asks its `standby` whether anything of a training runs that was supervised to its end.
    """

    def __init__(
        self,
        site: Site,
        name: str,
        store: Store,
        tell: Tell,
        *,
        take_over: bool = False,
        standby: Callable[[], bool] | None = None,
    ) -> None:
        self.site, self.name, self._store, self._standby = site, name, store, standby
        self._tell, self._take_over, self._lease = tell, take_over, lease_seconds()
        self._closing = ExitStack()
        self._ended = threading.Event()
        self._is_locked = False
        self._try_again_at: float | None = None  # after no claim could be written
        self._claim: Claim | None = None
        self._lost: LeaseLost | None = None
        self._thread: threading.Thread | None = None  # which renews it

    def hold(self) -> None:
        """Hold the claim from here on; call it before every act, which is cheap once the claim is held.

        Raises:
            AlreadySupervised: a live supervisor has it; SupervisionEnded: to a standby, that there is nothing left to
                supervise. LeaseLost: another one took it over.
            CommandError: the target could not be asked.
        """
        if self._lost:
            raise self._lost
        if not self._is_locked:
            self._closing.enter_context(self._store.hold(f"the claim on {self.name} of {self.site}"))
            if problem := self._store.problem:
                raise StateError(
                    f"cannot claim {self.name}, because the claim cannot be recorded: {problem.what}",
                    hint=problem.hint,
                )
            self._is_locked = True
        is_due = self._try_again_at is None or self.site.clock.monotonic() >= self._try_again_at
        if not self._claim and is_due:
            try:
                self._claim = self._take()
            except (CommandFailed, AccessDenied) as error:
                if self._standby:
                    raise
                if self._try_again_at is None:
                    said = f"{self.name} could not be claimed, so other machines cannot see its supervisor: {error}"
                    self._tell("detected", said)
                self._try_again_at = self.site.clock.monotonic() + self._lease
        if self._claim:
            self._thread = self._thread or begin_thread(self._beat_on, "claim")

    def _take(self) -> Claim:
        me, token = this_owner(self._store.folder, self.site.target), os.urandom(8).hex()
        first = found = self.site.ask_one(look_question(self.name))
        began, silence = self.site.clock.monotonic(), None
        while True:
            if found and found.outcome and self._standby and not self._standby():
                raise SupervisionEnded(found.owner, found.outcome)
            counted = None if self._standby else silence
            decision = decide_claim(found, me, take_over=self._take_over, silence=counted)
            if decision == "refuse":
                assert found
                raise already_claimed(found) if self._try_again_at is None else claim_lost(found)
            if decision == "wait":
                assert found and first
                left = found.lease - found.age
                if silence is None:
                    waits = "until it ends" if self._standby else f"{format_duration(left)} for a sign of life"
                    self._tell("detected", f"{self.name} is claimed by {found}: waiting {waits}")
                self.site.clock.sleep(max(0.5, min(STANDBY_SECONDS if self._standby else 5.0, left)))
                # measured at the request: the answer may be slow
                silence = first.age + self.site.clock.monotonic() - began
                found = self.site.ask_one(look_question(self.name))
                continue
            taken = self.site.ask_one(take_question(self.name, me, token, found.number if found else 0, self._lease))
            if taken.token == token:
                if found and found.held and not me.is_same_place(found.owner):
                    self._tell("detected", f"{self.name} taken over from {found}")
                return taken
            first = found = taken  # another supervisor was faster
            began, silence = self.site.clock.monotonic(), None

    def guard(self, question: Question[T]) -> Question[T]:
        """Make a question act only while no other owner holds the claim. Raises like `hold`."""
        self.hold()
        return only_as_owner(question, self._claim) if self._claim else question

    def confirm(self) -> None:
        """Check on the target that the claim is still ours, before an act done elsewhere. Raises like `hold`."""
        self.hold()
        if self._claim:
            self.site.ask_one(only_as_owner(_NOTHING, self._claim))

    def _beat_on(self) -> None:
        while (mine := self._claim) and not self._ended.wait(mine.lease / BEATS_A_LEASE):
            try:
                self._beat(mine)
            except (TrainingMonitorError, OSError) as error:
                get_logger().debug("%s: the claim could not be renewed: %s", self.name, error)

    def _beat(self, mine: Claim) -> None:
        now = self.site.ask_one(write_question(mine, "held"))
        is_gone = now is None or (now.is_damaged and now.number == mine.number)  # a new container, or a power failure
        if is_gone and not self._ended.is_set():
            me = this_owner(self._store.folder, self.site.target)
            number = now.number if now else 0
            now = self.site.ask_one(take_question(self.name, me, mine.token, number, self._lease))
        if now and now.token == mine.token:
            self._claim = now
        elif now:  # never act as if it were ours
            self._lost = claim_lost(now)
            self._ended.set()

    def close(self, outcome: RunOutcome | None = None) -> None:
        """Let go of the claim, with the outcome if the supervision has ended. The job itself continues."""
        self._ended.set()
        claim, self._claim = self._claim, None
        with self._closing, suppress(TrainingMonitorError):  # otherwise its lease expires
            if claim and not self._lost:
                self.site.ask_one(write_question(claim, outcome or "free"))


def see_unclaimed(site: Site, name: str, store: Store) -> None:
    """Check that a training has no other supervisor. Raises AlreadySupervised, or CommandError if that is unknown."""
    found = site.ask_one(look_question(name))
    if found and found.is_live and not found.owner.is_same_place(this_owner(store.folder, site.target)):
        raise already_claimed(found)


def already_claimed(claim: Claim) -> AlreadySupervised:
    """Return the error for a second supervisor, naming the first."""
    return AlreadySupervised(
        f"{claim.name} is already supervised by {claim}",
        hint=Hint(
            f"stop that supervisor, or add {{take_over=True}}; if it is dead, its lease expires "
            f"{format_duration(claim.lease)} after its last sign of life"
        ),
    )
