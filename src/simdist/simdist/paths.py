"""Where the files shipped with the package lie.

``launch/``, ``config/`` and ``models/`` stand at the top of the repository and are installed to
``share/simdist``. An installed package finds them through the ament index, a source tree without
installation by walking up from this file.
"""

from __future__ import annotations

import functools
from pathlib import Path

from simdist.errors import ArtefactError, ConfigError

_MODEL_SUFFIX = ".safetensors"


def _installed_share() -> Path | None:
    try:
        from ament_index_python.packages import get_package_share_directory
    except ImportError:
        return None
    try:
        # LookupError: not installed; OSError: AMENT_PREFIX_PATH is not set.
        share = Path(get_package_share_directory("simdist"))
    except (LookupError, OSError):
        return None
    return share if (share / "config").is_dir() else None


def _source_root() -> Path | None:
    for directory in Path(__file__).resolve().parents:
        if (directory / "config").is_dir() and (directory / "launch").is_dir():
            return directory
    return None


@functools.cache
def share_dir() -> Path:
    """Directory that holds ``config/``, ``launch/`` and ``models/``.

    Raises:
        ConfigError: neither an installation nor a source tree was found.
    """
    found = _installed_share() or _source_root()
    if found is None:
        raise ConfigError(
            "the directories config/ and launch/ of simdist were not found, neither through "
            f"AMENT_PREFIX_PATH nor above {Path(__file__).resolve().parent}: run through ./run, "
            "or source the setup.bash of the installation"
        )
    return found


def config_dir() -> Path:
    """Directory of the configuration files."""
    return share_dir() / "config"


def models_dir() -> Path:
    """Directory of the shipped models, one directory per robot."""
    return share_dir() / "models"


def world_names() -> tuple[str, ...]:
    """Names of the worlds in ``config/worlds``."""
    return tuple(sorted(path.stem for path in (config_dir() / "worlds").glob("*.yaml")))


def world_file(name: str) -> Path:
    """Path of the world ``name``: a name from ``config/worlds`` or the path of a YAML file.

    Raises:
        ConfigError: there is no such world; the message lists those there are.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        if path.is_file():
            return path
        raise ConfigError(f"world '{name}': no such file")
    if name not in world_names():
        known = ", ".join(world_names()) or "none installed"
        raise ConfigError(
            f"unknown world '{name}'; known worlds: {known}, or the path of a .yaml file"
        )
    return config_dir() / "worlds" / f"{name}.yaml"


def model_file(name_or_path: str | Path) -> Path:
    """Path of a model: ``go1`` or ``go1/world_model`` in ``models/``, or a .safetensors file.

    Raises:
        ArtefactError: there is no such model; the message lists those there are.
    """
    given = Path(name_or_path).expanduser()
    if given.is_file():
        return given
    models = models_dir()
    for candidate in (
        models / given,
        models / f"{given}{_MODEL_SUFFIX}",
        models / given / f"world_model{_MODEL_SUFFIX}",
    ):
        if candidate.is_file():
            return candidate
    known = sorted(
        str(path.relative_to(models).with_suffix("")) for path in models.rglob(f"*{_MODEL_SUFFIX}")
    )
    raise ArtefactError(
        f"model '{name_or_path}' was not found; allowed: {', '.join(known) or 'none installed'}, "
        f"or the path of a {_MODEL_SUFFIX} file"
    )
