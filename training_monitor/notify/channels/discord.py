"""Discord: a bot that writes to a person, or the webhook of a channel."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from training_monitor.core.advice import advice_of
from training_monitor.core.errors import RestError
from training_monitor.core.regex import regex
from training_monitor.core.settings_table import Example, Variable
from training_monitor.core.values import Notice
from training_monitor.notify.channel import API, ID, TOKEN, URL, Channel, Doors, post
from training_monitor.notify.notice_text import Markup, render

if TYPE_CHECKING:
    from training_monitor.core.rest import Response

DISCORD_API = "https://discord.com/api/v10"
Address: TypeAlias = Annotated[str | int, ID, Example("80351110224678912")]
_MEANS_SOMETHING = regex(r"([\\*_~`|>#\[\]()<])")
_CODE = r"\"code\":\s*"
_WEBHOOK = "create the webhook again"


def _escape(piece: str) -> str:
    if "://" in piece:
        return piece
    return _MEANS_SOMETHING.sub(r"\\\1", piece).replace("@", "@\u200b")


@dataclass(frozen=True, repr=False)
class _Discord(Channel):
    """What its two channels have in common."""

    name = "discord"
    markup = Markup(2000, _escape, ("**", "**"), ("```\n", "\n```"), block=("```\n", "\n```"))
    advice = advice_of(
        (
            rf"{_CODE}220001\b|thread_name or thread_id",
            "add ?thread_id=ID (the ID of a forum post) to the webhook's URL, or create a webhook for a text channel",
        ),
        (rf"{_CODE}40067\b", "use a text channel, or stop requiring a tag for each post in the forum"),
        (rf"{_CODE}50083\b", "unarchive the thread, or choose another channel"),
        (rf"{_CODE}(?:50024|50008)\b", "choose a text channel: this one accepts no messages"),
        (rf"{_CODE}(?:10015|50027)\b|Unknown Webhook", f"{_WEBHOOK}: it was removed"),
        (rf"{_CODE}10003\b|Unknown Channel", "check the channel id: no such channel exists"),
        (rf"{_CODE}(?:10013|50033)\b|Unknown User", "check the user id: no such user exists"),
        (
            rf"{_CODE}(?:50007|50278)\b|Cannot send messages to this user",
            "join a Discord server that has the bot as a member, and allow direct messages from that server's members",
        ),
        (
            rf"{_CODE}(?:50001|50013)\b|Missing Access|Missing Permissions",
            "allow the bot to see the channel and to post in it",
        ),
        (r"401: Unauthorized", "check the bot's token, or create the webhook again"),
    )

    def _message(self, notice: Notice) -> dict[str, Any]:
        """Return the body of a message; flag 4 is SUPPRESS_EMBEDS: links are shown as text only."""
        return {"content": render(notice, self.markup), "allowed_mentions": {"parse": []}, "flags": 4}


@dataclass(frozen=True, repr=False)
class DiscordUser(_Discord):
    """Direct messages from a Discord bot.

    Attributes:
        token: the token of the bot.
        user_id: the recipient of notices that are for no particular user.
        api_url: the address of Discord's API.
    """

    own, default = "discord_id", "user_id"
    token: Annotated[str, TOKEN, Variable("TRAINING_MONITOR_DISCORD_TOKEN"), Example("token-of-the-bot")] = field(
        repr=False
    )
    user_id: Annotated[Address, Variable("TRAINING_MONITOR_DISCORD_USER_ID")] | None = None
    api_url: Annotated[str, API, Variable("TRAINING_MONITOR_DISCORD_API")] = DISCORD_API

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        api, headers = self.api_url.rstrip("/"), {"Authorization": f"Bot {self.token}"}
        conversation = _id_in(post(f"{api}/users/@me/channels", {"recipient_id": str(to)}, doors, headers))
        post(f"{api}/channels/{conversation}/messages", self._message(notice), doors, headers)


@dataclass(frozen=True, repr=False)
class DiscordWebhook(_Discord):
    """A channel of a Discord server.

    Attributes:
        url: the webhook of the channel. No bot is needed.
    """

    url: Annotated[
        str,
        URL,
        "webhook",
        Variable("TRAINING_MONITOR_DISCORD_WEBHOOK"),
        Example("https://discord.com/api/webhooks/ID/TOKEN"),
    ] = field(repr=False)

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        post(self.url, self._message(notice), doors)


def _id_in(answer: Response) -> str:
    try:
        number = str(json.loads(answer.body)["id"])
    except (ValueError, KeyError, TypeError):
        number = ""
    if not number.isdecimal():
        raise RestError("Discord did not open a conversation with this user", temporary=False)
    return number
