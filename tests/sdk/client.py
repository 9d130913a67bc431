"""The official OpenAI client for Python, used as its users use it.

Usage: client.py CASE BASE_URL. Prints one line of JSON, what a user would see; client.mjs prints the same.

Checks of `openai` for Python, chat completions:
  text: chat, stream, stream_usage, helper
  server tool: extension, helper
  client tool: client_tools, client_tools_streamed
  approval: approval
  structured output: structured
  failure: unknown_model, provider_failure, broken_stream
  limit: limited, quota
  cancel: cancelled
  resume: resumed, repeated
  background: background
"""

import json
import os
import sys

import openai
import pydantic
from openai.types.chat import ChatCompletion, ChatCompletionChunk

attempts = 0


def count(_request):
    global attempts
    attempts += 1


client = openai.OpenAI(
    base_url=sys.argv[2] + "/v1",
    api_key="sk-test",
    http_client=openai.DefaultHttpxClient(trust_env=False, event_hooks={"request": [count]}),
)
question = [{"role": "user", "content": "Hi"}]
weather = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def chat():
    answer = client.chat.completions.create(model="test", messages=question)
    return {
        "content": answer.choices[0].message.content,
        "finish_reason": answer.choices[0].finish_reason,
        "total_tokens": answer.usage.total_tokens,
        "status": answer.agent["status"],
        "has_request_id": bool(answer._request_id),
    }


def mcp_server():
    server = {
        "type": "mcp",
        "server_label": "crm",
        "server_url": os.environ["LOOPGATE_TEST_MCP"],
        "authorization": "SECRET-of-the-caller",
        "require_approval": "never",
    }
    texts = []
    for named in ({"tools": [server]}, {"extra_body": {"tools": [server]}}):
        texts.append(client.chat.completions.create(model="test", messages=question, **named).choices[0].message.content)
    asked = attempts
    try:
        client.chat.completions.create(model="test", messages=question, tools=[server | {"authorization": "wrong"}])
    except openai.APIStatusError as error:
        return {"texts": texts, "status": error.status_code, "code": error.code, "attempts": attempts - asked}


def repeated():
    answer = client.chat.completions.create(model="test", messages=question)
    return {"content": answer.choices[0].message.content, "attempts": attempts}


def stream():
    text, finish_reason, ids = "", None, set()
    for chunk in client.chat.completions.create(model="test", messages=question, stream=True):
        # What most programs do: no thought of chunks without choices.
        text += chunk.choices[0].delta.content or ""
        finish_reason = chunk.choices[0].finish_reason or finish_reason
        ids.add(chunk.id)
    return {"text": text, "finish_reason": finish_reason, "ids": len(ids)}


def stream_usage():
    text, total, usages = "", None, 0
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(model="test", messages=question, stream=True, stream_options=options):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        if chunk.usage:
            total, usages = chunk.usage.total_tokens, usages + 1
    return {"text": text, "total_tokens": total, "usages": usages}


def helper():
    with client.chat.completions.stream(model="test", messages=question) as events:
        for _ in events:
            pass
        answer = events.get_final_completion()
    return {"content": answer.choices[0].message.content, "finish_reason": answer.choices[0].finish_reason}


def client_tools(stream=False):
    messages, called = list(question), []
    while True:
        if stream:
            with client.chat.completions.stream(model="test", messages=messages, tools=[weather]) as events:
                message = events.get_final_completion().choices[0].message
        else:
            answer = client.chat.completions.create(model="test", messages=messages, tools=[weather])
            message = answer.choices[0].message
        # The transcript goes back as it came.
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return {"content": message.content, "called": called}
        for call in message.tool_calls:
            called.append([call.function.name, json.loads(call.function.arguments)])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})


def client_tools_streamed():
    return client_tools(stream=True)


