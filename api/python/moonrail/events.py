# SPDX-License-Identifier: BSD-2-Clause
"""Waits for notifications in asyncio, by the event file descriptor of an engine."""
import asyncio
import os

from .errors import check

# Pause after a wake-up that was not caused by a notification of the awaited kind, seconds.
PAUSE = 0.01


class Receivers:
    """The coroutines of an engine that wait for notifications."""

    def __init__(self, handle):
        self._handle = handle
        self._waiting = set()       # (loop, future); changed by one step each

    async def receive(self, take, ends_are_wanted):
        """Returns the result of take() when it is not empty. ends_are_wanted() returns
        True if the program fetches the ends of transfers itself."""
        while True:
            # From the first call of take() on, the file descriptor reports notifications.
            result = take()
            if result:
                return result
            await self._readable()
            result = take()
            if result:
                return result
            # The wake-up had another cause: a transfer has ended, or a notification of the
            # other kind has arrived.
            if ends_are_wanted() or not check(self._handle.ended()):
                await asyncio.sleep(PAUSE)

    async def _readable(self):
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        # A loop has one reader for each file descriptor, but several coroutines may wait.
        fd = os.dup(check(self._handle.event_fd()))
        entry = loop, ready
        self._waiting.add(entry)
        try:
            # From here on, wake() ends the wait. Has it been called before?
            check(self._handle.event_fd())
            loop.add_reader(fd, _set, ready)
            await ready
        finally:
            self._waiting.discard(entry)
            loop.remove_reader(fd)
            os.close(fd)

    def wake(self):
        """Ends the waits after the engine was closed."""
        for loop, ready in list(self._waiting):
            try:
                loop.call_soon_threadsafe(_set, ready)
            except RuntimeError:    # the loop was closed
                pass


def _set(ready):
    if not ready.done():
        ready.set_result(None)
