"""A conversation that the server keeps: each request sends only the new message.

    pip install openai
    python session.py
"""

import os
import uuid

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("LOOPGATE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("LOOPGATE_KEY", "none"),
)
session = f"sess_{uuid.uuid4().hex}"


def ask(question: str) -> str:
    answer = client.chat.completions.create(
        model=os.environ.get("MODEL", "demo"),
        messages=[{"role": "user", "content": question}],
        # The server makes the session at the first request that names it.
        extra_body={"agent": {"session_id": session}},
    )
    return answer.choices[0].message.content


print(ask("My name is Ada."))
print(ask("What is my name?"))

# What the server keeps of it. `client.get` is the SDK's way to paths that it has no method for.
history = client.get(f"/sessions/{session}/messages", cast_to=object)
for entry in history["data"]:
    print(entry["index"], entry["message"]["role"], entry["message"]["content"])
