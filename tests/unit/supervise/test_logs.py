"""setup_logging: level and file from arguments or the environment."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from training_monitor.errors import SettingsError
from training_monitor.supervise.logs import get_logger, setup_logging


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    logger = logging.getLogger("training_monitor")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers, logger.level = handlers, level


def test_it_is_silent_until_it_is_set_up(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger().error("nobody asked")
    assert capsys.readouterr() == ("", "")


def test_level_and_file_come_from_the_environment(tmp_path: Path) -> None:
    environ = {"TRAINING_MONITOR_LOG_LEVEL": "warning", "TRAINING_MONITOR_LOG_FILE": str(tmp_path / "log")}
    setup_logging(environ=environ)
    get_logger().info("too low")
    get_logger().warning("high enough")
    assert "WARNING high enough" in (tmp_path / "log").read_text() and "too low" not in (tmp_path / "log").read_text()


def test_without_a_file_it_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("INFO", environ={})
    get_logger().info("hello")
    assert "INFO hello" in capsys.readouterr().out


def test_setting_it_up_again_doubles_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("INFO", environ={})
    setup_logging("INFO", environ={})
    get_logger().info("once")
    assert capsys.readouterr().out.count("once") == 1


@pytest.mark.parametrize("arguments", [("LOUD", None), ("INFO", "/nowhere/at/all/log")])
def test_what_cannot_be_is_a_settings_error(arguments: tuple[str, str | None]) -> None:
    with pytest.raises(SettingsError):
        setup_logging(*arguments, environ={})
