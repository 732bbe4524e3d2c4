"""The types of the JSON documents of the commands, from which `docs/write_schemas.py` writes their schemas.

A document has `schema` and the keys of its type, with `target` and `verdict` where it has them. No command imports
this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar, cast, get_type_hints

from training_monitor.cli.config import SettingsCheck
from training_monitor.cli.fleet import COSTS
from training_monitor.cli.history import COST_KEYS
from training_monitor.cli.keys import OF_A_LOG
from training_monitor.cli.market import FORECAST_KEYS
from training_monitor.cli.probes import Check
from training_monitor.cli.skill import Installation
from training_monitor.core import models, reports, values
from training_monitor.core.frozen import fields, is_dataclass
from training_monitor.core.store import KeptNotice
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.trends import CostProjection, RunComparison, Trend
from training_monitor.fleet.values import REPORTED, FleetSnapshot, FleetSummary
from training_monitor.jobs.claims import Owner
from training_monitor.runs.values import Run, RunRow, RunsSnapshot, Variable
from training_monitor.service.credits import Movement
from training_monitor.service.dataset import DatasetReport
from training_monitor.service.sweeper import SweepReport
from training_monitor.vast.account import Balance, SshKeyReport
from training_monitor.vast.cost import BurnForecast, Limit
from training_monitor.vast.offers import Offer, OfferQuery
from training_monitor.vast.training_request import QueuedJob
from training_monitor.watch.kept_waits import KeptWait

StatusWord = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED", "UNKNOWN"]

_Class = TypeVar("_Class", bound=type)

EventKind = Literal[
    "progress", "started", "adopted", "resumed", "ignored", "detected", "refused", "waiting", "unreachable", "reached",
    "moved", "stopping", "explained", "stopped", "removed", "finished",
]  # fmt: skip


def _keys_of(value: type) -> dict[str, Any]:
    hints = get_type_hints(value, include_extras=True)
    return {each.name: hints[each.name] for each in fields(value)} if is_dataclass(value) else hints


def _document(name: str, said: str, /, *values: type, **keys: Any) -> type:
    """Return a TypedDict with the keys of values (dataclasses and TypedDicts) and its own; later ones replace earlier.

    Args:
        name: of the definition in the schema.
        said: its description there.
    """
    inherited = {key: kind for value in values for key, kind in _keys_of(value).items()}
    made: type = cast(Any, TypedDict)(name, inherited | keys)
    made.__doc__ = said
    return made


def _with_keys_of(value: type, **renamed: str) -> Callable[[_Class], _Class]:
    """Add the keys of a dataclass to a TypedDict, whose own keys replace those of the same names.

    Args:
        value: the dataclass.
        renamed: names of fields, and what their keys are called; "" leaves one out.
    """

    def add(document: _Class) -> _Class:
        keys = {renamed.get(name, name): kind for name, kind in _keys_of(value).items()} | _keys_of(document)
        keys.pop("", None)
        return cast(_Class, _document(document.__name__, document.__doc__ or "", **keys))

    return add


class OfTarget(TypedDict):
    target: str


class Judged(TypedDict):
    verdict: reports.VerdictWord


# ---------------------------------------------------------------- keys that several documents have


@_with_keys_of(models.Progress, **dict.fromkeys(OF_A_LOG, ""))
class ProgressKeys(TypedDict):
    """How far a job is over all its epochs, by its log: `progress` is 0 to 1, `eta_seconds` until its last step."""

    total_epochs: float | None
    progress: float | None


@_with_keys_of(values.Verdict, stall="")
class VerdictKeys(Judged):
    """What the judge says, as `Verdict` defines it."""

    state: reports.StateWord


@_with_keys_of(values.TrainingStatus, loss="loss_analysis", runtime="runtime_seconds", step="", progress="", verdict="")
class StatusKeys(ProgressKeys, VerdictKeys):
    """One look at a watched training, as `TrainingStatus` defines it; `end` is how it ended, as far as that tells."""

    status: StatusWord
    stall: values.StallAnalysis
    loss_analysis: values.LossAnalysis | None
    kind: Literal["status"]
    end: str | None


@_with_keys_of(models.Event, view="")
class EventDocument(TypedDict):
    """What was seen or done, as `Event` defines it."""

    kind: EventKind
    outcome: str | None


class ProgressDocument(EventDocument, ProgressKeys):
    """An event of a look at the job, with how far it is."""


# ---------------------------------------------------------------- jobs and trainings


class StallJob(reports.JobCheckReport):
    stalled: bool | None


@_with_keys_of(Owner)
class Supervisor(TypedDict):
    """Who supervises a training: since when (epoch seconds), and how many seconds ago it last said so."""

    since: float
    age: float


class StatusJob(ProgressKeys, VerdictKeys):
    """A job: `log_age` is the seconds since the last write to its log, `metrics` by the log patterns of the settings.

    `metrics` is None where all jobs are listed.
    """

    job_id: str
    status: StatusWord
    message: str | None
    exit_code: int | None
    log_age: float | None
    started_at: float | None
    supervisor: Supervisor | None
    supervisor_error: str | None
    metrics: Mapping[str, float | None] | None


# ---------------------------------------------------------------- many trainings


@_with_keys_of(TrainingMetrics, **{field: key for key, field in REPORTED.items()}, explained="")
class FleetMember(VerdictKeys):
    """A member, as `TrainingMetrics` defines its values; verdict and reason are those of its row on the screen."""

    recent_logs: list[str]
    extra: Mapping[str, float | None]
    progress: float | None
    explanation: str | None
    explained_at: float | None
    explained_job_id: str | None


@_with_keys_of(FleetSummary, levels="verdicts", **COSTS)
class FleetSums(TypedDict):
    """The sums of a fleet, as `FleetSummary` defines them; `verdicts` counts the members of each."""


@_with_keys_of(FleetSnapshot, rows="")
class FleetDocument(Judged):
    """A look at a fleet, as `FleetSnapshot` defines it; `verdict` is the worst of its members."""

    members: list[FleetMember]
    summary: FleetSums


@_with_keys_of(Variable)
class RunVariable(TypedDict):
    """A variable of a script, as `Variable` defines it."""

    editable: bool


@_with_keys_of(Run)
class RunFile(TypedDict):
    """What a run wrote of itself, as `Run` defines it."""

    variables: list[RunVariable]


@_with_keys_of(RunRow)
class TopRun(VerdictKeys):
    """A run and its processes, as `RunRow` defines them."""

    run: RunFile
    loss: float | None


@_with_keys_of(RunsSnapshot, rows="", is_refreshing="refreshing")
class TopDocument(Judged):
    """A look at a folder of runs, as `RunsSnapshot` defines it; `verdict` is the worst of the runs."""

    runs: list[TopRun]


class HistoryKeys(TypedDict):
    """A member, when it was first and last seen (epoch seconds), and how many samples there are."""

    key: str
    first_seen: float
    last_seen: float
    samples: int


class ListedMember(HistoryKeys):
    newest: Mapping[str, float | None]


@_with_keys_of(CostProjection, **COST_KEYS)
class ProjectedCost(TypedDict):
    """Dollars: `cost_ahead` in the next `hours`, `cost_to_completion` until the last step."""


class DescribedMember(HistoryKeys):
    """A member with `seen` samples in the chosen time."""

    seen: int
    fields: Mapping[str, Trend]
    cost: ProjectedCost | None


class DailyCost(TypedDict):
    """Dollars by day, and their sum: None is unknown, `at_least` that there may have been more."""

    dollars: list[float | None]
    at_least: list[bool]
    total: float | None
    total_at_least: bool


class MemberCost(DailyCost):
    key: str


class GroupCost(DailyCost):
    name: str


# ---------------------------------------------------------------- rented machines


@_with_keys_of(QueuedJob, id="job_id")
class RentedJob(TypedDict):
    """A training on rented machines, as `QueuedJob` defines it; `state` is a `JobState`, or one of a later version."""

    state: str
    total_cost: float
    limit: Limit | None


class QueueDocument(TypedDict):
    jobs: list[RentedJob]


class DamagedJob(TypedDict):
    """A row of the queue that cannot be read."""

    job_id: str
    error: str


class InstanceJob(TypedDict):
    owner: str
    job_id: str
    attempt: int


class Instance(TypedDict):
    """A rented instance; costs in dollars an hour, `status`, `intended_status` and `label` in vast.ai's words."""

    instance_id: int
    status: str | None
    intended_status: str | None
    status_message: str | None
    gpu_name: str | None
    num_gpus: int | None
    cost_per_hour: float | None
    storage_cost_per_hour: float | None
    runtime_seconds: float | None
    label: str | None
    job: InstanceJob | None
    ssh: str | None
    disk_gb: float | None
    location: str | None
    image: str | None
    machine_id: int | None


