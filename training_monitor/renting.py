"""Frozen values of renting a machine for one training: what is asked for, where it stands, what was rented for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from training_monitor.errors import SettingsError
from training_monitor.units import known_number
from training_monitor.watching import UploadReport

BASE_MODEL = "black-forest-labs/FLUX.1-dev"
ON_FINISH = ("destroy", "stop", "keep")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ACCOUNT = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_REFERENCE = re.compile(r"(?P<prefix>\S+ +)?env:(?P<name>.*)", re.DOTALL)
_LABEL = re.compile(r"training_monitor/(?P<owner>[^/]+)/(?P<job>[^/]+)/(?P<attempt>[1-9][0-9]{0,5})")
# name: (smallest, largest) of what makes sense; outside of it money would be spent on nothing
_WHOLE = {"steps": (1, 100_000), "rank": (1, 512), "save_every": (1, 100_000), "batch_size": (1, 64), "keep": (1, 1000)}
_SHARES = {"learning_rate": (1e-7, 1e-2), "alpha": (0.1, 1024), "dropout": (0.0, 0.9)}


class JobState(str, Enum):
    """Where a queued training stands: the step that is done next, or how it ended.

        QUEUED → CHARGING → RENTING → PREPARING → SYNCING → CHECKING → TRAINING → UPLOADING → SAMPLING
        → REGISTERING → DESTROYING → SETTLING → NOTIFYING → COMPLETED | FAILED | CANCELLED

    From PREPARING to UPLOADING, a machine that is lost leads to REPLACING and from there to RENTING again. Every step
    leads to DESTROYING when the job fails or a person cancels it; how it ends is written down before.
    """

    QUEUED = "QUEUED"
    CHARGING = "CHARGING"
    RENTING = "RENTING"
    PREPARING = "PREPARING"
    SYNCING = "SYNCING"
    CHECKING = "CHECKING"
    TRAINING = "TRAINING"
    REPLACING = "REPLACING"
    UPLOADING = "UPLOADING"
    SAMPLING = "SAMPLING"
    REGISTERING = "REGISTERING"
    DESTROYING = "DESTROYING"
    SETTLING = "SETTLING"
    NOTIFYING = "NOTIFYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        return self in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """One LoRA training. `dropout` is the share of captions that are left out; `keep` is how many checkpoints stay.

    `samples` are prompts of test images; `[trigger]` in them is the trigger word.
    """

    name: str
    trigger: str
    steps: int = 4000
    learning_rate: float = 1e-4
    rank: int = 32
    alpha: float = 32
    dropout: float = 0.05
    save_every: int = 250
    batch_size: int = 1
    keep: int = 4
    resolutions: tuple[int, ...] = (512, 768, 1024)
    base_model: str = BASE_MODEL
    samples: tuple[str, ...] = ("[trigger], portrait photo", "[trigger] in a forest, morning light")

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SettingsError("name", self.name, "letters, digits, '.', '_' and '-', at most 64")
        if not self.trigger.strip() or not self.trigger.isprintable() or len(self.trigger) > 100:
            raise SettingsError("trigger", self.trigger[:100], "a word of at most 100 characters")
        if not _REPOSITORY.fullmatch(self.base_model):
            raise SettingsError("base_model", self.base_model, "OWNER/NAME on the hub")
        for key, (least, most) in _WHOLE.items():
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise SettingsError(key, value, f"a whole number, {least} to {most}")
        for key, (low, high) in _SHARES.items():
            value = getattr(self, key)
            if not isinstance(value, (int, float)) or not low <= value <= high:
                raise SettingsError(key, value, f"{low:g} to {high:g}")
        if self.save_every > self.steps:
            raise SettingsError(
                "save_every", self.save_every, f"at most the steps, {self.steps}: nothing is saved before"
            )
        if not self.resolutions or not all(256 <= each <= 2048 and each % 64 == 0 for each in self.resolutions):
            raise SettingsError("resolutions", self.resolutions, "multiples of 64 between 256 and 2048")


@dataclass(frozen=True, slots=True)
class Hook:
    """What a user does with a trained model: a command, or a request to a web address; exactly one of the two.

    Attributes:
        command: a line for `sh`.
        url: where a POST goes.
        headers: of the POST. A value `env:NAME`, or `Bearer env:NAME`, is completed from the environment when it is
            sent, and so is kept in no file.
        body: of the POST, as JSON; `{name}`, `{trigger}`, `{job_id}`, `{step}`, `{model}`, `{model_name}` and
            `{model_url}` in its texts are filled in. None: all of them.
        timeout: seconds for one try.
        attempts: how often it is tried.
    """

    command: str | None = None
    url: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None
    timeout: float = 600.0
    attempts: int = 3

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise SettingsError("hook", self.command, "either a command or a url")
        if self.command is not None and (not self.command.strip() or "\0" in self.command):
            raise SettingsError("command", self.command, "a line for sh")
        if self.url is not None and not re.fullmatch(r"https?://[^\s/@]+(?:/\S*)?", self.url):
            raise SettingsError("url", self.url, "an address such as https://example.com/path")
        if (known_number(self.timeout) or 0.0) <= 0:
            raise SettingsError("timeout", self.timeout, "seconds above 0")
        if type(self.attempts) is not int or self.attempts < 1:
            raise SettingsError("attempts", self.attempts, "1 or more")


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """A training that is to be done on a rented machine. Times in seconds, money in dollars.

    Attributes:
        name: of the job and its model.
        dataset: a folder on this machine, copied to the instance; None: there is none.
        spec: a LoRA training by ai-toolkit; else `command` says what is run.
        command: a line for `sh`, run in the job's folder on the instance. It finds the dataset in `$DATASET`, writes
            its checkpoints into `$OUTPUT` and resumes from `$RESUME_FROM_CHECKPOINT` when that is not empty.
        image: the container image that is rented.
        offers: what differs from the defaults of `OfferQuery`.
        env: for the command; a value `env:NAME` is taken from the worker's environment, and so is kept in no file.
        upload_to: destinations of the model, tried in their order, see `upload_checkpoint`. The worker's own machine
            always gets a copy.
        samples: done on the instance, with the model in `$MODEL`; what it writes into `$SAMPLES` is copied here.
        register: done on the worker's machine.
        on_finish: of the instance of a job that completed: destroy | stop (its disk goes on costing money) | keep.
        account: whose credits pay; None: nobody's.
        budget: the job ends when it has spent this.
        soft_timeout: of its time on machines: somebody is told. hard_timeout: it is ended, and saved.
        seconds_per_step: for the estimate of its price.
        max_instances: how many machines it may use up.
        user: who is told, one of the settings file's users; "": whoever the channels tell.
    """

    name: str
    dataset: str | None = None
    spec: TrainingSpec | None = None
    command: str | None = None
    image: str = "ostris/aitoolkit:latest"
    offers: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    upload_to: tuple[str, ...] = ()
    samples: Hook | None = None
    register: Hook | None = None
    on_finish: str = "destroy"
    account: str | None = None
    budget: float | None = None
    soft_timeout: float | None = None
    hard_timeout: float = 4 * 3600.0
    seconds_per_step: float = 2.5
    max_instances: int = 3
    user: str = ""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SettingsError("name", self.name, "letters, digits, '.', '_' and '-', at most 64")
        if (self.spec is None) == (self.command is None):
            raise SettingsError("command", self.command, "either a spec or a command")
        if self.spec is not None and self.dataset is None:
            raise SettingsError("dataset", None, "the folder of images to train with")
        if self.command is not None and (not self.command.strip() or "\0" in self.command):
            raise SettingsError("command", self.command, "a line for sh")
        if not re.fullmatch(r"[A-Za-z0-9][\w./:@-]{0,255}", self.image):
            raise SettingsError("image", self.image, "the name of a container image, such as ostris/aitoolkit:latest")
        if self.on_finish not in ON_FINISH:
            raise SettingsError("on_finish", self.on_finish, " | ".join(ON_FINISH))
        if self.account is not None and not _ACCOUNT.fullmatch(self.account):
            raise SettingsError("account", self.account, "a name of at most 100 characters")
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                raise SettingsError("env", name, "the name of a variable")
        for key in ("command", "account"):  # a folder's name may be no UTF-8, what is sent or shown may not
            if re.search("[\ud800-\udfff]", getattr(self, key) or ""):
                raise SettingsError(key, getattr(self, key).encode("utf-8", "replace").decode(), "a text that is UTF-8")
        for key in ("budget", "soft_timeout", "hard_timeout", "seconds_per_step"):
            value = getattr(self, key)
            if value is not None and (known_number(value) or 0.0) <= 0:
                raise SettingsError(key, value, "a number above 0")
        if self.soft_timeout and self.soft_timeout > self.hard_timeout:
            raise SettingsError("soft_timeout", self.soft_timeout, f"at most the hard one, {self.hard_timeout:g}")
        if type(self.max_instances) is not int or not 1 <= self.max_instances <= 100:
            raise SettingsError("max_instances", self.max_instances, "1 to 100")


@dataclass(frozen=True, slots=True)
class Rental:
    """One machine that was rented for a job; the times in epoch seconds, `ended_at` when it was seen to be gone."""

    instance_id: int
    attempt: int
    price_per_hour: float | None
    started_at: float
    ended_at: float | None = None
    machine_id: int | None = None
    gpu_name: str | None = None
    host_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobWork:
    """What the steps of a job have done so far.

    Attributes:
        attempt: the number of its machine, from 1; 0 before the first.
        asked_at: when the machine of this attempt was asked for, epoch seconds; it may be there.
        instance_id: the machine it has; None when it has none.
        rentals: all machines it had.
        bad_machines: those of them it is not to get again, by their machine ids.
        bad_hosts: ids of those whose machine did not boot or was not fit; it gets no machine of theirs again.
        estimate: what was reserved for it, dollars.
        step: the newest optimizer step that was seen, of `total_steps`.
        saved_step: of the newest checkpoint that is kept on the worker's machine, in `saved_path`.
        unsaved_steps: how many of the last steps of the training its model lacks; None: none, as far as is known.
        uploads: what became of its uploads.
        model_url: where its model is.
        outcome: how it ends, once that is known: COMPLETED | FAILED | CANCELLED, and why.
        warnings: what went wrong without ending it.
        spent: what its machines cost, dollars.
    """

    attempt: int = 0
    asked_at: float | None = None
    instance_id: int | None = None
    rentals: tuple[Rental, ...] = ()
    bad_machines: tuple[int, ...] = ()
    bad_hosts: tuple[int, ...] = ()
    estimate: float | None = None
    step: int | None = None
    total_steps: int | None = None
    saved_step: int | None = None
    saved_path: str | None = None
    unsaved_steps: int | None = None
    uploads: tuple[UploadReport, ...] = ()
    model_url: str | None = None
    outcome: JobState | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    spent: float | None = None


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A training in the queue. The times are epoch seconds.

    Attributes:
        worker: who has it, until `lease_until` unless it is renewed.
        progressed_at: when it last did a step or went to another state.
        to_end: how it is to be ended (CANCELLED | FAILED) and why, when somebody asked for that.
    """

    id: str
    state: JobState
    request: TrainingRequest
    work: JobWork
    created_at: float
    changed_at: float
    progressed_at: float
    worker: str | None = None
    lease_until: float | None = None
    to_end: tuple[JobState, str] | None = None


