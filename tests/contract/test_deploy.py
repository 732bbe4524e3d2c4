"""The units and the image of examples/deploy: what they start is a command that exists, with options that it has."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

from training_monitor.cli.parsing import build_parser

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def unit(name: str) -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / name).read_text())
    return parser


def test_a_unit_starts_a_command_that_exists_and_writes_where_it_may() -> None:
    for name in ["worker", "sweeper", "metrics"]:
        program, *words = shlex.split(unit(f"training-monitor-{name}.service")["Service"]["ExecStart"])
        assert program.endswith("/training-monitor")
        args = build_parser().parse_args(words)
        assert args.subcommand == {"worker": "rent worker", "sweeper": "rent sweep", "metrics": "metrics"}[name]
    service = unit("training-monitor-metrics.service")["Service"]
    args = build_parser().parse_args(shlex.split(service["ExecStart"])[1:])
    assert str(Path(args.textfile).parent) == service["ReadWritePaths"] and args.textfile.endswith(".prom")


def test_worker_and_sweeper_share_the_state() -> None:
    worker, sweeper = (unit(f"training-monitor-{name}.service")["Service"] for name in ("worker", "sweeper"))
    assert worker["Environment"] == sweeper["Environment"] and worker["User"] == sweeper["User"]
    assert "--force" in sweeper["ExecStart"] and "--all" not in sweeper["ExecStart"]
    timer = unit("training-monitor-sweeper.timer")["Timer"]
    assert (timer["Unit"], timer["OnUnitActiveSec"]) == ("training-monitor-sweeper.service", "15min")


def test_the_commands_of_the_image_exist() -> None:
    text = re.sub(r"\\\n#\s*", "", (DEPLOY / "Containerfile").read_text())
    calls = re.findall(r"podman run .*? training-monitor +(.*)", text)
    assert [build_parser().parse_args(shlex.split(call)).subcommand for call in calls] == [
        "rent worker",
        "rent sweep",
        "rent keys",
    ]
