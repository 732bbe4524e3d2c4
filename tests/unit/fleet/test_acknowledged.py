"""What a person has taken note of outlives the process, and the alert does not outlive what it tells."""

from __future__ import annotations

from pathlib import Path

from tests.unit.fleet.fleet_world import Watch, World
from training_monitor.core.store import Store
from training_monitor.fleet.alerts import RUN
from training_monitor.fleet.config import AlertRule, FleetConfig
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.record import Acknowledged, Acknowledgements
from training_monitor.fleet.values import FleetAlert, MemberSpec

LOCAL = MemberSpec("local", log_paths=("/workspace/output/a/training.log",))
IDLE = FleetConfig(rules=(AlertRule("low", "loss < 0.9 for 1m"),))


class Watched:
    """A fleet of this machine, which can be started again."""

    def __init__(self, folder: Path, config: FleetConfig = IDLE) -> None:
        self.folder, self.config = folder, config
        self.watch = Watch(specs=(LOCAL,), store=Store(str(folder)), config=config)

    @property
    def world(self) -> World:
        return self.watch.world

    def restart(self) -> None:
        store = Store(str(self.folder))
        options = {"transport": self.world, "clock": self.world.clock, "config": self.config, "store": store}
        self.watch.monitor = FleetMonitor((LOCAL,), **options)

    def log(self, *lines: str) -> None:
        """Write lines to its log, and look."""
        self.world.machine("local").log += "".join(f"{line}\n" for line in lines)
        self.watch.look()

    def alerts(self, kind: str) -> list[FleetAlert]:
        return [each for each in self.watch.monitor.snapshot().alerts if each.kind == kind]

    def acknowledge(self, kind: str) -> None:
        self.watch.monitor.acknowledge([each.identity for each in self.alerts(kind)])

    def is_noted(self, kind: str) -> list[bool]:
        return [each.acknowledged for each in self.alerts(kind)]


def test_an_acknowledgement_lasts_as_long_as_its_alert(tmp_path: Path) -> None:
    fleet = Watched(tmp_path)
    fleet.log("step 2/100 loss nan")
    assert fleet.is_noted("nan") == [False]
    fleet.acknowledge("nan")
    for step in (3, 4):
        fleet.restart()
        fleet.log(f"step {step}/100 loss nan")
        assert fleet.is_noted("nan") == [True], "it lasts, at another step"
    for step in range(5, 40):
        fleet.log(f"step {step}/100 loss 2.0")
    assert [each.ended is None for each in fleet.alerts("nan")] == [False]
    fleet.log("step 40/100 loss nan")
    assert fleet.is_noted("nan") == [True, False]
    fleet.restart()
    fleet.log("step 41/100 loss nan")
    assert fleet.is_noted("nan") == [False]


def test_it_is_forgotten_where_the_alert_was_over_at_the_first_look(tmp_path: Path) -> None:
    fleet = Watched(tmp_path)
    fleet.log("step 2/100 loss nan")
    fleet.acknowledge("nan")
    fleet.restart()
    fleet.log("step 3/100 loss 2.0")
    fleet.log("step 4/100 loss nan")
    assert fleet.is_noted("nan") == [False]


def test_a_rule_that_needs_its_time_anew_stays_acknowledged(tmp_path: Path) -> None:
    fleet = Watched(tmp_path)
    for step in range(2, 12):
        fleet.log(f"step {step}/100 loss 0.5")
    assert fleet.is_noted("rule:low") == [False]
    fleet.acknowledge("rule:low")
    fleet.restart()
    for step in range(12, 22):
        fleet.log(f"step {step}/100 loss 0.5")
    assert fleet.is_noted("rule:low") == [True]
    fleet.log("step 22/100 loss 2.0")
    fleet.restart()
    for step in range(23, 33):
        fleet.log(f"step {step}/100 loss 0.5")
    assert fleet.is_noted("rule:low") == [False]


def an_alert(kind: str = "nan", level: str = "error", generation: int = 5 * RUN + 7, key: str = "a") -> FleetAlert:
    return FleetAlert(1.0, key, kind, "", level, generation)


def test_an_alert_that_began_anew_or_got_worse_is_another_one() -> None:
    noted, stall = Acknowledged("nan", "error", 5 * RUN + 7), Acknowledged("stall", "error", 7)
    assert noted.is_of(an_alert()) and noted.is_of(an_alert(generation=5 * RUN + 900))
    for other in (an_alert(generation=6 * RUN + 7), an_alert(level="warning"), an_alert("divergence")):
        assert not noted.is_of(other)
    assert stall.is_of(an_alert("stall", generation=7)) and not stall.is_of(an_alert("stall", generation=8))


def test_two_processes_keep_what_both_were_told(tmp_path: Path) -> None:
    one, other = (Acknowledgements(Store(str(tmp_path))) for _ in range(2))
    assert not one.has(an_alert()) and not other.has(an_alert(key="b"))
    one.note([an_alert()])
    other.note([an_alert(key="b")])
    for key in ("a", "b"):
        assert Acknowledgements(Store(str(tmp_path))).has(an_alert(key=key))
    other.keep("b", ())
    assert not other.has(an_alert(key="b")) and other.has(an_alert())


def test_without_a_store_or_with_a_damaged_one_it_is_known_in_memory(tmp_path: Path) -> None:
    for store in (None, Store(str(tmp_path / "state"))):
        noted = Acknowledgements(store)
        if store:
            store.save_run("fleet acknowledged", {"alerts": 5}, finished=False)
        noted.note([an_alert()])
        assert noted.has(an_alert()) and not noted.has(an_alert(key="b"))


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    noted = Acknowledgements(Store(str(tmp_path)))
    noted.note(an_alert("stall", generation=number) for number in range(30))
    assert [noted.has(an_alert("stall", generation=number)) for number in (9, 10, 29)] == [False, True, True]
