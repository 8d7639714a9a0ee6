"""Model updates that are torn, poisoned, foreign, old, or interrupted."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
from numpy.random import Generator
from torch import Tensor

from simdist.adaptation import Candidate, Losses, RunningModel, UpdateStore, pack_update
from simdist.adaptation.desk import UpdateDesk
from simdist.adaptation.update import FORMAT, MAX_BYTES, ModelUpdate, unpack_update
from simdist.errors import ArtefactError, UpdateError
from simdist.faults.measurement import Measurement, at_most, exactly
from simdist.faults.registry import Family
from simdist.faults.small_model import (
    CONTRACT,
    ROBOT,
    planner_of,
    random_inputs_of,
    small_model,
)
from simdist.planning import MppiPlanner, self_test
from simdist.world_model import WorldModel
from simdist.world_model.artefact import pack_tensors, unpack_tensors

FAMILY = Family("model update")

_REFUSED = "refused with the reason; the old model goes on untouched"
_LOSSES = Losses(1.0, 0.5, 1.0, 1.0)


def _base(version: int = 3) -> RunningModel:
    model = small_model()
    weights = model.weights_hash()
    return RunningModel(model, version, CONTRACT, weights, model.frozen_hash(), weights)


def _candidate(state: dict[str, Tensor]) -> Candidate:
    return Candidate(state, _LOSSES, 1, 1, 60.0, 100, 100)


def _shifted(model: WorldModel, rng: Generator) -> dict[str, Tensor]:
    shift = float(rng.uniform(0.001, 0.01))
    return {name: tensor + shift for name, tensor in model.dynamics_state().items()}


def _next(store: UpdateStore, rng: Generator) -> ModelUpdate:
    """A good update on top of the current model."""
    state = _shifted(store.current.model, rng)
    return pack_update(_candidate(state), store.current, store.newest_version + 1)


def _adopt(store: UpdateStore, update: ModelUpdate) -> None:
    store.adopt(update, store.prepare(update, _tested))


def _tested(model: WorldModel) -> str | None:
    return self_test(model, ROBOT)


def _deliver(store: UpdateStore, weights: bytes, digest: str) -> str:
    """Bytes as they come over the wire, to the store: the reason of the refusal, or empty.

    Anything but a refusal with a reason, or an adoption, is raised.
    """
    try:
        _adopt(store, unpack_update(weights, digest))
    except UpdateError as error:
        return str(error) or "no reason given"
    return ""


def _digest(weights: bytes) -> str:
    return hashlib.sha256(weights).hexdigest()


def _refusals(
    weights: list[tuple[bytes, str]], store: UpdateStore | None = None, word: str = ""
) -> Measurement:
    """How many of the deliveries were adopted, all on top of one store."""
    store = store or UpdateStore(_base())
    before, digest = store.current, store.current.model.weights_hash()
    reasons = [_deliver(store, data, announced) for data, announced in weights]
    taken = sum(not reason for reason in reasons)
    unexplained = next((reason for reason in reasons if word not in reason), None)
    return (
        exactly(taken, 0, f"of {len(weights)} adopted")
        .unless(store.current is not before, "another model is running")
        .unless(before.model.weights_hash() != digest, "the running model was touched")
        .unless(unexplained is not None, f"reason: {unexplained}")
    )


# --- damaged on the way ---------------------------------------------------------------------------


def _torn(announce: bool, rng: Generator) -> Measurement:
    whole = _next(UpdateStore(_base()), rng).weights
    ends = [0, 1, 7, 8, 9, len(whole) - 1, *rng.integers(0, len(whole), 60).tolist()]
    parts = [whole[:end] for end in ends]
    return _refusals([(part, _digest(whole if announce else part)) for part in parts])


def _flipped(announce: bool, rng: Generator) -> Measurement:
    """One bit anywhere, or in the header with the sender's hash right for what it sent."""
    whole = _next(UpdateStore(_base()), rng).weights
    header = 8 + int.from_bytes(whole[:8], "little")
    delivered = []
    for position in rng.integers(0, len(whole) if announce else header, 60).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        delivered.append((bytes(damaged), _digest(whole if announce else bytes(damaged))))
    if announce:
        return _refusals(delivered, word="damaged on the way")
    errors = 0
    for data, digest in delivered:
        try:
            _deliver(UpdateStore(_base()), data, digest)
        except Exception:
            errors += 1
    return exactly(errors, 0, "of 60 raised another error")


