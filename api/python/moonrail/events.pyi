from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

PAUSE: float

class Receivers:
    def __init__(self, handle: Any) -> None: ...
    async def receive(
        self, take: Callable[[], list[_T]], ends_are_wanted: Callable[[], bool]
    ) -> list[_T]: ...
    def wake(self) -> None: ...
