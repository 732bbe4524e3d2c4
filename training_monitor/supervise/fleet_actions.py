"""What a person does to members of a fleet: stop or destroy, each once at a time, and told as alerts."""

from __future__ import annotations

import threading
from collections.abc import Callable

from training_monitor.clock import Clock
from training_monitor.errors import SettingsError, TrainingMonitorError
from training_monitor.policy.fleet_values import FleetAlert
from training_monitor.probes.stopping import stop_job
from training_monitor.supervise.fleet_member import FleetMember
from training_monitor.supervise.logs import get_logger
from training_monitor.supervise.threads import begin_thread
from training_monitor.targets.transport import Transport
from training_monitor.vast.instances import destroy_instance, stop_instance

ACTIONS = ("stop", "destroy")


class FleetActions:
    """Acts in threads of their own; `tell` hears what came of it, from those threads."""

    def __init__(self, tell: Callable[[FleetAlert], None], transport: Transport | None, clock: Clock) -> None:
        self._tell, self._transport, self._clock = tell, transport, clock
        self._lock, self._under_way = threading.Lock(), set[str]()

    def begin(self, action: str, key: str, member: FleetMember | None) -> None:
        """Begin to `stop` or `destroy` a member. Raises SettingsError for another word."""
        if action not in ACTIONS:
            raise SettingsError("action", action, " or ".join(ACTIONS))
        refusal = _refusal(action, member)
        if member is None or refusal:
            self._say(key, "refused", refusal, "warning")
            return
        place = member.place
        with self._lock:
            is_first = place not in self._under_way
            self._under_way.add(place)
        if not is_first:
            self._say(key, "refused", "something is being done to it already", "warning")
            return
        if not begin_thread(lambda: self._act(action, member, place), action):
            with self._lock:
                self._under_way.discard(place)
            self._say(key, "failed", f"to {action} it failed: this machine has no thread left", "error")

    def _act(self, action: str, member: FleetMember, place: str) -> None:
        member.ending = action
        kind, text, level = "failed", "", "error"
        try:
            kind, text = self._do(action, member)
            level = "info"
        except TrainingMonitorError as error:
            text = f"to {action} it failed: {error}"
        except Exception as error:  # whoever asked for it must hear of it
            get_logger().exception("%s: to %s it failed", member.key, action)
            text = f"to {action} it failed: {error!r}"
        finally:
            with self._lock:
                self._under_way.discard(place)
        if kind == "failed":
            member.ending = None
        self._say(member.key, kind, text, level)

    def _do(self, action: str, member: FleetMember) -> tuple[str, str]:
        """Kind and text of what was done. Raises TrainingMonitorError."""
        name = member.target.name
        if action == "destroy":
            done = destroy_instance(name, transport=self._transport, clock=self._clock)
            if not done.acknowledged:
                return "gone", "vast.ai has no such instance any more"
            return "destroyed", "it is destroyed, with all that was on its disk"
        if member.instance is not None:
            stop_instance(name, transport=self._transport, clock=self._clock)
            return "stopped", "it is stopped; its disk goes on costing"
        assert member.entry.job
        status = stop_job(member.target, member.entry.job, transport=self._transport, clock=self._clock)
        return "stopped", f"{member.entry.job} has ended: {status}"

    def _say(self, key: str, kind: str, text: str, level: str) -> None:
        now = self._clock.time()
        self._tell(FleetAlert(now, key, kind, text, level, int(1000 * now)))


def _refusal(action: str, member: FleetMember | None) -> str:
    """Why this cannot be done to it; nothing where it can."""
    if member is None:
        return "there is no such member"
    if member.instance is not None:
        return ""
    if action == "destroy":
        return f"{member.target} is not rented: there is nothing to destroy"
    return "" if member.entry.job else "nothing tells what to stop: it has no job id"
