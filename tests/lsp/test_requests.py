"""Our own requests: how each ends, what progress says, what cancelling leaves behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lsp_client import FULL, PLAIN, Start
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

NAMES = [
    "propose_a", "keep_a", "decline_a", "fail_a", "ask_a", "badinputs_a", "broken_a", "crash_a",
    "hang_starting", "hang_tracing", "hang_writing", "hang_checking", "hang_compiling",
]  # fmt: skip
SOURCE = "import torch\n\n\n" + "\n\n\n".join(f"def {name}(x):\n    return torch.relu(x)" for name in NAMES) + "\n"

OUTCOMES = [
    ("propose_a", "proposed", "propose_a: a kernel that passed 2 cases, max error 1.25e-07", {}),
    (
        "keep_a",
        "kept",
        "keep_a: keep torch.compile, no kernel was faster "
        "(kernel 0.6 ms · torch.compile 0.5 ms · eager 1 ms · floor 0.4 ms on H200)",
        {},
    ),
    ("decline_a", "declined", "decline_a: no kernel by builtin: sort has no kernel (line 13)", {}),
    (
        "fail_a",
        "failed",
        "fail_a: no kernel passed in 2 attempts: a value is wrong "
        "(with x: float32[3, 5], at output[2, 4], got nan, expected 0.5)",
        {},
    ),
    ("ask_a", "inputsNeeded", "nothing says what ask_a is called with", {"suggestion": "x: f32[1024]"}),
    ("badinputs_a", "invalidInputs", "x: what is q32?", {"problem": "x: what is q32?"}),
    ("broken_a", "error", "the disk is full: free some space", {}),
    ("crash_a", "error", "crash_a: an internal fault; the server's log has the details", {}),
    ("nowhere", "error", "there is no function nowhere in the document", {}),
]


@pytest.mark.parametrize(("qualname", "outcome", "message", "more"), OUTCOMES, ids=[row[0] for row in OUTCOMES])
async def test_every_end_is_a_result(start: Start, uri: str, qualname: str, outcome: str, message: str, more) -> None:
    client = await start()
    client.open(uri, SOURCE)
    result = await client.ask("generate", {"uri": uri, "qualname": qualname, "workDoneToken": "t"})
    proposal = result.pop("proposal", None)
    assert result == {"outcome": outcome, "message": message, "qualname": qualname, **more}
    assert (proposal is not None) == (outcome == "proposed")
    kinds = [value.kind for value in client.progress_reports["t"]]
    assert (kinds[0], kinds[-1], kinds.count("end")) == ("begin", "end", 1)
    assert client.progress_reports["t"][-1].message == message


async def test_a_problem_with_the_environment_shows_in_the_status_until_a_job_runs(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE + "\n\ndef noenv(x):\n    return torch.exp(x)\n")
    seen = []
    for qualname in ("noenv", "propose_a"):
        await client.ask("generate", {"uri": uri, "qualname": qualname})
        status = await client.ask("status", {})
        seen.append((status["state"], status["message"]))
    assert seen == [("problem", "python has no torch: pip install torch"), ("ready", "")]


async def test_inputs_that_are_given_are_used(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    params = {"uri": uri, "qualname": "ask_a", "inputs": "x: f32[8]", "instruction": "be quick"}
    assert (await client.ask("generate", params))["outcome"] == "proposed"


async def test_a_proposal_says_what_it_would_do(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE, version=7)
    made = (await client.ask("generate", {"uri": uri, "qualname": "propose_a"}))["proposal"]
    assert set(made) == {"id", "uri", "qualname", "title", "summary", "originalText", "proposedText", "version"}
    assert (made["uri"], made["title"], made["originalText"], made["version"]) == (
        uri, "Triton kernel for propose_a", SOURCE, 7,
    )  # fmt: skip
    assert made["proposedText"].replace("@_kernelwright_propose_a\n", "") != SOURCE
    assert "@_kernelwright_propose_a\ndef propose_a(x):" in made["proposedText"]
    assert await client.ask("proposals", {"uri": uri}) == {"proposals": [made]}
    assert await client.ask("proposals", {}) == {"proposals": [made]}
    assert await client.ask("proposals", {"uri": uri + "x"}) == {"proposals": []}


async def test_progress_names_the_stages_and_is_throttled(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    await client.ask("generate", {"uri": uri, "qualname": "propose_a", "workDoneToken": 5})
    said = client.said(5)
    counted = [message for message in said if message.startswith("Checking values")]
    assert [message for message in said if message not in counted[1:]] == [
        "Starting workers",
        "Traced: row reduction",
        "Writing kernel (builtin)",
        "Checking values 0/212",
        "Compiling for sm_90",
    ]
    assert len(counted) < 20


async def test_recheck(start: Start, uri: str) -> None:
    client = await start()
    client.open(
        uri, "import torch\n\n\ndef good(x):\n    return torch.exp(x)\n\n\ndef bad(x):\n    return torch.exp(x)\n"
    )
    assert await client.ask("recheck", {"uri": uri, "qualname": "good", "workDoneToken": "t"}) == {
        "outcome": "passed",
        "message": "good: passed 2 cases, max error 1.25e-07",
    }
    refuted = await client.ask("recheck", {"uri": uri, "qualname": "bad"})
    assert (refuted["outcome"], refuted["message"][:26]) == ("refuted", "bad: a value is wrong (wit")
    assert client.progress_reports["t"][-1].message == "good: passed 2 cases, max error 1.25e-07"


STAGES = [
    ("hang_starting", "Starting workers"),
    ("hang_tracing", "Traced: row reduction"),
    ("hang_writing", "Writing kernel (builtin)"),
    ("hang_checking", "Checking values 0/212"),
    ("hang_compiling", "Compiling for sm_90"),
]


@pytest.mark.parametrize(("qualname", "message"), STAGES)
@pytest.mark.parametrize("how", ["request", "progress"])
async def test_cancel_in_each_stage(start: Start, uri: str, qualname: str, message: str, how: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    params = {"uri": uri, "qualname": qualname, "workDoneToken": "t"}
    job = asyncio.ensure_future(client.ask("generate", params, msg_id="job"))
    await client.until(lambda: message in client.said("t"))
    if how == "request":
        client.cancel_request(lsp.CancelParams("job"))
    else:
        client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams("t"))
    with pytest.raises(JsonRpcException, match="canceled"):
        await job
    await client.until(lambda: client.ended("t"))
    assert client.progress_reports["t"][-1].message == "Cancelled"
    assert f"cancelled {qualname}" in client.logged()
    assert (await client.ask("generate", {"uri": uri, "qualname": "propose_a"}))["outcome"] == "proposed"


async def test_jobs_take_turns_and_a_waiting_one_can_be_cancelled(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)

    def ask(name: str) -> asyncio.Future[Any]:
        params = {"uri": uri, "qualname": name, "workDoneToken": name}
        return asyncio.ensure_future(client.ask("generate", params, msg_id=name))

    first = ask("hang_checking")
    await client.until(lambda: "Checking values 0/212" in client.said("hang_checking"))
    second, third = ask("hang_writing"), ask("propose_a")
    for name in ("hang_writing", "propose_a"):
        await client.until(lambda name=name: "Waiting for another kernel" in client.said(name))
    assert (await client.ask("status", {}))["jobs"] == 3
    client.cancel_request(lsp.CancelParams("hang_writing"))
    with pytest.raises(JsonRpcException):
        await second
    assert client.ended("hang_writing") and "generate hang_writing" not in client.logged()
    client.cancel_request(lsp.CancelParams("hang_checking"))
    with pytest.raises(JsonRpcException):
        await first
    assert (await third)["outcome"] == "proposed"
    assert (await client.ask("status", {}))["jobs"] == 0


async def test_one_job_a_target(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    params = {"uri": uri, "qualname": "hang_writing", "workDoneToken": "t"}
    job = asyncio.ensure_future(client.ask("generate", params, msg_id="job"))
    await client.until(lambda: "Writing kernel (builtin)" in client.said("t"))
    second = await client.ask("generate", {"uri": uri, "qualname": "hang_writing", "workDoneToken": "u"})
    assert (second["outcome"], "already being worked on" in second["message"]) == ("error", True)
    assert client.ended("u") and not client.ended("t")
    client.cancel_request(lsp.CancelParams("job"))
    with pytest.raises(JsonRpcException):
        await job


async def test_the_server_answers_while_a_job_runs(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    params = {"uri": uri, "qualname": "hang_checking", "workDoneToken": "t"}
    job = asyncio.ensure_future(client.ask("generate", params, msg_id="job"))
    await client.until(lambda: "Checking values 0/212" in client.said("t"))
    assert len(await client.lenses(uri)) == len(NAMES)
    assert (await client.ask("status", {}))["state"] == "busy"
    client.cancel_request(lsp.CancelParams("job"))
    with pytest.raises(JsonRpcException):
        await job


@pytest.mark.parametrize(
    ("qualname", "kind", "message"),
    [
        ("propose_a", lsp.MessageType.Info, "propose_a: a kernel that passed 2 cases, max error 1.25e-07"),
        ("ask_a", lsp.MessageType.Warning, "nothing says what ask_a is called with"),
    ],
)
async def test_a_plain_client_starts_jobs_by_command(start: Start, uri: str, qualname, kind, message) -> None:
    client = await start(PLAIN, options={})
    client.open(uri, SOURCE)
    await client.command("generate", uri, qualname)
    await client.until(lambda: client.messages)
    assert [(shown.type, shown.message) for shown in client.messages] == [(kind, message)]
    (token,) = client.progress_reports
    assert client.ended(token)


async def test_a_job_started_by_command_is_cancelled_by_its_progress(start: Start, uri: str) -> None:
    client = await start(PLAIN, options={})
    client.open(uri, SOURCE)
    await client.command("generate", uri, "hang_checking")
    await client.until(lambda: client.progress_reports)
    (token,) = client.progress_reports
    await client.until(lambda: "Checking values 0/212" in client.said(token))
    client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(token))
    await client.until(lambda: client.ended(token))
    assert "cancelled hang_checking" in client.logged()


INPUTS = [
    ("propose_a", {"spec": "x: f32[8]", "origin": "literal", "suggestion": "x: f32[8]"}),
    ("ask_a", {"spec": "", "origin": "", "suggestion": "x: f32[1024]"}),
    (
        "nowhere",
        {"spec": "", "origin": "", "suggestion": "", "problem": "nowhere is not in the file, or does not use torch"},
    ),
]


@pytest.mark.parametrize(("qualname", "expected"), INPUTS)
async def test_inputs(start: Start, uri: str, qualname: str, expected: dict[str, str]) -> None:
    client = await start()
    client.open(uri, SOURCE)
    assert await client.ask("inputs", {"uri": uri, "qualname": qualname}) == expected


@pytest.mark.parametrize(
    ("text", "good"), [("x: f32[8, 4], eps=1e-6", True), ("x: f32[8", False), ("x: q32[8]", False)]
)
async def test_inputs_are_validated_as_they_are_typed(start: Start, text: str, good: bool) -> None:
    client = await start()
    answer = await client.ask("validateInputs", {"text": text})
    assert answer == {} if good else answer["problem"]


@pytest.mark.parametrize(
    ("params", "says"),
    [({}, "uri is missing"), ({"uri": 5, "qualname": "f"}, "uri must be str"), ([], "params must be an object")],
)
async def test_malformed_params_are_answered(start: Start, params: Any, says: str) -> None:
    client = await start()
    with pytest.raises(JsonRpcException, match=says):
        await client.ask("generate", params)


async def test_an_unknown_command_and_bad_arguments_are_answered(start: Start) -> None:
    client = await start(FULL)
    for name, arguments in [("nothing", ()), ("accept", ()), ("remove", ("only one",))]:
        with pytest.raises(JsonRpcException):
            await client.command(name, *arguments)
