"""Errors say what, where and what to try, and never show a secret."""

from __future__ import annotations

from training_monitor.core import errors
from training_monitor.core.errors import (
    CommandError,
    CommandFailed,
    ParseError,
    RestError,
    SettingsError,
    TargetNotFound,
    TargetUnreachable,
    TrainingMonitorError,
    kind_of,
    last_lines,
)
from training_monitor.core.results import CommandResult
from training_monitor.runs.file_pieces import Replaced
from training_monitor.runs.progress_file import NotAProgressFile

SECRET = "s3cr3tV4lue99"


def test_an_error_says_what_where_and_what_to_try_and_each_once() -> None:
    error = CommandFailed("no such file", target="ssh://host", hint="look at the path")
    assert str(error) == "ssh://host: no such file. Try: look at the path"
    assert str(TargetUnreachable("gone", target="my-pod")) == "my-pod: gone"
    for what, said in [
        ("no such file", "no such file. Try: ls"),
        ("port must be 0-65535.", "port must be 0-65535. Try: ls"),
        ("is that a host or a port?", "is that a host or a port? Try: ls"),
    ]:
        assert str(TrainingMonitorError(what, hint="ls")) == said


def test_an_error_shows_no_secret() -> None:
    assert SECRET not in str(TrainingMonitorError(f"HF_TOKEN={SECRET} was refused"))
    assert SECRET not in str(SettingsError("env", f"HF_TOKEN={SECRET}", "something else"))
    assert SECRET not in str(ParseError("no JSON", source="curl", text=f"Authorization: Bearer {SECRET}"))
    error = CommandError("it failed", argv=("train", "--token", SECRET, "--steps", "500"))
    assert error.argv == ("train", "--token", "***", "--steps", "500")


def test_a_settings_error_names_key_value_and_what_was_expected() -> None:
    error = SettingsError("max_retries", -1, "a number from 0")
    assert str(error) == "max_retries: got -1, expected a number from 0"
    assert (error.key, error.value, error.expected) == ("max_retries", -1, "a number from 0")
    assert isinstance(error, ValueError)
    error = SettingsError("interval", 16**9000, "seconds")
    assert str(error) == "interval: got a number that is far too long, expected seconds"
    assert "far too long" in str(SettingsError("interval", [16**9000], "seconds"))
    assert str(SettingsError("TARGET", None, "a target")) == "TARGET: got nothing, expected a target"


def test_a_parse_error_names_its_source_and_shows_the_end_of_the_text() -> None:
    error = ParseError("no JSON", source="ray rest", text="one\n\ntwo\nthree\nfour\n")
    assert str(error) == "ray rest: no JSON: two | three | four"
    assert (error.source, error.excerpt) == ("ray rest", "two | three | four")


def test_a_rest_error_keeps_its_status_and_whether_a_retry_may_help() -> None:
    for status, helps in [(None, True), (404, False), (429, True), (499, False), (500, True)]:
        error = RestError("no", status=status)
        assert (error.status, error.temporary) == (status, helps)
    result = CommandResult(("kubectl",), 1, "", "no", 0.1)
    failed = CommandError("no", result=result, target="pod")
    assert (failed.result, failed.target) == (result, "pod")


def test_last_lines_are_the_ones_that_say_something_cut_and_on_one_line() -> None:
    assert last_lines("a\n\n b \n\n" + "c" * 400 + "d", count=2) == f"b | {'c' * 147} ... {'c' * 146}d"
    assert last_lines(" \n\n") == ""


def test_every_error_of_the_package_has_one_root() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(kinds) > 15 and all(issubclass(each, TrainingMonitorError) for each in kinds)
    for kind in (errors.ToolNotFound, errors.CommandTimedOut, TargetUnreachable, errors.AccessDenied):
        assert issubclass(kind, CommandError)
    assert issubclass(TargetNotFound, TargetUnreachable)


class Refined(TargetNotFound):
    pass


def test_an_error_has_a_documented_kind_whatever_class_refines_it() -> None:
    for error, kind in [
        (SettingsError("key", 1, "2"), "SettingsError"),
        (ParseError("odd", source="x"), "ParseError"),
        (NotAProgressFile("odd", source="x"), "ParseError"),
        (Replaced("it is another file"), "TrainingMonitorError"),
        (Refined("gone"), "TargetNotFound"),
    ]:
        assert kind_of(error) == kind


def test_an_error_names_the_kind_of_value_and_not_the_value() -> None:
    for key in ("env.A", "env.HF_TOKEN", "upload.s3.secret_key"):
        for value in ([SECRET], 1234567890123, {"a": SECRET}):
            error = SettingsError(key, value, "a text")
            assert str(error) == f"{key}: got a value of type {type(value).__name__}, expected a text"
    assert "got 5, expected" in str(SettingsError("interval", 5, "seconds"))
