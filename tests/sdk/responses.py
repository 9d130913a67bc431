"""The official OpenAI client for Python, used as its users use it with responses.

Usage: responses.py CASE BASE_URL. Prints one line of JSON, what a user would see; responses.mjs prints the same.

Checks of `openai` for Python, responses:
  text: plain, streamed
  server tool: streamed
  client tool: client_tool, transcript
  approval: approval
  structured output: structured
  failure: unknown_model, broken_stream
  limit: limited
  cancel: cancelled
  resume: resumed
  background: background
"""

import json
import sys
import time

import openai
import pydantic

attempts = 0


def count(_request):
    global attempts
    attempts += 1


client = openai.OpenAI(
    base_url=sys.argv[2] + "/v1",
    api_key="sk-test",
    http_client=openai.DefaultHttpxClient(trust_env=False, event_hooks={"request": [count]}),
)
weather = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
gated = {"type": "mcp", "server_label": "loopgate", "server_description": "Tools.", "require_approval": "always"}


def create(**more):
    return client.responses.create(**({"model": "test", "input": "Hi"} | more))


def seen(response):
    return {
        "text": response.output_text,
        "status": response.status,
        "items": [item.type for item in response.output],
        "total_tokens": response.usage.total_tokens if response.usage else None,
    }


def plain():
    response = create(instructions="Be short.", metadata={"a": "b"})
    return seen(response) | {"metadata": response.metadata}


def streamed():
    text, types, numbers = "", [], []
    with client.responses.stream(model="test", input="Hi") as events:
        for event in events:
            text += event.delta if event.type == "response.output_text.delta" else ""
            types.append(event.type)
            numbers.append(event.sequence_number)
        final = events.get_final_response()
    gaps = numbers != list(range(len(numbers)))
    return seen(final) | {"first": types[0], "last": types[-1], "gaps": gaps, "same": text == final.output_text}


def client_tool():
    response, called = create(tools=[weather]), []
    while calls := [item for item in response.output if item.type == "function_call"]:
        called += [[call.name, json.loads(call.arguments)] for call in calls]
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in calls]
        response = create(input=outputs, previous_response_id=response.id, tools=[weather])
    return seen(response) | {"called": called}


def transcript():
    messages, called = [{"role": "user", "content": "Hi"}], []
    while True:
        response = create(input=messages, tools=[weather], store=False)
        # The output goes back as it came.
        messages += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return seen(response) | {"called": called}
        for call in calls:
            called.append([call.name, json.loads(call.arguments)])
            messages.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})


def approval():
    first = create(tools=[gated])
    asked = [item for item in first.output if item.type == "mcp_approval_request"]
    answers = [{"type": "mcp_approval_response", "approval_request_id": item.id, "approve": True} for item in asked]
    second = create(input=answers, previous_response_id=first.id, tools=[gated])
    return {"asked": [[item.name, json.loads(item.arguments)] for item in asked]} | seen(second)


class Number(pydantic.BaseModel):
    n: int


def structured():
    response = client.responses.parse(model="test", input="Hi", text_format=Number)
    return {"n": response.output_parsed.n}


def limited():
    response = create(extra_body={"agent": {"limits": {"max_iterations": 1}}})
    return seen(response) | {"reason": response.incomplete_details.reason}


def failure(call):
    try:
        call()
    except openai.APIError as error:
        status = getattr(error, "status_code", None)
        return {"status": status, "code": error.code, "param": error.param, "attempts": attempts}
    raise SystemExit("no error was raised")


def unknown_model():
    return failure(lambda: create(model="nonsense"))


def broken_stream():
    text, last = "", None

    def read():
        nonlocal text, last
        for event in create(stream=True):
            text += event.delta if event.type == "response.output_text.delta" else ""
            last = event.type

    told = failure(read)
    return {"text": text, "code": told["code"], "attempts": told["attempts"]}


def resumed():
    events = []
    with create(stream=True, background=True) as stream:
        for event in stream:
            events.append(event)
            if event.type == "response.output_item.added":
                break
    rest = client.responses.retrieve(
        events[0].response.id, stream=True, starting_after=events[-1].sequence_number
    )
    events += list(rest)
    numbers = [event.sequence_number for event in events]
    return seen(events[-1].response) | {"gaps": numbers != list(range(len(numbers)))}


def background():
    response = create(background=True)
    while response.status in ("queued", "in_progress"):
        time.sleep(0.05)
        response = client.responses.retrieve(response.id)
    items = client.responses.input_items.list(response.id)
    told = seen(response) | {"input": [item.content[0].text for item in items]}
    client.responses.delete(response.id)
    try:
        client.responses.retrieve(response.id)
    except openai.NotFoundError as error:
        return told | {"gone": error.code}


def cancelled():
    response = create(background=True)
    response = client.responses.cancel(response.id)
    return {"status": response.status, "again": client.responses.cancel(response.id).status}


def chained():
    first = create()
    second = create(input="And now?", previous_response_id=first.id)
    return {"texts": [first.output_text, second.output_text]}


print(json.dumps(globals()[sys.argv[1]]()))
