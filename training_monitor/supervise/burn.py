"""Tells somebody, once a day, when the account's credit will not last: at its end vast.ai stops every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandError
from training_monitor.notify import service_notices
from training_monitor.policy.cost import DAY, BurnForecast, forecast_burn
from training_monitor.supervise.logs import get_logger
from training_monitor.targets.transport import Transport
from training_monitor.vast.account import account_balance
from training_monitor.vast.instances import list_instances

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox  # brings all that a messenger needs


def warn_of_burn(
    warn_hours_left: float, outbox: Outbox | None, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK
) -> BurnForecast | None:
    """Look how long the credit lasts at what is rented now; None when nobody knows, and then nobody is told."""
    try:
        rows, credit = list_instances(transport=transport), account_balance(transport=transport).credit
    except CommandError as error:
        get_logger().info("nobody knows how long the credit lasts: %s", error)
        return None
    burn = forecast_burn(rows, credit)
    if outbox and burn.hours_left is not None and burn.hours_left <= warn_hours_left:
        outbox.post(service_notices.credit_low(burn, credit, day=int(clock.time() // DAY)))
    return burn
