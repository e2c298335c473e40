"""A watch of a queue (``peek --follow``) in a thread of its own, and what it has shown."""

import threading
from collections.abc import Callable
from typing import Self

from sqlqueue_spark.administration import queue_follow
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from tests.support.waiting import eventually


class EnoughError(Exception):
    """Ends a watch."""


class Watch:
    """A watch in a thread of its own."""

    def __init__(
        self,
        url: str,
        selection: MessageSelection | None = None,
        shown: Callable[[int], object] = lambda _: None,
    ) -> None:
        """:param shown: what to do with the number of each row that is shown."""
        self.shown: list[int] = []
        self.notes: list[str] = []
        self.looks = 0
        self.error: BaseException | None = None
        self._on_shown = shown
        self._over = threading.Event()
        self._selection = selection or MessageSelection()
        self._options = ConnectionOptions.parse({"url": url})
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            following = queue_follow.follow(
                self._options, "orders", self._selection, note=self.notes.append, looked=self._looked
            )
            for message in following:
                self.shown.append(message.row_version)
                self._on_shown(message.row_version)
        except EnoughError:
            pass
        except BaseException as error:  # noqa: BLE001 -- the test asserts it
            self.error = error

    def _looked(self, _: object) -> None:
        self.looks += 1
        if self._over.is_set():
            raise EnoughError

    def idle(self) -> None:
        """Wait for a look that has begun after now."""
        before = self.looks
        eventually(lambda: self.looks > before + 1 or self.error)

    def __enter__(self) -> Self:
        self._thread.start()
        self.idle()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
