"""Recognize what Docker says of a container that will never start on a machine. Pure."""

from __future__ import annotations

import re

from training_monitor.core.regex import regex

ELSEWHERE = "use another machine; if the message is about the image, check its name and the login to its registry"
_NO_START = regex(
    r"manifest unknown|manifest for \S+ not found|\bdenied\b|\bunauthorized\b|no basic auth credentials"
    r"|repository does not exist|no matching manifest|invalid reference format|no space left on device"
    r"|OCI runtime create failed|nvidia-container-cli: |could not select device driver",
    re.IGNORECASE,
)


def cannot_start(said: str | None) -> bool:
    """Return whether the message says that waiting will not help."""
    return _NO_START.search(said or "") is not None