FAMILY.add("torn at any byte", _REFUSED, functools.partial(_torn, True))
FAMILY.add("torn at any byte before it was hashed", _REFUSED, functools.partial(_torn, False))
FAMILY.add("one bit flipped on the way", _REFUSED, functools.partial(_flipped, True))
FAMILY.add(
    "one bit of the header flipped before it was hashed",
    "adopted as a whole or refused, never an error",
    functools.partial(_flipped, False),
)


@FAMILY.fault("bytes that are no update", _REFUSED)
def _rubbish(rng: Generator) -> Measurement:
    pickled = b"\x80\x04c" + b"os\nsystem\n(S'true'\ntR."
    deep = b'{"a":' * 50_000
    claims = (2**60).to_bytes(8, "little") + b"{}"
    data = [b"", pickled, rng.bytes(4096), b"PK\x03\x04" + rng.bytes(64), claims]
    data.append(len(deep).to_bytes(8, "little") + deep)
    data.append(bytes(MAX_BYTES + 1))
    return _refusals([(part, _digest(part)) for part in data])


# --- well-formed and wrong ------------------------------------------------------------------------


def _packed(
    rng: Generator,
    tensors: Callable[[dict[str, Tensor], Generator], dict[str, Tensor]] | None = None,
    raw: str | None = None,
    **facts: object,
) -> bytes:
    """A good update with other tensors or facts in it, or with a raw text instead of its facts."""
    whole = _next(UpdateStore(_base()), rng).weights
    state, metadata = unpack_tensors(whole, "the update")
    if tensors is not None:
        state = tensors({name: tensor.clone() for name, tensor in state.items()}, rng)
    text = raw or json.dumps({**json.loads(metadata["update"]), **facts})
    return pack_tensors(state, {"format": FORMAT, "update": text})


def _wrong(make: Callable[[Generator], bytes], word: str, rng: Generator) -> Measurement:
    data = [make(rng) for _ in range(3)]
    return _refusals([(part, _digest(part)) for part in data], word=word)


def _poison(value: float, state: dict[str, Tensor], rng: Generator) -> dict[str, Tensor]:
    tensor = state[str(rng.choice(sorted(state)))].view(-1)
    tensor[int(rng.integers(len(tensor)))] = value
    return state


def _reshaped(state: dict[str, Tensor], rng: Generator) -> dict[str, Tensor]:
    name = str(rng.choice(sorted(state)))
    state[name] = state[name].reshape(-1, 1, 1)
    return state


def _halved(state: dict[str, Tensor], rng: Generator) -> dict[str, Tensor]:
    name = str(rng.choice(sorted(state)))
    state[name] = state[name].half()
    return state


def _without(state: dict[str, Tensor], rng: Generator) -> dict[str, Tensor]:
    del state[str(rng.choice(sorted(state)))]
    return state


def _with_foreign(state: dict[str, Tensor], rng: Generator) -> dict[str, Tensor]:
    return {**state, "encoder.backdoor": torch.zeros(3)}


def _wild(state: dict[str, Tensor], rng: Generator) -> dict[str, Tensor]:
    return {name: torch.full_like(tensor, 3e38) for name, tensor in state.items()}


