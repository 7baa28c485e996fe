"""Name → provider. With no usable key the built-in generator is used, and that is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kernelwright.errors import UsageError
from kernelwright.ports import Provider
from kernelwright.providers.keys import read_key, usable, variable
from kernelwright.settings import Settings


def create(settings: Settings, environment: Mapping[str, str]) -> tuple[Provider, str]:
    """The provider that the settings name, and a sentence for the user where another one is used instead.

    Raises:
        UsageError: the scripted provider is chosen without a script.
    """
    name = settings.provider
    if name == "builtin":
        return _builtin(), ""
    if name == "scripted":
        return _scripted(environment), ""
    key = read_key(name, environment)
    if not usable(key):
        return _builtin(), _no_key(name, key)
    return _REMOTE[name](settings, key, environment.get(f"{name.upper()}_BASE_URL", "")), ""


def _anthropic(settings: Settings, key: str, base_url: str) -> Provider:
    from kernelwright.providers.anthropic import AnthropicProvider

    chosen = settings.anthropic
    return AnthropicProvider(chosen.model, key, chosen.base_url or base_url, settings.budget.minutes * 60)


def _openai(settings: Settings, key: str, base_url: str) -> Provider:
    from kernelwright.providers.openai import OpenAIProvider

    chosen = settings.openai
    return OpenAIProvider(chosen.model, key, chosen.base_url or base_url, settings.budget.minutes * 60)


_REMOTE: Mapping[str, Callable[[Settings, str, str], Provider]] = {"anthropic": _anthropic, "openai": _openai}


def _builtin() -> Provider:
    from kernelwright.providers.builtin.provider import BuiltinProvider

    return BuiltinProvider()


def _scripted(environment: Mapping[str, str]) -> Provider:
    from kernelwright.providers.scripted import ScriptedProvider

    folder = environment.get("KERNELWRIGHT_SCRIPT")
    if not folder:
        raise UsageError("the scripted provider reads its replies from the folder named by KERNELWRIGHT_SCRIPT")
    return ScriptedProvider.from_folder(Path(folder))


def _no_key(name: str, key: str) -> str:
    what = "has a key that holds a space or another character that no key has" if key else "has no key"
    return f"{name} {what} (set {variable(name)} or run 'Kernelwright: Set API Key'); using the built-in generator"
