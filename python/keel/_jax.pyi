"""The compiled part of keel.jax."""

from typing import Any

api_version: tuple[int, int]
"""That of XLA's foreign function interface, of the headers that it was compiled with."""

targets: list[tuple[str, str, Any]]
"""The custom calls: name, platform, handler."""