# ---------------------------------------------------------------- values from the environment


def resolve_env(values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Complete each value `env:NAME` or `PREFIX env:NAME` (`Bearer env:NAME`) from the environment; others stay.

    Raises:
        SettingsError: naming the variable that is not set, or is empty.
    """
    return {key: _resolve(key, value, environ) for key, value in values.items()}


def _resolve(key: str, value: str, environ: Mapping[str, str]) -> str:
    found = _REFERENCE.fullmatch(value)
    if not found:
        return value
    if not _VARIABLE.fullmatch(found["name"]):
        raise SettingsError(key, value, "env:NAME, the name of a variable")
    if not (completed := environ.get(found["name"])):
        raise SettingsError(found["name"], completed, f"a variable that is set and not empty, for {key}")
    return (found["prefix"] or "") + completed


# ---------------------------------------------------------------- labels


def format_label(owner: str, job_id: str, attempt: int) -> str:
    """What an instance is labelled with: whose it is and for which attempt of which job it was rented."""
    return f"training_monitor/{owner}/{job_id}/{attempt}"


def read_label(label: object) -> tuple[str, str, int] | None:
    """Owner, job id and attempt out of a label of ours; None for any other."""
    found = _LABEL.fullmatch(label) if isinstance(label, str) else None
    return (found["owner"], found["job"], int(found["attempt"])) if found else None