_P = functools.partial
for _name, _word, _make in [
    ("NaN in a weight", "not finite", _P(_packed, tensors=_P(_poison, float("nan")))),
    ("Inf in a weight", "not finite", _P(_packed, tensors=_P(_poison, float("-inf")))),
    ("weights of 3e38", "self-test", _P(_packed, tensors=_wild)),
    ("a tensor of the wrong shape", "needs", _P(_packed, tensors=_reshaped)),
    ("a tensor of the wrong type", "needs", _P(_packed, tensors=_halved)),
    ("a tensor missing", "missing", _P(_packed, tensors=_without)),
    ("a tensor of the frozen parts", "unknown", _P(_packed, tensors=_with_foreign)),
    ("another parent", "continues model", _P(_packed, parent="0" * 64)),
    ("other frozen parts", "frozen", _P(_packed, frozen_sha256="0" * 64)),
    ("another contract", "contract", _P(_packed, contract="another")),
    ("the version that is running", "newer", _P(_packed, version=3)),
    ("a version before it", "newer", _P(_packed, version=0)),
    ("version -1", "newer", _P(_packed, version=-1)),
    ("an infinite version", "metadata", _P(_packed, version=float("inf"))),
    ("a loss too large for a float", "metadata", _P(_packed, losses={"robot_before": 10**400})),
    ("a loss of another name", "metadata", _P(_packed, losses={"best": 0.0})),
    ("a list instead of facts", "metadata", _P(_packed, raw="[1, 2]")),
    ("facts nested without end", "cannot be read", _P(_packed, raw="[" * 100_000)),
    ("facts that are no JSON", "cannot be read", _P(_packed, raw="{")),
]:
    FAMILY.add(_name, _REFUSED, _P(_wrong, _make, _word))


@FAMILY.fault("an old version delivered again", _REFUSED)
def _replayed(rng: Generator) -> Measurement:
    store = UpdateStore(_base())
    old = []
    for _ in range(4):
        update = _next(store, rng)
        _adopt(store, update)
        old.append((update.weights, update.weights_sha256))
    return _refusals(old, store, word="newer")


@FAMILY.fault("a rolled-back version delivered again", _REFUSED)
def _rolled_back(rng: Generator) -> Measurement:
    store = UpdateStore(_base())
    update = _next(store, rng)
    _adopt(store, update)
    store.rollback()
    return _refusals([(update.weights, update.weights_sha256)] * 3, store, word="newer")


@FAMILY.fault("fields that disagree with the weights", _REFUSED)
def _forged(rng: Generator) -> Measurement:
    store = UpdateStore(_base())
    update = _next(store, rng)
    taken = 0
    changes = [{"version": 99}, {"parent": "0" * 64}, {"episodes": 10**6}, {"contract": "x"}]
    for change in changes:
        try:
            store.prepare(dataclasses.replace(update, **change), _tested)
            taken += 1
        except UpdateError:
            pass
    return exactly(taken, 0, f"of {len(changes)} adopted")


# --- swaps ----------------------------------------------------------------------------------------


def _ones_and_twos() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    state = small_model().dynamics_state()
    ones = {name: torch.ones_like(tensor) for name, tensor in state.items()}
    return ones, {name: 2 * tensor for name, tensor in ones.items()}


@FAMILY.fault(
    "1,000 swaps between weights of all ones and all twos",
    "every plan is wholly of the version that is announced",
)
def _swaps(rng: Generator) -> Measurement:
    """Every fiftieth pair of models is a pair of updates that went through every check."""
    inputs = random_inputs_of(int(rng.integers(2**31)))
    store, planner = UpdateStore(_base()), planner_of(samples=2)
    pair: list[RunningModel] = []
    marks: list[float] = []
    impure = 0
    for swap in range(1000):
        if swap % 50 == 0:
            pair = [_adopted(store, state) for state in _ones_and_twos()]
            fresh = [_mark(planner_of(model.model, samples=2), inputs) for model in pair]
            impure += bool(marks) and fresh != marks
            marks = fresh
        if rng.random() < 0.1 and swap:
            impure += _mark(planner, inputs) != marks[1 - swap % 2]
        planner.swap(pair[swap % 2].model)
        impure += _mark(planner, inputs) != marks[swap % 2]
    return exactly(impure, 0, "plans of mixed weights").unless(
        marks[0] == marks[1], "the two cannot be told apart"
    )


