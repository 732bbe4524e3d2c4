from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
from math import inf, isfinite, nan

from training_monitor.fleet.values import FleetSample
from training_monitor.web.charts import (
    MOST_POINTS,
    Chart,
    Point,
    Window,
    describe_points,
    draw_chart,
    points_of,
    sum_points,
)

NOW = 1_770_000_000.0
SVG = "{http://www.w3.org/2000/svg}"
LOSS, THEN = Chart("loss", "Loss", "nats"), Window(NOW, NOW + 1000)


def samples(values: list[float | None], every: float = 10.0) -> list[FleetSample]:
    return [FleetSample(NOW + every * at, {"loss": value}) for at, value in enumerate(values)]


def drawn(points: tuple[Point, ...], chart: Chart = LOSS, window: Window = THEN) -> ElementTree.Element:
    return ElementTree.fromstring(draw_chart(points, chart, window))


def lines_of(svg: ElementTree.Element) -> list[str]:
    return [each.attrib["d"] for each in svg.iter(f"{SVG}path") if each.attrib["class"] == "line"]


def test_few_samples_are_points_and_many_are_means_with_their_range() -> None:
    few = points_of(samples([1.0, 2.0, None]), "loss", NOW, NOW + 1000)
    assert [(each.value, each.count) for each in few] == [(1.0, 1), (2.0, 1), (None, 0)]
    many = points_of(samples([1.0, 3.0] * 5000, 1.0), "loss", NOW, NOW + 10_000)
    assert len(many) <= MOST_POINTS + 1
    assert {(each.value, each.low, each.high) for each in many[:-1]} >= {(2.0, 1.0, 3.0)}
    assert points_of(samples([1.0] * 9), "loss", NOW + 20, NOW + 40)[0].timestamp == NOW + 20


def test_a_point_of_a_total_is_its_last_value_and_the_largest_floats_have_a_mean() -> None:
    [point] = points_of(samples([1.0, 2.0, 6.0], 0.1), "loss", NOW, NOW + 1000, is_total=True)
    assert (point.value, point.low, point.high) == (6.0, 1.0, 6.0)
    [point] = points_of(samples([1.7e308, 1.7e308], 0.0), "loss", NOW, NOW + 10)
    assert point.value == 1.7e308


def test_a_chart_tells_its_extremes_and_ticks_apart() -> None:
    svg = drawn(points_of(samples([1.19e6, 1.21e6]), "loss", NOW, NOW + 100))
    labels = [each.text for each in svg.iter(f"{SVG}text") if each.attrib["text-anchor"] == "end"]
    assert labels[0] == "1.19e6" and len({*labels}) == len(labels) > 3
    points = points_of(samples([3.0, 1.0, 2.0]), "loss", NOW, NOW + 100)
    assert describe_points(points, LOSS) == "Loss: from 3.000, to 2.000, between 1.000 and 3.000 nats"


def test_every_point_can_be_seen_and_tells_its_numbers_in_local_time() -> None:
    svg = drawn(points_of(samples([1.0]), "loss", NOW, NOW + 9))
    [line] = [each for each in svg.iter() if "L" in each.get("d", "")]
    assert float(line.attrib["stroke-width"]) >= 4
    point = points_of(samples([1.0, 3.0], 0.1), "loss", NOW, NOW + 1000)
    svg = drawn(point, window=Window(NOW, NOW + 1000, utc_offset=3600.0))
    [title] = [each.text for each in svg.iter(f"{SVG}title")]
    assert title == "2026-02-02 03:40:00  2.000 nats (1.000 to 3.000)"


def test_a_line_ends_where_a_value_is_unknown_or_nothing_was_seen_for_long() -> None:
    svg = drawn(points_of(samples([1.0, 2.0, None, 3.0, 4.0]), "loss", NOW, NOW + 100))
    assert len(lines_of(svg)) == 2 and len([*svg.iter(f"{SVG}circle")]) == 4

    def lines(*times: float) -> int:
        seen = [FleetSample(NOW + at, {"loss": 1.0}) for at in times]
        return len(lines_of(drawn(points_of(seen, "loss", NOW, NOW + times[-1] + 80))))

    sparse = [300.0 * at for at in range(10)]
    assert lines(0, 10, 20, 200, 210, 220) == 2
    assert lines(*sparse) == lines(*sparse, *(2700 + 10.0 * at for at in range(1, 20))) == 1


def test_nan_is_a_cross_and_never_a_number() -> None:
    svg = drawn(points_of(samples([1.0, nan, inf, 2.0]), "loss", NOW, NOW + 100))
    crosses = [each for each in svg.iter(f"{SVG}path") if each.attrib["class"] == "odd"]
    assert len(crosses) == 2 and "nan" in (crosses[0].findtext(f"{SVG}title") or "")
    assert len(lines_of(svg)) == 2 and "nan" not in " ".join(lines_of(svg))


