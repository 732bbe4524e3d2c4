"""Options that mean the same have one name, one reader and one form in all commands."""

from __future__ import annotations

import argparse

import pytest

from training_monitor.cli.argument_types import count, port, positive_count
from training_monitor.cli.command_table import list_commands
from training_monitor.cli.main import main
from training_monitor.cli.parsing import build_parser, parse as parse_words

COMMANDS = {
    "--stall-after": ["check local", "wait local", "run", "restart local x", "watch local"],
    "--interval": ["wait local", "run", "restart local x", "watch local", "fleet", "vast", "metrics", "top x"],
    "--stop-grace": ["stop local x", "watch local"],
    "--soft-limit": ["watch local", "rent launch"],
    "--hard-limit": ["watch local", "rent launch"],
}


def parse(words: str) -> argparse.Namespace:
    return build_parser().parse_args(words.split())


def test_a_duration_is_read_alike_by_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for name, commands in COMMANDS.items():
        for command in commands:
            field = name.removeprefix("--").replace("-", "_")
            given = [getattr(parse(f"{command} {name} {text}"), field) for text in ("90", "1m30s")]
            assert given == [90, 90]
            with pytest.raises(SystemExit):
                parse(f"{command} --help")
            assert f"{name} DURATION" in capsys.readouterr().out
    assert parse("check local").stall_after is None and parse("top x -i 5s").interval == 5
    for text in ["-1", "nan", "1e9", "15min", "m", ""]:
        with pytest.raises(SystemExit):
            build_parser().parse_args(["wait", "local", f"--timeout={text}"])
        assert "expected seconds (at least 0), or a duration such as 15m" in capsys.readouterr().err
    for command in ["watch local", "rent launch"]:
        assert parse(f"{command} --budget 2.5").budget == 2.5
        for words in ("--budget 0", "--budget $5", "--soft-limit 0", "--hard-limit 0s"):
            with pytest.raises(SystemExit):
                parse(f"{command} {words}")
            assert "expected" in capsys.readouterr().err


def test_a_count_or_a_port_is_refused_with_its_own_range() -> None:
    assert (count("0"), count("999999999"), positive_count("1")) == (0, 999_999_999, 1)
    for text in ("two", "-1", "1.5", "", "²", "1000000000", "0"):
        if text != "0":
            with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 0 to 999999999"):
                count(text)
        with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 1 to 999999999"):
            positive_count(text)
    assert (port("0"), port("65535")) == (0, 65_535)
    for text in ("65536", "99999", "abc", "-1", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number from 0 to 65535$"):
            port(text)
    assert build_parser().parse_args(["web", "--mock", "--port", "1"]).port == 1


def test_the_parser_of_one_command_says_what_the_whole_one_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1.75e9)
    for name in list_commands():
        for more in (["--help"], ["--no-such-option"], ["--json", "a", "b"]):
            words = [*name.split(), *more]
            said = []
            for parser in (build_parser(), build_parser(only=name)):
                try:
                    args, unknown = parser.parse_known_args(words)
                    said.append(({**vars(args), "parser": args.parser.format_help()}, unknown))
                except SystemExit as ended:
                    said.append((ended.code, capsys.readouterr()))
            one, other = said
            assert one == other


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("chek local", "unknown command 'chek' (did you mean check?)"),
        ("xyzzy", "unknown command 'xyzzy'; see training-monitor --help"),
        ("launch", "unknown command 'launch' (did you mean rent launch?)"),
        ("rent", "specify one: rent launch, rent queue, "),
        ("rent ofers", "unknown command 'rent ofers' (did you mean rent offers?)"),
        ("rent lst", "unknown command 'rent lst'; see"),
        ("logs local --grep x", "unrecognized arguments: --grep x\n"),
        ("rent offers --jsn", "unrecognized arguments: --jsn (did you mean --json?)"),
        ("watch --intervall 3 local", "unrecognized arguments: --intervall (did you mean --interval?)"),
        ("watch --stall-after 3 local --quux", "unrecognized arguments: --quux\n"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(
    words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_an_optional_word_may_stand_behind_options() -> None:
    for words in ("restart pod llama --interval 3", "restart pod --interval 3 llama", "restart --interval 3 pod llama"):
        args = parse_words(words.split())
        assert (args.target, args.job_name, args.interval) == ("pod", "llama", 3.0)
    for command, dest in {"check": "what", "why": "what", "wait": "what", "watch": "what", "stop": "job"}.items():
        assert getattr(parse_words([command, "pod", "--json", "llama"]), dest) == "llama"
        with pytest.raises(SystemExit):
            parse_words([command, "pod", "--json", ""])
    with pytest.raises(SystemExit):
        parse_words("watch pod --log a b".split())
    assert parse_words(["restart", "pod", "--json"]).job_name is None
    with pytest.raises(SystemExit):
        parse_words("restart pod llama --json more".split())


def test_an_empty_word_for_a_training_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "why", "wait", "watch", "stop", "logs", "status"):
        with pytest.raises(SystemExit):
            build_parser().parse_args([command, "local", ""])
        assert "expected a name" in capsys.readouterr().err


def test_what_only_looks_looks_at_this_machine_by_default() -> None:
    for command in ("check", "why", "wait", "watch", "logs", "health", "gpu"):
        assert build_parser(only=command).parse_args([command]).target == "local"
    for command in ("stop", "restart", "upload", "checkpoints"):
        with pytest.raises(SystemExit):
            build_parser(only=command).parse_args([command])


def test_only_check_takes_all_trainings_by_default() -> None:
    for command in ("check", "why", "wait", "watch", "stop", "logs"):
        text = " ".join(build_parser(only=command).parse_args([command, "local"]).parser.format_help().split())
        assert ("(default: all found)" in text, "(default: the only one found)" in text) == (
            command == "check",
            command != "check",
        )
