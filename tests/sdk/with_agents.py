"""OpenAI's agents for Python, whose model is the server, by way of responses.

Usage: with_agents.py CASE BASE_URL. Prints one line of JSON, what a user would see; with_agents.mjs prints the same.
"""

import asyncio
import json
import sys

import agents
import openai

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


async def main(case):
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
