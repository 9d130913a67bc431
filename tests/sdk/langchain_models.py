"""LangChain for Python, whose chat model is the server.

Usage: langchain_models.py "API CASE, API CASE, …" BASE_URL, where API is chat, responses or messages. Prints one line of JSON, what a
user would see of each. One process does all of them, as the packages take seconds to load.

Checks of `langchain-openai`, chat completions:
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

Checks of `langchain-openai`, responses:
  text: responses text
  server tool: responses server_tool
  client tool: responses client_tool
  approval: responses approval
  structured output: responses structured
  failure: responses failure
  limit: responses limit
  cancel: responses left
  resume: none: it reads a stream once
  background: none: its functions wait for the answer

Checks of `langchain-anthropic`:
  text: messages text
  server tool: messages server_tool
  client tool: messages client_tool
  approval: none: the turn pauses; to go on from there was not tried
  structured output: messages structured
  failure: messages failure
  limit: messages limit
  cancel: messages left
  resume: none: it reads a stream once
  background: none: its functions wait for the answer
"""

import json
import sys

import anthropic
import openai
import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

url = sys.argv[2]
api = ""
gated = {"type": "mcp", "server_label": "loopgate", "require_approval": "always"}


def model(agent=None):
    named = {"model": "test", "api_key": "sk-test"}
    more = {"agent": agent} if agent else {}
    if api == "messages":
        return ChatAnthropic(base_url=url, max_tokens=1000, model_kwargs={"extra_body": more}, **named)
    return ChatOpenAI(base_url=url + "/v1", use_responses_api=api == "responses", extra_body=more, **named)


@tool
def get_weather(city: str) -> str:
    """Tells the weather."""
    return "rain"


class Number(pydantic.BaseModel):
    n: int


def text():
    return {"text": model().invoke("Hi").text}


def server_tool():
    answer = ""
    for chunk in model().stream("Hi"):
        answer += chunk.text
    return {"text": answer}


def client_tool():
    bound, messages, called = model().bind_tools([get_weather]), [("user", "Hi")], []
    while True:
        answer = bound.invoke(messages)
        if not answer.tool_calls:
            return {"text": answer.text, "called": called}
        # The answer goes back as it came.
        messages.append(answer)
        for call in answer.tool_calls:
            called.append([call["name"], call["args"]])
            messages.append(get_weather.invoke(call))


def approval():
    bound = model().bind_tools([gated])
    first = bound.invoke("Hi")
    asked = [block for block in first.content if block["type"] == "mcp_approval_request"]
    answers = [{"type": "mcp_approval_response", "approve": True, "approval_request_id": it["id"]} for it in asked]
    second = bound.invoke([{"role": "user", "content": answers}], previous_response_id=first.response_metadata["id"])
    return {"text": second.text, "asked": [block["name"] for block in asked]}


def structured():
    method = "json_schema"
    return {"n": model().with_structured_output(Number, method=method).invoke("Hi").n}


def failure():
    try:
        model().invoke("Hi")
    except (openai.APIError, anthropic.APIError) as error:
        return {"told": "No such thing." in str(error)}


def limit():
    answer = model({"limits": {"max_iterations": 1}}).invoke("Hi")
    told = answer.response_metadata
    reason = told.get("finish_reason") or told.get("stop_reason") or told["incomplete_details"]["reason"]
    return {"is_cut": reason in ("length", "max_tokens", "max_output_tokens")}


def left():
    for chunk in model({"reconnect_grace_ms": 0}).stream("Hi"):
        if chunk.text:
            return {"text": chunk.text}


seen = []
for api, case in (asked.split() for asked in sys.argv[1].split(", ")):
    seen.append(globals()[case]())
print(json.dumps(seen))
