"""Loopgate as a chat model of LangChain: the server calls its own tools, and LangChain sees a model that answers.

    pip install langchain-openai
    python langchain_chat.py
"""

import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    base_url=os.environ.get("LOOPGATE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("LOOPGATE_KEY", "none"),
    model=os.environ.get("MODEL", "demo"),
)

# Tools of the server: nothing is to be seen of them but the answer.
for chunk in model.stream("What is 1234 * 5678?"):
    print(chunk.text, end="", flush=True)
print()


# A tool of the program: the run waits while LangChain's side calls it.
@tool
def get_weather(city: str) -> str:
    """The weather in a city now"""
    return f"7 °C and rain in {city}"


with_tool = model.bind_tools([get_weather])
messages = [("user", 'Call get_weather with {"city": "Oslo"}, and tell me what it says.')]
answer = with_tool.invoke(messages)
for call in answer.tool_calls:
    print("calling", call["name"], call["args"])
results = [get_weather.invoke(call) for call in answer.tool_calls]
print(with_tool.invoke([*messages, answer, *results]).text)
