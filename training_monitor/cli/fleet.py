"""Many trainings, opened and shown as the command line says, for `vast`, `fleet`, `web` and `metrics`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

from training_monitor.cli.keys import verdict_keys
from training_monitor.cli.notifying import open_heartbeat, open_outbox
from training_monitor.cli.output import EXITS, OK, can_show_screen, complain, hint, print_json, put_lines, table_width
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.errors import SettingsError, closest
from training_monitor.core.fields import keys_of
from training_monitor.core.logger import setup_logging
from training_monitor.core.long_running import prepare_for_long
from training_monitor.core.settings import LOG_FILE
from training_monitor.fleet import (
    FleetConfig,
    FleetMonitor,
    FleetSnapshot,
    MemberSpec,
    TrainingMetrics,
)
from training_monitor.fleet.config import parse_member
from training_monitor.fleet.history import History, mock_history
from training_monitor.fleet.metrics import LEVELS
from training_monitor.fleet.values import REPORTED
from training_monitor.logs import load_log_patterns
from training_monitor.look.kept_looks import explained_keys
from training_monitor.targets.target import parse_target
from training_monitor.verdict.judge import NOBODY_LOOKED, VERDICTS

PIPED_WIDTH = 400  # wide enough that nothing is cut
_VERDICTS = {level: verdict for verdict, level in LEVELS.items()}
COSTS = {  # sums, and their names in JSON
    "dollars_per_hour": "cost_per_hour",
    "dollars_spent": "total_cost",
    "dollars_to_completion": "cost_to_completion",
    "hidden_dollars_per_hour": "hidden_cost_per_hour",
}
ALIKE = 0.8  # how alike a word and a name of the settings are that is probably meant, from 0 to 1


def read_specs(words: Sequence[str], config: FleetConfig) -> list[MemberSpec]:
    """Return the members that TARGETs or names of groups stand for, by default all groups. Raises SettingsError."""
    specs = [spec for word in words or config.groups for spec in config.groups.get(word) or [_parse(word, config)]]
    if not specs:
        raise SettingsError(
            "TARGET",
            None,
            "targets on the command line, or groups in the settings file: [fleet.groups] NAME = [TARGET]",
        )
    return specs


def _parse(word: str, config: FleetConfig) -> MemberSpec:
    """Return the member that a TARGET stands for. Raises SettingsError, also for what is like a name of the settings.

    Any bare word is a valid name of a pod. A pod that is named after a group, such as lora-0, is not mistaken for it.
    """
    spec = parse_member(word)
    members = [each for group in config.groups.values() for each in group]
    if spec.which or "://" in word or word in ("local", *(each.target for each in members)):
        return spec
    import difflib

    meant = {**{each.name: each.key for each in members if each.name}, **{name: name for name in config.groups}}
    near = difflib.get_close_matches(word, [name for name in meant if not word.startswith(f"{name}-")], 1, ALIKE)
    if near:
        instead = (
            f"no group or member has this name; did you mean {meant[near[0]]}? For a pod, use k8s://NAMESPACE/{word}"
        )
        raise SettingsError("TARGET", word, f"a target, or a group in the settings file ({instead})")
    return spec


def changed_config(config: FleetConfig, args: Namespace) -> FleetConfig:
    """Return the configuration overridden by the command line."""
    if args.interval:
        config = replace(config, interval=args.interval)
    if args.outage_after is not None:
        config = replace(config, outage_after=args.outage_after)
    return replace(config, log_paths=tuple(args.log_path)) if args.log_path else config


def check_group(name: str | None, groups: Collection[str]) -> None:
    if name is not None and name not in groups:
        known = closest(name, groups) if groups else "there are none: add [fleet.groups] to the settings file"
        raise SettingsError("--group", name, f"a group ({known})")


def open_meant(args: Namespace, config: FleetConfig) -> AbstractContextManager[FleetMonitor]:
    """Open a monitor of the members that TARGETs, --vast or --mock of the command line mean. Raises SettingsError."""
    if args.mock and (args.targets or args.vast):
        args.parser.error("--mock shows simulated instances: use it without TARGET and --vast")
    if args.mock:
        return nullcontext(open_mock(args, config))
    specs = read_specs(args.targets, config) if args.targets or not args.vast else []
    return open_monitor(specs, args, config, whole_account=args.vast)


def open_mock(args: Namespace, config: FleetConfig, instances: Sequence[int] = ()) -> FleetMonitor:
    from training_monitor.fleet import MockFleet  # few make up their members

    history = None if args.no_history else mock_history(keep_days=config.keep_days)
    return MockFleet(instances, config=config, history=history)


@contextmanager
def open_monitor(
    specs: Sequence[MemberSpec], args: Namespace, config: FleetConfig, *, whole_account: bool = False
) -> Iterator[FleetMonitor]:
    """Yield a monitor with history, notices and heartbeat as the command line says. Raises SettingsError."""
    namespace = getattr(args, "namespace", "default")
    for spec in specs:
        parse_target(spec.target, namespace=namespace)  # before the screen hides errors
    store = BestEffortStore()
    with ExitStack() as stack:
        heartbeat = stack.enter_context(open_heartbeat(args.heartbeat))
        outbox = stack.enter_context(open_outbox(args.notify, store))
        yield FleetMonitor(
            specs,
            whole_account=whole_account,
            config=config,
            patterns=load_log_patterns(),
            history=None if args.no_history else History(store, keep_days=config.keep_days),
            tell=outbox.post if outbox else None,
            heartbeat=heartbeat,
            namespace=namespace,
            store=store,
        )


def show_fleet(fleet: FleetMonitor, args: Namespace, title: str, config: FleetConfig) -> int:
    if can_show_screen() and not (args.once or args.json):
        from training_monitor.ui.fleet.app import run_fleet

        prepare_for_long()
        log_beside_the_screen()
        run_fleet(fleet, read_only=args.read_only, title=title, group=args.group, thresholds=config.thresholds)
        return OK
    fleet.update_all_metrics()
    snapshot = fleet.snapshot()
    snapshot = replace(snapshot, rows=tuple(row for row in snapshot.rows if args.group in (None, *row.groups)))
    if not print_json(args, _snapshot_keys(snapshot, config), _verdict_of(snapshot, config)):
        _print_table(snapshot, config)
    if snapshot.error:
        complain(snapshot.error)
    return fleet_status(snapshot, config)


def log_beside_the_screen() -> None:
    """Log to stderr if it is redirected; on a terminal the log would be written over what is shown there."""
    if sys.stderr is not None and not sys.stderr.isatty() and LOG_FILE not in os.environ:
        with suppress(SettingsError):
            setup_logging(log_file="/dev/stderr")


def _snapshot_keys(snapshot: FleetSnapshot, config: FleetConfig) -> dict[str, Any]:
    """Return a snapshot by the names of other commands: members, verdicts and costs."""
    summary = keys_of(snapshot.summary, levels="", **COSTS)
    summary["verdicts"] = {verdict: snapshot.summary.levels.get(level, 0) for verdict, level in LEVELS.items()}
    members = [_member_keys(row, config, snapshot.timestamp) for row in snapshot.rows]
    return {**keys_of(snapshot, rows=""), "members": members, "summary": summary}


def _member_keys(row: TrainingMetrics, config: FleetConfig, now: float) -> dict[str, Any]:
    """Return a member; its verdict and reason are those of its row, which also knows its machine and its cost."""
    keys = keys_of(row, explained="", **{field: name for name, field in REPORTED.items()})
    health, percent = row.health(config.thresholds, now), row.progress_percentage()
    keys |= verdict_keys(row.verdict or NOBODY_LOOKED)
    keys |= {"verdict": _VERDICTS[health.level], "reason": health.reason}
    keys |= explained_keys(row.explained)
    keys |= {"progress": None if percent is None else percent / 100.0, "eta_seconds": row.seconds_left()}
    keys |= {"lowest_gpu_utilization": row.lowest_gpu()}
    return {**keys, "recent_logs": list(row.recent_logs)}


def _print_table(snapshot: FleetSnapshot, config: FleetConfig) -> None:
    """Print the screen's table and summary."""
    from training_monitor.ui.fleet.main import table_text
    from training_monitor.ui.kit.terminal import terminal_glyphs

    put_lines(table_text(snapshot, table_width(PIPED_WIDTH), terminal_glyphs(), config.thresholds))
    for row in snapshot.rows:
        if row.verdict and row.verdict.state == "starting" and row.verdict.remedies:
            hint(f"{row.name}: try: {'; '.join(row.verdict.remedies)}")


def fleet_status(snapshot: FleetSnapshot, config: FleetConfig) -> int:
    """Return 1 when a member is in error, 3 when one is unknown or the listing failed."""
    return EXITS[_verdict_of(snapshot, config)]


def _verdict_of(snapshot: FleetSnapshot, config: FleetConfig) -> str:
    """Return the worst verdict of its members; unknown at best when the listing failed."""
    found = {_VERDICTS[row.health(config.thresholds, snapshot.timestamp).level] for row in snapshot.rows}
    return max(found | ({"unknown"} if snapshot.error else {"ok"}), key=VERDICTS.index)
