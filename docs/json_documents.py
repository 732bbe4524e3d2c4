"""The types of the JSON documents of the commands, from which `docs/write_schemas.py` writes their schemas.

A document has `schema` and the keys of its type, with `target` and `verdict` where it has them. No command needs
these types, so they are no part of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import Any, Literal, TypedDict, cast, get_type_hints

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

EventKind = Literal[
    "progress", "started", "adopted", "resumed", "ignored", "detected", "refused", "waiting", "unreachable", "reached",
    "moved", "stopping", "explained", "stopped", "removed", "finished",
]  # fmt: skip


def _keys(value: type, **renamed: str) -> dict[str, Any]:
    """Return the types of a dataclass's fields, or of a TypedDict's keys, by what `keys_of` calls them in a value."""
    hints = get_type_hints(value, include_extras=True)
    names = [each.name for each in fields(value)] if is_dataclass(value) else list(hints)
    keys = {renamed.get(name, name): hints[name] for name in names}
    keys.pop("", None)
    return keys


def _document(name: str, said: str, /, *parts: type | dict[str, Any], **own: Any) -> type:
    """Return a TypedDict with the keys of its parts and its own; later ones replace earlier ones.

    Args:
        name: of the definition in the schema.
        said: its description there.
    """
    keys: dict[str, Any] = {}
    for part in parts:
        keys |= part if isinstance(part, dict) else _keys(part)
    made: type = cast(Any, TypedDict)(name, keys | own)
    made.__doc__ = said
    return made


def _list(kind: type) -> Any:
    return GenericAlias(list, (kind,))


# ---------------------------------------------------------------- keys that several documents have


_TARGET: dict[str, Any] = {"target": str}
_VERDICT: dict[str, Any] = {"verdict": reports.VerdictWord}
_PROGRESS = _keys(models.Progress, **dict.fromkeys(OF_A_LOG, "")) | {
    "total_epochs": float | None,
    "progress": float | None,  # 0 to 1
}
_JUDGED = _keys(values.Verdict, stall="") | _VERDICT | {"state": reports.StateWord}
StatusKeys = _document(
    "StatusKeys",
    "One look at a watched training, as `TrainingStatus` defines it; `end` is how it ended, as far as that tells.",
    _keys(values.TrainingStatus, loss="loss_analysis", runtime="runtime_seconds", step="", progress="", verdict=""),
    _PROGRESS,
    _JUDGED,
    status=StatusWord,
    stall=values.StallAnalysis,
    loss_analysis=values.LossAnalysis | None,
    kind=Literal["status"],
    end=str | None,
)
EventDocument = _document(
    "EventDocument",
    "What was seen or done, as `Event` defines it.",
    _keys(models.Event, view=""),
    kind=EventKind,
    outcome=str | None,
)
ProgressDocument = _document(
    "ProgressDocument", "An event of a look at the job, with how far it is.", EventDocument, _PROGRESS
)
_EVENTS = (EventDocument, ProgressDocument)
_EVENTS_OF_TARGET = (
    _document("EventOfTarget", "", EventDocument, _TARGET),
    _document("ProgressOfTarget", "", ProgressDocument, _TARGET),
)
_RESTART_RESULT = _document("RestartResult", "", reports.RestartReport, _TARGET, kind=Literal["result"])


# ---------------------------------------------------------------- jobs and trainings


Supervisor = _document(
    "Supervisor",
    "Who supervises a training: since when (epoch seconds), and how many seconds ago it last said so.",
    Owner,
    since=float,
    age=float,
)
StatusJob = _document(
    "StatusJob",
    "A job: `log_age` is the seconds since the last write to its log, `metrics` by the log patterns of the settings."
    "\n\n`metrics` is None where all jobs are listed.",
    _PROGRESS,
    _JUDGED,
    job_id=str,
    status=StatusWord,
    message=str | None,
    exit_code=int | None,
    log_age=float | None,
    started_at=float | None,
    supervisor=Supervisor | None,
    supervisor_error=str | None,
    metrics=Mapping[str, float | None] | None,
)


# ---------------------------------------------------------------- many trainings


FleetMember = _document(
    "FleetMember",
    "A member, as `TrainingMetrics` defines its values; verdict and reason are those of its row on the screen.",
    _keys(TrainingMetrics, **{field: key for key, field in REPORTED.items()}, explained=""),
    _JUDGED,
    recent_logs=list[str],
    extra=Mapping[str, float | None],
    progress=float | None,
    explanation=str | None,
    explained_at=float | None,
    explained_job_id=str | None,
)
FleetSums = _document(
    "FleetSums",
    "The sums of a fleet, as `FleetSummary` defines them; `verdicts` counts the members of each.",
    _keys(FleetSummary, levels="verdicts", **COSTS),
)
FleetDocument = _document(
    "FleetDocument",
    "A look at a fleet, as `FleetSnapshot` defines it; `verdict` is the worst of its members.",
    _keys(FleetSnapshot, rows=""),
    _VERDICT,
    members=_list(FleetMember),
    summary=FleetSums,
)
RunVariable = _document("RunVariable", "A variable of a script, as `Variable` defines it.", Variable, editable=bool)
RunFile = _document("RunFile", "What a run wrote of itself, as `Run` defines it.", Run, variables=_list(RunVariable))
TopRun = _document(
    "TopRun", "A run and its processes, as `RunRow` defines them.", RunRow, _JUDGED, run=RunFile, loss=float | None
)
TopDocument = _document(
    "TopDocument",
    "A look at a folder of runs, as `RunsSnapshot` defines it; `verdict` is the worst of the runs.",
    _keys(RunsSnapshot, rows="", is_refreshing="refreshing"),
    _VERDICT,
    runs=_list(TopRun),
)
_MEMBER: dict[str, Any] = {"key": str, "first_seen": float, "last_seen": float, "samples": int}
ProjectedCost = _document(
    "ProjectedCost",
    "Dollars: `cost_ahead` in the next `hours`, `cost_to_completion` until the last step.",
    _keys(CostProjection, **COST_KEYS),
)
ListedMember = _document("ListedMember", "", _MEMBER, newest=Mapping[str, float | None])
DescribedMember = _document(
    "DescribedMember",
    "A member with `seen` samples in the chosen time.",
    _MEMBER,
    seen=int,
    fields=Mapping[str, Trend],
    cost=ProjectedCost | None,
)
DailyCost = _document(
    "DailyCost",
    "Dollars by day, and their sum: None is unknown, `at_least` that there may have been more.",
    dollars=list[float | None],
    at_least=list[bool],
    total=float | None,
    total_at_least=bool,
)


# ---------------------------------------------------------------- rented machines


RentedJob = _document(
    "RentedJob",
    "A training on rented machines, as `QueuedJob` defines it; `state` is a `JobState`, or one of a later version.",
    _keys(QueuedJob, id="job_id"),
    state=str,
    total_cost=float,
    limit=Limit | None,
)
QueueDocument = _document("QueueDocument", "", jobs=_list(RentedJob))
DamagedJob = _document("DamagedJob", "A row of the queue that cannot be read.", job_id=str, error=str)
InstanceJob = _document("InstanceJob", "", owner=str, job_id=str, attempt=int)
Instance = _document(
    "Instance",
    "A rented instance; costs in dollars an hour, `status`, `intended_status` and `label` in vast.ai's words.",
    instance_id=int,
    status=str | None,
    intended_status=str | None,
    status_message=str | None,
    gpu_name=str | None,
    num_gpus=int | None,
    cost_per_hour=float | None,
    storage_cost_per_hour=float | None,
    runtime_seconds=float | None,
    label=str | None,
    job=InstanceJob | None,
    ssh=str | None,
    disk_gb=float | None,
    location=str | None,
    image=str | None,
    machine_id=int | None,
)
LooseWish = TypedDict("LooseWish", {"offers": int, "from": float})
Forecast = _document(
    "Forecast",
    "The cost of the rented instances while they stay as they are, as `BurnForecast` defines it.",
    _keys(BurnForecast, **FORECAST_KEYS),
)
ChannelResult = _document("ChannelResult", "What came of a test by one channel.", values.Delivery, hint=str | None)


# ---------------------------------------------------------------- documents


_FORMS: dict[str, type | tuple[type, ...]] = {
    "check": reports.CheckReport,
    "why": reports.ExplanationReport,
    "stall": _document(
        "StallDocument",
        "What `check` says; `stall_after` is the limit of the command line in seconds.",
        reports.CheckReport,
        stall_after=float | None,
        jobs=_list(_document("StallJob", "", reports.JobCheckReport, stalled=bool | None)),
    ),
    "wait": (
        _document(
            "WaitDocument",
            "How a training ended, or that it stalls or time ran out; `duration` in seconds.",
            reports.MonitorReport,
            _TARGET,
        ),
        values.WaitReport,
        _document("WaitsDocument", "The waits that are kept, the last written first (`--list`).", waits=list[KeptWait]),
    ),
    "status": _document(
        "StatusDocument",
        "The jobs of a target, or one of them; `odd` is what its jobs folder holds besides jobs.",
        _TARGET,
        jobs=_list(StatusJob),
        not_seen=list[values.NotSeen],
        odd=list[values.NotSeen],
    ),
    "step": _document("StepDocument", "", _TARGET, _PROGRESS, job_id=str),
    "logs": _document("LogsDocument", "", _TARGET, job_id=str, text=str),
    "vast": FleetDocument,
    "fleet": FleetDocument,
    "web": _document("WebDocument", "Where the page is, and the process that serves it.", url=str, pid=int),
    "metrics": (),
    "top": TopDocument,
    "history": (
        _document("HistoryDocument", "The newest value of some fields of each member.", members=_list(ListedMember)),
        _document("DescribedHistory", "Each field of some members.", members=_list(DescribedMember)),
        _document("ComparedHistory", "Members side by side (`--compare`).", members=list[RunComparison]),
        _document(
            "CostHistory",
            "The cost of members, groups and all together on each of `days` (`--cost`).",
            days=list[str],
            members=_list(_document("MemberCost", "", DailyCost, key=str)),
            groups=_list(_document("GroupCost", "", DailyCost, name=str)),
            all=DailyCost,
        ),
    ),
    "run": (*_EVENTS_OF_TARGET, _RESTART_RESULT),
    "restart": (*_EVENTS_OF_TARGET, _RESTART_RESULT),
    "watch": (
        _document("WatchStatus", "", StatusKeys, _TARGET),
        _document(
            "WatchLine",
            "A line of a followed log.",
            _PROGRESS,
            _TARGET,
            kind=Literal["line"],
            line=str,
            timestamp=float,
            stall=values.StallAnalysis,
        ),
        *_EVENTS_OF_TARGET,
        _document(
            "WatchResult",
            "How a watch ended.",
            _TARGET,
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
            _TARGET,
            kind=Literal["result"],
        ),
    ),
    "upload": _document("UploadDocument", "An upload, as `UploadReport` defines it.", values.UploadReport, _TARGET),
    "stop": _document(
        "StopDocument",
        "A stopped job; `job_id` is None for a process that is no job.",
        _TARGET,
        job_id=str | None,
        name=str,
        status=StatusWord,
    ),
    "health": _document("HealthDocument", "", reports.HealthReport, _TARGET),
    "gpu": _document("GpuDocument", "", reports.GpuReport, _TARGET, _VERDICT),
    "efa": _document("EfaDocument", "", reports.EfaClusterReport, _TARGET, _VERDICT),
    "resources": _document("ResourcesDocument", "", reports.RayResourcesReport, _TARGET, _VERDICT),
    "checkpoints": _document(
        "CheckpointsDocument",
        "The checkpoints of a folder, lowest step first; `checkpoint` is the newest complete one.",
        _TARGET,
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
    "queue": (QueueDocument, _document("QueueListing", "", QueueDocument, damaged=_list(DamagedJob))),
    "worker": _EVENTS,
    "sweep": SweepReport,
    "instances": _document(
        "InstancesDocument",
        "Instances, the sum of their known costs, and how many have an unknown one.",
        instances=_list(Instance),
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
        _document(
            "ChannelsDocument", "What came of a test by every channel (`--test`).", channels=_list(ChannelResult)
        ),
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
