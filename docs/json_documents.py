"""The types of the JSON documents of the commands, from which `docs/write_schemas.py` writes their schemas.

A document has `schema` and the keys of its type, with `target` and `verdict` where it has them. No command needs
these types, so they are no part of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_type_hints

from training_monitor.cli.commands.config import SettingsCheck
from training_monitor.cli.commands.history import COST_KEYS, MEMBER_KEYS
from training_monitor.cli.commands.rent.credits import FORECAST_KEYS
from training_monitor.cli.commands.rent.instances import INSTANCE_KEYS
from training_monitor.cli.commands.skill import Installation
from training_monitor.cli.commands.status import JOB_KEYS
from training_monitor.cli.fleet import COSTS
from training_monitor.cli.keys import OF_A_LOG, STATUS_KEYS
from training_monitor.cli.probes import Check
from training_monitor.core import models, outcomes, reports, values
from training_monitor.core.reports import document, key_types, list_of
from training_monitor.core.store import KeptNotice
from training_monitor.fleet.history import HistoryMember
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.trends import CostProjection, RunComparison, Trend
from training_monitor.fleet.values import REPORTED, FleetSnapshot, FleetSummary
from training_monitor.jobs.claims import Owner
from training_monitor.rent.credits import Movement
from training_monitor.rent.dataset import DatasetReport
from training_monitor.rent.sweeper import SweepReport
from training_monitor.runs.values import Run, RunRow, RunsSnapshot, Variable
from training_monitor.supervision.kept_waits import KeptWait
from training_monitor.vast.account import Balance, SshKeyReport
from training_monitor.vast.cost import BurnForecast, Limit
from training_monitor.vast.offers import Offer, OfferQuery
from training_monitor.vast.training_request import QueuedJob
from training_monitor.why.report import ExplanationReport

EventKind = Literal[
    "progress", "started", "adopted", "resumed", "ignored", "detected", "refused", "waiting", "unreachable", "reached",
    "moved", "stopping", "explained", "stopped", "removed", "finished",
]  # fmt: skip


# ---------------------------------------------------------------- keys that several documents have


_TARGET: dict[str, Any] = {"target": str}
_VERDICT: dict[str, Any] = {"verdict": reports.VerdictWord}
_PROGRESS = key_types(models.Progress, **dict.fromkeys(OF_A_LOG, "")) | {
    "total_epochs": float | None,
    "progress": float | None,  # 0 to 1
}
_JUDGED = key_types(values.Verdict, stall="") | _VERDICT | {"state": reports.StateWord}
StatusKeys = document(
    "StatusKeys",
    "One look at a watched training, as `TrainingStatus` defines it; `end` is how it ended, as far as that tells.",
    key_types(values.TrainingStatus, step="", **STATUS_KEYS),
    _PROGRESS,
    _JUDGED,
    kind=Literal["status"],
    end=str | None,
)
EventDocument = document(
    "EventDocument",
    "What was seen or done, as `Event` defines it.",
    key_types(models.Event, view=""),
    kind=EventKind,
    outcome=str | None,
)
ProgressDocument = document(
    "ProgressDocument", "An event of a look at the job, with how far it is.", EventDocument, _PROGRESS
)
_EVENTS = (EventDocument, ProgressDocument)
_EVENTS_OF_TARGET = (
    document("EventOfTarget", "", EventDocument, _TARGET),
    document("ProgressOfTarget", "", ProgressDocument, _TARGET),
)
_RESTART_RESULT = document("RestartResult", "", reports.RestartReport, _TARGET, kind=Literal["result"])


# ---------------------------------------------------------------- jobs and trainings


Supervisor = document(
    "Supervisor",
    "Who supervises a training: since when (epoch seconds), and how many seconds ago it last said so.",
    Owner,
    since=float,
    age=float,
)
StatusJob = document(
    "StatusJob",
    "A job: `log_age` is the seconds since the last write to its log, `metrics` by the log patterns of the settings."
    "\n\n`metrics` is None where all jobs are listed.",
    _PROGRESS,
    _JUDGED,
    {key: key_types(models.JobView)[key] for key in JOB_KEYS},
    supervisor=Supervisor | None,
    supervisor_error=str | None,
    metrics=Mapping[str, float | None] | None,
)


# ---------------------------------------------------------------- many trainings


FleetMember = document(
    "FleetMember",
    "A member, as `TrainingMetrics` defines its values; verdict and reason are those of its row on the screen.",
    key_types(TrainingMetrics, **{field: key for key, field in REPORTED.items()}, explained=""),
    _JUDGED,
    recent_logs=list[str],
    extra=Mapping[str, float | None],
    progress=float | None,
    lowest_gpu_utilization=float | None,
    explanation=str | None,
    explained_at=float | None,
    explained_job_id=str | None,
)
FleetSums = document(
    "FleetSums",
    "The sums of a fleet, as `FleetSummary` defines them; `verdicts` counts the members of each.",
    key_types(FleetSummary, levels="verdicts", **COSTS),
)
FleetDocument = document(
    "FleetDocument",
    "A look at a fleet, as `FleetSnapshot` defines it; `verdict` is the worst of its members.",
    key_types(FleetSnapshot, rows=""),
    _VERDICT,
    members=list_of(FleetMember),
    summary=FleetSums,
)
RunVariable = document("RunVariable", "A variable of a script, as `Variable` defines it.", Variable, editable=bool)
RunFile = document("RunFile", "What a run wrote of itself, as `Run` defines it.", Run, variables=list_of(RunVariable))
TopRun = document(
    "TopRun", "A run and its processes, as `RunRow` defines them.", RunRow, _JUDGED, run=RunFile, loss=float | None
)
TopDocument = document(
    "TopDocument",
    "A look at a folder of runs, as `RunsSnapshot` defines it; `verdict` is the worst of the runs.",
    key_types(RunsSnapshot, rows="", is_refreshing="refreshing"),
    _VERDICT,
    runs=list_of(TopRun),
)
_MEMBER = key_types(HistoryMember, **MEMBER_KEYS)
ProjectedCost = document(
    "ProjectedCost",
    "Dollars: `cost_ahead` in the next `hours`, `cost_to_completion` until the last step.",
    key_types(CostProjection, **COST_KEYS),
)
ListedMember = document("ListedMember", "", _MEMBER, newest=Mapping[str, float | None])
DescribedMember = document(
    "DescribedMember",
    "A member with `seen` samples in the chosen time.",
    _MEMBER,
    seen=int,
    fields=Mapping[str, Trend],
    cost=ProjectedCost | None,
)
DailyCost = document(
    "DailyCost",
    "Dollars by day, and their sum: None is unknown, `at_least` that there may have been more.",
    dollars=list[float | None],
    at_least=list[bool],
    total=float | None,
    total_at_least=bool,
)


# ---------------------------------------------------------------- rented machines


RentedJob = document(
    "RentedJob",
    "A training on rented machines, as `QueuedJob` defines it; `state` is a `JobState`, or one of a later version.",
    key_types(QueuedJob, id="job_id"),
    state=str,
    total_cost=float,
    limit=Limit | None,
)
QueueDocument = document("QueueDocument", "", jobs=list_of(RentedJob))
DamagedJob = document("DamagedJob", "A row of the queue that cannot be read.", job_id=str, error=str)
InstanceJob = document("InstanceJob", "", owner=str, job_id=str, attempt=int)
Instance = document(
    "Instance",
    "A rented instance; costs in dollars an hour, `status`, `intended_status` and `label` in vast.ai's words.",
    {key: get_type_hints(read)["return"] for key, (_, read) in INSTANCE_KEYS.items()},
    instance_id=int,
    status=str | None,
    runtime_seconds=float | None,
    job=InstanceJob | None,
    ssh=str | None,
)
LooseWish = TypedDict("LooseWish", {"offers": int, "from": float})
Forecast = document(
    "Forecast",
    "The cost of the rented instances while they stay as they are, as `BurnForecast` defines it.",
    key_types(BurnForecast, **FORECAST_KEYS),
)
ChannelResult = document("ChannelResult", "What came of a test by one channel.", values.Delivery, hint=str | None)


# ---------------------------------------------------------------- documents


_FORMS: dict[str, type | tuple[type, ...]] = {
    "check": reports.CheckReport,
    "why": ExplanationReport,
    "wait": (
        outcomes.WaitReport,
        document("WaitsDocument", "The waits that are kept, the last written first (`--list`).", waits=list[KeptWait]),
    ),
    "status": document(
        "StatusDocument",
        "The jobs of a target, or one of them; `odd` is what its jobs folder holds besides jobs.",
        _TARGET,
        jobs=list_of(StatusJob),
        not_seen=list[values.NotSeen],
        odd=list[values.NotSeen],
    ),
    "logs": document("LogsDocument", "", _TARGET, job_id=str, text=str),
    "vast": FleetDocument,
    "fleet": FleetDocument,
    "web": document("WebDocument", "Where the page is, and the process that serves it.", url=str, pid=int),
    "metrics": (),
    "top": TopDocument,
    "history": (
        document("HistoryDocument", "The newest value of some fields of each member.", members=list_of(ListedMember)),
        document("DescribedHistory", "Each field of some members.", members=list_of(DescribedMember)),
        document("ComparedHistory", "Members side by side (`--compare`).", members=list[RunComparison]),
        document(
            "CostHistory",
            "The cost of members, groups and all together on each of `days` (`--cost`).",
            days=list[str],
            members=list_of(document("MemberCost", "", DailyCost, key=str)),
            groups=list_of(document("GroupCost", "", DailyCost, name=str)),
            all=DailyCost,
        ),
    ),
    "run": (*_EVENTS_OF_TARGET, _RESTART_RESULT),
    "restart": (*_EVENTS_OF_TARGET, _RESTART_RESULT),
    "watch": (
        document("WatchStatus", "", StatusKeys, _TARGET),
        document(
            "WatchLine",
            "A line of a followed log.",
            key_types(values.LogUpdate, progress=""),
            _PROGRESS,
            _TARGET,
            kind=Literal["line"],
        ),
        *_EVENTS_OF_TARGET,
        document(
            "WatchResult",
            "How a watch ended.",
            key_types(outcomes.WatchReport, status=""),
            _TARGET,
            kind=Literal["result"],
            last_look=StatusKeys | None,
        ),
    ),
    "upload": document("UploadDocument", "An upload, as `UploadReport` defines it.", outcomes.UploadReport, _TARGET),
    "stop": document(
        "StopDocument",
        "How a training was ended, as `TerminationReport` defines it; `job_id` is null for a process that is no job. "
        "Without --upload, --destroy and --notify, its checkpoints are not looked at.",
        outcomes.TerminationReport,
        _TARGET,
        job_id=str | None,
        name=str,
        status=models.JobStatus,
    ),
    "health": document("HealthDocument", "", reports.HealthReport, _TARGET),
    "gpu": document("GpuDocument", "", reports.GpuReport, _TARGET, _VERDICT),
    "efa": document("EfaDocument", "`health --only efa`.", reports.EfaClusterReport, _TARGET, _VERDICT),
    "ray": document("RayDocument", "`health --only ray`.", reports.RayResourcesReport, _TARGET, _VERDICT),
    "checkpoints": document(
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
        document(
            "LaunchResult",
            "A queued training, or how it ended or was left with `--watch`.",
            kind=Literal["result", "interrupted"],
            job=RentedJob,
        ),
    ),
    "queue": (QueueDocument, document("QueueListing", "", QueueDocument, damaged=list_of(DamagedJob))),
    "worker": _EVENTS,
    "sweep": SweepReport,
    "instances": document(
        "InstancesDocument",
        "Instances, the sum of their known costs, and how many have an unknown one.",
        instances=list_of(Instance),
        cost_per_hour=float,
        cost_unknown=int,
    ),
    "offers": document(
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
        document(
            "CreditDocument",
            "The credit at vast.ai, as `Balance` defines it, and how long it lasts.",
            Balance,
            forecast=Forecast | None,
            error=str | None,
        ),
        document(
            "AccountDocument", "An account of the ledger here.", account=str, credit=float, movements=list[Movement]
        ),
    ),
    "demo": (*_EVENTS, document("DemoResult", "", reports.RestartReport, kind=Literal["result"])),
    "doctor": document("DoctorDocument", "", checks=list[Check]),
    "notify": (
        values.Delivery,
        document(
            "ChannelsDocument", "What came of a test by every channel (`--test`).", channels=list_of(ChannelResult)
        ),
        document("NoticesDocument", "The last notices, newest first (`--list`).", notices=list[KeptNotice]),
    ),
    "skill": (
        document(
            "SkillPage",
            "One page of the skill: where it is, its text, and the names of the pages.",
            path=str,
            text=str,
            pages=list[str],
        ),
        document("SkillFolders", "Where the skill was installed (`--install`).", skill=str, folders=list[Installation]),
    ),
    "mcp": document("McpDocument", "The tools as `tools/list` has them.", tools=list[Mapping[str, Any]]),
    "completion": document("CompletionDocument", "", shell=Literal["bash", "zsh", "fish"], script=str),
    "config": (
        SettingsCheck,
        document(
            "SettingsTables",
            "The settings file (empty: there is none), and the keys of its tables.",
            file=str,
            tables=Mapping[str, list[str]],
        ),
        document("NewSettings", "The settings file that was written (`--init`).", file=str),
    ),
    "error": document(
        "ErrorDocument",
        "Why there is no other document, what kind of error it is, and what to try.",
        error=str,
        kind=str,
        hint=str | None,
    ),
}
# By command: the forms of its documents.
DOCUMENTS = {command: forms if isinstance(forms, tuple) else (forms,) for command, forms in _FORMS.items()}
