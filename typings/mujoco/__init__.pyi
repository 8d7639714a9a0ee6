# The wheel of mujoco holds compiled modules without type information: every name in it is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
