"""The package's logger and its setup."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import redact
from training_monitor.core.settings import LOG_FILE, LOG_LEVEL

if TYPE_CHECKING:
    import logging

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def get_logger() -> logging.Logger:
    """Return the package's logger; silent until `setup_logging` or the application configures it."""
    import logging

    logger = logging.getLogger("training_monitor")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def setup_logging(
    level: str | int | None = None, log_file: str | None = None, *, environ: Mapping[str, str] = os.environ
) -> logging.Logger:
    """Log to a file or to stdout, replacing the setup of an earlier call.

    Args:
        level: DEBUG, INFO, WARNING or ERROR; default: TRAINING_MONITOR_LOG_LEVEL, else INFO.
        log_file: default: TRAINING_MONITOR_LOG_FILE, else stdout.

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
        raise SettingsError(LOG_FILE, path, f"a file that can be written ({error.strerror})") from error

    class Masking(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return redact(super().format(record))

    handler.setFormatter(Masking(_FORMAT))
    logger = logging.getLogger("training_monitor")
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(number)
    return logger
