"""What Kubernetes says of the pods of a training: restarts, kills for memory, and warnings. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from training_monitor.core.errors import ParseError
from training_monitor.core.results import PodState
from training_monitor.core.units import plural
from training_monitor.targets.pods import describe_reason, names_container, outlived_kill
from training_monitor.why.ranks import Finding, finding

SOURCE = "kubectl get events"
_MOST_EVENTS = 50


def find_pod_troubles(pod: PodState) -> Iterator[Finding]:
    """Yield what the state of a pod says, if it is not well, or was not."""
    ended = describe_reason(pod) or pod.reason
    where = f"container {pod.ended_container}: " if names_container(pod) else ""
    code = f", exit code {pod.exit_code}" if pod.exit_code is not None else ""
    why = f" ({where}{ended}{code})" if ended else ""
    if pod.restarts:
        yield finding("pod", f"pod {pod.name} has restarted {plural(pod.restarts, 'time')}{why}")
    elif "OOMKilled" in (pod.terminated, pod.reason) and not outlived_kill(pod):
        yield finding("pod", f"a container of pod {pod.name} was killed because memory ran out{why}")
    elif pod.phase != "Running" or pod.reason:
        said = where + ": ".join(each for each in (pod.reason, pod.message) if each)
        yield finding("pod", f"pod {pod.name} is {pod.phase}{f' ({said})' if said else ''}")
    if pod.deleting:
        yield finding("pod", f"pod {pod.name} is being deleted")


def parse_pod_events(text: str, names: Sequence[str]) -> list[tuple[str, Finding]]:
    """Parse `kubectl get events -o json`.

    Returns:
        The names of pods and what happened to them, the newest first; events of other pods are left out.

    Raises:
        ParseError: the text is no list of events.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("not JSON", source=SOURCE, text=text[-1000:]) from error
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise ParseError("no list of events in the reply", source=SOURCE, text=text[-1000:])
    events = [each for each in items if isinstance(each, dict) and each.get("type") != "Normal"]
    of_pods = [each for each in events if _pod(each) in names]
    newest = sorted(of_pods, key=_time, reverse=True)[:_MOST_EVENTS]
    return [(_pod(each), finding("pod", _say(each))) for each in newest]


def _pod(event: Mapping[str, Any]) -> str:
    about = event.get("involvedObject")
    return str(about.get("name")) if isinstance(about, dict) and about.get("kind") == "Pod" else ""


def _time(event: Mapping[str, Any]) -> str:
    """Return when an event was seen last, as Kubernetes writes it: the later one is the greater text."""
    series = event.get("series")
    seen = [series.get("lastObservedTime")] if isinstance(series, dict) else []
    seen += [event.get(key) for key in ("lastTimestamp", "eventTime", "firstTimestamp")]
    return next((time for time in seen if isinstance(time, str)), "")


def _say(event: Mapping[str, Any]) -> str:
    reason, message = (str(event.get(key) or "?") for key in ("reason", "message"))
    count = event.get("count")
    times = f" {count} times" if type(count) is int and 1 < count < 1 << 31 else ""
    when = f", last at {_time(event)[:40]}" if _time(event) else ""
    return f"pod {_pod(event)}: {reason}{times}{when}: {message[:1000]}"
