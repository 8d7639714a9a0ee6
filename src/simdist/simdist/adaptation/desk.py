"""Where a running planner has model updates checked without missing a plan."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from simdist.adaptation.store import UpdateStore
from simdist.adaptation.update import ModelUpdate, RunningModel, unpack_update
from simdist.errors import SimdistError, UpdateError
from simdist.world_model import WorldModel

#: Updates of up to 16 MB each that may wait to be checked.
_MOST_WAITING = 8


@dataclass(frozen=True)
class Verdict:
    """An update that was checked: the model to plan with from now on, or why there is none."""

    version: int
    model: RunningModel | None
    reason: str


class UpdateDesk:
    """Checks updates on a thread of its own; :meth:`collect` adopts them between two plans.

    The thread changes nothing: neither the store nor any model that is in use.
    """

    def __init__(self, store: UpdateStore, self_test: Callable[[WorldModel], str | None]) -> None:
        self._store, self._self_test = store, self_test
        self._jobs: queue.SimpleQueue[tuple[int, bytes, str] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, ModelUpdate | None, RunningModel | None, str]] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="update desk", daemon=True)
        self._thread.start()

    @property
    def current(self) -> RunningModel:
        """The model to plan with."""
        return self._store.current

    def submit(self, version: int, weights: bytes, weights_sha256: str) -> None:
        """Have an update checked; the answer comes from :meth:`collect`. Refused at once when too
        many are waiting."""
        if self._jobs.qsize() >= _MOST_WAITING:
            reason = f"{_MOST_WAITING} updates are waiting to be checked already"
            self._done.put((version, None, None, reason))
        else:
            self._jobs.put((version, weights, weights_sha256))

    def collect(self) -> Verdict | None:
        """The next answer, if there is one; a good update has become the current model."""
        try:
            version, update, prepared, reason = self._done.get_nowait()
        except queue.Empty:
            return None
        if update is None or prepared is None:
            return Verdict(version, None, reason)
        # The store may have moved on (a rollback) while the update was being checked.
        if update.parent != self._store.current.weights_hash:
            return Verdict(version, None, "another model became current while it was checked")
        try:
            self._store.adopt(update, prepared)
        except SimdistError as error:
            return Verdict(version, None, str(error))
        return Verdict(version, prepared, f"version {version} is current")

    def rollback(self) -> RunningModel | None:
        """Return to the version before the current one; None when there is none."""
        return self._store.rollback()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(5.0)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            version, weights, digest = job
            try:
                update = unpack_update(weights, digest)
                if update.version != version:
                    raise UpdateError(
                        f"announced as version {version}, but its weights say {update.version}"
                    )
                prepared = self._store.prepare(update, self._self_test)
                self._done.put((version, update, prepared, ""))
            except SimdistError as error:
                self._done.put((version, None, None, str(error)))
            except Exception as error:  # whatever a foreign update provokes, planning goes on
                self._done.put((version, None, None, f"{type(error).__name__}: {error}"))
