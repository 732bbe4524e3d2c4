"""Read metrics with the parser of Prometheus' own Python client."""

from __future__ import annotations

from collections.abc import Mapping

from tests.requirements import miss

Labels = frozenset[tuple[str, str]]


def parse_metrics(text: str) -> dict[str, dict[Labels, float]]:
    """The samples by name and labels. Every metric has one HELP and one TYPE, and no sample is there twice."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        miss("prometheus_client", "prometheus_client is not installed")
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found and family.documentation and family.type == "gauge", family.name
        samples = found[family.name] = {}
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert sample.name == family.name and sample.timestamp is None and labels not in samples, sample
            samples[labels] = sample.value
    for kind in ("HELP", "TYPE"):
        assert sorted(line.split()[2] for line in text.splitlines() if line.startswith(f"# {kind} ")) == sorted(found)
    assert text.endswith("\n") and "\r" not in text
    return found


class Metrics:
    """The samples of a text, by names without their prefix."""

    def __init__(self, text: str) -> None:
        self.samples = parse_metrics(text)

    def get(self, name: str, /, **labels: str) -> float | None:
        """The value of one series; None if it is not there."""
        return self.samples.get(f"training_monitor_{name}", {}).get(frozenset(labels.items()))

    def chosen(self, name: str, label: str, /, **labels: str) -> str:
        """The label value of the one series with value 1, of those with these labels; all others have 0."""
        series = self.by(name, label, **labels)
        assert set(series.values()) == {0.0, 1.0}
        [found] = [word for word, value in series.items() if value]
        return found

    def by(self, name: str, label: str, /, **labels: str) -> Mapping[str, float]:
        """The values by one label, of the series with these others."""
        series = {
            dict(found)[label]: value
            for found, value in self.samples.get(f"training_monitor_{name}", {}).items()
            if labels.items() <= dict(found).items()
        }
        return series
