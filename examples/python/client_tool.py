"""A tool that runs in the client: the run waits while the client calls it.

    pip install openai
    python client_tool.py
"""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("LOOPGATE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("LOOPGATE_KEY", "none"),
)
tools = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city now",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def get_weather(city: str) -> str:
    return f"7 °C and rain in {city}"


messages = [{"role": "user", "content": 'Call get_weather with {"city": "Oslo"}, and tell me what it says.'}]
while True:
    answer = client.chat.completions.create(model=os.environ.get("MODEL", "demo"), messages=messages, tools=tools)
    choice = answer.choices[0]
    if choice.finish_reason != "tool_calls":
        break
    # The run waits, without a connection, until all of these calls are answered. Their ids name it.
    messages.append(choice.message)
    for call in choice.message.tool_calls:
        arguments = json.loads(call.function.arguments)
        print(f"calling {call.function.name} {arguments}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": get_weather(**arguments)})
print(choice.message.content)
