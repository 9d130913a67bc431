"""Agents of Pydantic AI, whose model is the server.

Usage: pydantic_ai_agents.py "API CASE, API CASE, …" BASE_URL, where API is chat, responses or messages. Prints one line of JSON, what a
user would see of each. One process does all of them, as the packages take seconds to load.

Checks of `pydantic-ai`, chat completions:
  text: chat text
  server tool: chat server_tool
  client tool: chat client_tool
  approval: none: chat completions have no form for it
  structured output: chat structured
  failure: chat failure
  limit: chat limit
  cancel: chat left
  resume: none: it reads a stream once
  background: none: its functions wait for the answer

Checks of `pydantic-ai`, responses:
  text: responses text
  server tool: responses server_tool
  client tool: responses client_tool
  approval: none: not tried
  structured output: responses structured
  failure: responses failure
  limit: responses limit
  cancel: responses left
  resume: none: it reads a stream once
  background: none: its functions wait for the answer

Checks of `pydantic-ai`, messages:
  text: messages text
  server tool: messages server_tool
  client tool: messages client_tool
  approval: messages approval
  structured output: messages structured
  failure: messages failure
  limit: messages limit
  cancel: messages left
  resume: none: it reads a stream once
  background: none: its functions wait for the answer
"""

import asyncio
import json
import sys

import httpx
import pydantic
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, OutputTokenLimitExceeded
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

url = sys.argv[2]
api = ""
called = []


def model():
    if api == "messages":
        return AnthropicModel("test", provider=AnthropicProvider(base_url=url, api_key="sk-test"))
    provider = OpenAIProvider(base_url=url + "/v1", api_key="sk-test")
    return OpenAIResponsesModel("test", provider=provider) if api == "responses" else OpenAIChatModel("test", provider=provider)


def agent(options=None, **more):
    return Agent(model(), model_settings={"extra_body": {"agent": options or {}}}, **more)


def get_weather(city: str) -> str:
    """Tells the weather."""
    called.append(["get_weather", {"city": city}])
    return "rain"


class Number(pydantic.BaseModel):
    n: int


async def text():
    return {"text": (await agent().run("Hi")).output}


async def server_tool():
    async with agent().run_stream("Hi") as result:
        return {"text": await result.get_output()}


async def client_tool():
    result = await agent(tools=[get_weather]).run("Hi")
    return {"text": result.output, "called": called}


async def approve():
    """Approves what waits, as somebody else would."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while not (waiting := (await client.get("/v1/runs?status=requires_action")).json()["data"]):
            await asyncio.sleep(0.05)
        [run] = waiting
        run = (await client.get(f"/v1/runs/{run['id']}")).json()
        calls = run["agent"]["required_action"]["calls"]
        body = {"approvals": [{"call_id": call["call_id"], "decision": "approve"} for call in calls]}
        await client.post(f"/v1/runs/{run['id']}/approvals", json=body)
        return [call["name"] for call in calls]


async def approval():
    """The agent sends a turn that pauses again by itself."""
    gated = agent({"policy": {"ask": ["calculator"]}})
    asked, result = await asyncio.gather(approve(), gated.run("Hi"))
    return {"text": result.output, "asked": asked}


async def structured():
    return {"n": (await agent(output_type=Number if api == "messages" else NativeOutput(Number)).run("Hi")).output.n}


async def failure():
    try:
        await agent().run("Hi")
    except ModelHTTPError as error:
        return {"told": "No such thing." in str(error)}


async def limit():
    try:
        result = await agent({"limits": {"max_iterations": 1}}).run("Hi")
    except OutputTokenLimitExceeded:
        # A chat completion says nothing where the limit came before any text.
        return {"is_cut": True}
    return {"is_cut": result.response.finish_reason == "length"}


async def left():
    async with agent({"reconnect_grace_ms": 0}).run_stream("Hi") as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            return {"text": piece}


async def main(asked):
    global api, called
    seen = []
    for api, case in (each.split() for each in asked.split(", ")):
        called = []
        seen.append(await globals()[case]())
    return seen


print(json.dumps(asyncio.run(main(sys.argv[1]))))
