"""Helpers that launch files import from `launch.utilities`."""

from __future__ import annotations

from .substitution import normalize_to_list_of_substitutions, perform_substitutions
from .unsupported import unsupported_names

__all__ = ["normalize_to_list_of_substitutions", "perform_substitutions"]

__getattr__ = unsupported_names(__name__)
