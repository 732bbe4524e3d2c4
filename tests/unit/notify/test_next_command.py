"""Every notice gives a command that can be typed as it stands."""

from __future__ import annotations

import shlex

import pytest

from tests.unit.notify.test_templates import every_notice
from training_monitor.cli.parsing import build_parser
from training_monitor.core.values import WatchedJob
from training_monitor.notify.notice_text import command_line, next_command, word_for

KINDS = [notice.kind for notice in every_notice()]
OTHERS = ["unreachable", "reached", "credit_low", "instance_swept", "listing_failed", "fleet_lost", "fleet_credit"]


@pytest.mark.parametrize("target", ["local", "ssh://root@gpu-7:2222", "k8s://team/head/main?context=a:b@c", "vast://7"])
def test_the_command_of_every_kind_is_one_that_the_command_line_takes(target: str) -> None:
    for kind in KINDS + OTHERS:
        program, *words = shlex.split(next_command(kind, target, "/runs/my log;rm -rf $HOME"))
        args = build_parser().parse_args(words)
        assert program == "training-monitor"
        assert args.subcommand in ("check", "rent instances", "doctor", "rent credits")
        if args.subcommand == "check":
            assert (args.target, args.what) == (target, "/runs/my log;rm -rf $HOME")


@pytest.mark.parametrize("what", ["--json", "a\nb", "\x1b[31m", "\u202etxt"])
def test_hidden_or_option_like_names_are_left_out(what: str) -> None:
    assert next_command("failed", "local", what) == "training-monitor check local"
    assert command_line("upload", what, "hf:me/model") == "training-monitor upload"


def test_a_training_is_named_as_check_takes_it() -> None:
    assert word_for(WatchedJob(job_id="process:x", name="my run")) == "process:x"
    assert word_for(WatchedJob(log_file="/a.log", pid=7)) == "/a.log"
    assert word_for(WatchedJob(log_paths=("/a/*.log", "/b/*.log"))) == "/a/*.log"
    assert word_for(WatchedJob(pid=7)) == "7"
