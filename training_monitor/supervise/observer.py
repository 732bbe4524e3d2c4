"""Successive looks at one training, each in one round trip with all the evidence that the judge takes."""

from __future__ import annotations

from dataclasses import replace

from training_monitor.looks import Looks, look_key
from training_monitor.models import JobView, Progress
from training_monitor.parse.epoch_count import EpochCount
from training_monitor.policy.judge import judge
from training_monitor.policy.stall import StallPolicy
from training_monitor.probes.jobs import read_last_words
from training_monitor.probes.pid_files import ProcessIdentity
from training_monitor.probes.watched_jobs import Look, observation_of, read_watch, watch_questions
from training_monitor.store import Store
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.verdicts import Verdict
from training_monitor.watching import WatchedJob


class Observer:
    """One training; what others saw of it before counts as well.

    Of its log, each look reads the end. `output_dir` of the job is where it writes its checkpoints, when that is known:
    a file that grows there is a sign of life.
    """

    def __init__(self, target: Target, job: WatchedJob, *, store: Store, transport: Transport | None) -> None:
        self.target, self.job, self._store, self._transport = target, job, store, transport
        self._known: ProcessIdentity | None = None
        self.looks = Looks(store, look_key(target, job, None) if job.job_id else "")
        self.progress = Progress()  # by the last look
        self._epochs: EpochCount | None = None

    def look(self, now: float) -> Look:
        """Look once, and remember it.

        Raises:
            JobNotFound: the target answered and has no such job.
            CommandError: it could not be asked: nothing is known.
        """
        with_log = self.job.job_id is None
        is_first = self._epochs is None
        questions = watch_questions(
            self.job, None, self._known, with_log=with_log, with_checkpoints=False, is_first=is_first
        )
        answers = ask(self.target, *questions, transport=self._transport)
        look = read_watch(self.job, answers, with_log=with_log, with_checkpoints=False, is_first=is_first)
        if look.view:
            look = replace(look, view=read_last_words(self.target, look.view, transport=self._transport))
        self._epochs = look.epochs or self._epochs or EpochCount()
        look = replace(look, epochs=self._epochs)
        self._known = look.process.identity if look.process else None
        self.progress = look.read_progress()
        self._open_looks(look)
        self.looks.add(observation_of(look, self.progress, look.text, now, first=not self.looks.is_known(now)))
        return look

    def look_at_job(self, now: float) -> JobView:
        """The same of a training that is a job."""
        view = self.look(now).view
        assert view
        return view

    def _open_looks(self, look: Look) -> None:
        """Take in what was seen before, once it is known which training it is."""
        if not self.looks.key:
            path = look.log.path if look.log else None
            self.looks = Looks(self._store, look_key(self.target, self.job, path))

    def judge(self, now: float, policy: StallPolicy) -> Verdict:
        """The verdict on all that was seen of it; asks nothing."""
        return judge(self.looks.all(), now=now, policy=policy)
