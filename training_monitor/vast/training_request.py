"""Frozen values of one training on rented machines: the request, its state, its rentals. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.masking import keep_secret
from training_monitor.core.outcomes import UploadReport
from training_monitor.core.regex import regex
from training_monitor.core.secret_forms import is_secret
from training_monitor.core.settings_table import (
    MISFIT,
    Kind,
    Place,
    check_fields,
    choice,
    items,
    named,
    number,
    seconds,
    table,
    text,
    whole,
)

BASE_MODEL = "black-forest-labs/FLUX.1-dev"
ON_FINISH = ("destroy", "stop", "keep")
NAME = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = regex(r"(?P<prefix>\S+ +)?env:(?P<name>.*)", re.DOTALL)
_ANY = text("a text", "(?s:.*)")
_TEXTS = items(_ANY, "a list of strings", least=0)
_JOB_NAME = text("letters, digits, '.', '_' and '-', at most 64", NAME.pattern)
_COMMAND = text("a command line for sh")
_URL = text("an address such as https://example.com/path", r"https?://[^\s/@]+(?:/\S*)?")
_ACCOUNT = text("a name of at most 100 characters, in UTF-8", r"[^\x00-\x1f\x7f\ud800-\udfff]{1,100}")
_UTF8_COMMAND = text("a command line for sh, in UTF-8", r"(?s:(?!.*[\0\ud800-\udfff]).*\S.*)")


def _up_to(most: int) -> Kind:
    return whole(f"a whole number from 1 to {most}", least=1, most=most)


def _between(least: float, most: float) -> Kind:
    return number(f"a number from {least:g} to {most:g}", least=least, most=most)


def _read_trigger(value: Any, place: Place) -> Any:
    if not isinstance(value, str):
        return MISFIT
    fits = value.strip() and value.isprintable() and len(value) <= 100
    return value if fits else place.note(value[:100], "a word of at most 100 characters")


def _read_side(value: Any, place: Place) -> Any:
    return value if type(value) is int and 256 <= value <= 2048 and value % 64 == 0 else MISFIT


def _anything(name: str) -> Kind:
    return Kind("", lambda value, place: value)


def _of_variable(name: str) -> Kind:
    def read(value: Any, place: Place) -> Any:
        return (
            _ANY.read(value, place)
            if _VARIABLE.fullmatch(name)
            else place.note(name, "the name of an environment variable")
        )

    return Kind("a text", read)


class JobState(str, Enum):
    """The state of a queued training: the next step, or how the training ended.

        QUEUED → CHARGING → RENTING → PREPARING → SYNCING → CHECKING → TRAINING → UPLOADING → SAMPLING → REGISTERING →
        DESTROYING → SETTLING → NOTIFYING → COMPLETED | FAILED | CANCELLED

    From PREPARING to UPLOADING, the loss of the machine leads to REPLACING, and from there back to RENTING. If the job
    fails or a person cancels it, any step leads to DESTROYING; the outcome of the job is recorded first.
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


@dataclass(frozen=True, slots=True, repr=False)
class TrainingSpec(PublicValue):
    """One LoRA training. `dropout` is the share of captions to omit; `keep` is the number of checkpoints to keep.

    `samples` are prompts for test images; `[trigger]` in a prompt is replaced by the trigger word.
    """

    name: Annotated[str, _JOB_NAME]
    trigger: Annotated[str, Kind("a word of at most 100 characters", _read_trigger)]
    steps: Annotated[int, _up_to(100_000)] = 4000
    learning_rate: Annotated[float, _between(1e-7, 1e-2)] = 1e-4
    rank: Annotated[int, _up_to(512)] = 32
    alpha: Annotated[float, _between(0.1, 1024)] = 32
    dropout: Annotated[float, _between(0.0, 0.9)] = 0.05
    save_every: Annotated[int, _up_to(100_000)] = 250
    batch_size: Annotated[int, _up_to(64)] = 1
    keep: Annotated[int, _up_to(1000)] = 4
    resolutions: Annotated[tuple[int, ...], items(Kind("a multiple of 64 between 256 and 2048", _read_side))] = (
        512,
        768,
        1024,
    )
    base_model: Annotated[str, text("OWNER/NAME on the hub", r"[\w.-]{1,96}/[\w.-]{1,96}")] = BASE_MODEL
    samples: Annotated[tuple[str, ...], _TEXTS] = ("[trigger], portrait photo", "[trigger] in a forest, morning light")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.save_every > self.steps:
            expected = f"at most the number of steps ({self.steps}), or nothing would be saved"
            raise SettingsError("save_every", self.save_every, expected)


