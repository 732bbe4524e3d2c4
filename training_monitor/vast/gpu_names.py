"""Compare the GPU that was rented with the one that is there, by the names that vast.ai and nvidia-smi give it. Pure.

The same GPU has many names: `RTX 4090` and `NVIDIA GeForce RTX 4090`, `A100 SXM4` and `NVIDIA A100-SXM4-80GB`. Two
names contradict each other only where both state a model, a variant of it or its connection, and these differ. A name
that is not recognized contradicts nothing.
"""

from __future__ import annotations

import re

from training_monitor.core.regex import regex

MEMORY_TOLERANCE = 0.1  # drivers and error correction take a part; marketing rounds
_MODEL = regex(r"[A-Z]{0,3}\d{1,4}[A-Z]?")  # 4090, A100, H100, L40S, MI300X, GH200
_NO_MODEL = regex(r"\d+(?:GB|G)|HBM\d\w*|SXM\d?|PCIE|MIG|\d+G\.\d+GB")
_JOINED = regex(r"(RTX|GTX|RX)(\d)")  # RTX3090
_SUFFIX = regex(r"(\d{4})(TI|SUPER|S|ADA|D)(?=\b|TI)")  # 4080S, 4070TI, 6000Ada
_VARIANTS = {"TI": "TI", "SUPER": "SUPER", "S": "SUPER", "D": "D", "ADA": "ADA", "LAPTOP": "LAPTOP", "PRO": "PRO"}
_CONNECTIONS = regex(r"SXM|PCIE|NVL")


def contradicts(rented: str, found: str) -> bool:
    """Return whether two names of a GPU cannot mean the same."""
    one, other = _parts(rented), _parts(found)
    models = [model for model, _, _ in (one, other)]
    if None in models:
        return False
    connections = {connection for _, _, connection in (one, other) if connection}
    return len(set(models)) > 1 or one[1] != other[1] or len(connections) > 1


def is_less_memory(rented_gb: float, found_mb: float) -> bool:
    """Return whether a GPU has clearly less memory than one of `rented_gb`; the megabytes may be mebibytes."""
    return found_mb / 1000 < rented_gb * (1 - MEMORY_TOLERANCE)


def _parts(name: str) -> tuple[str | None, frozenset[str], str | None]:
    """Return the model in a name, its variants and how it is connected; None where the name does not say."""
    text = _SUFFIX.sub(r"\1 \2 ", _JOINED.sub(r"\1 \2", name.upper()))
    words = [word for word in re.split(r"[\s_/()-]+", text) if word]
    models = [word for word in words if _MODEL.fullmatch(word) and not _NO_MODEL.fullmatch(word) and word != "D"]
    model = models[0] if models else None
    variants = frozenset(_VARIANTS[word] for word in words if word in _VARIANTS)
    if "PRO" in variants:  # its S is the edition for servers
        variants -= {"SUPER"}
    found = _CONNECTIONS.search(text)
    return model, variants, found[0] if found else None
