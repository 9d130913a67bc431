"""Streams an answer with OpenAI's client: text as it is written, tool calls as they happen.

    pip install openai
    python stream.py                       # with LOOPGATE_URL, LOOPGATE_KEY and MODEL if they are not the usual
"""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("LOOPGATE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("LOOPGATE_KEY", "none"),
)
stream = client.chat.completions.create(
    model=os.environ.get("MODEL", "demo"),
    messages=[{"role": "user", "content": "What is 1234 * 5678?"}],
    stream=True,
    # What OpenAI does not know goes into `extra_body`. With "extension" the server's events ride on ordinary chunks.
    extra_body={"agent": {"events": "extension"}},
)
for chunk in stream:
    event = (chunk.model_extra or {}).get("loopgate", {})
    if event.get("type") == "tool.call":
        print(f"-> {event['name']} {event['arguments']}")
    if event.get("type") == "tool.result":
        print(f"<- {event['content']}")
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
print()
