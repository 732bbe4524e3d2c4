"""What a watcher has added up about a run: kept in memory, and in the store so that another process goes on with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from training_monitor.looks import Looks, look_key
from training_monitor.models import JobStatus, LogCursor, NewLog, Progress
from training_monitor.parse.log_totals import LogTotals
from training_monitor.policy.job_progress import job_progress
from training_monitor.policy.judge import NOBODY_LOOKED, judge
from training_monitor.policy.loss import analyze_loss
from training_monitor.policy.watch_config import WatchConfig
from training_monitor.probes.pid_files import ProcessIdentity
from training_monitor.probes.watched_jobs import Look, observation_of
from training_monitor.targets.target import Target
from training_monitor.verdicts import LossAnalysis, Observation, StallAnalysis, Verdict
from training_monitor.watching import TrainingStatus, WatchedJob

LAYOUT = 3
KEPT_OUTPUT = 16 * 1024
OUTPUT_LINES = 100
READ_AGAIN = 2048
_LINE_END = re.compile(r"[\r\n]+")
_NOT_KEPT = ("looks", "verdict")  # the store has the looks in a place of their own, and the verdict follows from them
NOT_STALLING = StallAnalysis(False, None, "none", "not judged yet", "continue")


@dataclass
class WatchState:
    """One run: `generation` counts its starts. `looks` is what was seen of it, kept in the store under `look_key`.

    `read_again` is how much of the log's end is read once more together with a line that is not finished.
    """

    cursor: LogCursor | None = None
    totals: LogTotals = field(default_factory=LogTotals)
    output: str = ""
    partial: str = ""
    ended_partial: str = ""
    job_tail: str = ""
    looks: Looks = field(default_factory=Looks)
    look_key: str = ""
    identity: ProcessIdentity | None = None
    is_running: bool | None = None
    generation: int = 0
    verdict: Verdict = NOBODY_LOOKED
    loss: LossAnalysis | None = None
    read_again: int = READ_AGAIN
    alerts: dict[str, Any] = field(default_factory=dict)

    # ------------------------------------------------------------ taking in

    def take_log(self, new: NewLog, tail: str = "") -> list[tuple[str, Progress]]:
        """Add what is new in the log: its lines, each with the progress up to it.

        `tail` is the end of a log whose file cannot be read behind a cursor.
        """
        if new.missing and tail:
            ended = max(tail.rfind("\n"), tail.rfind("\r")) + 1
            new = NewLog(self._new_in(tail[:ended]), None, partial=tail[ended:])
        lines = []
        for line in _LINE_END.split(new.text):
            if line.strip():
                self.totals.feed(f"{line}\n")
                lines.append((line, self.totals.progress))
        self.output = (self.output + new.text)[-KEPT_OUTPUT:]
        self.partial, self.cursor = new.partial[-KEPT_OUTPUT:], new.cursor
        return lines

    def take_last_line(self) -> list[tuple[str, Progress]]:
        """Add the unfinished last line of a run that writes no more, once."""
        last = _LINE_END.split(self.partial)[-1]
        if not last.strip() or self.partial == self.ended_partial:
            return []
        self.ended_partial = self.partial
        self.totals.feed(f"{last}\n")
        return [(last, self.totals.progress)]

    def _new_in(self, tail: str) -> str:
        """What the end of a log has that the end seen before had not."""
        last, self.job_tail = self.job_tail[-2048:], tail
        at = tail.rfind(last) if last else -1
        return tail[at + len(last) :] if at >= 0 else tail

    def open_looks(self, target: Target, job: WatchedJob, look: Look) -> None:
        """Judge with what was seen of this training before, now that it is known which one it is."""
        path = look.log.path if look.log else None
        if path or not self.look_key:
            self.look_key = look_key(target, job, path)
        if self.looks.key != self.look_key:
            self.looks = Looks(self.looks.store, self.look_key)

    def take_look(self, look: Look, now: float, config: WatchConfig, *, judge_every: float = 0.0) -> TrainingStatus:
        """Add one look, judge the run by all of them, and say what there is.

        Looks that come closer than `judge_every` seconds keep the verdict: judging costs as much as a long log. One
        that does not find the log that was read before is no sample: whether steps are made then, nobody knows.
        """
        restarted = bool(look.process and look.process.identity and self.identity not in (None, look.process.identity))
        if look.process and look.process.identity:
            self.identity = look.process.identity
        if look.is_running is False:
            self.take_last_line()
        progress = self._progress(look)
        step = job_progress(progress).step
        before = next((each.step for each in reversed(self.looks.all()) if each.step is not None), None)
        fell_back = before is not None and step is not None and step < before
        self.generation += restarted + fell_back
        ended = look.is_running is not self.is_running
        self.is_running = look.is_running
        is_blind = bool(look.log and look.log.missing and self.cursor)
        if restarted or fell_back or ended or (self._is_due(now, judge_every) and not is_blind):
            if not is_blind:
                self.looks.add(self._observe(look, progress, now))
            self.verdict, self.loss = self.judge(now, config), analyze_loss(self.looks.all())
        return self._status(look, progress, step, now)

    def _observe(self, look: Look, progress: Progress, now: float) -> Observation:
        """What was seen; a log that was not looked at lately tells its own times."""
        text = look.log_tail or self.output + self.partial
        size = self.cursor.offset + len(self.partial) if self.cursor else None
        is_first = self.verdict is NOBODY_LOOKED or not self.looks.is_known(now)
        seen = observation_of(look, progress, text, now, first=is_first)
        return seen if seen.log_size is not None else replace(seen, log_size=size)

    def _is_due(self, now: float, judge_every: float) -> bool:
        last = self.looks.last  # perhaps of another command
        return last is None or self.verdict is NOBODY_LOOKED or abs(now - last.timestamp) >= judge_every

    def _status(self, look: Look, progress: Progress, step: int | None, now: float) -> TrainingStatus:
        """What there is to say after a look."""
        return TrainingStatus(
            is_running=look.is_running,
            progress=progress,
            stall=self.verdict.stall or NOT_STALLING,
            checkpoints=look.checkpoints,
            unlisted_checkpoints=look.unlisted_checkpoints,
            recent_output="\n".join((self.output + self.partial).replace("\r", "\n").split("\n")[-OUTPUT_LINES:]),
            timestamp=now,
            status=look.view.status if look.view else JobStatus.RUNNING if look.is_running else JobStatus.UNKNOWN,
            exit_code=look.view.exit_code if look.view else None,
            message=look.message,
            loss=self.loss,
            generation=self.generation,
            runtime=_runtime(look, now),
            totals=self.totals.as_dict(),
            errors=look.errors,
            step=step,
            verdict=self.verdict,
        )

    def judge(self, now: float, config: WatchConfig) -> Verdict:
        """What is to be said of the run, by what was seen of it so far."""
        verdict = judge(self.looks.all(), now=now, policy=config.stall_policy)
        if config.stall_detection or verdict.state not in ("stalled", "slow"):
            return verdict
        return Verdict("running", "ok", f"stall detection is switched off; else: {verdict.reason}")

    def _progress(self, look: Look) -> Progress:
        """The totals, and over them what a line shows that is not finished yet; else the end of the log."""
        known = self.totals.progress
        if known == Progress() and look.view:
            return look.view.progress
        if not self.partial.strip():
            return known
        newest = self.totals.read_ahead(self.output[-self.read_again :] + self.partial)
        seen = {name: value for name, value in asdict(newest).items() if value is not None}
        return replace(known, **seen) if newest.step is not None or newest.epoch_steps is not None else known

    # ------------------------------------------------------------ keeping

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_KEPT}
        return {
            **plain,
            "layout": LAYOUT,
            "cursor": asdict(self.cursor) if self.cursor else None,
            "identity": asdict(self.identity) if self.identity else None,
            "totals": self.totals.to_state(),
            "loss": asdict(self.loss) if self.loss else None,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> WatchState:
        """Go on from a kept state; one of another layout is begun anew."""
        if state.get("layout") != LAYOUT:
            return cls()
        plain = {key: value for key, value in state.items() if key != "layout"}
        plain["cursor"] = LogCursor(**state["cursor"]) if state["cursor"] else None
        plain["identity"] = ProcessIdentity(**state["identity"]) if state["identity"] else None
        plain["totals"] = LogTotals.from_state(state["totals"])
        plain["loss"] = LossAnalysis(**state["loss"]) if state.get("loss") else None
        return cls(**plain)


def _runtime(look: Look, now: float) -> float | None:
    """Seconds since the run began; by the clock of the watcher for a job that tells when."""
    if look.process:
        return look.process.age
    started = look.view.started_at if look.view else None
    return None if started is None else max(0.0, now - started)
