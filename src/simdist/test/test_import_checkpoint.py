"""World models of the SimDist authors, as artefacts of ours."""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor

from simdist import cli, robots
from simdist.errors import ArtefactError, ContractError
from simdist.evaluation.drivers import driver_factory
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.observation.spec import legged_observation
from simdist.planning import PlannerConfig
from simdist.planning.backends.native import KernelUnavailable, NativeBackend
from simdist.planning.backends.native.check import difference
from simdist.planning.backends.torch_backend import TorchBackend
from simdist.simulation.world import load_world
from simdist.world_model import Artefact, WorldModel, WorldModelConfig, load_artefact
from simdist.world_model.flax_checkpoint import (
    image_order,
    network_config,
    network_state,
    observation_layout,
)
from simdist.world_model.import_checkpoint import (
    Checkpoint,
    convert,
    flatten,
    read_checkpoint,
)

GO2 = robots.get("go2")
TINY = WorldModelConfig(
    scan_shape=(21, 15),
    latent_dim=8,
    history=3,
    horizon=4,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=4,
    policy_layers=2,
    policy_heads=2,
    cnn_channels=(2, 3),
    scan_hidden=(6, 5),
)


def attention(layers: int, heads: int, mask: str | None, factor: int) -> dict[str, Any]:
    return {"layers": layers, "heads": heads, "mask": mask, "mlp_hidden_size_factor": factor}


def configuration(sizes: WorldModelConfig = TINY) -> dict[str, Any]:
    """The authors' way of saying ``sizes``."""
    decoder = {"layers": 0, "mlp_hidden_size_factor": 2}
    head = {
        "attention": attention(sizes.head_layers, sizes.head_heads, None, sizes.ff_factor),
        "decoder": decoder,
    }
    dynamics = attention(sizes.dynamics_layers, sizes.dynamics_heads, "causal", sizes.ff_factor)
    policy = attention(sizes.policy_layers, sizes.policy_heads, "causal", sizes.ff_factor)
    fields = legged_observation(12).fields
    return {
        "model": {
            "type": "quadruped_world_model",
            "dataset": {"history_length": sizes.history, "prediction_length": sizes.horizon},
            "latent_dim": sizes.latent_dim,
            "dynamics": {"attention": dynamics},
            "policy": {"attention": policy, "decoder": decoder},
            "reward": copy.deepcopy(head),
            "value": copy.deepcopy(head),
            "embedding": {
                name: 0
                for name in (
                    *("future_acts_layers", "future_cmds_layers"),
                    *("reward_layers", "value_layers"),
                )
            },
            "encoder": {
                "action_layers": 0,
                "latent_layers": 2,
                "proprio_obs_layers": 2,
                "mlp_hidden_size_factor": sizes.encoder_ff_factor,
                "extero_obs": {
                    "height_cnn": {
                        "features": list(sizes.cnn_channels),
                        "kernel_size": 3,
                        "strides": [2] * len(sizes.cnn_channels),
                        "projection_hidden_dims": list(sizes.scan_hidden),
                    }
                },
            },
        },
        "system": {
            "actions": [{"name": name} for name in GO2.joint_names],
            "cmd": {"dim": 3},
            "extero_obs": {"types": [{"name": "height_scan", "dim": list(sizes.scan_shape)}]},
            "proprio_obs": {
                "types": [
                    {
                        "name": "cos_sin_phase" if field.name == "gait_phase" else field.name,
                        "dim": field.size,
                        "noise": field.noise_std,
                    }
                    for field in fields
                ]
            },
        },
    }


