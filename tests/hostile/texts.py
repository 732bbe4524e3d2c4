"""Characters that lie about a text or steer what shows it, and how to find one in what a face has written."""

from __future__ import annotations

import re

LIARS = {
    "C0": "".join(map(chr, range(0x20))),
    "DEL": "\x7f",
    "C1": "".join(map(chr, range(0x80, 0xA0))),
    "direction": "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    "zero width": "\u200b\u200c\u200d\ufeff\u00ad\u034f",
    "invisible operators": "".join(map(chr, range(0x2060, 0x2070))),
    "line ends": "\u2028\u2029\x85\v\f\x1c\x1d\x1e",
    "tags": "".join(map(chr, range(0xE0000, 0xE0080))),
    "variations": "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))),
    "annotation": "\ufff9\ufffa\ufffb",
    "fillers": "\u115f\u1160\u3164\uffa0\u17b4\u17b5\u180e",
    "surrogates": "\ud800\udbff\udc00\udfff",
    "private": "\ue000\uf8ff\U000f0000\U0010fffd",
    "unassigned": "\u0378\u2fe0\U000e0fff\U0010ffff\ufdd0",
    "blanks": "\xa0\u2003\u202f\u3000\u1680",
}
ZALGO = "e" + "\u0301\u0336\u0489" * 40
SEQUENCES = (
    "\x1b[31m", "\x1b[2J", "\x1b[38:2:1:2:3m", "\x1b[>4;2m", "\x1b]0;title\x07", "\x1b]52;c;ZXZpbA==\x1b\\",
    "\x1b]8;;http://x\x1b\\", "\x1bP1$r\x1b\\", "\x1b_x\x1b\\", "\x1b^x\x1b\\", "\x1bc", "\x1b(0", "\x1b7", "\x9b31m",
    "\x9d0;x\x9c", "\x1b[", "\x1b]", "\x1b", "\x1b\x1b[31m[31m", "\x0e", "\x05",
)  # fmt: skip
HOSTILE = [*LIARS.values(), ZALGO, *SEQUENCES]
HARMFUL = re.compile(
    "[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
    "|[\u0300-\u036f\u0489]{4}"
)
LEGITIMATE = (
    "Zoë Ångström naïve", "step 5/10 ━━━━ ▏▎▍▌▋▊▉█░ 50%", "漢字カタカナ한국어", "שלום עולם", "مرحبا بالعالم",
    "Привет", "Ωmega", "हिन्दी", "ไทย", "🚀🤖✅ done", "⚠️ Training", "x\u0301", "→ ≤ ± µ ²", "│ ├─ └─", "⠋⠙⠹",
    "C:\\path 'it' \"is\" $(x) `y`",
)  # fmt: skip


def harm_in(text: str) -> str:
    """The first harmful thing in a text of one line, with what is around it; "" for none."""
    found = HARMFUL.search(text)
    return repr(text[max(0, found.start() - 40) : found.end() + 40]) if found else ""
