"""Errors of the command line."""

from __future__ import annotations


class CommandError(Exception):
    """An error that is shown to the user as one line, with exit status 1."""
