"""The good versions of a model: the way back, and what survives a restart."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path

from simdist.adaptation.update import (
    ModelUpdate,
    RunningModel,
    apply_update,
    check_update,
    unpack_update,
)
from simdist.errors import ArtefactError, UpdateError
from simdist.world_model import WorldModel
from simdist.world_model.artefact import read_limited, write_atomically

_log = logging.getLogger(__name__)

#: What reading a record of unknown origin may raise.
_MALFORMED = (KeyError, TypeError, ValueError, OverflowError, RecursionError)

_RECORD = "current.json"
_WEIGHTS = "update-{version:06d}.safetensors"


class UpdateStore:
    """Adopted updates on top of one artefact, newest last.

    With a directory, the adopted update is on disk before it counts: a process that dies at any
    moment restarts with the last one or the one before, never with a part. Without one, everything
    is kept in memory only.
    """

    def __init__(self, base: RunningModel, directory: Path | None = None, keep: int = 5) -> None:
        self._base = base
        self._directory = directory
        self._keep = keep
        self._models = [base]
        self._updates: list[ModelUpdate] = []
        self.newest_version = base.version  #: the highest ever adopted, rolled back or not
        if directory is not None:
            self._restore(directory)

    @property
    def current(self) -> RunningModel:
        """The model to plan with."""
        return self._models[-1]

    def prepare(
        self, update: ModelUpdate, self_test: Callable[[WorldModel], str | None]
    ) -> RunningModel:
        """The current model with ``update`` applied, after every check and ``self_test``, which
        returns what is wrong with a model. Changes nothing, so it may run beside a planner.

        Raises UpdateError with the reason for a refusal.
        """
        problem = check_update(update, self.current, self.newest_version)
        if problem is not None:
            raise UpdateError(problem)
        prepared = apply_update(update, self.current)
        problem = self_test(prepared.model)
        if problem is not None:
            raise UpdateError(f"the update's model fails its self-test: {problem}")
        return prepared

    def adopt(self, update: ModelUpdate, model: RunningModel) -> None:
        """Make ``model``, which :meth:`prepare` made of ``update``, the current one.

        Raises ArtefactError when it cannot be written down; the store is then unchanged.
        """
        newest = max(self.newest_version, update.version)
        self._write(update, newest)
        self._models.append(model)
        self._updates.append(update)
        self.newest_version = newest
        excess = max(len(self._updates) - self._keep, 0)
        # The base always stays at the bottom, as the last way back.
        del self._models[1 : 1 + excess]
        del self._updates[:excess]

    def rollback(self) -> RunningModel | None:
        """Return to the version before the current one; None when there is none left."""
        if not self._updates:
            return None
        before = self._updates[-2] if len(self._updates) > 1 else None
        self._write(before, self.newest_version)
        self._models.pop()
        self._updates.pop()
        return self.current

    def _write(self, update: ModelUpdate | None, newest: int) -> None:
        if self._directory is None:
            return
        record = {"root": self._base.root, "newest_version": newest, "file": None, "sha256": None}
        if update is not None:
            record["file"] = _WEIGHTS.format(version=update.version)
            record["sha256"] = update.weights_sha256
            write_atomically(self._directory / str(record["file"]), update.weights)
        write_atomically(self._directory / _RECORD, json.dumps(record, indent=1).encode())
        for path in self._directory.glob(_WEIGHTS.replace("{version:06d}", "*")):
            if path.name != record["file"]:
                # What is left over costs space and nothing else.
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def _restore(self, directory: Path) -> None:
        path = directory / _RECORD
        try:
            if not path.exists():
                return
            record = json.loads(read_limited(path))
            if record["root"] != self._base.root:
                _log.warning("%s belongs to another model and is ignored", directory)
                return
            newest = int(record["newest_version"])
            if record["file"] is not None:
                # A name alone: the record cannot point outside its directory.
                weights = read_limited(directory / Path(record["file"]).name)
                update = unpack_update(weights, str(record["sha256"]))
                model = apply_update(update, self._base)
                self._models.append(model)
                self._updates.append(update)
            self.newest_version = max(self.newest_version, newest)
        except (ArtefactError, UpdateError, OSError, *_MALFORMED) as error:
            _log.warning(
                "the saved update in %s is unusable and ignored (%s); starting with version %d",
                directory,
                error,
                self._base.version,
            )
