"""The command line that a results file tells."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Collection


def repeating(
    command: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    arguments: argparse.Namespace,
    *,
    leave_out: Collection[str],
    word: Callable[[str], str] = str,
) -> str:
    """The call of ``simdist COMMAND`` that repeats a run: what is not its default, but for the
    options in ``leave_out``; ``word`` may put each value in another form."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = ["simdist", command]
    for action in parser._actions:
        value = getattr(arguments, action.dest, None)
        if action.dest in ("help", *leave_out) or value is None or value == action.default:
            continue
        values = value if isinstance(value, list) else [value]
        words += [action.option_strings[-1], *(word(str(each)) for each in values)]
    return shlex.join(words)
