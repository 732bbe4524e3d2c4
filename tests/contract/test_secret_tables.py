"""The tables of secrets in docs/security.md are those of the code, and each of their rows has tests of both kinds."""

from __future__ import annotations

from docs.write_secret_tables import BEGIN, END, PAGE, page_with_tables
from tests.secret_cases import CONTEXT_CASES, TOKEN_CASES
from training_monitor.core.secret_forms import CONTEXTS, TOKEN_FORMS


def test_the_page_has_the_tables_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert page == page_with_tables(page), "run python3 docs/write_secret_tables.py"


def test_each_row_has_a_secret_that_is_masked_and_a_text_that_stays() -> None:
    assert {*CONTEXT_CASES} == {each.example for rows in CONTEXTS.values() for each in rows}
    assert {*TOKEN_CASES} == {*TOKEN_FORMS}
    assert all(masked and kept for masked, kept in (*CONTEXT_CASES.values(), *TOKEN_CASES.values()))
