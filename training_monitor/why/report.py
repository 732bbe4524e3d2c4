"""The report of a roll call: what `explain_training` returns. Pure.

A rank and a finding have the keys of `why.ranks.Rank` and `Finding`. The annotations here are no strings, each of
which would be compiled at import.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from training_monitor.core.envelope import schema_name
from training_monitor.core.fields import keys_of
from training_monitor.core.masking import plain
from training_monitor.core.reports import report_of
from training_monitor.core.values import Verdict
from training_monitor.why.places import wait_details, where_is
from training_monitor.why.ranks import Explanation, Rank, RankGroup, RollCall

if TYPE_CHECKING:
    from training_monitor.look.meant import MeantTraining

KEYS_OF_CHILD = (
    *("pid", "command", "state", "wait_channel", "waits_for", "waits_on", "awaits", "is_still", "kernel_stack"),
    *("waits_outside", "wait_details", "cpu_cores", "memory_bytes", "where", "stacks", "no_stacks"),
)


class RankGroupReport(TypedDict):
    """Ranks that are at the same place, `where` as `all_reduce, called at train.py:88`; without ranks only `pids`."""

    ranks: list[int]
    pids: list[int]
    where: str
    waits_for: str | None
    is_majority: bool


class CulpritReport(TypedDict):
    """A rank that the others wait for; `pid` and `host` are None if it was not seen. `why` is a part of a sentence."""

    rank: int | None
    pid: int | None
    host: str | None
    node: str | None
    where: str | None
    why: str


class SilentHostReport(TypedDict):
    host: str
    why: str


class ExplanationReport(TypedDict):
    """The result of `explain_training`: the state of all ranks, and a conclusion about the hang.

    `explanation` is one paragraph, and `confidence` is none | low | medium | high. `state`, `verdict` and `reason` are
    the judgment of the training as a whole; None if it could not be judged. `seconds` is the duration of the
    inspection, and `at` its start (epoch seconds). `missing_ranks` were not found on any host; `unseen_ranks` may run
    on hosts that were not queried or did not respond (the latter are in `silent`). `remedies` lists missing permissions
    and tools; `unknown` lists everything that could not be read.
    """

    schema: str
    target: str
    name: str
    job_id: str | None
    at: float
    seconds: float
    state: str | None
    verdict: str | None
    reason: str | None
    explanation: str
    confidence: str
    culprits: list[CulpritReport]
    groups: list[RankGroupReport]
    missing_ranks: list[int]
    unseen_ranks: list[int]
    ranks: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    silent: list[SilentHostReport]
    remedies: list[str]
    unknown: list[str]


class Explained(NamedTuple):
    """A roll call and what it says. `began` is in epoch seconds, `seconds` how long it took."""

    target: str
    meant: "MeantTraining"
    seen: RollCall
    explanation: Explanation
    began: float
    seconds: float
    remedies: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    verdict: Verdict | None = None


def format_explanation(told: Explained) -> ExplanationReport:
    """Return the documented dict, secrets replaced."""
    said = told.explanation
    report = report_of(
        ExplanationReport,
        told.verdict,
        schema=schema_name("why"),
        target=told.target,
        name=told.meant.name,
        job_id=told.meant.job.job_id,
        at=told.began,
        seconds=told.seconds,
        explanation=said.text,
        confidence=said.confidence,
        culprits=[report_of(CulpritReport, each.seen, each) for each in said.culprits],
        groups=[_group(each) for each in said.groups],
        missing_ranks=list(said.missing),
        unseen_ranks=list(said.unseen),
        ranks=[_rank(each) for each in told.seen.ranks],
        findings=[asdict(each) for each in told.seen.findings],
        silent=[{"host": host, "why": why} for host, why in told.seen.silent.items()],
        remedies=list(told.remedies),
        unknown=list(told.unknown),
    )
    masked: ExplanationReport = plain(report)
    masked["remedies"] = list(told.remedies)  # a `Hint` is worded for its reader later
    return masked


def _group(each: RankGroup) -> RankGroupReport:
    waits = {rank.waits_for for rank in each.ranks}
    return RankGroupReport(
        ranks=sorted(rank.rank for rank in each.ranks if rank.rank is not None),
        pids=[rank.pid for rank in each.ranks],
        where=each.where,
        waits_for=waits.pop() if len(waits) == 1 else None,
        is_majority=each.is_majority,
    )


def _rank(each: Rank) -> dict[str, Any]:
    children = [_process(child) for child in each.children]
    return _process(each) | {"children": [{key: child[key] for key in KEYS_OF_CHILD} for child in children]}


def _process(each: Rank) -> dict[str, Any]:
    told = keys_of(each, uses_gpu="", meeting="", is_spawned="", children="")
    return told | {"where": where_is(each), "wait_details": wait_details(each)}