def parameters(sizes: WorldModelConfig = TINY, seed: int = 0) -> dict[str, Tensor]:
    """Random flax parameters under the authors' names."""
    draw, made = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    d = sizes.latent_dim

    def add(name: str, *shape: int) -> None:
        made[name] = 0.3 * torch.randn(*shape, generator=draw)

    def dense(name: str, inputs: int, outputs: int) -> None:
        add(f"{name}.kernel", inputs, outputs)
        add(f"{name}.bias", outputs)

    def mlp(name: str, *widths: int) -> None:
        for index, (inputs, outputs) in enumerate(itertools.pairwise(widths[:-1])):
            dense(f"{name}.layers.{index}", inputs, outputs)
        dense(f"{name}.output_layer", *widths[-2:])

    def layer(name: str, heads: int, *kinds: str) -> None:
        for kind in kinds:
            for part in ("query", "key", "value"):
                add(f"{name}.{kind}.{part}.kernel", d, heads, d // heads)
                add(f"{name}.{kind}.{part}.bias", heads, d // heads)
            add(f"{name}.{kind}.out.kernel", heads, d // heads, d)
            add(f"{name}.{kind}.out.bias", d)
        for index in range(1, len(kinds) + 2):
            add(f"{name}.layernorm_{index}.scale", d)
            add(f"{name}.layernorm_{index}.bias", d)
        mlp(f"{name}.dense_proj", d, d * sizes.ff_factor, d)

    for name, size in (
        *(("proprio_obs", sizes.proprio_dim), ("extero_obs", sizes.scan_dim)),
        *(("actions", sizes.action_dim), ("commands", sizes.command_dim)),
        *(("rewards", 1), ("values", 1)),
    ):
        add(f"scaler.scaler_params.{name}.mean", size)
        made[f"scaler.scaler_params.{name}.std"] = 0.5 + torch.rand(size, generator=draw)
    hidden = d * sizes.encoder_ff_factor
    mlp("encoder.proprio_obs_proj", sizes.proprio_dim, hidden, hidden, d)
    mlp("encoder.latent_mlp", 2 * d, hidden, hidden, d)
    dense("encoder.act_proj.output_layer", sizes.action_dim, d)
    add("encoder.temporal_enc", sizes.history + 1, d)
    add("encoder.type_enc", 3, d)
    channels, (rows, columns) = (1, *sizes.cnn_channels), sizes.scan_shape
    for index, (inputs, outputs) in enumerate(itertools.pairwise(channels)):
        last = index == len(sizes.cnn_channels) - 1
        name = "encoder.hm_enc.hm_cnn.cnn." + ("output_layer" if last else f"layers.{index}")
        add(f"{name}.kernel", 3, 3, inputs, outputs)
        add(f"{name}.bias", outputs)
        rows, columns = math.ceil(rows / 2), math.ceil(columns / 2)
    add("encoder.hm_enc.h_l_conv_enc", rows, channels[-1])
    add("encoder.hm_enc.h_w_conv_enc", columns, channels[-1])
    mlp("encoder.hm_enc.hm_proj", rows * columns * channels[-1], *sizes.scan_hidden, d)
    for name, inputs in (
        *(("fut_acts_embed", sizes.action_dim), ("fut_cmds_embed", sizes.command_dim)),
        ("reward_emb", d + sizes.action_dim + sizes.command_dim),
        ("value_emb", d + sizes.command_dim),
    ):
        dense(f"{name}.enc.output_layer", inputs, d)
        add(f"{name}.pos_emb", sizes.horizon, d)
    for name, count, heads in (
        ("dynamics", sizes.dynamics_layers, sizes.dynamics_heads),
        ("policy", sizes.policy_layers, sizes.policy_heads),
    ):
        for index in range(count):
            layer(f"{name}.layers.{index}", heads, "attention_1", "attention_2")
    for name in ("reward", "value"):
        for index in range(sizes.head_layers):
            layer(f"{name}.layers.{index}", sizes.head_heads, "attention")
        dense(f"{name}_dec.output_layer", d, 1)
    dense("policy_dec.output_layer", d, sizes.action_dim)
    return made


def write_source(directory: Path, config: dict[str, Any], flax: dict[str, Tensor]) -> Path:
    source = directory / "theirs.safetensors"
    save_file(flax, source)
    source.with_suffix(".json").write_text(json.dumps({"source": "made up", "config": config}))
    return source


# --- what a checkpoint becomes ------------------------------------------------------------------


def test_an_imported_checkpoint_is_an_artefact_for_its_robot(tmp_path: Path) -> None:
    source, out = write_source(tmp_path, configuration(), parameters()), tmp_path / "x.safetensors"
    command = ["import-checkpoint", str(source), "--robot", "go2", "--out", str(out)]
    assert cli.main(command) == 0
    artefact = load_artefact(out, GO2)
    assert artefact.model.config == TINY
    assert artefact.training == {"imported_from": "made up"}
    layout = artefact.contract.observation
    ours = legged_observation(12, TINY.history)
    assert layout.fields == ours.fields
    assert (layout.history, layout.gait_period) == (TINY.history, ours.gait_period)
    with pytest.raises(ContractError, match="robot"):
        load_artefact(out, robots.get("go1"))


def test_every_parameter_counts() -> None:
    flax = parameters()
    before = network_state(flax, TINY)
    for name in flax:
        changed = network_state({**flax, name: flax[name] + 1.0}, TINY)
        assert any(not torch.equal(changed[key], before[key]) for key in before), name
    assert set(before) == set(WorldModel(TINY).state_dict())


def test_a_scan_of_theirs_in_our_order_lies_on_the_grid_of_the_contract() -> None:
    grid = observation_layout(configuration(), TINY).scan
    x, y = np.linspace(-0.5, 1.5, 21), np.linspace(-0.7, 0.7, 15)
    theirs = torch.from_numpy((x[None, :] + 100.0 * y[:, None]).ravel())  # y slow, x fast
    points = grid.points()
    expected = torch.from_numpy(points[:, 0] + 100.0 * points[:, 1])
    torch.testing.assert_close(image_order(theirs, (21, 15)), expected)


def test_the_encodings_of_the_present_are_part_of_the_rewards() -> None:
    flax = parameters()
    model = WorldModel(TINY)
    model.load_state_dict(network_state(flax, TINY))
    unfolded = copy.deepcopy(model)
    with torch.no_grad():
        unfolded.reward.embedding.position.copy_(flax["reward_emb.pos_emb"])
    latent, latents = torch.randn(2, 8), torch.randn(6, 4, 8)
    actions, commands = torch.randn(6, 4, 12), torch.randn(1, 4, 3)
    encodings = flax["encoder.temporal_enc"][-1] + flax["encoder.type_enc"][2]
    with torch.inference_mode():
        rewards = model.reward(latent, latents, actions, commands)
        expected = unfolded.reward(latent + encodings, latents, actions, commands)
        torch.testing.assert_close(rewards, expected)
        plain = unfolded.reward(latent, latents, actions, commands)
        assert (rewards - plain).abs().max() > 1e-3


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model.dynamics.attention.mask", None, "dynamics.attention.mask is None"),
        ("model.reward.attention.mask", "causal", "mask of reward and value is 'causal'"),
        ("model.value.attention.heads", 2, "value.attention is"),
        ("model.policy.attention.mlp_hidden_size_factor", 3, "mlp_hidden_size_factor"),
        ("model.policy.decoder.layers", 1, "policy.decoder.layers is 1"),
        ("model.encoder.extero_obs.height_cnn.strides", [1, 2], "strides is [1, 2]"),
        ("model.embedding.reward_layers", 1, "embedding.reward_layers is 1"),
        ("model.type", "world_model", "model.type is 'world_model'"),
    ],
)
def test_a_network_without_counterpart_is_refused_by_name(
    path: str, value: object, words: str
) -> None:
    config = configuration()
    *parents, last = path.split(".")
    node = config
    for name in parents:
        node = node[name]
    node[last] = value
    with pytest.raises(ContractError) as refused:
        network_config(config)
    assert words in str(refused.value)


def test_other_joints_and_another_scan_are_refused() -> None:
    config, flax = configuration(), parameters()
    config["system"]["actions"].reverse()
    with pytest.raises(ContractError, match="moves the joints RL_calf_joint"):
        convert(Checkpoint(flax, config, "made up"), GO2)
    config = configuration()
    config["system"]["extero_obs"]["types"][0]["dim"] = [11, 15]
    with pytest.raises(ContractError, match=r"height scan of \(11, 15\) points"):
        convert(Checkpoint(flax, config, "made up"), GO2)


def test_missing_misshapen_and_damaged_parameters_are_refused_by_name() -> None:
    flax, config, name = parameters(), configuration(), "value_dec.output_layer.kernel"
    lacking = {key: value for key, value in flax.items() if key != name}
    with pytest.raises(ArtefactError, match=f"{name}' is missing"):
        convert(Checkpoint(lacking, config, "made up"), GO2)
    for bad, words in (
        (torch.ones(9, 1), "made up: value.output.weight is .*its network needs"),
        (torch.full((8, 1), torch.nan), f"{name} holds values that are not finite"),
    ):
        with pytest.raises(ArtefactError, match=words):
            convert(Checkpoint({**flax, name: bad}, config, "made up"), GO2)


@pytest.mark.parametrize("text", ["{", "[]", '{"config": {}}', '{"config": null}'])
def test_a_damaged_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    source = write_source(tmp_path, configuration(), parameters())
    source.with_suffix(".json").write_text(text)
    out = str(tmp_path / "x.safetensors")
    assert cli.main(["import-checkpoint", str(source), "--robot", "go2", "--out", out]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path(out).exists()


# --- Orbax --------------------------------------------------------------------------------------


def nested(flax: dict[str, Tensor]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in flax.items():
        *parents, last = path.split(".")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = value.numpy()
    return tree


def test_a_tree_is_flattened_without_random_generators() -> None:
    tree = nested(parameters())
    tree["encoder"]["rngs"] = {"default": {"count": np.zeros((), np.uint32)}}
    flat = flatten(tree)
    expected = parameters()
    assert flat.keys() == expected.keys()
    assert all(torch.equal(flat[name], expected[name]) for name in flat)


def test_an_orbax_directory_without_orbax_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model_config.yaml").write_text(yaml.safe_dump(configuration()))
    (tmp_path / "7").mkdir()
    for name in ("orbax", "orbax.checkpoint"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArtefactError, match="pip install orbax-checkpoint"):
        read_checkpoint(tmp_path)
    with pytest.raises(ArtefactError, match=r"does not hold step 8; steps: \[7\]"):
        read_checkpoint(tmp_path, 8)


def test_an_orbax_directory_gives_the_parameters_that_were_saved(tmp_path: Path) -> None:
    orbax = pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
    flax = parameters()
    (tmp_path / "model_config.yaml").write_text(yaml.safe_dump(configuration()))
    for step, factor in ((3, 0.0), (12, 1.0)):
        tree = nested({name: factor * value for name, value in flax.items()})
        writer = orbax.StandardCheckpointer()
        writer.save(tmp_path / str(step) / "default", tree)
        writer.wait_until_finished()
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.origin.endswith("step 12")
    assert checkpoint.parameters.keys() == flax.keys()
    assert all(torch.equal(checkpoint.parameters[name], flax[name]) for name in flax)
    assert not read_checkpoint(tmp_path, 3).parameters["encoder.type_enc"].any()


# --- the authors' Go2 network -------------------------------------------------------------------

REFERENCE = next(
    (
        parent / "shared/reference"
        for parent in Path(__file__).resolve().parents
        if (parent / "shared/reference/go2_world_model.safetensors").exists()
    ),
    None,
)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    if REFERENCE is None:
        pytest.skip("the authors' Go2 weights are not at hand")
    out = tmp_path_factory.mktemp("imported") / "go2.safetensors"
    source = str(REFERENCE / "go2_world_model.safetensors")
    assert cli.main(["import-checkpoint", source, "--robot", "go2", "--out", str(out)]) == 0
    return load_artefact(out, GO2)


def test_the_authors_go2_network_gives_their_outputs(imported: Artefact) -> None:
    assert REFERENCE is not None
    model = imported.model
    recorded = np.load(REFERENCE / "go2_world_model_io.npz")
    data = {name: torch.from_numpy(recorded[name]) for name in recorded.files}
    actions, commands = data["in_fut_acts"], data["in_fut_cmds"]
    scan = image_order(data["in_extero_obs"], model.config.scan_shape)
    with torch.inference_mode():
        context, latent = model.encode(data["in_proprio_obs_hist"], scan, data["in_acts_hist"])
        latents = model.dynamics(context, actions)
        results = {
            "out_encode_latent": latent,
            "out_latents": latents,
            "out_rewards": model.reward(latent, latents, actions, commands[:, :-1]),
            "out_values": model.value(latents, commands[:, 1:]),
            "out_actions": model.policy(context, commands[:, :-1]),
        }
    for name, result in results.items():
        assert (result - data[name]).abs().max() <= 5e-6, name
    try:
        native = NativeBackend(model, 0.99, 1)
    except KernelUnavailable as reason:
        pytest.skip(f"outputs agree; no kernel to compare with: {reason}")
    assert difference(native, TorchBackend(model, 0.99), model) is None


@pytest.mark.parametrize("method", ["prior", "planner"])
def test_the_authors_go2_network_walks_in_mujoco(imported: Artefact, method: str) -> None:
    config = TrialConfig(speed=0.6, seed=0, seconds=3.0, plan_every=2)
    trial = Trial(GO2, load_world("flat"), imported.contract.observation, config)
    driver = driver_factory(method, imported, GO2, PlannerConfig(samples=128))(0)
    result = trial.run(driver)
    assert result.reason == ""
    assert result.progress > 1.0
