"""World models on disk: one safetensors file whose metadata is the full contract.

The loader trusts nothing: size, header, contract, names, shapes, types, finiteness and hashes are
all checked before a model is handed out. Nothing in the file is ever executed.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor

from simdist.errors import ArtefactError, ContractError
from simdist.robots import RobotSpec
from simdist.world_model.contract import Contract
from simdist.world_model.network import WorldModel, hash_tensors

FORMAT = "simdist-world-model-1"
MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Artefact:
    """A loaded model with everything the file says about it.

    ``version`` counts accepted updates from 0 (pretrained); ``parent`` is the ``weights_hash`` of
    the model this one was finetuned from; ``training`` tells how it was made.
    """

    model: WorldModel
    contract: Contract
    version: int
    parent: str | None
    frozen_hash: str
    weights_hash: str
    training: dict[str, Any]
    path: Path


def save_artefact(
    path: Path,
    model: WorldModel,
    contract: Contract,
    version: int,
    parent: str | None,
    training: dict[str, Any],
) -> Path:
    """Write a model atomically: ``path`` holds the old file or the whole new one, never a part.

    Raises ArtefactError when a weight is not finite or the file cannot be written, and
    ContractError when the model is not the one the contract describes.
    """
    if model.config != contract.network:
        raise ContractError(
            f"the model has sizes {model.config}, the contract describes {contract.network}"
        )
    tensors = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    check_finite(tensors, str(path))
    metadata = {
        "format": FORMAT,
        "contract": json.dumps(contract.to_dict()),
        "contract_hash": contract.hash(),
        "version": str(version),
        "parent": parent or "",
        "frozen_hash": model.frozen_hash(),
        "weights_hash": model.weights_hash(),
        "training": json.dumps(training),
    }
    write_atomically(path, pack_tensors(tensors, metadata))
    return path


def load_artefact(path: Path, robot: RobotSpec | None = None) -> Artefact:
    """Read and check a model, for ``robot`` if one is given.

    Raises ArtefactError when the file is missing, too large, damaged or inconsistent, and
    ContractError when it is not for this robot or this version of the software.
    """
    path = Path(path)
    tensors, metadata = unpack_tensors(read_limited(path), str(path))
    if metadata.get("format") != FORMAT:
        raise ArtefactError(
            f"{path} is not a world model of this project: format "
            f"{metadata.get('format')!r}, expected {FORMAT!r}"
        )
    contract = _contract(metadata, path)
    if robot is not None:
        try:
            contract.check_robot(robot)
        except ContractError as error:
            raise ContractError(f"{path}: {error}") from error
    # On the meta device the network has shapes but no storage, so that a header that claims
    # absurd sizes costs nothing before it is refused.
    with torch.device("meta"):
        model = WorldModel(contract.network)
    check_tensors(tensors, model.state_dict(), str(path))
    weights_hash = hash_tensors(tensors)
    _check_hash("weights", weights_hash, metadata.get("weights_hash"), path)
    model.load_state_dict(tensors, assign=True)
    model.eval()
    frozen_hash = model.frozen_hash()
    _check_hash("frozen weights", frozen_hash, metadata.get("frozen_hash"), path)
    if any((tensor <= 0).any() for name, tensor in tensors.items() if name.endswith("_std")):
        raise ArtefactError(f"{path}: a scaler's standard deviation is not positive")
    try:
        version = int(metadata["version"])
        training = json.loads(metadata["training"])
        if version < 0 or not isinstance(training, dict):
            raise ValueError("version is negative or training is not a table")
    except (KeyError, ValueError, RecursionError) as error:
        raise ArtefactError(f"{path}: damaged metadata: {error}") from error
    return Artefact(
        model=model,
        contract=contract,
        version=version,
        parent=metadata.get("parent") or None,
        frozen_hash=frozen_hash,
        weights_hash=weights_hash,
        training=training,
        path=path,
    )


def read_limited(path: Path) -> bytes:
    """The whole file; raises ArtefactError when it is missing, unreadable or above MAX_BYTES."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise ArtefactError(f"{path} has {size} bytes, at most {MAX_BYTES} are accepted")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ArtefactError(f"cannot read {path}: {error.strerror}") from error


def pack_tensors(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The bytes of a safetensors file."""
    # Cloned because the format refuses tensors that are views of one storage.
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return serialise_tensors(copies, metadata)


def unpack_tensors(data: bytes, source: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of safetensors bytes; ``source`` names them in the ArtefactError."""
    if len(data) > MAX_BYTES:
        raise ArtefactError(f"{source} has {len(data)} bytes, at most {MAX_BYTES} are accepted")
    try:
        tensors = parse_tensors(data)
        header_size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + header_size]).get("__metadata__", {})
    except (SafetensorError, KeyError, ValueError, RuntimeError, RecursionError) as error:
        raise ArtefactError(
            f"{source} is damaged or not a safetensors file: {error}; restore it from its source"
        ) from error
    return tensors, metadata


def check_tensors(tensors: dict[str, Tensor], expected: dict[str, Tensor], source: str) -> None:
    """Raise ArtefactError unless names, types and shapes are as expected and values finite."""
    missing, extra = set(expected) - set(tensors), set(tensors) - set(expected)
    if missing or extra:
        raise ArtefactError(
            f"{source} does not hold the tensors of its network: missing {sorted(missing)[:3]}, "
            f"unknown {sorted(extra)[:3]}"
        )
    for name, tensor in tensors.items():
        wanted = expected[name]
        if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
            raise ArtefactError(
                f"{source}: {name} is {tensor.dtype} {tuple(tensor.shape)}, its network needs "
                f"{wanted.dtype} {tuple(wanted.shape)}"
            )
    check_finite(tensors, source)


def check_finite(tensors: dict[str, Tensor], source: str) -> None:
    """Raise ArtefactError when any value is NaN or infinite."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ArtefactError(f"{source}: {name} holds values that are not finite")


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step; raises ArtefactError when that fails."""
    path = Path(path)
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise ArtefactError(f"cannot write {path}: {error.strerror}") from error


def _contract(metadata: dict[str, str], path: Path) -> Contract:
    try:
        contract = Contract.from_dict(json.loads(metadata["contract"]))
    except (KeyError, ValueError, RecursionError) as error:
        raise ArtefactError(f"{path}: the contract is missing or damaged: {error}") from error
    except ContractError as error:
        raise ContractError(f"{path}: {error}") from error
    _check_hash("contract", contract.hash(), metadata.get("contract_hash"), path)
    return contract


def _check_hash(what: str, actual: str, claimed: str | None, path: Path) -> None:
    if actual != claimed:
        raise ArtefactError(
            f"{path}: the {what} hash is {actual[:12]}, the file claims {str(claimed)[:12]}; "
            "the file was altered, restore it from its source"
        )
