"""Mail to customers: SMTP, where nothing can be undone and nothing can be asked."""

from __future__ import annotations

import os
import smtplib
from email.message import EmailMessage
from typing import Any

from ledger.tools.contract import Call
from ledger.tools.python import ToolFailed, ToolRetry, ToolUnknown, tool
from saga_console.demo.tools.schemas import text

SHOP = "orders@shop.example"


@tool(
    "mail.confirmation",
    title="Send an order confirmation",
    version="1",
    tier="non_compensatable",
    blast_radius="high",
    args=text(order_id="Order", to="To", text="Text"),
    effect_key="confirmation:{args.order_id}",
    resource="order:{args.order_id}",
    timeout_s=15,
    settle_s=1,
)
class ConfirmationMail:
    """A mail cannot be called back. Its correction is another mail.

    There is no probe: SMTP has no question "did you get it?". A connection that breaks after
    the text was sent leaves the step unknown, and a person has to look.
    """

    def execute(self, call: Call) -> Any:
        mail = EmailMessage()
        mail["Subject"] = f"Your order {call.args['order_id']} is on its way"
        mail.set_content(call.args["text"])
        return post(mail, call)

    def correct(self, call: Call) -> Any:
        mail = EmailMessage()
        mail["Subject"] = f"We are sorry: your order {call.args['order_id']} is not on its way"
        mail["In-Reply-To"] = mail["References"] = call.result["message_id"]
        mail.set_content(
            "Our last mail was wrong: the payment was declined and nothing has been sent.\n"
            "You do not have to do anything.\n"
        )
        return post(mail, call)


def post(mail: EmailMessage, call: Call) -> dict[str, str]:
    """Hand one mail over, and know at each point whether it can have been accepted."""
    # A colon, as in a correction's key, is no part of a Message-ID (RFC 5322, 3.6.4).
    message_id = f"<{call.idempotency_key.replace(':', '.')}@shop.example>"
    mail["Message-ID"], mail["From"], mail["To"] = message_id, SHOP, call.args["to"]
    host, _, port = os.environ["SAGA_DEMO_MAIL"].rpartition(":")
    server = smtplib.SMTP(timeout=call.timeout_s / 3)
    try:
        server.connect(host, int(port))
        server.ehlo_or_helo_if_needed()
    except (OSError, smtplib.SMTPException) as error:
        raise ToolRetry(f"the mail server was not reached: {error}") from error
    try:
        server.send_message(mail)
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPResponseException) as error:
        raise ToolFailed(f"the mail server refused it: {error}") from error
    except (OSError, smtplib.SMTPException) as error:
        raise ToolUnknown(f"the connection broke while the mail was sent: {error}") from error
    finally:
        # The answer to QUIT says nothing about the mail, so it is not waited for.
        server.close()
    return {"message_id": message_id, "to": call.args["to"]}
