"""Bad launch arguments are refused by name, with the value and what is allowed."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from simdist import launch_arguments, paths, robots
from simdist.errors import ConfigError
from simdist.launch_arguments import ARGUMENTS, check
from simdist.observation.spec import legged_observation
from simdist.world_model import Contract, WorldModel, WorldModelConfig, save_artefact
from simdist.world_model.simulation_replay import FILE_NAME


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    config = WorldModelConfig()
    robot = robots.get("go1")
    contract = Contract.of(robot, legged_observation(robot.joint_count), config)
    path = tmp_path_factory.mktemp("model") / "random.safetensors"
    return save_artefact(path, WorldModel(config), contract, 0, None, {})


@pytest.fixture
def arguments(model) -> dict[str, str]:
    values = {argument.name: argument.default for argument in ARGUMENTS}
    return {**values, "model": str(model), "adapt": "false"}


def test_defaults_are_good(arguments):
    settings = check(arguments)
    assert settings.robot == "go1"
    assert settings.duration == 0.0
    assert settings.command_vx == 0.5
    assert settings.headless
    assert not settings.lockstep
    assert 50.0 < settings.course_length < 62.0


def test_every_argument_has_a_setting_and_a_description():
    fields = {field.name for field in dataclasses.fields(launch_arguments.LaunchSettings)}
    assert {argument.name for argument in ARGUMENTS} == fields - {"course_length"}
    assert all(argument.description for argument in ARGUMENTS)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("robot", "go9", "sim"),
        ("world", "moon", "slope"),
        ("world", "/nowhere/w.yaml", "no such file"),
        ("headless", "yes", "true, false"),
        ("lockstep", "1", "true, false"),
        ("adapt", "", "true, false"),
        ("record", "True", "true, false"),
        ("duration", "-1", "0 to 86400"),
        ("duration", "nan", "0 to 86400"),
        ("duration", "forever", "0 to 86400"),
        ("command_vx", "9", "-0.5 to 1.2"),
        ("command_vx", "inf", "-0.5 to 1.2"),
        ("command_vx", "0,5", "-0.5 to 1.2"),
        ("seed", "-3", "0 to 2147483647"),
        ("seed", "1.5", "0 to 2147483647"),
        ("seed", "99999999999", "0 to 2147483647"),
        ("namespace", "1robot", "letters"),
        ("namespace", "a b", "letters"),
        ("namespace", "robot/", "letters"),
        ("model", "/nowhere/m.safetensors", "not found"),
        ("summary", "/nowhere/s.json", "cannot be written"),
        ("summary", "/", "is a directory"),
    ],
)
def test_a_bad_value_is_refused_by_name(arguments, name, value, allowed):
    with pytest.raises(ConfigError) as error:
        check({**arguments, name: value})
    text = str(error.value)
    assert f"{name}:={value}" in text
    assert allowed in text
    assert "\n" not in text


def test_a_truncated_model_is_refused(arguments, model, tmp_path):
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"model:=.*torn"):
        check({**arguments, "model": str(torn)})


def test_a_model_of_another_robot_is_refused(arguments, tmp_path):
    config, robot = WorldModelConfig(), robots.get("go1")
    other = dataclasses.replace(robot, name="go9")
    contract = Contract.of(other, legged_observation(robot.joint_count), config)
    path = save_artefact(tmp_path / "go9.safetensors", WorldModel(config), contract, 0, None, {})
    with pytest.raises(ConfigError, match="go9"):
        check({**arguments, "model": str(path)})


def test_learning_with_damaged_simulation_data_is_refused_before_the_start(arguments, model):
    beside = model.parent / FILE_NAME
    beside.write_bytes(b"not simulation data")
    try:
        with pytest.raises(ConfigError, match=r"adapt:=true.*adapt:=false"):
            check({**arguments, "adapt": "true"})
    finally:
        beside.unlink()


def test_a_model_without_simulation_data_beside_it_learns_with_what_is_shipped(arguments, tmp_path):
    relearned = tmp_path / "relearned.safetensors"
    shutil.copy(paths.model_file("go1"), relearned)
    assert check({**arguments, "adapt": "true", "model": str(relearned)}).adapt


def test_a_bag_directory_is_made_or_refused(arguments, tmp_path):
    settings = check({**arguments, "record": "true", "bag_dir": str(tmp_path / "new" / "bags")})
    assert Path(settings.bag_dir).is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="bag_dir"):
        check({**arguments, "record": "true", "bag_dir": str(tmp_path / "file")})


def test_a_broken_world_file_is_refused(arguments, tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text("course: [{length: -1}]")
    with pytest.raises(ConfigError, match="length must be positive"):
        check({**arguments, "world": str(path)})