def _adopted(store: UpdateStore, state: dict[str, Tensor]) -> RunningModel:
    update = pack_update(_candidate(state), store.current, store.newest_version + 1)
    store.adopt(update, store.prepare(update, lambda model: None))
    return store.current


def _mark(planner: MppiPlanner, inputs: tuple[Tensor, ...]) -> float:
    """What the policy's actions are worth: a fingerprint of the weights, free of noise."""
    return float(planner.plan(*inputs).prior_return[0])


@FAMILY.fault(
    "swaps while plans are being made, checked on another thread",
    "every plan is wholly of the version that is announced",
)
def _threaded(rng: Generator) -> Measurement:
    inputs = random_inputs_of(int(rng.integers(2**31)))
    states = _ones_and_twos()
    planner = planner_of(samples=2)
    marks = {3: _mark(planner, inputs)}
    desk = UpdateDesk(UpdateStore(_base()), lambda model: None)
    impure = 0
    try:
        for swap in range(8):
            version = desk.current.version + 1
            update = pack_update(_candidate(states[swap % 2]), desk.current, version)
            desk.submit(version, update.weights, update.weights_sha256)
            while True:
                impure += _mark(planner, inputs) != marks[desk.current.version]
                verdict = desk.collect()
                if verdict is not None:
                    break
            if verdict.model is None:
                raise RuntimeError(verdict.reason)
            planner.swap(verdict.model.model)
            marks[version] = _mark(
                planner_of(copy.deepcopy(verdict.model.model), samples=2), inputs
            )
    finally:
        desk.close()
    return exactly(impure, 0, "plans of mixed weights")


@FAMILY.fault("a flood of updates", "a few wait to be checked, the rest is refused at once")
def _flood(rng: Generator) -> Measurement:
    base, released = _base(), threading.Event()
    store = UpdateStore(base)
    update = _next(store, rng)

    def slow(model: WorldModel) -> str | None:
        released.wait()
        return "a self-test that takes its time"

    desk = UpdateDesk(store, slow)
    reasons = []
    try:
        for _ in range(100):
            desk.submit(update.version, update.weights, update.weights_sha256)
        while (verdict := desk.collect()) is not None:
            reasons.append(verdict.reason)
    finally:
        released.set()
        desk.close()
    unexplained = not all("waiting" in reason for reason in reasons)
    # One is being checked.
    return at_most(100 - len(reasons), 9, "of 100 kept").unless(unexplained, "another reason")


@FAMILY.fault("rollback", "the version before, bit by bit, down to the first")
def _rollback(rng: Generator) -> Measurement:
    store = UpdateStore(_base())
    hashes = [store.current.model.weights_hash()]
    for _ in range(3):
        _adopt(store, _next(store, rng))
        hashes.append(store.current.model.weights_hash())
    wrong = 0
    for expected in hashes[-2::-1]:
        store.rollback()
        wrong += store.current.model.weights_hash() != expected
    return exactly(wrong, 0, "of 3 differ").unless(store.rollback() is not None, "one too many")


# --- restarts -------------------------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that the store rightly gives."""
    logger = logging.getLogger("simdist.adaptation.store")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


def _restarted(directory: Path) -> str:
    """Hash of the weights that a restarted planner runs, as they really are."""
    with _quiet():
        return UpdateStore(_base(), directory).current.model.weights_hash()


@FAMILY.fault("the planner restarts", "the last good version is running again, bit by bit")
def _restart(rng: Generator) -> Measurement:
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        store = UpdateStore(_base(), Path(name))
        for step in range(4):
            if step == 2:
                store.rollback()
            else:
                _adopt(store, _next(store, rng))
            wrong += _restarted(Path(name)) != store.current.model.weights_hash()
    return exactly(wrong, 0, "of 4 restarts with other weights")


class _Killed(BaseException):
    """The process ends here; nothing of it may be handled."""


