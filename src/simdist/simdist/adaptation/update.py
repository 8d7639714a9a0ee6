"""Model updates: new dynamics as bytes that can be sent, checked and adopted.

Nothing in an update is trusted: it is hashed, parsed and compared with the running model before a
copy of that model takes the new weights. The running model itself is never touched.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict, dataclass

from torch import Tensor

from simdist.adaptation.finetune import Candidate, Losses
from simdist.errors import ArtefactError, UpdateError
from simdist.world_model import WorldModel
from simdist.world_model.artefact import Artefact, check_tensors, pack_tensors, unpack_tensors

FORMAT = "simdist-model-update-1"
#: Messages of 16 MB still pass the middleware, 64 MB do not.
MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class RunningModel:
    """A model in use and where it comes from; ``root`` is the hash of the artefact it began as."""

    model: WorldModel
    version: int
    contract: str
    weights_hash: str
    frozen_hash: str
    root: str

    @staticmethod
    def of(artefact: Artefact) -> RunningModel:
        return RunningModel(
            model=artefact.model,
            version=artefact.version,
            contract=artefact.contract.hash(),
            weights_hash=artefact.weights_hash,
            frozen_hash=artefact.frozen_hash,
            root=artefact.weights_hash,
        )

    def with_dynamics(self, state: dict[str, Tensor], version: int) -> RunningModel:
        """A copy with other dynamics; this one stays as it is."""
        model = copy.deepcopy(self.model)
        model.load_dynamics_state(state)
        model.eval()
        return RunningModel(
            model, version, self.contract, model.weights_hash(), self.frozen_hash, self.root
        )


@dataclass(frozen=True)
class ModelUpdate:
    """An update as it travels. Everything but ``weights_sha256`` also stands inside ``weights``,
    a safetensors file, and must agree with it."""

    version: int
    parent: str  #: weights hash of the model it was learned from
    root: str  #: weights hash of the artefact that model began as
    weights_sha256: str  #: of the bytes in ``weights``
    frozen_sha256: str
    contract: str
    losses: Losses
    episodes: int
    seconds_of_data: float
    weights: bytes


def pack_update(candidate: Candidate, parent: RunningModel, version: int) -> ModelUpdate:
    """Make the update ``version`` out of a candidate learned from ``parent``."""
    facts = {
        "version": version,
        "parent": parent.weights_hash,
        "root": parent.root,
        "frozen_sha256": parent.frozen_hash,
        "contract": parent.contract,
        "losses": asdict(candidate.losses),
        "episodes": candidate.episodes,
        "seconds_of_data": candidate.seconds_of_data,
    }
    weights = pack_tensors(candidate.state, {"format": FORMAT, "update": json.dumps(facts)})
    return _update_of(facts, weights)


def unpack_update(weights: bytes, weights_sha256: str) -> ModelUpdate:
    """The update held by safetensors bytes; raises UpdateError when they are damaged."""
    _, facts = _parse(weights, weights_sha256)
    return _update_of(facts, weights)


def check_update(
    update: ModelUpdate, current: RunningModel, newest_version: int | None = None
) -> str | None:
    """Why ``update`` must not replace ``current``, or None.

    ``newest_version`` is the highest version ever adopted, if a rollback went below it: an update
    that was rolled back does not come back by being delivered again.
    """
    try:
        tensors, facts = _parse(update.weights, update.weights_sha256)
        if _update_of(facts, update.weights) != update:
            raise UpdateError("the update's fields do not agree with the metadata in its weights")
        _check_foundation(update, current, tensors)
    except UpdateError as error:
        return str(error)
    newest = max(current.version, newest_version or 0)
    if update.version <= newest:
        return f"the update has version {update.version}, it must be newer than {newest}"
    if update.parent != current.weights_hash:
        return (
            f"the update continues model {update.parent[:12]}, but {current.weights_hash[:12]} "
            f"(version {current.version}) is running"
        )
    return None


def apply_update(update: ModelUpdate, current: RunningModel) -> RunningModel:
    """A copy of ``current`` with the update's dynamics, whatever its lineage: an earlier good
    update applies as well, since an update holds all of the dynamics.

    Raises UpdateError when the update is damaged, or made for other frozen parts or another
    contract; ``current`` is untouched in any case.
    """
    tensors, _ = _parse(update.weights, update.weights_sha256)
    _check_foundation(update, current, tensors)
    return current.with_dynamics(tensors, update.version)


def _check_foundation(
    update: ModelUpdate, current: RunningModel, tensors: dict[str, Tensor]
) -> None:
    if update.contract != current.contract:
        raise UpdateError(
            f"the update is for contract {update.contract[:12]}, "
            f"the running model has {current.contract[:12]}"
        )
    if update.frozen_sha256 != current.frozen_hash:
        raise UpdateError(
            f"the update was learned beside frozen parts {update.frozen_sha256[:12]}, "
            f"the running model has {current.frozen_hash[:12]}"
        )
    try:
        check_tensors(tensors, current.model.dynamics_state(), "the update")
    except ArtefactError as error:
        raise UpdateError(str(error)) from error


def _parse(weights: bytes, weights_sha256: str) -> tuple[dict[str, Tensor], dict]:
    if len(weights) > MAX_BYTES:
        raise UpdateError(f"the update has {len(weights)} bytes, at most {MAX_BYTES} are accepted")
    actual = hashlib.sha256(weights).hexdigest()
    if actual != weights_sha256:
        raise UpdateError(
            f"the update's bytes hash to {actual[:12]}, announced was {weights_sha256[:12]}: "
            "it was damaged on the way"
        )
    try:
        tensors, metadata = unpack_tensors(weights, "the update")
        if metadata.get("format") != FORMAT:
            raise UpdateError(f"not a model update: format {metadata.get('format')!r}")
        facts = json.loads(metadata["update"])
    except (ArtefactError, KeyError, ValueError, RecursionError) as error:
        raise UpdateError(f"the update cannot be read: {error}") from error
    return tensors, facts


def _update_of(facts: dict, weights: bytes) -> ModelUpdate:
    try:
        return ModelUpdate(
            version=int(facts["version"]),
            parent=str(facts["parent"]),
            root=str(facts["root"]),
            weights_sha256=hashlib.sha256(weights).hexdigest(),
            frozen_sha256=str(facts["frozen_sha256"]),
            contract=str(facts["contract"]),
            losses=Losses(**{name: float(loss) for name, loss in facts["losses"].items()}),
            episodes=int(facts["episodes"]),
            seconds_of_data=float(facts["seconds_of_data"]),
            weights=weights,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UpdateError(f"the update's metadata is incomplete: {error!r}") from error