def test_a_chart_without_a_finite_value_has_no_scale() -> None:
    for values, said in (([], "known"), ([None] * 5, "known"), ([nan, inf], "finite")):
        svg = drawn(points_of(samples(values), "loss", NOW, NOW + 100))
        labels = [each.text for each in svg.iter(f"{SVG}text")]
        assert f"no {said} value" in labels and not any((text or "").replace(".", "").isdigit() for text in labels)
        assert svg.attrib["aria-label"] == "Loss: no known value" and not lines_of(svg)


def test_equal_values_are_a_flat_line() -> None:
    for values in ([0.5] * 4, [0.0] * 4, [1e6] * 4):
        svg = drawn(points_of(samples(list(values)), "loss", NOW, NOW + 100))
        [line] = lines_of(svg)
        assert len({each.split()[1] for each in line[1:].split("L")}) == 1


def test_a_chart_by_step_names_steps_and_connects_what_is_far_apart() -> None:
    steps = [0, 10, 20, 2000, 2010, 3000]
    svg = drawn(tuple(Point(step, 1.0, 1.0, 1.0, 1) for step in steps), window=Window(0, 3000, by_step=True))
    assert len(lines_of(svg)) == 1
    assert [each.text for each in svg.iter(f"{SVG}title")][-1] == "step 3000  1.000 nats"
    assert {"0", "500", "1,000", "3,000"} <= {each.text for each in svg.iter(f"{SVG}text")}
    odd = drawn((Point(0, nan, None, None, 1),), window=Window(0, 3000, by_step=True))
    assert "no finite value" in [each.text for each in odd.iter(f"{SVG}text")]


def test_any_steps_are_well_formed_and_inside_their_frame() -> None:
    for steps in ([], [7], [2**62], [2**62, 2**62 + 1], [0, 2**63 - 1], [1, 2]):
        points = tuple(Point(step, 1.0, 1.0, 1.0, 1) for step in steps)
        svg = drawn(points, window=Window(min(steps, default=0), max(steps, default=0), 240, by_step=True))
        assert all(0 <= float(circle.attrib["cx"]) <= 240 for circle in svg.iter(f"{SVG}circle")), steps
        assert len(list(svg.iter(f"{SVG}text"))) < 20, steps


def test_foreign_text_cannot_leave_its_place() -> None:
    text = draw_chart((), Chart("loss", '"><script>alert(1)</script>', "</title>&"), Window(NOW, NOW + 1))
    assert "<script" not in text and ElementTree.fromstring(text).attrib["aria-label"].startswith('"><script>')


def test_any_series_is_well_formed_and_inside_its_frame() -> None:
    chance = random.Random(7)
    odd = [None, nan, inf, -inf, 0.0, -0.0, 1e-310, -1e-310, 1.7e308, -1.7e308, 1.0, 1.0 + 1e-15, 1e15, 5.0]
    for _ in range(400):
        values = chance.choices(odd, k=chance.randrange(12))
        end = NOW + chance.choice([1e-9, 5.0, 100.0, 1e6, 3e8])
        points = points_of(samples(values, chance.choice([0.0, 0.001, 10.0])), "loss", NOW, end)
        chart = Chart("loss", "Loss", least=chance.choice([None, 0.0]))
        svg = drawn(points, chart, Window(NOW, end, chance.choice([240, 4000])))
        width, height = int(svg.attrib["width"]), int(svg.attrib["height"])
        for circle in svg.iter(f"{SVG}circle"):
            x, y = float(circle.attrib["cx"]), float(circle.attrib["cy"])
            assert isfinite(x) and 0 <= x <= width and -1 <= y <= height + 1, (values, end)
        assert not re.search(r"(nan|inf)[ VHLMv.]", " ".join(lines_of(svg)))
        assert len(list(svg.iter(f"{SVG}text"))) < 120


def test_a_sum_counts_a_series_only_while_it_has_a_value() -> None:
    first, second = samples([1.0, 1.0, None], 30.0), samples([2.0, 2.0], 10.0)
    points = sum_points([first, second], "loss", NOW, NOW + 200)
    seen = [(3.0, 2)] * 6 + [(None, 0)] * 13  # the second one holds for 40 s, the first one is unknown from 60 s on
    assert [(each.value, each.count) for each in points] == seen
    assert [each.timestamp - NOW for each in points] == [10.0 * number for number in range(19)]
    stays, goes = samples([1.0] * 91), samples([2.0] * 50 + [None])
    points = sum_points([stays, goes], "loss", NOW, NOW + 900)
    assert [each.value for each in points] == [3.0] * 50 + [1.0] * 41


def test_a_sum_holds_between_thinned_samples_and_not_over_long_silence() -> None:
    thinned = [FleetSample(NOW + at, {"loss": 1.0}) for at in (0, 300, 600, 6000)]
    points = sum_points([thinned], "loss", NOW, NOW + 6000)
    held = [each.timestamp - NOW for each in points]
    assert len(points) < MOST_POINTS and max(at for at in held if at < 6000) == 1187.5 and held[-1] == 6000