def approval():
    options = {"agent": {"policy": {"ask": ["calculator"]}}}
    answer = client.chat.completions.create(model="test", messages=question, extra_body=options)
    waits = answer.agent["required_action"]["calls"]
    body = {"approvals": [{"call_id": call["call_id"], "decision": "approve"} for call in waits]}
    answer = client.post(f"/runs/{answer.agent['run_id']}/approvals", body=body, cast_to=ChatCompletion)
    return {"asked": [call["name"] for call in waits], "content": answer.choices[0].message.content}


class Number(pydantic.BaseModel):
    n: int


def structured():
    answer = client.chat.completions.parse(model="test", messages=question, response_format=Number)
    return {"n": answer.choices[0].message.parsed.n}


def limited():
    options = {"agent": {"limits": {"max_iterations": 1}}}
    answer = client.chat.completions.create(model="test", messages=question, extra_body=options)
    return {"finish_reason": answer.choices[0].finish_reason, "stop_reason": answer.agent["stop_reason"]}


def begin():
    """Begins a run that needs no reader. Its answer is a run, and no completion."""
    body = {"model": "test", "messages": question, "agent": {"background": True}}
    return client.post("/chat/completions", body=body, cast_to=object)


def background():
    run = begin()
    while run["status"] in ("queued", "in_progress"):
        run = client.get(f"/runs/{run['id']}", cast_to=object)
    return {"status": run["status"], "content": run["output_text"]}


def cancelled():
    path = f"/runs/{begin()['id']}/cancel"
    return {"status": client.post(path, cast_to=object)["status"], "again": client.post(path, cast_to=object)["status"]}


def resumed():
    """The stream of a run, as the chunks of a chat completion."""
    path = f"/runs/{begin()['id']}/events"
    chunks = openai.Stream[ChatCompletionChunk]
    told = client.get(path, cast_to=ChatCompletionChunk, options={"params": {"events": "none"}}, stream=True, stream_cls=chunks)
    return {"text": "".join(chunk.choices[0].delta.content or "" for chunk in told)}


def session():
    options = {"agent": {"session_id": "sdk-session"}}
    first = client.chat.completions.create(model="test", messages=question, extra_body=options)
    more = [{"role": "user", "content": "And now?"}]
    second = client.chat.completions.create(model="test", messages=more, extra_body=options)
    return {
        "sessions": [first.agent["session_id"], second.agent["session_id"]],
        "contents": [first.choices[0].message.content, second.choices[0].message.content],
    }


def extension():
    text, events = "", []
    options = {"agent": {"events": "extension"}}
    for chunk in client.chat.completions.create(model="test", messages=question, stream=True, extra_body=options):
        text += chunk.choices[0].delta.content or ""
        event = (chunk.model_extra or {}).get("loopgate", {}).get("type")
        if event:
            events.append(event)
    return {"text": text, "events": events}


def models():
    return {"ids": [model.id for model in client.models.list()], "one": client.models.retrieve("scripted/test").id}


def failure(call):
    try:
        call()
    except openai.APIError as error:
        return {
            "error": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "code": error.code,
            "type": error.type,
            "param": error.param,
            "has_request_id": bool(getattr(error, "request_id", None)),
            "attempts": attempts,
        }
    raise SystemExit("no error was raised")


def unknown_model():
    return failure(lambda: client.chat.completions.create(model="nonsense", messages=question))


def provider_failure():
    return failure(lambda: client.chat.completions.create(model="test", messages=question))


def unauthorized():
    return failure(lambda: client.chat.completions.create(model="test", messages=question))


def quota():
    options = {"agent": {"limits": {"token_budget": 1}}}
    return failure(lambda: client.chat.completions.create(model="test", messages=question, extra_body=options))


def broken_stream():
    text = ""

    def read():
        nonlocal text
        for chunk in client.chat.completions.create(model="test", messages=question, stream=True):
            text += chunk.choices[0].delta.content or ""

    return failure(read) | {"text": text}


print(json.dumps(globals()[sys.argv[1]]()))
