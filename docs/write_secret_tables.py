"""Write the tables of secrets of docs/security.md from core/secret_forms.py: `docs/write_secret_tables.py`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.secret_cases import CONTEXT_CASES, STAYS, TOKEN_CASES  # noqa: E402
from training_monitor.core.secret_forms import CONTEXTS, TOKEN_FORMS  # noqa: E402

PAGE = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- written by docs/write_secret_tables.py -->\n", "<!-- end of what is written -->\n"


def write_secret_tables() -> str:
    """Return both tables; each row counts the tested secrets that are masked, and similar strings that are not."""
    contexts = {name: tuple(dict.fromkeys(each.example for each in rows)) for name, rows in CONTEXTS.items()}
    lines = ["| context | example | masked secrets | unmasked strings |", "| --- | --- | ---: | ---: |"]
    for name, examples in contexts.items():
        masked, kept = (sum(len(CONTEXT_CASES[each][at]) for each in examples) for at in (0, 1))
        looks = "<br>".join(f"`{each}`" for each in examples)
        lines.append(f"| {name} | {looks} | {masked} | {kept} |")
    lines += [
        "",
        "| token format | begins with or contains | masked secrets | unmasked strings |",
        "| --- | --- | ---: | ---: |",
    ]
    for name, form in sorted(TOKEN_FORMS.items(), key=lambda each: each[0].lower()):
        masked, kept = map(len, TOKEN_CASES[name])
        lines.append(f"| {name} | {' '.join(f'`{each}`' for each in form.signs)} | {masked} | {kept} |")
    cases = (*CONTEXT_CASES.values(), *TOKEN_CASES.values())
    masked, kept = (sum(len(each[at]) for each in cases) for at in (0, 1))
    lines += [
        "",
        f"In the tests of these {len(contexts)} contexts and {len(TOKEN_FORMS)} token formats, {masked} secrets are"
        f" masked, and {kept + len(STAYS)} similar strings are not.",
    ]
    return "\n".join(lines) + "\n"


def page_with_tables(page: str) -> str:
    """Return the text of the page with the tables between the two marks."""
    return re.sub(rf"(?s)(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", lambda _: write_secret_tables(), page)


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
