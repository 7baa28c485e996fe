"""API keys: read from the environment, never shown. The client puts the editor's stored key into the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What keys look like, also masked or cut short by a provider that repeats one in its answer ("sk-ab***yz").
_KEY_LIKE = re.compile(r"\b(?:sk|key)-[\w*.…-]{4,}|(?<=Bearer )[^\s'\"]+")
_USABLE = re.compile(r"[!-~]+")


def read_key(provider: str, environment: Mapping[str, str]) -> str:
    """The key of "anthropic" or "openai" without the spaces, line ends and quotes of a careless paste; "" for none."""
    return environment.get(variable(provider), "").strip().strip("\"'").strip()


def variable(provider: str) -> str:
    """The environment variable that holds the key."""
    return f"{provider.upper()}_API_KEY"


def usable(key: str) -> bool:
    """Whether a key can stand in an HTTP header. Libraries put one that cannot into their messages and logs."""
    return bool(_USABLE.fullmatch(key))


def redact(message: str, key: str) -> str:
    """The message without this key, and without anything else that looks like one."""
    return _KEY_LIKE.sub("[key]", message.replace(key, "[key]") if key else message)