@dataclass(frozen=True, slots=True, repr=False)
class Hook(PublicValue):
    """An action that you define for a trained model: either a command or an HTTP request.

    Attributes:
        command: a shell command line, run by `sh`.
        url: the URL of a POST request.
        headers: the headers of the request. A value `env:NAME` or `Bearer env:NAME` is completed from the environment
            when the request is sent, so that the value is not in any file.
        body: the JSON body of the request. `{name}`, `{trigger}`, `{job_id}`, `{step}`, `{model}`, `{model_name}` and
            `{model_url}` in its strings are replaced. None: the body contains all these values.
        timeout: maximum time for one attempt.
        attempts: maximum number of attempts.
    """

    command: Annotated[str, _COMMAND] | None = None
    url: Annotated[str, _URL] | None = None
    headers: Annotated[tuple[tuple[str, str], ...], items(items(_ANY, "a name and a value", least=2), least=0)] = ()
    body: Annotated[Mapping[str, Any], named(_anything, "a table")] | None = None
    timeout: Annotated[float, seconds(above=0)] = 600.0
    attempts: Annotated[int, whole("1 or more", least=1)] = 3

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.command is None) == (self.url is None):
            raise SettingsError("hook", self.command, "either a command or a url")


@dataclass(frozen=True, slots=True, repr=False)
class TrainingRequest(PublicValue):
    """A training to run on a rented machine. Times are in seconds, and amounts of money in dollars.

    Attributes:
        name: the name of the job and of its model.
        dataset: a folder on this machine that is copied to the instance; None: the training needs no dataset.
        spec: a LoRA training by ai-toolkit; None: `command` is run.
        command: a shell command line, run by `sh` in the job's folder on the instance. It finds the dataset in
            `$DATASET`, writes its checkpoints to `$OUTPUT`, and resumes from `$RESUME_FROM_CHECKPOINT` if that is not
            empty.
        image: the container image that the instance runs.
        offers: fields of `OfferQuery` that differ from the defaults.
        env: environment variables for the command. A value `env:NAME` is taken from the worker's environment, so that
            it is not in any file.
        upload_to: destinations of the model, tried in order; see `upload_checkpoint`. The worker's own machine always
            gets a copy.
        samples: run on the instance, with the model in `$MODEL`. Files that it writes to `$SAMPLES` are copied to the
            worker's machine.
        register: run on the worker's machine.
        on_finish: what happens to the instance of a completed job: destroy | stop (the disk still costs money) | keep.
        account: the account whose credits pay for the job; None: no account pays.
        budget: the job ends when it has spent this amount.
        soft_timeout: a notice is sent after this much time on machines.
        hard_timeout: after this much time on machines, the job is ended and its model is saved.
        seconds_per_step: the speed used to estimate the price.
        max_instances: the maximum number of machines that the job may use, one after another.
        user: the user to notify, from the settings file; "": the channels' default recipients.
    """

    name: Annotated[str, _JOB_NAME]
    dataset: Annotated[str, _ANY] | None = None
    spec: Annotated[TrainingSpec, table(TrainingSpec)] | None = None
    command: Annotated[str, _UTF8_COMMAND] | None = None
    image: Annotated[
        str, text("the name of a container image, such as ostris/aitoolkit:latest", r"[A-Za-z0-9][\w./:@-]{0,255}")
    ] = "ostris/aitoolkit:latest"
    offers: Annotated[Mapping[str, Any], named(_anything, "a table with fields of OfferQuery")] = field(
        default_factory=dict
    )
    env: Annotated[Mapping[str, str], named(_of_variable, "a table of strings")] = field(default_factory=dict)
    upload_to: Annotated[tuple[str, ...], _TEXTS] = ()
    samples: Annotated[Hook, table(Hook)] | None = None
    register: Annotated[Hook, table(Hook)] | None = None
    on_finish: Annotated[str, choice(*ON_FINISH, expected=" | ".join(ON_FINISH))] = "destroy"
    account: Annotated[str, _ACCOUNT] | None = None
    budget: Annotated[float, number("a number above 0", above=0)] | None = None
    soft_timeout: Annotated[float, seconds(above=0)] | None = None
    hard_timeout: Annotated[float, seconds(above=0)] = 4 * 3600.0
    seconds_per_step: Annotated[float, seconds(above=0)] = 2.5
    max_instances: Annotated[int, whole("1 to 100", least=1, most=100)] = 3
    user: Annotated[str, _ANY] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.spec is None) == (self.command is None):
            raise SettingsError("command", self.command, "either a spec or a command")
        if self.spec is not None and self.dataset is None:
            raise SettingsError("dataset", None, "the folder with the training images")
        if self.soft_timeout and self.soft_timeout > self.hard_timeout:
            raise SettingsError("soft_timeout", self.soft_timeout, f"at most hard_timeout ({self.hard_timeout:g})")


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price in dollars per hour, and since when it holds: epoch seconds of the look that found it."""

    since: float
    per_hour: float


@dataclass(frozen=True, slots=True, repr=False)
class Rental(PublicValue):
    """One machine that was rented for a job, as recorded by `vast/rentals.py`. Times are epoch seconds.

    Attributes:
        price_per_hour: the first known price, in dollars. prices: later prices.
        started_at: when the machine was created.
        ended_at: when the machine was destroyed or last seen, or when the job left it to its user; None while it
            exists.
        gpu_name: the GPU that was rented. vram_gb: the memory of each GPU, as stated in the offer.
        seen_at: when the machine was last listed.
        leaving_at: when vast.ai last acknowledged a request to destroy the machine; if it never did, when such a
            request was sent.
        acknowledged: whether vast.ai acknowledged such a request.
    """

    instance_id: int
    attempt: int
    price_per_hour: float | None
    started_at: float
    ended_at: float | None = None
    machine_id: int | None = None
    gpu_name: str | None = None
    host_id: int | None = None
    vram_gb: float | None = None
    prices: tuple[PriceChange, ...] = ()
    seen_at: float | None = None
    leaving_at: float | None = None
    acknowledged: bool = False

    @property
    def newest_price(self) -> float | None:
        """Return the current price, in dollars per hour; None if unknown."""
        return self.prices[-1].per_hour if self.prices else self.price_per_hour


@dataclass(frozen=True, slots=True, repr=False)
class JobWork(PublicValue):
    """The progress of a job through its steps. Times are epoch seconds, and amounts of money are in dollars.

    Attributes:
        attempt: the number of the current machine, counted from 1; 0 before the first machine.
        asked_at: when the machine of this attempt was requested; the machine may already exist.
        instance_id: the current machine; None if there is none.
        rentals: all machines that the job has had.
        bad_machines: IDs of machines to avoid from now on.
        bad_hosts: IDs of hosts to avoid, because one of their machines did not boot or failed the check.
        estimate: the amount that was reserved for the job.
        step, total_steps: the most recent optimizer step observed, and the total.
        saved_step, saved_path: the step of the newest checkpoint that has been copied to the worker's machine, and its
            path there.
        unsaved_steps: how many of the last steps of the training are missing from the saved model; None if none are
            known to be missing.
        uploads: the results of the job's uploads.
        model_url: the URL of the model.
        outcome, reason: how the job ends (COMPLETED | FAILED | CANCELLED) and why, once known.
        warnings: problems that did not end the job.
        spent: the total cost of the job's machines.
        limits_told: the kinds of limits that have been reported; see `Limit`.
        step_place: the job, its log, and the position in the log up to which `step` was read.
        asked_gpu: the GPU of the offer that was requested last. asked_vram_gb: the memory of each of its GPUs.
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
    limits_told: tuple[str, ...] = ()
    step_place: tuple[str, int, int] | None = None
    asked_gpu: str | None = None
    asked_vram_gb: float | None = None

    @property
    def last_step(self) -> int | None:
        """Return the last known step, from the log or from the saved checkpoint."""
        return max((each for each in (self.step, self.saved_step) if each is not None), default=None)


