"""Replies, the scripted provider, keys and the table: no network."""

import pytest
from samples import TASK

from kernelwright.errors import ProviderError, UsageError
from kernelwright.model import Candidate, Refusal
from kernelwright.providers.keys import read_key, redact, usable
from kernelwright.providers.reply import Code, find_code
from kernelwright.providers.scripted import ScriptedProvider
from kernelwright.providers.table import create
from kernelwright.settings import parse_strict

MODULE = "import torch\n\ndef scale(x):\n    return x\n"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (f"```python\n{MODULE}```", Code(MODULE, True)),
        (f"Sure!\n\n```py\n{MODULE}```\n\nIt masks the tail.", Code(MODULE, True)),
        (f"```\n{MODULE}```", Code(MODULE, True)),
        (f"~~~python\n{MODULE}~~~", Code(MODULE, True)),
        (f"````python\n{MODULE}````", Code(MODULE, True)),
        (f"```python\nx = 1\n```\n```python\n{MODULE}```", Code(MODULE, True)),
        (
            f"```python\n{MODULE}```\nthen\n```bash\npip install a-long-package-name-that-is-longer\n```",
            Code(MODULE, True),
        ),
        (
            "```python\ndef scale(x):\n    return 1\n```\nCorrected:\n```python\ndef scale(x):\n    return 2\n```",
            Code("def scale(x):\n    return 2\n", True),
        ),
        (f"```python\n{MODULE}", Code(MODULE, False)),
        ("```python\n@triton.jit\ndef k(", Code("@triton.jit\ndef k(\n", False)),
        (MODULE, Code(MODULE, True)),
        ("I cannot do that.", None),
        ("", None),
        ("```python\n```", None),
        (f"```python\r\n{MODULE}```".replace("\n", "\r\n"), Code(MODULE.replace("\n", "\r\n").rstrip() + "\n", True)),
    ],
)
def test_code_in_a_reply(reply, expected):
    assert find_code(reply, "scale") == expected


async def test_the_scripted_provider_replays(tmp_path):
    (tmp_path / "2.py").write_text(MODULE)
    (tmp_path / "1.md").write_text("nothing here")
    (tmp_path / "notes.txt").write_text("ignored")
    provider = ScriptedProvider.from_folder(tmp_path)
    assert isinstance(await provider.draft(TASK, (), lambda event: None), Refusal)
    drafted = await provider.draft(TASK, (), lambda event: None)
    assert isinstance(drafted, Candidate)
    assert (drafted.source, drafted.entry) == (MODULE, "scale")
    assert len(provider.prompts) == 2
    with pytest.raises(ProviderError, match="no further reply"):
        await provider.draft(TASK, (), lambda event: None)


def test_a_script_without_replies(tmp_path):
    with pytest.raises(UsageError, match="no replies"):
        ScriptedProvider.from_folder(tmp_path)


ADVICE = "(set {0}_API_KEY or run 'Kernelwright: Set API Key'); using the built-in generator"
NO_KEY = "has no key"
BAD_KEY = "has a key that holds a space or another character that no key has"


@pytest.mark.parametrize(
    ("name", "environment", "chosen", "problem"),
    [
        ("builtin", {}, "builtin", None),
        ("builtin", {"ANTHROPIC_API_KEY": "k"}, "builtin", None),
        ("anthropic", {"ANTHROPIC_API_KEY": "k"}, "anthropic", None),
        ("openai", {"OPENAI_API_KEY": "k"}, "openai", None),
        ("openai", {"OPENAI_API_KEY": " 'k'\n"}, "openai", None),
        ("anthropic", {}, "builtin", NO_KEY),
        ("anthropic", {"ANTHROPIC_API_KEY": " \n"}, "builtin", NO_KEY),
        ("openai", {"ANTHROPIC_API_KEY": "k"}, "builtin", NO_KEY),
        ("openai", {"OPENAI_API_KEY": "export OPENAI_API_KEY=k"}, "builtin", BAD_KEY),
        ("anthropic", {"ANTHROPIC_API_KEY": "sk-a…b"}, "builtin", BAD_KEY),
    ],
)
def test_table(name, environment, chosen, problem):
    provider, said = create(parse_strict({"provider": name}), environment)
    assert provider.name == chosen
    assert said == (f"{name} {problem} {ADVICE.format(name.upper())}" if problem else "")


def test_a_script_is_a_folder_named_by_the_environment(tmp_path):
    settings = parse_strict({"provider": "scripted"})
    with pytest.raises(UsageError, match="KERNELWRIGHT_SCRIPT"):
        create(settings, {})
    (tmp_path / "1.py").write_text(MODULE)
    provider, said = create(settings, {"KERNELWRIGHT_SCRIPT": str(tmp_path)})
    assert (provider.name, said) == ("scripted", "")


@pytest.mark.parametrize(
    ("raw", "key", "good"),
    [
        ("sk-1", "sk-1", True),
        ("  sk-1\r\n", "sk-1", True),
        ('"sk-1"', "sk-1", True),
        ("", "", False),
        ("sk-1 sk-2", "sk-1 sk-2", False),
        ("sk-1\nsk-2", "sk-1\nsk-2", False),
    ],
)
def test_keys_from_the_environment(raw, key, good):
    read = read_key("openai", {"OPENAI_API_KEY": raw})
    assert (read, usable(read)) == (key, good)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no key here: task-force, a monkey-1234", "no key here: task-force, a monkey-1234"),
        ("the key custom0123 is bad", "the key [key] is bad"),
        ("Incorrect API key provided: sk-ab***************wxyz.", "Incorrect API key provided: [key]"),
        ("header b'Bearer abc.def'", "header b'Bearer [key]'"),
    ],
)
def test_no_key_in_a_message(message, shown):
    assert redact(message, "custom0123") == shown


def test_base_url_from_setting_before_environment():
    environment = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://from-environment"}
    assert create(parse_strict({"provider": "anthropic"}), environment)[0].base_url == "http://from-environment"
    set_ = parse_strict({"provider": "anthropic", "anthropic": {"baseUrl": "http://from-setting"}})
    assert create(set_, environment)[0].base_url == "http://from-setting"
