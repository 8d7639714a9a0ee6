"""Errors meant for the person at the keyboard.

Each message names the value, what is allowed and the way out. The command line prints it as one
line and exits with status 2; a node logs it and stops.
"""

from __future__ import annotations


class SimdistError(Exception):
    """Base of every error that a user can cause and mend."""


class ConfigError(SimdistError):
    """A parameter, argument or configuration file holds a value that is not allowed."""


class ArtefactError(SimdistError):
    """A model file is missing, damaged, or not what it claims to be."""


class ContractError(SimdistError):
    """Two parts do not fit: joint names, layouts or a model made for another robot."""


class BagError(SimdistError):
    """A recording cannot be read, written or learned from."""


class DatasetError(SimdistError):
    """A training data set is missing, damaged, or made with another configuration."""


class SimulationError(SimdistError):
    """The physics left the finite numbers."""


class UpdateError(SimdistError):
    """A model update failed a check and was refused."""
