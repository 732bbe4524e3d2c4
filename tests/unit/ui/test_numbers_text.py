from __future__ import annotations

from tests.unit.ui.snapshots import member, unseen
from training_monitor.ui.fleet import view as columns
from training_monitor.ui.kit import text as numbers_text

NAN, INF = float("nan"), float("inf")


SHOWN: dict[str, dict[float | None, str]] = {
    "format_percent": {85.2: "85.2", 0.0: "0.0", 99.97: "100", NAN: "nan", None: "-"},
    "format_number": {2.345: "2.345", 0.98765: "0.9877", 12.3456: "12.346", 123.456: "123.46", 0.0: "0", None: "-"},
    "format_number of extremes": {1.23e-5: "1.2e-5", 4.5e9: "4.5e9", -0.123: "-0.123", NAN: "nan", -INF: "-inf"},
    "format_short": {0.0: "0", 0.0234: "0.023", 0.512: "0.51", 9.996: "10.0", 39.27: "39.3", 99.96: "100"},
    "format_short of extremes": {12_345.6: "12346", 4.5e9: "4.5e9", NAN: "nan"},
    "format_price": {0.467: "$0.467", 12.345: "$12.35", 250.0: "$250", None: "-"},
    "format_total": {15.23: "$15.23", 0.0: "$0.00", 152.34: "$152.3", 15234.0: "$15234", None: "-"},
    "format_age": {0.4: "0s", -3.0: "0s", 130: "2m", 8000: "2h", 200_000: "2d", NAN: "?", None: "?"},
    "format_clock": {1_770_000_000.0: "02:40:00", 1e300: "?", NAN: "?"},
    "format_date": {1_770_000_000.0: "2026-02-02 02:40"},
}


def test_a_number_is_shown_short_and_what_is_not_known_is_never_zero() -> None:
    for name, texts in SHOWN.items():
        for value, text in texts.items():
            assert getattr(numbers_text, name.split()[0])(value) == text, name


def test_a_moment_of_another_day_is_shown_with_its_date() -> None:
    now = 1_770_000_000.0
    for at, text in ((now - 9000, "00:10:00"), (now - 9601, "02-01 23:59"), (now + 86_400, "02-03 02:40")):
        assert numbers_text.format_moment(at, now) == text
    assert numbers_text.format_moment(NAN, now) == "?"


def test_a_loss_fits_into_its_column() -> None:
    values = [sign * 10.0**power * 3.14159 for power in range(-30, 31) for sign in (1, -1)]
    assert max(len(numbers_text.format_number(value)) for value in values) <= 8
    assert max(len(numbers_text.format_number(value)) for value in values if 1e-9 < value < 1e9) <= 6


def test_progress_and_steps_are_shown_as_far_as_they_are_known() -> None:
    assert columns.format_progress(member(1)) == "E1/3 70%"
    assert columns.format_progress(member(1, epoch=None, total_epochs=None)) == "70%"
    assert columns.format_progress(member(1, epoch=0.53)) == "E0.5/3 70%"
    assert columns.format_progress(unseen(1, "running", step=12)) == "step 12"
    assert columns.format_progress(unseen(1, "running")) == "-"
    assert columns.format_steps(member(1)) == "700/1000"
    assert columns.format_steps(unseen(1, "running")) == "-"
