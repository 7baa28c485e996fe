"""Replies, prompts, the scripted provider and the table: all text, no network."""

from dataclasses import replace

import pytest
from samples import CALL, TASK

from kernelwright.errors import ProviderError, UsageError
from kernelwright.model import Candidate, Case, Counterexample, Document, Finding, Refusal, Refuted
from kernelwright.providers.prompt import MAX_CHARACTERS, render
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


def test_the_prompt_says_the_task_and_nothing_of_the_checks():
    prompt = render(TASK, ())
    for text in ("def scale(x, factor=2.0)", "x: float32[512, 4096], factor=2.0", "aten.mul.Tensor", "Triton 3.7.1"):
        assert text in prompt.user
    assert "@triton.jit" in prompt.system
    for text in ("seed", "tolerance", "1031", "stepped", "outlier"):
        assert text not in prompt.user + prompt.system


def test_helpers_come_along():
    source = "def scale(x):\n    return helper(x) * FACTOR\n"
    helpers = "def deeper(x):\n    return x\n\ndef helper(x):\n    return deeper(x)\n\ndef other(x):\n    return 9\n"
    text = f"import torch\nFACTOR = 3\n\n{helpers}\n{source}"
    document = Document("file:///a.py", "/a.py", text)
    target = replace(TASK.target, document=document, source=source)
    user = render(replace(TASK, target=target), ()).user
    for text in ("FACTOR = 3", "def helper", "def deeper"):
        assert text in user
    assert "def other" not in user


def test_what_does_not_fit_is_left_out_and_said():
    nodes = TASK.graphs[0].nodes * (MAX_CHARACTERS // 20)
    prompt = render(replace(TASK, graphs=(replace(TASK.graphs[0], nodes=nodes),)), ())
    assert prompt.left_out == ("the traced graph",)
    assert len(prompt.user) < MAX_CHARACTERS


def test_a_repair_shows_one_finding():
    shown = Counterexample(Case(0), CALL.arguments, "output", (0, 5), "nan", "1.5")
    user = render(TASK, (Refuted(Candidate("MINE", "x"), Finding("K205", "NaN differs", 3), shown),)).user
    assert "MINE" in user
    assert "K205, NaN differs (line 3)" in user
    assert "at output[0, 5]: got nan, expected 1.5" in user


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


@pytest.mark.parametrize(
    ("name", "environment", "chosen", "note"),
    [
        ("builtin", {}, "builtin", ""),
        ("anthropic", {"ANTHROPIC_API_KEY": "k"}, "anthropic", ""),
        ("openai", {"OPENAI_API_KEY": "k"}, "openai", ""),
        ("anthropic", {}, "builtin", "anthropic has no API key"),
        ("openai", {"ANTHROPIC_API_KEY": "k"}, "builtin", "openai has no API key"),
    ],
)
def test_table(name, environment, chosen, note):
    provider, said = create(parse_strict({"provider": name}), environment)
    assert provider.name == chosen
    assert said.startswith(note)
    assert bool(said) == bool(note)


def test_base_url_from_setting_before_environment():
    environment = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://from-environment"}
    assert create(parse_strict({"provider": "anthropic"}), environment)[0].base_url == "http://from-environment"
    set_ = parse_strict({"provider": "anthropic", "anthropic": {"baseUrl": "http://from-setting"}})
    assert create(set_, environment)[0].base_url == "http://from-setting"
