"""Slack: the webhook of a channel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from training_monitor.core.advice import advice_of
from training_monitor.core.settings_table import Example, Variable
from training_monitor.core.values import Notice
from training_monitor.notify.channel import URL, Channel, Doors, post
from training_monitor.notify.notice_text import Markup, escape_html, render

_WEBHOOK = "create the webhook again"


@dataclass(frozen=True, repr=False)
class SlackWebhook(Channel):
    """A channel of a Slack workspace.

    Attributes:
        url: the webhook of the channel.
    """

    name = "slack"
    markup = Markup(4000, escape_html, ("*", "*"), ("`", "`"), escape_html, ("```\n", "\n```"))
    advice = advice_of(
        (r"is_archived", "unarchive the channel, or create a webhook for another one"),
        (
            r"\"error\":\s*\"(?:invalid_auth|account_inactive|token_revoked|token_expired|not_authed)\"",
            "replace the token of the app: it is no longer valid",
        ),
        (r"missing_scope", "give the app the chat:write scope, and reinstall the app in the workspace"),
        (
            r"\"error\":\s*\"channel_not_found\"",
            "check the channel id, and invite the app if the channel is private",
        ),
        (r"channel_not_found", f"{_WEBHOOK}: its channel was deleted or is private"),
        (r"not_in_channel", "invite the app to the channel"),
        (r"invalid_token", f"{_WEBHOOK}: its secret is no longer valid"),
        (r"no_service|no_active_hooks", f"{_WEBHOOK}: it was disabled or removed"),
        (r"no_team|team_disabled", "the workspace was deleted or disabled: restore it, or use another workspace"),
        (
            r"action_prohibited|posting_to_general",
            "choose another channel: a workspace administrator does not allow posts in this one",
        ),
        (r"user_not_found", f"{_WEBHOOK}: its recipient no longer exists"),
    )

    url: Annotated[
        str, URL, Variable("TRAINING_MONITOR_SLACK_WEBHOOK"), Example("https://hooks.slack.com/services/T/B/TOKEN")
    ] = field(repr=False)

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        post(self.url, {"text": render(notice, self.markup), "unfurl_links": False}, doors)