@dataclass(frozen=True, slots=True, repr=False)
class QueuedJob(PublicValue):
    """A training in the queue. Times are epoch seconds.

    Attributes:
        worker, lease_until: the worker that holds the job, and the time until which its lease lasts if it is not
            renewed.
        progressed_at: when the job last completed a step or changed its state.
        to_end: if the job is to be ended, the requested outcome (CANCELLED | FAILED) and the reason.
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


def resolve_env(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Complete each value `env:NAME` or `PREFIX env:NAME` (`Bearer env:NAME`) from the environment; others stay.

    Raises:
        SettingsError: names the variable that is not set, or is empty.
    """
    return {key: _resolve(key, value, environ) for key, value in values.items()}


def _resolve(key: str, value: str, environ: Mapping[str, str]) -> str:
    found = _REFERENCE.fullmatch(value)
    if not found:
        return value
    if not _VARIABLE.fullmatch(found["name"]):
        raise SettingsError(key, value, "env:NAME, where NAME is an environment variable")
    if not (completed := environ.get(found["name"])):
        raise SettingsError(found["name"], completed, f"a non-empty environment variable, because {key} refers to it")
    if found["prefix"] or is_secret(key, completed) or is_secret(found["name"], completed):
        keep_secret(completed)
    return (found["prefix"] or "") + completed
