"""The official Anthropic client for Python, used as its users use it.

Usage: messages.py CASE BASE_URL. Prints one line of JSON, what a user would see; messages.mjs prints the same.

Checks of `anthropic` for Python:
  text: plain, streamed, thinking
  server tool: streamed
  client tool: client_tool
  approval: approval
  structured output: structured
  failure: unknown_model, provider_failure, broken_stream
  limit: limited
  cancel: left
  resume: repeated
  background: none: the API has none
"""

import json
import sys

import anthropic
import pydantic

attempts = 0


def count(_request):
    global attempts
    attempts += 1


client = anthropic.Anthropic(
    base_url=sys.argv[2],
    api_key="sk-test",
    http_client=anthropic.DefaultHttpxClient(trust_env=False, event_hooks={"request": [count]}),
)
weather = {
    "name": "get_weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
asked = {"model": "test", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]}


def create(**more):
    return client.messages.create(**(asked | more))


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


def seen(message):
    return {
        "text": text(message),
        "stop_reason": message.stop_reason,
        "blocks": [block.type for block in message.content],
        "tokens": [message.usage.input_tokens, message.usage.output_tokens],
    }


def plain():
    message = create(system="Be short.", metadata={"user_id": "u-1"}, stop_sequences=["END"])
    return seen(message) | {"has_request_id": message._request_id is not None}


def streamed():
    with client.messages.stream(**asked) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    return seen(final) | {"same": said == text(final)}


def thinking():
    return seen(create(thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=4000))


def client_tool():
    messages, called = list(asked["messages"]), []
    while True:
        with client.messages.stream(**(asked | {"messages": messages, "tools": [weather]})) as stream:
            message = stream.get_final_message()
        if message.stop_reason != "tool_use":
            return seen(message) | {"called": called}
        # The content goes back as it came.
        messages.append({"role": "assistant", "content": message.content})
        results = []
        for block in message.content:
            if block.type == "tool_use":
                called.append([block.name, block.input])
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": "rain"})
        messages.append({"role": "user", "content": results})


def approval():
    """The turn pauses, and goes on once the call is approved, as any turn that pauses goes on."""
    gated = asked | {"extra_body": {"agent": {"policy": {"ask": ["calculator"]}}}}
    message = client.messages.create(**gated)
    paused = message.stop_reason
    waits = message.agent["required_action"]["calls"]
    body = {"approvals": [{"call_id": call["call_id"], "decision": "approve"} for call in waits]}
    client.post(f"/v1/runs/{message.agent['run_id']}/approvals", body=body, cast_to=object)
    gated["messages"] = [*asked["messages"], {"role": "assistant", "content": message.content}]
    return {"paused": paused, "asked": [call["name"] for call in waits]} | seen(client.messages.create(**gated))


class Number(pydantic.BaseModel):
    n: int


def structured():
    return {"n": client.messages.parse(**asked, output_format=Number).parsed_output.n}


def limited():
    return seen(create(extra_body={"agent": {"limits": {"max_iterations": 1}}}))


def failure(call):
    try:
        call()
    except anthropic.APIError as error:
        status = getattr(error, "status_code", None)
        told = error.body["error"]
        return {"status": status, "type": told["type"], "code": told["code"], "attempts": attempts}
    raise SystemExit("no error was raised")


def unknown_model():
    return failure(lambda: create(model="nonsense"))


def unauthorized():
    return failure(create)


def provider_failure():
    return failure(create)


def broken_stream():
    said = ""

    def read():
        nonlocal said
        with client.messages.stream(**asked) as stream:
            for piece in stream.text_stream:
                said += piece

    told = failure(read)
    return {"text": said, "type": told["type"], "attempts": told["attempts"]}


def left():
    with client.messages.stream(**asked, extra_body={"agent": {"reconnect_grace_ms": 0}}) as stream:
        for piece in stream.text_stream:
            return {"text": piece}


def repeated():
    message = create()
    return {"text": text(message), "attempts": attempts}


def counted():
    tokens = client.messages.count_tokens(model="test", messages=asked["messages"]).input_tokens
    return {"counts": tokens > 0}


def models():
    listed = list(client.models.list())
    return {"ids": [model.id for model in listed], "one": client.models.retrieve(listed[0].id).display_name}


print(json.dumps(globals()[sys.argv[1]]()))
