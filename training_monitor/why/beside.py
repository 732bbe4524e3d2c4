"""What was seen beside the ranks of a training, and how the words of others are taken over into it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from training_monitor.core.masking import redact
from training_monitor.core.shown import shown
from training_monitor.why.ranks import Collective, Finding

MOST_TEXT, MOST_FINDINGS = 300, 100  # characters of a finding, and findings of a host


class Surroundings(NamedTuple):
    """Findings, collectives, and a sentence on each thing that could not be asked, and the right that is missing."""

    findings: tuple[Finding, ...] = ()
    collectives: tuple[Collective, ...] = ()
    unread: tuple[str, ...] = ()


def finding(
    kind: str,
    text: str,
    *,
    is_hardware: bool = False,
    ranks: tuple[int, ...] = (),
    pids: tuple[int, ...] = (),
    awaits: tuple[int, ...] | None = None,
) -> Finding:
    """Return a finding whose place is not known yet; of its text, what may be shown."""
    return Finding(kind, in_brief(text), "", is_hardware=is_hardware, ranks=ranks, pids=pids, awaits=awaits)


def in_brief(text: str, most: int = MOST_TEXT) -> str:
    """Return the beginning of a foreign text on one line, secrets replaced."""
    said = shown(redact(text[: 4 * most])).strip()
    return said if len(said) <= most else f"{said[: most - 3]}..."
