"""What `notify --list` prints of notices."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from training_monitor.cli.commands.notify import _list
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.notify import WebList
from training_monitor.notify.notifier import TrainingNotifier


class Refusing(WebList):
    """A channel that accepts nothing."""

    name = "line"

    def send(self, *given: object, **more: object) -> None:
        raise OSError("no")


@pytest.mark.parametrize(
    ("channels", "state"), [([WebList()], "sent by web"), ([Refusing(), WebList()], "only listed")]
)
def test_a_notice_that_no_channel_accepted_is_only_listed(
    home: Path, capsys: pytest.CaptureFixture[str], channels: list[WebList], state: str
) -> None:
    TrainingNotifier(channels, store=BestEffortStore()).notify(None, "hello")
    assert _list(Namespace(subcommand="notify", json=False, job=None)) == 0
    assert f"  {state}  hello" in capsys.readouterr().out
