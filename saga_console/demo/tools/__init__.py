"""The demo's Python tools: AWS through boto3, mail through smtplib.

Each stamps its key on its effect where the target lets it, so that the probe finds exactly
this effect. Found with the app `saga_console.demo`, which is installed only with SAGA_DEMO=1.
Settle times are short because targets on the same machine answer at once; a real tool says
how long its target may take to show what it has done.
"""

from saga_console.demo.tools.dns import Record, Zone
from saga_console.demo.tools.machines import Database, Instance
from saga_console.demo.tools.mail import ConfirmationMail
from saga_console.demo.tools.orders import CancelOrder, ConfirmOrder

__all__ = [
    "CancelOrder",
    "ConfirmOrder",
    "ConfirmationMail",
    "Database",
    "Instance",
    "Record",
    "Zone",
]