LooseWish = TypedDict("LooseWish", {"offers": int, "from": float})


@_with_keys_of(BurnForecast, **FORECAST_KEYS)
class Forecast(TypedDict):
    """The cost of the rented instances while they stay as they are, as `BurnForecast` defines it."""


@_with_keys_of(values.Delivery)
class ChannelResult(TypedDict):
    """What came of a test by one channel."""

    hint: str | None


# ---------------------------------------------------------------- documents


_EVENTS = (EventDocument, ProgressDocument)
_EVENTS_OF_TARGET = (
    _document("EventOfTarget", "", EventDocument, OfTarget),
    _document("ProgressOfTarget", "", ProgressDocument, OfTarget),
)
_RESTART_RESULT = _document("RestartResult", "", reports.RestartReport, OfTarget, kind=Literal["result"])
_FORMS: dict[str, type | tuple[type, ...]] = {
    "check": reports.CheckReport,
    "why": reports.ExplanationReport,
    "stall": _document(
        "StallDocument",
        "What `check` says; `stall_after` is the limit of the command line in seconds.",
        reports.CheckReport,
        stall_after=float | None,
        jobs=list[StallJob],
    ),
    "wait": (
        _document(
            "WaitDocument",
            "How a training ended, or that it stalls or time ran out; `duration` in seconds.",
            reports.MonitorReport,
            OfTarget,
        ),
        values.WaitReport,
        _document("WaitsDocument", "The waits that are kept, the last written first (`--list`).", waits=list[KeptWait]),
    ),
    "status": _document(
        "StatusDocument",
        "The jobs of a target, or one of them; `odd` is what its jobs folder holds besides jobs.",
        OfTarget,
        jobs=list[StatusJob],
        not_seen=list[values.NotSeen],
        odd=list[values.NotSeen],
    ),
    "step": _document("StepDocument", "", OfTarget, ProgressKeys, job_id=str),
    "logs": _document("LogsDocument", "", OfTarget, job_id=str, text=str),
    "vast": FleetDocument,
    "fleet": FleetDocument,
    "web": _document("WebDocument", "Where the page is, and the process that serves it.", url=str, pid=int),
    "metrics": (),
    "top": TopDocument,
    "history": (
        _document("HistoryDocument", "The newest value of some fields of each member.", members=list[ListedMember]),
        _document("DescribedHistory", "Each field of some members.", members=list[DescribedMember]),
        _document("ComparedHistory", "Members side by side (`--compare`).", members=list[RunComparison]),
        _document(
            "CostHistory",
            "The cost of members, groups and all together on each of `days` (`--cost`).",
            days=list[str],
            members=list[MemberCost],
            groups=list[GroupCost],
            all=DailyCost,
        ),
    ),
    "run": (*_EVENTS_OF_TARGET, _RESTART_RESULT),
    "restart": (*_EVENTS_OF_TARGET, _RESTART_RESULT),
    "watch": (
        _document("WatchStatus", "", StatusKeys, OfTarget),
        _document(
            "WatchLine",
            "A line of a followed log.",
            ProgressKeys,
            OfTarget,
            kind=Literal["line"],
            line=str,
            timestamp=float,
            stall=values.StallAnalysis,
        ),
        *_EVENTS_OF_TARGET,
        _document(
            "WatchResult",
            "How a watch ended.",
            OfTarget,
            kind=Literal["result"],
            end=str,
            reason=str,
            last_look=StatusKeys | None,
            termination=values.TerminationReport | None,
        ),
    ),
    "terminate": (
        *_EVENTS_OF_TARGET,
        _document(
            "TerminateResult",
            "How a training was ended, as `TerminationReport` defines it.",
            values.TerminationReport,
            OfTarget,
            kind=Literal["result"],
        ),
    ),
    "upload": _document("UploadDocument", "An upload, as `UploadReport` defines it.", values.UploadReport, OfTarget),
    "stop": _document(
        "StopDocument",
        "A stopped job; `job_id` is None for a process that is no job.",
        OfTarget,
        job_id=str | None,
        name=str,
        status=StatusWord,
    ),
    "health": _document("HealthDocument", "", reports.HealthReport, OfTarget),
    "gpu": _document("GpuDocument", "", reports.GpuReport, OfTarget, Judged),
    "efa": _document("EfaDocument", "", reports.EfaClusterReport, OfTarget, Judged),
    "resources": _document("ResourcesDocument", "", reports.RayResourcesReport, OfTarget, Judged),
    "checkpoints": _document(
        "CheckpointsDocument",
        "The checkpoints of a folder, lowest step first; `checkpoint` is the newest complete one.",
        OfTarget,
        directory=str,
        checkpoint=models.Checkpoint | None,
        checkpoints=list[models.Checkpoint],
        unlisted_checkpoints=int,
    ),
    "launch": (
        *_EVENTS,
        _document(
            "LaunchResult",
            "A queued training, or how it ended or was left with `--watch`.",
            kind=Literal["result", "interrupted"],
            job=RentedJob,
        ),
    ),
    "queue": (QueueDocument, _document("QueueListing", "", QueueDocument, damaged=list[DamagedJob])),
    "worker": _EVENTS,
    "sweep": SweepReport,
    "instances": _document(
        "InstancesDocument",
        "Instances, the sum of their known costs, and how many have an unknown one.",
        instances=list[Instance],
        cost_per_hour=float,
        cost_unknown=int,
    ),
    "offers": _document(
        "OffersDocument",
        "The best of the `found` offers, and the wishes without which there would be some (`loosen`, by "
        "their options).",
        offers=list[Offer],
        found=int,
        query=OfferQuery,
        loosen=Mapping[str, LooseWish],
    ),
    "dataset": DatasetReport,
    "keys": SshKeyReport,
    "credits": (
        _document(
            "CreditDocument",
            "The credit at vast.ai, as `Balance` defines it, and how long it lasts.",
            Balance,
            forecast=Forecast | None,
            error=str | None,
        ),
        _document(
            "AccountDocument", "An account of the ledger here.", account=str, credit=float, movements=list[Movement]
        ),
    ),
    "demo": (*_EVENTS, _document("DemoResult", "", reports.RestartReport, kind=Literal["result"])),
    "doctor": _document("DoctorDocument", "", checks=list[Check]),
    "notify": (
        values.Delivery,
        _document("ChannelsDocument", "What came of a test by every channel (`--test`).", channels=list[ChannelResult]),
        _document("NoticesDocument", "The last notices, newest first (`--list`).", notices=list[KeptNotice]),
    ),
    "skill": (
        _document(
            "SkillPage",
            "One page of the skill: where it is, its text, and the names of the pages.",
            path=str,
            text=str,
            pages=list[str],
        ),
        _document(
            "SkillFolders", "Where the skill was installed (`--install`).", skill=str, folders=list[Installation]
        ),
    ),
    "mcp": _document("McpDocument", "The tools as `tools/list` has them.", tools=list[Mapping[str, Any]]),
    "completion": _document("CompletionDocument", "", shell=Literal["bash", "zsh", "fish"], script=str),
    "config": (
        SettingsCheck,
        _document(
            "SettingsTables",
            "The settings file (empty: there is none), and the keys of its tables.",
            file=str,
            tables=Mapping[str, list[str]],
        ),
        _document("NewSettings", "The settings file that was written (`--init`).", file=str),
    ),
    "error": _document(
        "ErrorDocument",
        "Why there is no other document, what kind of error it is, and what to try.",
        error=str,
        kind=str,
        hint=str | None,
    ),
}
# By command: the forms of its documents.
DOCUMENTS = {command: forms if isinstance(forms, tuple) else (forms,) for command, forms in _FORMS.items()}
