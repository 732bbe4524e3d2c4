"""The package's logger: silent until it is set up, and then in one place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.logger import get_logger, setup_logging


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """The package's logger without handlers; afterwards as it was."""
    found = logging.getLogger("training_monitor")
    handlers, level = list(found.handlers), found.level
    for handler in handlers:
        found.removeHandler(handler)
    yield found
    for handler in list(found.handlers):
        found.removeHandler(handler)
        handler.close()
    for handler in handlers:
        found.addHandler(handler)
    found.setLevel(level)


def test_without_setup_nothing_is_printed(capsys: pytest.CaptureFixture[str], logger: logging.Logger) -> None:
    logger.propagate = False
    try:
        get_logger().error("nobody asked")
    finally:
        logger.propagate = True
    assert capsys.readouterr() == ("", "")


def test_asking_for_the_logger_again_adds_nothing() -> None:
    assert get_logger() is get_logger() and len(get_logger().handlers) == 1
    setup_logging(environ={})
    assert len(get_logger().handlers) == 1


def test_by_default_lines_of_info_go_to_stdout_with_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    logger = setup_logging(environ={})
    logger.info("hello")
    logger.debug("unheard")
    out = capsys.readouterr().out
    assert out.endswith(" INFO hello\n") and out[:2] == "20" and "unheard" not in out


def test_the_environment_names_level_and_file_unless_arguments_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.txt"
    environ = {"TRAINING_MONITOR_LOG_LEVEL": "warning", "TRAINING_MONITOR_LOG_FILE": str(file)}
    logger = setup_logging(environ=environ)
    logger.info("unheard")
    logger.warning("größer")
    assert file.read_text(encoding="utf-8").endswith(" WARNING größer\n")
    assert "unheard" not in file.read_text() and capsys.readouterr().out == ""
    environ = {"TRAINING_MONITOR_LOG_LEVEL": "ERROR", "TRAINING_MONITOR_LOG_FILE": str(tmp_path / "other")}
    setup_logging("DEBUG", str(tmp_path / "chosen"), environ=environ).debug("deep")
    assert (tmp_path / "chosen").read_text().endswith(" DEBUG deep\n") and not (tmp_path / "other").exists()


def test_a_level_can_be_a_number_and_an_empty_variable_is_as_good_as_none() -> None:
    assert setup_logging(logging.ERROR, environ={}).level == logging.ERROR
    logger = setup_logging(environ={"TRAINING_MONITOR_LOG_LEVEL": "", "TRAINING_MONITOR_LOG_FILE": ""})
    assert logger.level == logging.INFO and isinstance(logger.handlers[0], logging.StreamHandler)


def test_setting_up_again_doubles_no_line_and_closes_the_file_before(tmp_path: Path) -> None:
    for _ in range(2):
        logger = setup_logging(log_file=str(tmp_path / "log"), environ={})
    logger.info("once")
    assert (tmp_path / "log").read_text().count("once") == 1 and len(logger.handlers) == 1
    [before] = setup_logging(log_file=str(tmp_path / "one"), environ={}).handlers
    setup_logging(log_file=str(tmp_path / "two"), environ={}).info("later")
    assert isinstance(before, logging.FileHandler) and before.stream is None
    assert (tmp_path / "one").read_text() == ""


def test_a_wrong_level_is_named(logger: logging.Logger) -> None:
    for level in ("LOUD", "", "Level 7", "10x"):
        with pytest.raises(SettingsError, match="level: .*DEBUG, INFO, WARNING or ERROR"):
            setup_logging(level, environ={})
    with pytest.raises(SettingsError, match="LOUD"):
        setup_logging(environ={"TRAINING_MONITOR_LOG_LEVEL": "LOUD"})
    assert logger.handlers == []


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, logger: logging.Logger) -> None:
    with pytest.raises(SettingsError, match="TRAINING_MONITOR_LOG_FILE.*a writable file"):
        setup_logging(log_file=str(tmp_path / "not" / "there"), environ={})
    assert logger.handlers == []
