"""What to try when a channel refuses, by what it answered."""

from __future__ import annotations

from training_monitor.errors import RestError, ToolNotFound, TrainingMonitorError

_ADVICE = {
    ("telegram", 400): "check the chat id, and open a chat with the bot and press Start",
    ("telegram", 401): "check the token: @BotFather shows it",
    ("telegram", 403): "open a chat with the bot and press Start, or unblock it",
    ("telegram", 404): "check the token: @BotFather shows it",
    ("discord", 401): "check the bot's token, or make the webhook again",
    ("discord", 403): "share a server with the bot and allow direct messages from its members",
    ("discord", 404): "make the webhook again, and check the user id",
    ("slack", 400): "make the webhook again",
    ("slack", 403): "make the webhook again: it was disabled, or its channel is archived",
    ("slack", 404): "make the webhook again: it was removed",
    ("ntfy", 401): "check the token of the topic",
    ("ntfy", 403): "check the token of the topic: it may not write there",
}


def advise(channel: str, error: TrainingMonitorError) -> str | None:
    """What a person may try after this error of a channel; None when nothing is known."""
    if isinstance(error, RestError) and error.status is not None:
        if error.status == 429:
            return "wait: it asks for fewer messages"
        return _ADVICE.get((channel, error.status)) or error.hint
    if isinstance(error, ToolNotFound) and channel == "desktop":
        return "install notify-send (apt-get install libnotify-bin)"
    return error.hint or ("check server, user and password" if channel == "email" else None)
