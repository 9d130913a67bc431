"""OpenAI's agents for Python, whose model is the server, by way of responses.

Usage: with_agents.py CASE BASE_URL. Prints one line of JSON, what a user would see; with_agents.mjs prints the same.

Checks of `openai-agents` for Python:
  text: plain, streamed
  server tool: server_tool
  client tool: plain, streamed
  approval: approval
  structured output: structured
  failure: failure
  limit: limit
  cancel: left
  resume: none: it reads a stream once
  background: none: its functions wait for the answer
"""

import asyncio
import json
import sys

import agents
import openai
import pydantic

agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(
    base_url=sys.argv[2] + "/v1",
    api_key="sk-test",
    http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
)
model = agents.OpenAIResponsesModel(model="test", openai_client=client)
called = []


@agents.function_tool
def get_weather(city: str) -> str:
    """Tells the weather."""
    called.append(city)
    return "rain"


def approve(request):
    called.append(request.data.name)
    return {"approve": True}


def tools(case):
    if case == "approval":
        config = {"type": "mcp", "server_label": "loopgate", "server_url": None, "require_approval": "always"}
        config.pop("server_url")
        return [agents.HostedMCPTool(tool_config=config, on_approval_request=approve)]
    return [get_weather]


class Number(pydantic.BaseModel):
    n: int


async def server_tool():
    return {"text": (await agents.Runner.run(agents.Agent(name="tester", model=model), "Hi")).final_output}


async def structured():
    agent = agents.Agent(name="tester", model=model, output_type=Number)
    return {"n": (await agents.Runner.run(agent, "Hi")).final_output.n}


async def failure():
    try:
        await agents.Runner.run(agents.Agent(name="tester", model=model), "Hi")
    except openai.BadRequestError as error:
        return {"told": "No such thing." in str(error)}


def within_limits(limits, **more):
    settings = agents.ModelSettings(extra_body={"agent": {"limits": limits, **more}})
    return agents.Agent(name="tester", model=model, model_settings=settings)


async def limit():
    """An incomplete response is no final output to these agents."""
    try:
        await agents.Runner.run(within_limits({"max_iterations": 1}), "Hi")
    except agents.exceptions.AgentsException as error:
        return {"error": type(error).__name__}


async def left():
    result = agents.Runner.run_streamed(within_limits({}, reconnect_grace_ms=0), "Hi")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            result.cancel()
            return {"text": event.data.delta}


async def main(case):
    if case in ("server_tool", "structured", "failure", "limit", "left"):
        return await globals()[case]()
    assert case in ("plain", "streamed", "approval"), case
    agent = agents.Agent(name="tester", instructions="Be short.", model=model, tools=tools(case))
    if case == "streamed":
        result = agents.Runner.run_streamed(agent, "Hi")
        async for _ in result.stream_events():
            pass
    else:
        result = await agents.Runner.run(agent, "Hi")
    more = await agents.Runner.run(agent, "And now?", previous_response_id=result.last_response_id)
    return {"text": result.final_output, "called": called, "more": more.final_output}


print(json.dumps(asyncio.run(main(sys.argv[1]))))
