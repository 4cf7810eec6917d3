from collections.abc import Iterable, Mapping
from types import SimpleNamespace, TracebackType
from typing import Any, NamedTuple

from .memory import Local, Memory
from .prepared import PreparedTransfers
from .transfer import Transfer

READ: int
WRITE: int
ATOMIC_ADD: int
ATOMIC_FETCH_ADD: int
ATOMIC_SWAP: int
ATOMIC_CAS: int
BOUNCE: int
SMALL_PAGES: int
HUGE_PAGES: int
STRICT: int
PRIVATE: int
READ_ONLY: int
NESTED: int
TURN_US: int

class Buffer(NamedTuple):
    address: int
    nbytes: int
    location: str
    label: str | None = ...

class Notification(NamedTuple):
    name: str
    text: str

class BinaryNotification(NamedTuple):
    name: str
    data: bytes

class Ended(NamedTuple):
    id: int
    status: int
    nbytes: int
    cookie: int
    tasks: int

Range = Buffer | tuple[int, int]
Remote = int | Range

class Engine:
    def __init__(
        self,
        metadata: str = ...,
        name: str = ...,
        *,
        ip: str | None = ...,
        port: int = ...,
        transports: Iterable[str] | None = ...,
        settings: Mapping[str, str] | None = ...,
    ) -> None: ...
    def __enter__(self) -> Engine: ...
    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...
    def close(self) -> None: ...
    @property
    def name(self) -> str: ...
    def register(
        self,
        obj: Local,
        location: str = ...,
        remote: bool = ...,
        *,
        label: str | None = ...,
        nested: bool = ...,
        read_only: bool = ...,
    ) -> Memory: ...
    def alloc(
        self, nbytes: int, location: str | None = ..., *, flags: int = ...
    ) -> Memory: ...
    def open(self, name: str, *, fresh: bool = ...) -> Segment: ...
    def export(self) -> bytes: ...
    def import_segment(self, blob: bytes | bytearray | memoryview) -> Segment: ...
    def sync(self) -> None: ...
    def warm_up(self, name: str) -> None: ...
    def batch(self) -> Batch: ...
    def notifications(self) -> list[Notification]: ...
    def binary_notifications(self) -> list[BinaryNotification]: ...
    async def receive(self) -> list[Notification]: ...
    async def receive_binary(self) -> list[BinaryNotification]: ...
    def event_fd(self) -> int: ...
    def ended(self) -> list[Ended]: ...
    def drain(self, timeout: float | None = ...) -> None: ...
    def probe(self, name: str, timeout: float | None = ...) -> None: ...
    def rails(self) -> list[SimpleNamespace]: ...
    def settings(self) -> dict[str, tuple[str, str]]: ...
    def topology(self) -> dict[str, Any]: ...

class Segment:
    name: str
    def __enter__(self) -> Segment: ...
    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...
    def close(self) -> None: ...
    def buffers(self) -> list[Buffer]: ...
    def find(self, label: str | None) -> list[Buffer]: ...
    def paths(self, location: str | None = ...) -> list[SimpleNamespace]: ...
    def flush(self, timeout: float | None = ...) -> None: ...
    def write(
        self,
        local: Local,
        remote: Remote,
        timeout: float | None = ...,
        *,
        bounce: bool = ...,
    ) -> int: ...
    def read(
        self,
        local: Local,
        remote: Remote,
        timeout: float | None = ...,
        *,
        bounce: bool = ...,
    ) -> int: ...
    def writev(
        self,
        locals: Iterable[Local],
        remotes: Iterable[Range],
        timeout: float | None = ...,
        *,
        bounce: bool = ...,
    ) -> int: ...
    def readv(
        self,
        locals: Iterable[Local],
        remotes: Iterable[Range],
        timeout: float | None = ...,
        *,
        bounce: bool = ...,
    ) -> int: ...
    def write_async(
        self, local: Local, remote: Remote, *, bounce: bool = ...
    ) -> Transfer: ...
    def read_async(
        self, local: Local, remote: Remote, *, bounce: bool = ...
    ) -> Transfer: ...
    def prepare_write(self, pieces: Iterable[tuple[Local, Remote]]) -> PreparedTransfers: ...
    def prepare_read(self, pieces: Iterable[tuple[Local, Remote]]) -> PreparedTransfers: ...
    def notify(self, name: str, data: str | bytes | bytearray | memoryview) -> None: ...
    def stats(self) -> SimpleNamespace: ...

class Batch:
    def __init__(self, engine: Engine) -> None: ...
    def __len__(self) -> int: ...
    def write(
        self,
        segment: Segment,
        local: Local,
        remote: Remote,
        *,
        cookie: int = ...,
        bounce: bool = ...,
    ) -> Batch: ...
    def read(
        self,
        segment: Segment,
        local: Local,
        remote: Remote,
        *,
        cookie: int = ...,
        bounce: bool = ...,
    ) -> Batch: ...
    def writev(
        self,
        segment: Segment,
        locals: Iterable[Local],
        remotes: Iterable[Range],
        *,
        cookie: int = ...,
        bounce: bool = ...,
    ) -> Batch: ...
    def readv(
        self,
        segment: Segment,
        locals: Iterable[Local],
        remotes: Iterable[Range],
        *,
        cookie: int = ...,
        bounce: bool = ...,
    ) -> Batch: ...
    def atomic_add(
        self, segment: Segment, remote: Remote, operand: int, *, cookie: int = ...
    ) -> Batch: ...
    def atomic_fetch_add(
        self,
        segment: Segment,
        old: Local,
        remote: Remote,
        operand: int,
        *,
        cookie: int = ...,
    ) -> Batch: ...
    def atomic_swap(
        self,
        segment: Segment,
        old: Local,
        remote: Remote,
        operand: int,
        *,
        cookie: int = ...,
    ) -> Batch: ...
    def atomic_compare_swap(
        self,
        segment: Segment,
        old: Local,
        remote: Remote,
        compare: int,
        operand: int,
        *,
        cookie: int = ...,
    ) -> Batch: ...
    def submit(
        self, notify: tuple[str, str] | None = ..., timeout: float | None = ...
    ) -> Transfer: ...
    def run(self, timeout: float | None = ...) -> int: ...
