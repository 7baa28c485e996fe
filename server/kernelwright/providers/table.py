"""Name → provider. With no key the built-in generator is used, and that is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernelwright.errors import UsageError
from kernelwright.ports import Provider
from kernelwright.settings import Settings


def create(settings: Settings, environment: Mapping[str, str]) -> tuple[Provider, str]:
    """The provider that the settings name, and a sentence for the user where another one is used instead.

    Raises:
        UsageError: the scripted provider is chosen without a script.
    """
    if settings.provider == "scripted":
        return _scripted(environment), ""
    if settings.provider == "anthropic":
        key, base = environment.get("ANTHROPIC_API_KEY", ""), environment.get("ANTHROPIC_BASE_URL", "")
        if not key:
            return _builtin(), _no_key("anthropic")
        from kernelwright.providers.anthropic import AnthropicProvider

        return AnthropicProvider(settings.anthropic.model, key, settings.anthropic.base_url or base), ""
    if settings.provider == "openai":
        key, base = environment.get("OPENAI_API_KEY", ""), environment.get("OPENAI_BASE_URL", "")
        if not key:
            return _builtin(), _no_key("openai")
        from kernelwright.providers.openai import OpenAIProvider

        return OpenAIProvider(settings.openai.model, key, settings.openai.base_url or base), ""
    return _builtin(), ""


def _builtin() -> Provider:
    from kernelwright.providers.builtin.provider import BuiltinProvider

    return BuiltinProvider()


def _scripted(environment: Mapping[str, str]) -> Provider:
    from kernelwright.providers.scripted import ScriptedProvider

    folder = environment.get("KERNELWRIGHT_SCRIPT")
    if not folder:
        raise UsageError("the scripted provider reads its replies from the folder named by KERNELWRIGHT_SCRIPT")
    return ScriptedProvider.from_folder(Path(folder))


def _no_key(name: str) -> str:
    return (
        f"{name} has no API key (set {name.upper()}_API_KEY or run 'Kernelwright: Set API Key'); "
        "using the built-in generator"
    )
