from typing import TypeVar

_T = TypeVar("_T")
_Record = tuple[int, int, int, str, str, str, str, str]

UNFENCED: int
UNKNOWN: int
STALE: int
TIMED_OUT: int

class Error(Exception):
    code: int
    prov_errno: int
    rail: str
    peer: str
    provider: str
    text: str
    hint: str
    unfenced: bool
    unknown: bool
    stale: bool
    restarted: bool
    def __init__(self, record: _Record) -> None: ...

class TransferError(Error):
    status: int
    def __init__(self, record: _Record, status: int) -> None: ...

class TransferTimeout(TransferError, TimeoutError): ...

def transfer_error(record: _Record, status: int) -> TransferError: ...
def last_error() -> Error: ...
def check(code: _T) -> _T: ...
