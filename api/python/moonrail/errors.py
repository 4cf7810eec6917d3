# SPDX-License-Identifier: BSD-2-Clause
"""Exceptions, with the fields of the C library's error record."""
from . import _moonrail

UNFENCED = 1
UNKNOWN = 2
STALE = 4

TIMED_OUT = 9


class Error(Exception):
    """A call has failed.

    code       negative number of the C API, 0 if there is no record
    rail       rail concerned, or ""
    peer       peer concerned, or ""
    provider   libfabric provider concerned, or ""
    prov_errno error number of that provider, or 0
    text       what happened
    hint       what the user can do, or ""
    unfenced   True: bytes of the transfer may still arrive at the target
    unknown    True: it is unknown whether the operation was executed
    stale      True: the segment must be opened again
    restarted  True: a prepared list was refused, and the target's process has been
               replaced since the last check
    """

    restarted = False

    def __init__(self, record):
        (self.code, flags, self.prov_errno, self.rail, self.peer, self.provider,
         self.text, self.hint) = record
        self.unfenced = bool(flags & UNFENCED)
        self.unknown = bool(flags & UNKNOWN)
        self.stale = bool(flags & STALE)
        text = self.text or "code %d" % self.code
        super().__init__(text + ("; " + self.hint if self.hint else ""))


class TransferError(Error):
    """A transfer has ended without success. status is its transfer status."""

    def __init__(self, record, status):
        super().__init__(record)
        self.status = status


class TransferTimeout(TransferError, TimeoutError):
    """The time limit of a transfer has passed, and the transfer has ended. unfenced tells
    whether bytes of it may still arrive at the target."""


def transfer_error(record, status):
    """Returns the exception of a transfer that has failed."""
    kind = TransferTimeout if record[0] == -TIMED_OUT else TransferError
    return kind(record, status)


def last_error():
    """Returns the last error of the calling thread as an exception."""
    return Error(_moonrail.last_error())


def check(code):
    """Returns the code; raises the last error if it is negative."""
    if isinstance(code, int) and code < 0:
        raise last_error()
    return code
