"""Send mail: one message at a time, with every failure a RestError that never shows the password."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from functools import partial

from training_monitor.core.addresses import REQUEST_SECONDS, MailServer
from training_monitor.core.engine import finish_within
from training_monitor.core.errors import RestError, last_lines
from training_monitor.core.masking import MASK
from training_monitor.core.regex import regex
from training_monitor.core.rest import break_off

_CONTROL = regex(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def send_mail(
    server: MailServer,
    sender: str,
    recipients: Sequence[str],
    subject: str,
    text: str,
    *,
    attached: tuple[str, str] | None = None,
    timeout: float = REQUEST_SECONDS,
) -> None:
    """Send one message through a mail server.

    Args:
        server: the server, and the login there.
        sender: one address.
        recipients: addresses.
        subject: control characters are replaced by spaces, so that it cannot inject headers.
        text: the plain body.
        attached: the name and the text of a file.
        timeout: seconds for the whole conversation.

    Raises:
        RestError: the server did not answer or refused; `temporary` when it said so or did not answer.
    """
    where = f"the mail server {server.host}:{server.port}"
    try:
        message = _message(sender, recipients, subject, text)
        if attached:
            message.add_attachment(attached[1], filename=attached[0])
        clients: list[smtplib.SMTP] = []
        hand_in = partial(_hand_in, clients, server, message, timeout)
        finish_within(timeout, hand_in, "request", break_off=lambda: break_off(clients))
    except smtplib.SMTPResponseException as error:
        said = _said(server, error.smtp_code, error.smtp_error)
        temporary = 400 <= error.smtp_code < 500
        raise RestError(f"{where} responded: {said}", temporary=temporary, body=said) from None
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        body = "\n".join(_said(server, code, text) for code, text in error.recipients.values())
        temporary = all(code < 500 for code in codes)
        raise RestError(f"{where} refused every recipient", temporary=temporary, body=body) from None
    except smtplib.SMTPServerDisconnected:
        raise RestError(f"{where} closed the connection") from None
    except smtplib.SMTPNotSupportedError as error:
        raise RestError(f"{where}: {error}", temporary=False, hint="use smtps:// or another port") from None
    except TimeoutError:
        raise RestError(f"{where} did not finish within {timeout:g} s", hint="check the network") from None
    except OSError as error:
        raise RestError(f"{where}: {error.strerror or type(error).__name__}", hint="check the network") from None
    except ValueError:
        raise RestError(f"{where}: an address contains characters that cannot be sent", temporary=False) from None


def _message(sender: str, recipients: Sequence[str], subject: str, text: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = sender, ", ".join(recipients)
    message["Subject"] = _CONTROL.sub(" ", subject)
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2].strip(" >"))
    message.set_content(text)
    return message


def _hand_in(clients: list[smtplib.SMTP], server: MailServer, message: EmailMessage, timeout: float) -> None:
    client = _connect(server, 2 * timeout)  # longer than the overall limit, whose error is clearer
    clients.append(client)
    try:
        if server.security == "starttls":
            client.starttls(context=ssl.create_default_context())
        if server.user and server.password:
            client.login(server.user, server.password)
        client.send_message(message)
        with suppress(OSError):  # the message is accepted: do not wait for the reply to QUIT
            client.putcmd("quit")
    finally:
        client.close()


def _connect(server: MailServer, timeout: float) -> smtplib.SMTP:
    """Connect under a fixed local hostname, because looking it up may take long."""
    kind: Callable[..., smtplib.SMTP] = smtplib.SMTP
    if server.security == "ssl":
        kind = partial(smtplib.SMTP_SSL, context=ssl.create_default_context())
    return kind(server.host, server.port, local_hostname="[127.0.0.1]", timeout=timeout)


def _said(server: MailServer, code: int, answer: bytes | str) -> str:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
    if server.password:
        text = text.replace(server.password, MASK)
    return f"{code}: {last_lines(text, width=200)}"
