"""LiteLLM, which is pointed at the server.

Usage: litellm_calls.py "API CASE, API CASE, …" BASE_URL, where API is chat, responses or messages. Prints one line of JSON, what a
user would see of each. One process does all of them, as the packages take seconds to load.

Checks of `litellm`, chat completions:
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

Checks of `litellm`, responses:
  text: responses text
  server tool: responses server_tool
  client tool: responses respond_tool
  approval: responses approval
  structured output: responses respond_structured
  failure: responses failure
  limit: responses limit
  cancel: none: a stream of responses has no way to be closed
  resume: none: it reads a stream once
  background: none: its functions wait for the answer

Checks of `litellm`, messages:
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
import os
import sys

# Its list of prices would come from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

url = sys.argv[2]
api = ""
litellm.telemetry = False
question = [{"role": "user", "content": "Hi"}]
parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
gated = {"type": "mcp", "server_label": "loopgate", "require_approval": "always"}
weather = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}


def complete(**more):
    """A chat completion, by way of chat completions or of messages."""
    model, base = ("anthropic/test", url) if api == "messages" else ("openai/test", url + "/v1")
    return litellm.completion(**({"model": model, "api_base": base, "api_key": "sk-test", "messages": question} | more))


def with_agent(agent):
    """Only chat completions take it in the body alone, and only for them is the body added to."""
    if api == "chat":
        return {"extra_body": {"agent": agent}}
    return {"extra_headers": {"x-loopgate-agent": json.dumps(agent)}}


def respond(**more):
    return litellm.responses(
        **({"model": "openai/test", "api_base": url + "/v1", "api_key": "sk-test", "input": "Hi"} | more)
    )


def said(response):
    texts = [part.text for item in response.output if item.type == "message" for part in item.content]
    return "".join(texts)


def text():
    if api == "responses":
        return {"text": said(respond())}
    return {"text": complete().choices[0].message.content}


def server_tool():
    if api == "responses":
        deltas = [event.delta for event in respond(stream=True) if event.type == "response.output_text.delta"]
    else:
        deltas = [chunk.choices[0].delta.content or "" for chunk in complete(stream=True)]
    return {"text": "".join(deltas)}


def client_tool():
    messages, called = list(question), []
    while True:
        message = complete(messages=messages, tools=[weather]).choices[0].message
        if not message.tool_calls:
            return {"text": message.content, "called": called}
        # The message goes back as it came.
        messages.append(message)
        for call in message.tool_calls:
            called.append([call.function.name, json.loads(call.function.arguments)])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})


def approval():
    first = respond(tools=[gated])
    asked = [item for item in first.output if item.type == "mcp_approval_request"]
    answers = [{"type": "mcp_approval_response", "approve": True, "approval_request_id": item.id} for item in asked]
    second = respond(input=answers, previous_response_id=first.id, tools=[gated])
    return {"text": said(second), "asked": [item.name for item in asked]}


def respond_tool():
    function = {"type": "function", "name": "get_weather", "parameters": parameters}
    response, called = respond(tools=[function]), []
    while calls := [item for item in response.output if item.type == "function_call"]:
        called += [[call.name, json.loads(call.arguments)] for call in calls]
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in calls]
        response = respond(input=outputs, previous_response_id=response.id, tools=[function])
    return {"text": said(response), "called": called}


def respond_structured():
    form = {"type": "json_schema", "name": "number", "schema": schema, "strict": True}
    return {"n": json.loads(said(respond(text={"format": form})))["n"]}


def structured():
    asked = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema, "strict": True}}
    return {"n": json.loads(complete(response_format=asked).choices[0].message.content)["n"]}


def failure():
    try:
        respond() if api == "responses" else complete()
    except litellm.BadRequestError as error:
        return {"told": "No such thing." in str(error)}


def left():
    with complete(stream=True, **with_agent({"reconnect_grace_ms": 0})) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                return {"text": chunk.choices[0].delta.content}


def limit():
    options = with_agent({"limits": {"max_iterations": 1}})
    if api == "responses":
        return {"is_cut": respond(**options).incomplete_details.reason == "max_output_tokens"}
    return {"is_cut": complete(**options).choices[0].finish_reason == "length"}


seen = []
for api, case in (asked.split() for asked in sys.argv[1].split(", ")):
    seen.append(globals()[case]())
print(json.dumps(seen))