@FAMILY.fault(
    "the planner is killed at any step of writing an update down",
    "after the restart the last version or the one before, never a part",
)
def _killed(rng: Generator) -> Measurement:
    """Killed before the n-th call that changes the directory, for every n."""
    wrong = kills = 0
    for survived in range(20):
        with tempfile.TemporaryDirectory() as name:
            store = UpdateStore(_base(), Path(name))
            _adopt(store, _next(store, rng))
            before = store.current.model.weights_hash()
            update = _next(store, rng)
            prepared = store.prepare(update, _tested)
            left = survived

            def dying(real: Callable, *arguments: object, **named: object) -> object:
                nonlocal left
                if left == 0:
                    raise _Killed
                left -= 1
                return real(*arguments, **named)

            with _dying_calls(dying):
                try:
                    store.adopt(update, prepared)
                except _Killed:
                    kills += 1
            wrong += _restarted(Path(name)) not in (before, prepared.weights_hash)
            if left > 0:
                break
    return exactly(wrong, 0, f"of {kills} kills").unless(kills < 4, "too few steps were seen")


@contextmanager
def _dying_calls(dying: Callable) -> Iterator[None]:
    with (
        mock.patch("tempfile.mkstemp", functools.partial(dying, tempfile.mkstemp)),
        mock.patch("os.fsync", functools.partial(dying, os.fsync)),
        mock.patch("os.replace", functools.partial(dying, os.replace)),
        mock.patch("pathlib.Path.unlink", lambda path, **named: dying(os.unlink, path)),
    ):
        yield


@FAMILY.fault("the saved update is torn at any byte", "ignored: the first version, never a part")
def _torn_file(rng: Generator) -> Measurement:
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        store = UpdateStore(_base(), Path(name))
        _adopt(store, _next(store, rng))
        for path in sorted(Path(name).iterdir()):
            whole = path.read_bytes()
            for end in [0, len(whole) - 1, *rng.integers(0, len(whole), 15).tolist()]:
                path.write_bytes(whole[:end])
                wrong += _restarted(Path(name)) != _base().weights_hash
            path.write_bytes(whole)
        wrong += _restarted(Path(name)) != store.current.weights_hash
    return exactly(wrong, 0, "restarts with other weights")


@FAMILY.fault("the record of the saved update is nonsense", "ignored: the first version")
def _nonsense_record(rng: Generator) -> Measurement:
    wrong, root = 0, _base().root
    records = [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        json.dumps({"root": root, "newest_version": float("inf"), "file": None}),
        json.dumps({"root": root, "newest_version": 4, "file": "../../secret", "sha256": "0"}),
        json.dumps({"root": root, "newest_version": 4, "file": 7, "sha256": None}),
        json.dumps({"root": root, "newest_version": "many", "file": None}),
        json.dumps({"root": "0" * 64, "newest_version": 4, "file": None}),
    ]
    with tempfile.TemporaryDirectory() as name:
        for record in [*(text.encode() for text in records), rng.bytes(200)]:
            (Path(name) / "current.json").write_bytes(record)
            wrong += _restarted(Path(name)) != _base().weights_hash
    return exactly(wrong, 0, "restarts with other weights")


@FAMILY.fault("the disk is full when an update is adopted", _REFUSED)
def _disk_full(rng: Generator) -> Measurement:
    with tempfile.TemporaryDirectory() as name:
        store = UpdateStore(_base(), Path(name))
        _adopt(store, _next(store, rng))
        before, update = store.current, _next(store, rng)
        prepared = store.prepare(update, _tested)
        full = OSError(28, "No space left on device")
        adopted, reason = 1, ""
        with mock.patch("os.fsync", side_effect=full):
            try:
                store.adopt(update, prepared)
            except ArtefactError as error:
                adopted, reason = 0, str(error)
        restarted = _restarted(Path(name))
    return (
        exactly(adopted, 0, "adopted")
        .unless("No space" not in reason, f"reason: {reason}")
        .unless(store.current is not before, "another model is running")
        .unless(restarted != before.weights_hash, "lost after a restart")
    )
