"""Alert rules: the grammar, what is refused and where, three-valued judgement, and when a rule is told."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.models import Gpu
from training_monitor.fleet import conditions as alert_rules
from training_monitor.fleet.conditions import (
    MOST_DEPTH,
    MOST_TEXT,
    AllOf,
    Answer,
    AnyOf,
    Comparison,
    RuleState,
    advance_rule,
    judge,
    parse_condition,
)
from training_monitor.fleet.config import AlertRule
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import REPORTED, FleetSample, sample_of

NAN, INF = float("nan"), float("inf")
GAP = 60.0


def sample(at: float = 0.0, status: str | None = "running", **values: float | None) -> FleetSample:
    return FleetSample(at, values, status)


def holds(when: str, status: str | None = "running", **values: float | None) -> bool | None:
    return judge(parse_condition(when).test, sample(0.0, status, **values))


def told(when: str, samples: list[FleetSample], *, gap: float = GAP) -> list[float]:
    """The times at which a rule is told."""
    state, times = RuleState(), []
    for each in samples:
        state, fires = advance_rule(when, state, each, gap=gap)
        times += [each.timestamp] if fires else []
    return times


def grammar(text: str) -> dict[str, str]:
    """The rules that a text documents, by their names."""
    return dict(re.findall(r"^    ([a-z-]+) += (.+)$", text, re.MULTILINE))


def test_the_document_has_the_grammar_and_the_fields_of_the_reader() -> None:
    document = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text(encoding="utf-8")
    conditions = document[document.index("### Conditions") : document.index("## History")]
    assert grammar(conditions) == grammar(alert_rules.__doc__ or "") != {}
    fields = conditions[conditions.index("`FIELD`: ") :].partition(". A test of")[0]
    assert re.findall(r"`([a-z_]+)`", fields) == [*REPORTED]
    assert f"at most {MOST_TEXT} characters and {MOST_DEPTH} levels of parentheses" in " ".join(conditions.split())


def test_durations_and_numbers_are_written_as_everywhere() -> None:
    for text, seconds in {
        "30s": 30,
        "10m": 600,
        "2h": 7200,
        "1d": 86400,
        "0.5h": 1800,
        "10 m": 600,
        "2E3 w": 1.2096e9,
    }.items():
        assert parse_condition(f"loss > 1 for {text}").duration == seconds
    for text, number in {"5": 5, "0.5": 0.5, "1e-4": 1e-4, "-3": -3, "+3": 3, ".5": 0.5, "5.": 5}.items():
        assert parse_condition(f"loss>{text}").test == Comparison("loss", ">", number)


def test_every_reported_field_can_be_asked_for() -> None:
    for field in REPORTED:
        attribute = REPORTED[field].replace("seconds_left", "eta_seconds")
        values = {"gpus": (Gpu(0, utilization=9), Gpu(1, utilization=3))} if field.startswith("lowest") else {}
        metrics = TrainingMetrics(1, None, "running", **(values or {attribute: 3}))
        assert judge(parse_condition(f"{field} == 3").test, sample_of(metrics, 1.0)) is True, field


def test_and_binds_stronger_than_or_and_parentheses_strongest() -> None:
    a, b, c = Comparison("step", ">", 1), Comparison("loss", ">", 2), Comparison("epoch", ">", 3)
    assert parse_condition("step > 1 or loss > 2 and epoch > 3").test == AnyOf((a, AllOf((b, c))))
    assert parse_condition("step > 1 and loss > 2 or epoch > 3").test == AnyOf((AllOf((a, b)), c))
    assert parse_condition("(step > 1 or loss > 2) and epoch > 3").test == AllOf((AnyOf((a, b)), c))
    for word, kind in (("or", AnyOf), ("and", AllOf)):
        assert parse_condition(f"step > 1 {word} loss > 2 {word} epoch > 3").test == kind((a, b, c))
    assert parse_condition("((step > 1))").test == a
    assert parse_condition("gpu_utilization < 5%").test == parse_condition("gpu_utilization < 5").test
    with pytest.raises(SettingsError, match="at column 9, but found '%'"):
        parse_condition("loss > 5%")


def test_a_status_is_a_word_or_in_quotes_and_words_may_be_asked_of_a_field() -> None:
    assert parse_condition("status == exited").test == parse_condition('status=="exited"').test
    for text, word in {"für": "für", "_x1": "_x1", '"("': "(", '"a for 5m, and no"': "a for 5m, and no"}.items():
        assert parse_condition(f"status != {text} for 1m").test == Comparison("status", "!=", word)
    assert parse_condition("loss is nan for 1m").test == Answer("loss", "nan")
    assert parse_condition("status is unknown").test == Answer("status", "unknown")


def test_what_is_no_condition_is_refused_with_its_place(subtests: pytest.Subtests) -> None:
    for text, words in [
        ("", "one of gpu_utilization, .* at column 1, but found the end"),
        ("   ", "at column 4, but found the end"),
        ("gpu_utilisation < 5", "expected gpu_utilization at column 1, but found 'gpu_utilisation'"),
        ("progress_percent > 5", "at column 1, but found 'progress_percent'"),
        ("LOSS > 3", "at column 1, but found 'LOSS'"),
        ("5 > loss", "one of .*, status at column 1, but found '5'"),
        ("loss", "expected < <= > >= == != or `is` at column 5, but found the end"),
        ("loss = 3", "at column 6, but found '='"),
        ("loss <> 3", "a number at column 7, but found '>'"),
        ("loss < step", "a number at column 8, but found 'step'"),
        ("loss < nan", r"\(for NaN, use `loss is nan`\) at column 8"),
        ("loss < 1e999", "a number at column 8, but found '1e999'"),
        ("loss < 5 5", "`and`, `or`, `for`, or the end of the condition at column 10"),
        ("loss < 5 AND step > 1", "`and`, `or`, `for`, or the end of the condition at column 10, but found 'AND'"),
        ("loss < 5 and", "at column 13, but found the end"),
        ("(loss < 5", r"`\)` at column 10, but found the end"),
        ("loss < 5)", "at column 9, but found '\\)'"),
        ("()", "at column 2"),
        ("loss < 5 for", "a duration such as 30s, 10m, 2h, 1d at column 13"),
        ("loss < 5 for 10", "a duration .* at column 16, but found the end"),
        ("loss < 5 for 10min", "at column 16, but found 'min'"),
        ("loss < 5 for -10m", "a duration .* at column 17, but found 'm'"),
        ("loss < 5 for 10m and step > 1", "no more text after .* at column 18, but found 'and'"),
        ("(loss < 5 for 10m)", "at column 11, but found 'for'"),
        ("status < running", "expected == != or `is` at column 8"),
        ("status == 5", "a status, .* at column 11, but found '5'"),
        ('status == ""', "a status"),
        ('status == "', "a status"),
        ("status == unknown", "to test for an unknown one, use `status is unknown`\\) at column 11"),
        ("status is nan", "known, unknown at column 11, but found 'nan'"),
        ("loss is broken", "known, unknown, nan at column 9"),
        ("löss > 3", "expected loss at column 1, but found 'löss'"),
        ("loss > ٣", "a number at column 8"),
        ("loss > 3; import os", "at column 9, but found ';'"),
        ("__import__('os').system('true')", "at column 1"),
        ("loss > 3\0", "at column 9"),
    ]:
        with subtests.test(text=text, words=words):
            with pytest.raises(SettingsError, match=words) as raised:
                parse_condition(text)
            assert (raised.value.key, raised.value.value) == ("when", text)


def test_conditions_are_bounded() -> None:
    deep = "(" * MOST_DEPTH + "loss > 1" + ")" * MOST_DEPTH
    assert parse_condition(deep).test == Comparison("loss", ">", 1)
    assert parse_condition(" or ".join(["(loss > 1)"] * (MOST_DEPTH + 1))).duration == 0
    with pytest.raises(SettingsError, match="at most 20 nested parentheses"):
        parse_condition(f"({deep})")
    with pytest.raises(SettingsError, match="at most 1000 characters") as raised:
        parse_condition("(" * (MOST_TEXT + 1))
    assert len(str(raised.value)) < 200


def test_no_text_makes_anything_but_a_condition_or_a_settings_error() -> None:
    words = 'loss is < == 5 % nan status "x" é unknown for 10m 1e999 \n'.split(" ")
    words += ["loss < 5", "step > 1", "and", "or", "(", ")"] * 4
    chance, read = random.Random(7), 0
    for _ in range(5000):
        text = chance.choice(("", " ")).join(chance.choices(words, k=chance.randrange(8)))
        try:
            judge(parse_condition(text).test, sample(loss=NAN))
            read += 1
        except SettingsError as error:
            assert "column" in error.expected
    assert read > 100


def test_a_rule_is_a_frozen_value_that_names_what_is_wrong_with_it() -> None:
    rule = AlertRule("idle", "loss > 3")
    assert (rule.priority, rule.message, rule) == ("normal", None, AlertRule("idle", "loss > 3"))
    assert not hasattr(rule, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.when = "loss > 4"  # type: ignore[misc]
    wrong: dict[str, list[object]] = {
        "name": ["", "two\nlines", "\x1b[31m", None],
        "when": [None, ["loss > 3"], "loss"],
        "priority": ["loud", []],
        "message": ["", 5],
    }
    for key, values in wrong.items():
        for value in values:
            with pytest.raises(SettingsError) as raised:
                AlertRule(**{"name": "x", "when": "loss > 3", key: value})
            assert raised.value.key == key


def test_known_values_are_compared_and_a_nan_is_beside_no_number() -> None:
    for operator, answer in {"<": False, "<=": True, ">": False, ">=": True, "==": True, "!=": False}.items():
        assert holds(f"loss {operator} 3", loss=3.0) is answer
    assert holds("status == running") is True and holds("status != running") is False
    assert [holds(f"loss {each} 3", loss=NAN) for each in ("<", "<=", ">", ">=", "==", "!=")] == [False] * 5 + [True]
    assert holds("loss is nan", loss=NAN) is True and holds("loss is known", loss=NAN) is True
    assert holds("loss is nan", loss=3.0) is False and holds("step is nan", step=3) is False
    assert holds("loss > 1e300", loss=INF) is True and holds("loss is nan", loss=INF) is False


def test_what_is_not_known_is_neither_true_nor_false() -> None:
    for when in ("loss > 3", "loss != 3", "loss == 0", "loss is nan"):
        assert holds(when, loss=None) is None and holds(when) is None
    for status in (None, "unknown"):
        assert holds("status != running", status) is None and holds("status == exited", status) is None
        assert holds("status is unknown", status) is True
    assert holds("loss is unknown") is True and holds("loss is known") is False
    assert holds("loss is unknown", loss=0.0) is False and holds("loss is known", loss=0.0) is True


def test_and_and_or_are_those_of_kleene() -> None:
    for when, answer in {
        "step > 0 and loss > 0": None,
        "step < 0 and loss > 0": False,
        "loss > 0 and step < 0": False,
        "step > 0 or loss > 0": True,
        "loss > 0 or step > 0": True,
        "step < 0 or loss > 0": None,
        "(loss > 0 or step < 0) and step > 0": None,
        "(loss > 0 and step < 0) or step > 0": True,
    }.items():
        assert holds(when, step=1, loss=None) is answer, when


def test_a_rule_is_told_once_when_it_held_for_its_duration() -> None:
    losses = [1, 5, 6, 5, 1, 5, 5]
    assert told("loss > 3", [sample(10.0 * at, loss=loss) for at, loss in enumerate(losses)]) == [10, 50]
    assert told("loss > 3 for 30s", [sample(at, loss=5) for at in (100, 110, 120, 129.9, 130, 140, 900)]) == [130]
    assert told("loss > 3 for 30s", [sample(at, loss=5) for at in (100, 110, 120)]) == []
    samples = [sample(at, loss=5) for at in (0, 10, 20)] + [sample(29, loss=1)]
    assert told("loss > 3 for 30s", samples + [sample(at, loss=5) for at in (30, 40, 50, 59, 60)]) == [60]
    assert told("loss is unknown for 20s", [sample(at) for at in (0, 10, 20, 30)]) == [20]


def test_what_is_unknown_for_a_short_time_changes_nothing_and_never_tells() -> None:
    values = [5, None, 5, None, 5]
    assert told("loss > 3 for 40s", [sample(10.0 * at, loss=loss) for at, loss in enumerate(values)]) == [40]
    assert told("loss > 3 for 10s", [sample(0, loss=5), sample(10, loss=None), sample(20)]) == []
    assert told("loss > 3", [sample(at) for at in range(5)]) == []
    samples = [sample(0, loss=5), *(sample(at) for at in range(10, 1000, 10)), sample(1000, loss=5)]
    assert told("loss > 3", samples) == [0]
    assert told("loss > 3", [*samples, sample(1010, loss=1), sample(1020, loss=5)]) == [0, 1020]


def test_time_that_was_not_watched_does_not_count() -> None:
    samples = [sample(0, loss=5), sample(GAP + 1, loss=5), sample(GAP + 31, loss=5), sample(GAP + 61, loss=5)]
    assert told("loss > 3 for 60s", samples) == [GAP + 61]
    asleep = [sample(0, loss=5), *(sample(at, loss=None) for at in range(10, 1000, 10)), sample(1000, loss=5)]
    assert told("loss > 3 for 60s", asleep) == []
    assert told("loss > 3 for 60s", [sample(0, loss=5), sample(GAP, loss=5)]) == [GAP]


def test_a_clock_that_is_set_tells_nothing() -> None:
    assert told("loss > 3 for 30s", [sample(1000, loss=5), sample(0, loss=5), sample(29, loss=5)]) == []
    assert told("loss > 3 for 30s", [sample(1000, loss=5), sample(0, loss=5), sample(30, loss=5)]) == [30]
    assert told("loss > 3", [sample(1000, loss=1), sample(0, loss=5)]) == []
    assert told("loss > 3", [sample(1000, loss=1), sample(0, loss=5), sample(0, loss=5)]) == [0]
    assert told("loss > 3 for 30s", [sample(0, loss=5), sample(86400, loss=5)]) == []


def test_judging_many_samples_reads_the_condition_once_and_keeps_little() -> None:
    parse_condition.cache_clear()
    assert told("(loss > 3 and step > 0) or loss is nan for 2h", [sample(at, loss=5) for at in range(20000)]) == []
    assert parse_condition.cache_info().misses == 1
    state = RuleState()
    for at in range(1000):
        state, _ = advance_rule("loss > 3", state, sample(at, loss=at % 7), gap=GAP)
    assert state == RuleState(since=998.0, known_at=999.0, fired=True)
