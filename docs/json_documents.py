"""The types of the JSON documents of the commands. `docs/write_schemas.py` generates the schemas from them.

A document has the key `schema` and the keys of its type, including `target` and `verdict` if they apply. No command
needs these types, so they are not part of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Literal, TypedDict, get_type_hints

from docs.json_schema import document, key_types, list_of
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
from training_monitor.why import ranks
from training_monitor.why.report import KEYS_OF_CHILD, ExplanationReport

EventKind = Literal[
    "progress", "started", "adopted", "resumed", "ignored", "detected", "refused", "waiting", "unreachable", "reached",
    "moved", "stopping", "explained", "stopped", "removed", "finished",
]  # fmt: skip


# ---------------------------------------------------------------- keys that several documents share


_TARGET: dict[str, Any] = {"target": str}
_VERDICT: dict[str, Any] = {"verdict": reports.VerdictWord}
_PROGRESS = key_types(models.Progress, **dict.fromkeys(OF_A_LOG, "")) | {
    "total_epochs": float | None,
    "progress": float | None,  # 0 to 1
}
_JUDGED = key_types(values.Verdict, stall="") | _VERDICT | {"state": reports.StateWord}
StatusKeys = document(
    "StatusKeys",
    "One look at a watched training, as defined by `TrainingStatus`. `end` is how it ended, or null if unknown.",
    key_types(values.TrainingStatus, step="", **STATUS_KEYS),
    _PROGRESS,
    _JUDGED,
    kind=Literal["status"],
    end=str | None,
)
EventDocument = document(
    "EventDocument",
    "An observation or an action, as defined by `Event`.",
    key_types(models.Event, view=""),
    kind=EventKind,
    outcome=str | None,
)
ProgressDocument = document(
    "ProgressDocument", "An event of a look at the job, with its progress.", EventDocument, _PROGRESS
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
    "The supervisor of a training: `since` (epoch seconds), and the seconds since it last renewed its claim (`age`).",
    Owner,
    since=float,
    age=float,
)
StatusJob = document(
    "StatusJob",
    "A job: `log_age` is the seconds since the last write to its log; `metrics` are read with the log patterns of the "
    "settings.\n\n`metrics` is null in a list of all jobs.",
    _PROGRESS,
    _JUDGED,
    {key: key_types(models.JobView)[key] for key in JOB_KEYS},
    supervisor=Supervisor | None,
    supervisor_error=str | None,
    metrics=Mapping[str, float | None] | None,
)


# ---------------------------------------------------------------- roll calls


_STACK = document(
    "ThreadStackReport",
    "The stack of one thread, innermost call first.",
    ranks.Stack,
    frames=list_of(document("FrameReport", "", ranks.Frame)),
)
_OF_A_RANK = key_types(ranks.Rank, uses_gpu="", meeting="", is_spawned="", children="") | {
    "gpus": list_of(document("RankGpuReport", "", ranks.RankGpu)),
    "where": str | None,
    "wait_details": str,
    "stacks": list_of(_STACK),
}
ChildReport = document(
    "ChildReport",
    "A child process of a rank, such as a data worker; `where` means the same as in `RankGroupReport`.",
    {key: _OF_A_RANK[key] for key in KEYS_OF_CHILD},
)
RankReport = document(
    "RankReport",
    "One process of a roll call; the keys are those of `why.ranks.Rank`. None means unknown.",
    _OF_A_RANK,
    children=list_of(ChildReport),
)
FindingReport = document(
    "FindingReport",
    "A fact, other than the states of the ranks, that may explain a hang; see `why.ranks.Finding`.",
    ranks.Finding,
)
RollCallReport = document(
    "ExplanationReport",
    cleandoc(ExplanationReport.__doc__ or ""),
    ExplanationReport,
    ranks=list_of(RankReport),
    findings=list_of(FindingReport),
)


# ---------------------------------------------------------------- many trainings


FleetMember = document(
    "FleetMember",
    "A member, with values as defined by `TrainingMetrics`; `verdict` and `reason` are those of its row on the screen.",
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
    "The sums of a fleet, as defined by `FleetSummary`; `verdicts` counts the members with each verdict.",
    key_types(FleetSummary, levels="verdicts", **COSTS),
)
FleetDocument = document(
    "FleetDocument",
    "A look at a fleet, as defined by `FleetSnapshot`; `verdict` is the worst verdict of its members.",
    key_types(FleetSnapshot, rows=""),
    _VERDICT,
    members=list_of(FleetMember),
    summary=FleetSums,
)
RunVariable = document("RunVariable", "A variable of a script, as defined by `Variable`.", Variable, editable=bool)
RunFile = document("RunFile", "The content of a run's file, as defined by `Run`.", Run, variables=list_of(RunVariable))
TopRun = document(
    "TopRun", "A run and its processes, as defined by `RunRow`.", RunRow, _JUDGED, run=RunFile, loss=float | None
)
TopDocument = document(
    "TopDocument",
    "A look at a folder of runs, as defined by `RunsSnapshot`; `verdict` is the worst verdict of the runs.",
    key_types(RunsSnapshot, rows="", is_refreshing="refreshing"),
    _VERDICT,
    runs=list_of(TopRun),
)
_MEMBER = key_types(HistoryMember, **MEMBER_KEYS)
ProjectedCost = document(
    "ProjectedCost",
    "Costs in dollars: `cost_ahead` for the next `hours`, `cost_to_completion` until the last step.",
    key_types(CostProjection, **COST_KEYS),
)
ListedMember = document("ListedMember", "", _MEMBER, newest=Mapping[str, float | None])
DescribedMember = document(
    "DescribedMember",
    "A member; `seen` is its number of samples in the selected time.",
    _MEMBER,
    seen=int,
    fields=Mapping[str, Trend],
    cost=ProjectedCost | None,
)
DailyCost = document(
    "DailyCost",
    "Dollars per day, and their sum. null means unknown; `at_least` means that the value is a lower bound.",
    dollars=list[float | None],
    at_least=list[bool],
    total=float | None,
    total_at_least=bool,
)


# ---------------------------------------------------------------- rented machines


RentedJob = document(
    "RentedJob",
    "A training on rented machines, as defined by `QueuedJob`; `state` is a `JobState`, or a state of a later version.",
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
    "A rented instance. Costs are in dollars per hour: `cost_per_hour` is what it costs now, for a stopped one "
    "`storage_cost_per_hour`. `status`, `intended_status` and `label` are those of vast.ai.",
    {key: get_type_hints(read)["return"] for key, (_, read) in INSTANCE_KEYS.items()},
    instance_id=int,
    status=str | None,
    runtime_seconds=float | None,
    job=InstanceJob | None,
    ssh=str | None,
    cost_per_hour=float | None,
)
LooseWish = TypedDict("LooseWish", {"offers": int, "from": float})
Forecast = document(
    "Forecast",
    "The cost of the rented instances if nothing changes, as defined by `BurnForecast`.",
    key_types(BurnForecast, **FORECAST_KEYS),
)
ChannelResult = document("ChannelResult", "The result of a test of one channel.", values.Delivery, hint=str | None)


# ---------------------------------------------------------------- documents


_FORMS: dict[str, type | tuple[type, ...]] = {
    "check": reports.CheckReport,
    "why": RollCallReport,
    "wait": (
        outcomes.WaitReport,
        document("WaitsDocument", "The saved waits, most recently written first (`--list`).", waits=list[KeptWait]),
    ),
    "status": document(
        "StatusDocument",
        "The jobs of a target, or one of them; `odd` lists entries of its jobs folder that are not jobs.",
        _TARGET,
        jobs=list_of(StatusJob),
        not_seen=list[values.NotSeen],
        odd=list[values.NotSeen],
    ),
    "logs": document("LogsDocument", "", _TARGET, job_id=str, text=str),
    "vast": FleetDocument,
    "fleet": FleetDocument,
    "web": document("WebDocument", "The address of the page, and the process that serves it.", url=str, pid=int),
    "metrics": (),
    "top": TopDocument,
    "history": (
        document("HistoryDocument", "The newest value of some fields of each member.", members=list_of(ListedMember)),
        document("DescribedHistory", "All fields of some members.", members=list_of(DescribedMember)),
        document("ComparedHistory", "Members side by side (`--compare`).", members=list[RunComparison]),
        document(
            "CostHistory",
            "The cost of each member, each group and all members together on each of `days` (`--cost`).",
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
    "upload": document("UploadDocument", "An upload, as defined by `UploadReport`.", outcomes.UploadReport, _TARGET),
    "stop": document(
        "StopDocument",
        "How a training was ended, as defined by `TerminationReport`; `job_id` is null for a process that was not "
        "started as a job. Its checkpoints are inspected only with --upload, --destroy or --notify.",
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
            "A queued training; with `--watch`, the training at its end or when the command was interrupted.",
            kind=Literal["result", "interrupted"],
            job=RentedJob,
        ),
    ),
    "queue": (QueueDocument, document("QueueListing", "", QueueDocument, damaged=list_of(DamagedJob))),
    "worker": _EVENTS,
    "sweep": SweepReport,
    "instances": document(
        "InstancesDocument",
        "Instances, the sum of their known costs, and the number of instances with unknown cost.",
        instances=list_of(Instance),
        cost_per_hour=float,
        cost_unknown=int,
    ),
    "offers": document(
        "OffersDocument",
        "The best of the `found` offers. If there are none, `loosen` names the options without which there would be "
        "some.",
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
            "The credit at vast.ai, as defined by `Balance`, and how long it lasts.",
            Balance,
            forecast=Forecast | None,
            error=str | None,
        ),
        document(
            "AccountDocument", "An account of the local ledger.", account=str, credit=float, movements=list[Movement]
        ),
    ),
    "demo": (*_EVENTS, document("DemoResult", "", reports.RestartReport, kind=Literal["result"])),
    "doctor": document("DoctorDocument", "", checks=list[Check]),
    "notify": (
        values.Delivery,
        document(
            "ChannelsDocument", "The results of a test of all channels (`--test`).", channels=list_of(ChannelResult)
        ),
        document("NoticesDocument", "The most recent notices, newest first (`--list`).", notices=list[KeptNotice]),
    ),
    "skill": (
        document(
            "SkillPage",
            "One page of the skill: its path, its text, and the names of all pages.",
            path=str,
            text=str,
            pages=list[str],
        ),
        document(
            "SkillFolders",
            "The folders in which the skill was installed (`--install`).",
            skill=str,
            folders=list[Installation],
        ),
    ),
    "mcp": document("McpDocument", "The tools, in the form of `tools/list`.", tools=list[Mapping[str, Any]]),
    "completion": document("CompletionDocument", "", shell=Literal["bash", "zsh", "fish"], script=str),
    "config": (
        SettingsCheck,
        document(
            "SettingsTables",
            "The settings file (empty if there is none), and the keys of its tables.",
            file=str,
            tables=Mapping[str, list[str]],
        ),
        document("NewSettings", "The settings file that was written (`--init`).", file=str),
    ),
    "error": document(
        "ErrorDocument",
        "An error in place of the command's document: the problem, its kind, and a suggestion (`hint`).",
        error=str,
        kind=str,
        hint=str | None,
    ),
}
# By command: the forms of its documents.
DOCUMENTS = {command: forms if isinstance(forms, tuple) else (forms,) for command, forms in _FORMS.items()}
