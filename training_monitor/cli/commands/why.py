"""`why`: explain a hang: the state and stack of every rank, and the rank that the others wait for."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from training_monitor.cli.argument_types import FILES, TARGETS, CommandParser, left_to_look
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import OK, UNKNOWN, hint, number, paint, print_json, print_table, put, surface, wrapped
from training_monitor.core.errors import spell
from training_monitor.core.shown import shown
from training_monitor.core.units import format_bytes

if TYPE_CHECKING:
    from training_monitor.why.report import ExplanationReport

_MOST_ROWS = 64
_COLOURS = {"high": "green", "medium": "yellow", "low": "yellow"}


def declare(command: CommandParser) -> None:
    command.target(is_optional=True)
    command.what()
    command.several("--also", "TARGET", "another host of the same training (may be repeated)", TARGETS)
    command.time_limit(20)
    command.value("--py-spy", "FILE", "py-spy executable, copied to the hosts temporarily", FILES)
    command.flag("--stacks", "print the stacks of all threads")


def run(args: Namespace) -> int:
    from training_monitor.why.explain import explain_training

    if sys.stderr.isatty() and not args.json:
        hint(f"inspecting all ranks, for at most {args.timeout:g} s")
    given = {"also": args.also, "timeout": left_to_look(args), "py_spy": args.py_spy}
    report = explain_training(args.target, args.what, args.namespace, **given)
    report["remedies"] = [spell(each, surface()) or each for each in report["remedies"]]
    if not print_json(args, report):
        _show(report, with_stacks=args.stacks)
    is_told = report["confidence"] != "none" or bool(report["culprits"])
    return OK if is_told else UNKNOWN


def _show(report: ExplanationReport, *, with_stacks: bool) -> None:
    from training_monitor.verdict.judge import ENDS

    put(f"{wrapped(shown(report['explanation']))}\n")
    sure = report["confidence"]
    said = "cause unknown" if sure == "none" else f"confidence {paint(sure, _COLOURS[sure], sys.stdout)}"
    has_ended = report["state"] in ENDS and not report["ranks"]  # its reason is not that of a hang
    parts = [*([] if has_ended else [said]), *([shown(report["reason"])] if report["reason"] else [])]
    put(wrapped("; ".join(parts)) + "\n")
    if report["ranks"]:
        put("\n")
        ranks = report["ranks"][:_MOST_ROWS]
        header = ("RANK", "HOST", "PID", "STATE", "CPU", "MEMORY", "GPUS", "WAITS FOR", "WHERE")
        rows = [_row(report, each) for each in ranks]
        for each in ranks[0]["children"] if len(ranks) == 1 else ():
            rows.append(_row(report, {"rank": "child", "host": ranks[0]["host"], "gpus": (), **each}))
        print_table(header, rows, gives_way=(8, 1))
        if len(report["ranks"]) > _MOST_ROWS:
            hint(f"{len(report['ranks']) - _MOST_ROWS} more ranks: --json lists all of them")
    if report["findings"]:
        put("\n" + "".join(f"! {wrapped(shown(each['text']), 2)}\n" for each in report["findings"]))
    if with_stacks:
        put("".join(f"{line}\n" for each in report["ranks"] for line in _stacks(each)))
    for unknown in report["unknown"]:
        hint(f"unknown: {wrapped(shown(unknown), 2)}")
    for remedy in report["remedies"]:
        hint(f"try: {wrapped(shown(remedy), 5)}")


def _row(report: ExplanationReport, each: Mapping[str, Any]) -> tuple[str, ...]:
    is_culprit = (each["host"], each["pid"]) in [(culprit["host"], culprit["pid"]) for culprit in report["culprits"]]
    return (
        f"{'?' if each['rank'] is None else each['rank']}{' <' if is_culprit else ''}",
        each["host"],
        str(each["pid"]),
        each["state"],
        number(each["cpu_cores"], 1),
        format_bytes(each["memory_bytes"]),
        " ".join(map(_gpu, each["gpus"])) or "-",
        each["waits_for"] or "-",
        each["where"] or each["wait_details"] or each["no_stacks"] or "-",
    )


def _gpu(gpu: Mapping[str, Any]) -> str:
    """Return `0:100%/31%`: the index, the utilization, and the power draw over its limit."""
    power = None if gpu["gpu_power"] is None else 100 * gpu["gpu_power"]
    index = "?" if gpu["index"] is None else gpu["index"]
    return f"{index}:{number(gpu['gpu_utilization'], 0, '%')}/{number(power, 0, '%')}"


def _stacks(each: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of all stacks of a rank, those of its children indented."""
    name = f"pid {each['pid']}" if each["rank"] is None else f"rank {each['rank']} (pid {each['pid']})"
    yield f"\n{name} on {shown(each['host'])}, {each['stacks_from'] or 'no'} stacks"
    for stack in each["stacks"]:
        yield from _stack(stack, "  ")
    yield from _kernel_stack(each, "  ")
    for child in each["children"]:
        yield f"  child {child['pid']}"
        for stack in child["stacks"]:
            yield from _stack(stack, "    ")
        yield from _kernel_stack(child, "    ")


def _kernel_stack(each: Mapping[str, Any], indent: str) -> Iterator[str]:
    if each["kernel_stack"] and not each["stacks"]:
        yield f"{indent}main thread, in the kernel: {' < '.join(map(shown, each['kernel_stack']))}"


def _stack(stack: Mapping[str, Any], indent: str) -> Iterator[str]:
    yield f"{indent}{shown(stack['thread']) or 'thread'}"
    for frame in stack["frames"]:
        line = "" if frame["line"] is None else f":{frame['line']}"
        yield f"{indent}  {shown(frame['function'])} ({shown(frame['file'])}{line})"


COMMAND = Command(
    run,
    declare,
    ("", "my-pod my-training", "ssh://me@gpu1 12345 --also ssh://me@gpu2 --stacks", "local --py-spy ./py-spy"),
)
