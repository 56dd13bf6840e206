"""A server in a thread of this process, for tests and notebooks."""

from __future__ import annotations

import asyncio
import threading

from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.run import Running


class LiveServer:
    """Runs from its making until ``close``; a context manager. Raises what keeps the server from starting."""

    def __init__(self, config: ServerConfig) -> None:
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self.running = Running(config, lambda _: self._ready.set())
        self.app = self.running.app
        self._thread = threading.Thread(target=self._main, name="server", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    @property
    def url(self) -> str:
        """Its address."""
        return self.running.addresses[0]

    @property
    def admin_url(self) -> str:
        """The address of metrics and administration."""
        return self.running.addresses[-1]

    def close(self) -> None:
        """End it: what runs has the configured time to finish."""
        self.running.stop()
        self._thread.join()

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _main(self) -> None:
        try:
            asyncio.run(self.running.main())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error
        finally:
            self._ready.set()
