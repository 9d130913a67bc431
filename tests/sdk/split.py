"""What published clients for Python read of a stream, however its bytes are split.

Usage: split.py DIALECT BASE_URL. BASE_URL/SIZE/FIRST has the stream in pieces of SIZE bytes, of which the first has FIRST; a
SIZE of 0 means one piece. Prints one line of JSON: how many events there are, and for which splits they are others.
"""

import json
import sys

import anthropic
import openai

dialect, url = sys.argv[1:]
over = openai.DefaultHttpxClient(trust_env=False)
messages = [{"role": "user", "content": "Hi"}]


def openai_at(base):
    return openai.OpenAI(base_url=base + "/v1", api_key="sk-test", max_retries=0, http_client=over)


def chat(base):
    return openai_at(base).chat.completions.create(model="test", messages=messages, stream=True)


def agent(base):
    body = {"model": "test", "messages": messages}
    return openai_at(base).post(
        "/agent/completions", body=body, cast_to=object, stream=True, stream_cls=openai.Stream[object]
    )


def responses(base):
    return openai_at(base).responses.create(model="test", input="Hi", stream=True)


def of_anthropic(base):
    client = anthropic.Anthropic(base_url=base, api_key="sk-test", max_retries=0, http_client=over)
    return client.messages.create(model="test", max_tokens=100, messages=messages, stream=True)


def read(base):
    reads = {"chat": chat, "agent": agent, "responses": responses, "messages": of_anthropic}
    events = list(reads[dialect](base))
    return [event.to_dict(warnings=False) if hasattr(event, "to_dict") else event for event in events]


whole = read(f"{url}/0/0")
splits = [(1, 0)] + [(61, first) for first in range(61)]
different = [split for split in splits if read(f"{url}/{split[0]}/{split[1]}") != whole]
print(json.dumps({"events": len(whole), "different": different}))
