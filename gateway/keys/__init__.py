"""Virtual keys: who a client is, what it may use, what it used."""

from gateway.keys.authority import Account, Admission, Authority, Holder, ModelNotAllowed, UnknownKey, file_id, first_id, new_secret
from gateway.keys.budgets import BudgetSpent, Charge, Purse
from gateway.keys.issuing import FIELDS, OVERLAP, PERIODS, issue, newest, public, revoke, rotate, shown, terms
from gateway.keys.ledger import Ledger
from gateway.keys.limits import Left, Meter, Window
from gateway.keys.sharing import SharedDoor
from gateway.keys.usage import Usage

__all__ = [
    "FIELDS",
    "OVERLAP",
    "PERIODS",
    "Account",
    "Admission",
    "Authority",
    "BudgetSpent",
    "Charge",
    "Holder",
    "Ledger",
    "Left",
    "Meter",
    "ModelNotAllowed",
    "Purse",
    "SharedDoor",
    "UnknownKey",
    "Usage",
    "Window",
    "file_id",
    "first_id",
    "issue",
    "new_secret",
    "newest",
    "public",
    "revoke",
    "rotate",
    "shown",
    "terms",
]
