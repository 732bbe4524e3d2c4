"""Claims: who supervises a training, written down where the training is, so that every machine sees it.

    ${TRAINING_MONITOR_JOBS_DIR:-~/.training_monitor/jobs}/.claims/KEY/NUMBER

One file an owner, and the highest number is the claim: the next owner makes NUMBER+1 with link(2), which succeeds once.
The highest file is never removed, so that no number comes twice. A beat overwrites its line in place (a full disk does
not matter). It is as old as the target's uptime says; after a reboot, or where several machines share the folder, as
the file system says, which dates the beat as well as the look.

A question made by `only_as_owner` does nothing on the target once somebody else holds the claim, however late it
arrives.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from training_monitor.errors import CommandFailed, LeaseLost, ParseError
from training_monitor.models import Question, Reply
from training_monitor.parse.process_job import parse_fields
from training_monitor.policy.claiming import Claim, Owner
from training_monitor.progress.procfs import identify
from training_monitor.targets.scripts import format_call
from training_monitor.targets.target import Target

T = TypeVar("T")
Guard = Callable[[Question[Any]], Question[Any]]  # lets an act be done only by whoever may, as `only_as_owner` does
MOST_LISTED = 200
_LINE = 1000  # characters of a claim, so that a beat needs no more space than there is
_WORD = 400  # characters of a name that a claim carries
_REFUSED = 75


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims that were not let go, those renewed last first; `is_cut`: there are more than were listed."""

    claims: tuple[Claim, ...] = ()
    is_cut: bool = False

    def of(self, name: str) -> Claim | None:
        """The living claim on a training; None where there is none. Raises CommandFailed where that is not known."""
        found = next((each for each in self.claims if each.name == name and each.is_live), None)
        if found is None and self.is_cut:
            raise CommandFailed(f"more than {MOST_LISTED} claims: not all were read")
        return found


def this_owner(state_folder: str, target: Target) -> Owner:
    """This process as the owner of claims on a target."""
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
    """The newest claim on a training; None where nobody ever made one."""
    return Question("claim", _call("show", name), _parse_one)


def list_question() -> Question[Claims]:
    """The claims of a target, at most MOST_LISTED."""

    def parse(reply: Reply) -> Claims:
        lines = re.findall(r"^claim=(.*)$", reply.output, re.MULTILINE)
        claims = tuple(claim for claim in map(_parse_claim, lines) if not claim.is_damaged)
        return Claims(claims, reply.output.rstrip().endswith("cut=1"))

    return Question("claims", format_call("claims", "list", key="", most=MOST_LISTED), parse)


def take_question(name: str, owner: Owner, token: str, number: int, lease: float) -> Question[Claim]:
    """Claim a training as the next owner after `number` (0: the first); the answer is the claim that then holds.

    It is ours when it carries `token`. The answer is unknown (CommandFailed) where no claim can be written.
    """
    words = [owner.host, owner.user, str(owner.pid), owner.boot or "-", owner.folder, name]
    line = " ".join(quote(word, safe="", errors="replace")[:_WORD] for word in words)
    script = _call("take", name, new_number=number + 1, new_token=token, new_lease=round(lease), new_owner=line)

    def parse(reply: Reply) -> Claim:
        fields, _ = parse_fields(reply.output)
        found = _parse_one(reply)
        if found is None:
            raise CommandFailed(fields.get("error") or f"no claim could be made: {reply.output.strip()[-300:]}")
        return found

    return Question("claim", script, parse)


def beat_question(claim: Claim) -> Question[Claim | None]:
    """Say that the owner lives; the answer is the claim that now holds, which may be another's."""
    return _write_question(claim, "held")


def free_question(claim: Claim) -> Question[Claim | None]:
    """Let go of a claim, if it is still ours."""
    return _write_question(claim, "free")


def _write_question(claim: Claim, state: str) -> Question[Claim | None]:
    script = _call("write", claim.name, number_held=claim.number, token_held=claim.token, new_state=state)
    return Question("claim", script, _parse_one)


def only_as_owner(question: Question[T], claim: Claim) -> Question[T]:
    """The same question, which does its act only while nobody else holds the claim. Raises LeaseLost where one does."""
    guard = _call("guard", claim.name, number_held=claim.number, token_held=claim.token)
    read: Callable[[Reply], T] = question.parse

    def parse(reply: Reply) -> T:
        if reply.exit_code == _REFUSED and (now := _parse_one(reply)):
            raise claim_lost(now)
        return read(reply)

    return replace(question, script=f"({guard}) || exit {_REFUSED}\n{question.script}", parse=parse)


def unguarded(question: Question[Any]) -> Question[Any]:
    """The guard of whoever claims nothing."""
    return question


def claim_lost(now: Claim) -> LeaseLost:
    """What whoever held a claim before is told."""
    return LeaseLost(
        f"{now.name} was taken over by {now.owner}",
        hint="leave it to that one, or take it back with --take-over",
        owner=str(now.owner),
        number=now.number,
    )


def _call(function: str, name: str, **variables: str | int) -> str:
    key = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32]
    return format_call("claims", function, key=key, width=_LINE, **variables)


def _parse_one(reply: Reply) -> Claim | None:
    line = re.search(r"^claim=(.*)$", reply.output, re.MULTILINE)
    return _parse_claim(line[1]) if line else None


def _parse_claim(line: str) -> Claim:
    """The claim of a line; nobody holds one that is damaged, so that it hinders nobody for ever."""
    number = line.partition(" ")[0]
    if not re.fullmatch("[0-9]{1,9}", number):
        raise ParseError("this is no claim", source="a claim on the target", text=line)
    try:
        _, state, token, lease, age, since, *words = line.split()
        host, user, pid, boot, folder, name = (unquote(word) for word in words)
        owner = Owner(host, user, int(pid), boot, folder)
        return Claim(name, int(number), token, state == "held", float(lease), float(age), float(since), owner)
    except ValueError:
        return Claim("it", int(number), "", False, 0.0, 0.0, 0.0, Owner("?", "?", 0, "", ""), is_damaged=True)
