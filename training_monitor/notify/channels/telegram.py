"""Telegram: a bot that writes to a person or a group."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from training_monitor.core.advice import advice_of
from training_monitor.core.errors import RestError
from training_monitor.core.logger import get_logger
from training_monitor.core.settings_table import Example, Variable, text
from training_monitor.core.values import Notice
from training_monitor.notify.channel import API, ID, Channel, Doors, post
from training_monitor.notify.notice_text import Markup, escape_html, render

TELEGRAM_API = "https://api.telegram.org"
Address: TypeAlias = Annotated[str | int, ID, Example("123456")]
_BOT_TOKEN = text("a bot token such as 123456:ABC-DEF", r"(?a:\d+:[\w-]+)", is_secret=True)


@dataclass(frozen=True, repr=False)
class Telegram(Channel):
    """Messages from a Telegram bot.

    Attributes:
        token: the token of the bot, from @BotFather.
        chat_id: the recipient of notices that are for no particular user.
        api_url: the address of the Bot API.
    """

    name, own, default = "telegram", "telegram_id", "chat_id"
    markup = Markup(4096, escape_html, ("<b>", "</b>"), ("<code>", "</code>"), escape_html, ("<pre>", "</pre>"))
    advice = advice_of(
        (r"(?:upgraded|migrated) to a supergroup", "set chat_id in the settings to the new id of the group"),
        (r"bot was kicked", "add the bot to the group again"),
        (r"need administrator rights in the channel", "make the bot an administrator of the channel"),
        (r"not enough rights|have no rights to send|CHAT_WRITE_FORBIDDEN", "allow the bot to post in this chat"),
        (r"bot was blocked by the user", "unblock the bot in Telegram, and press Start"),
        (r"can't initiate conversation", "open a chat with the bot and press Start"),
        (r"bots? can't send messages to bots", "use the id of a person or group, not the id of a bot"),
        (r"user is deactivated", "use another person's ID as the recipient: this account was deleted"),
        (
            r"group chat was deactivated|chat was deleted",
            "use the id of another chat: this group was deleted or deactivated",
        ),
        (r"not a member of the (?:channel|supergroup|group)", "add the bot to the channel or group"),
        (r"chat_id is empty", "set chat_id in the settings to the id of a chat"),
        (r"chat not found|PEER_ID_INVALID", "check the chat id, or open a chat with the bot and press Start"),
        (r"TOPIC_CLOSED|TOPIC_DELETED|message thread not found", "reopen the topic, or use another chat id"),
        (r"\"description\":\s*\"(?:Unauthorized|Not Found)\"", "check the token: @BotFather shows it"),
    )

    token: Annotated[str, _BOT_TOKEN, Variable("TRAINING_MONITOR_TELEGRAM_TOKEN"), Example("123456:ABC-DEF")] = field(
        repr=False
    )
    chat_id: Annotated[Address, Variable("TRAINING_MONITOR_TELEGRAM_CHAT_ID")] | None = None
    api_url: Annotated[str, API, Variable("TRAINING_MONITOR_TELEGRAM_API")] = TELEGRAM_API
    _moved: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)  # groups, to new ids

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        chat = str(to)
        try:
            self._send_to(self._moved.get(chat, chat), notice, doors)
        except RestError as error:
            moved = _new_chat(error)
            if moved is None:
                raise
            self._moved[chat] = moved
            news = f"the id of group {chat} is now {moved}: change it in the settings"
            get_logger().warning("telegram: %s", news)
            self._send_to(moved, replace(notice, fields=(*notice.fields, ("Telegram", news))), doors)

    def _send_to(self, chat: str, notice: Notice, doors: Doors) -> None:
        message = {
            "chat_id": chat,
            "text": render(notice, self.markup),
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
            "disable_notification": notice.priority == "low",
        }
        post(f"{self.api_url.rstrip('/')}/bot{self.token}/sendMessage", message, doors)


def _new_chat(error: RestError) -> str | None:
    """Return the id that Telegram gave a group when it made it a supergroup, if that is why it refuses."""
    try:
        moved = json.loads(error.body)["parameters"]["migrate_to_chat_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(moved) if type(moved) is int else None
