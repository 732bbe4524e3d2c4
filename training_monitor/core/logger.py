"""The package's logger and its setup."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import redact
from training_monitor.core.settings import LOG_FILE, LOG_LEVEL
from training_monitor.core.shown import shown_lines

if TYPE_CHECKING:
    import logging

_FORMAT = "%(asctime)s %(levelname)s %(message)s"
_loops = 0  # how many loops use the setup of `logging_of_loop`


def get_logger() -> logging.Logger:
    """Return the package's logger, which is silent until `setup_logging` or the application configures it."""
    import logging

    logger = logging.getLogger("training_monitor")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def setup_logging(
    level: str | int | None = None, log_file: str | None = None, *, environ: Mapping[str, str] = os.environ
) -> logging.Logger:
    """Log to a file or to stdout. This replaces the configuration of an earlier call.

    Args:
        level: DEBUG, INFO, WARNING or ERROR; default: TRAINING_MONITOR_LOG_LEVEL, otherwise INFO.
        log_file: path of the log file; default: TRAINING_MONITOR_LOG_FILE, otherwise stdout.

    Raises:
        SettingsError: the level is unknown, or the file cannot be written.
    """
    import logging

    chosen = level if level is not None else environ.get(LOG_LEVEL) or "INFO"
    number = chosen if isinstance(chosen, int) else logging.getLevelName(chosen.upper())
    if not isinstance(number, int):
        raise SettingsError(LOG_LEVEL if level is None else "level", chosen, "DEBUG, INFO, WARNING or ERROR")
    path = log_file or environ.get(LOG_FILE)
    try:
        handler = logging.FileHandler(path, encoding="utf-8") if path else logging.StreamHandler(sys.stdout)
    except OSError as error:
        raise SettingsError(LOG_FILE, path, f"a writable file ({error.strerror})") from error

    class Masking(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return shown_lines(redact(super().format(record)))

    handler.setFormatter(Masking(_FORMAT))
    logger = logging.getLogger("training_monitor")
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(number)
    return logger


@contextmanager
def logging_of_loop(*, prints: bool) -> Iterator[None]:
    """Log while a loop of the library runs, unless the application has configured logging.

    By TRAINING_MONITOR_LOG_FILE to that file; else to stdout if the loop `prints`, since nobody hears its events.
    """
    global _loops
    import logging

    logger = get_logger()
    own = [each for each in logger.handlers if not isinstance(each, logging.NullHandler)]
    is_configured = own or (logging.getLogger().handlers and not os.environ.get(LOG_FILE))
    if not _loops and (is_configured or not (prints or os.environ.get(LOG_FILE))):
        yield
        return
    level = logger.level
    [handler] = own if _loops else setup_logging().handlers
    _loops += 1
    try:
        yield
    finally:
        _loops -= 1
        if not _loops and handler in logger.handlers:
            logger.removeHandler(handler)
            handler.close()
            logger.setLevel(level)
