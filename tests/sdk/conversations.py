"""Conversations, as the official OpenAI client for Python and OpenAI's agents use them.

Usage: conversations.py CASE BASE_URL. Prints one line of JSON, what a user would see.
"""

import asyncio
import json
import sys

import openai

base = {"base_url": sys.argv[2] + "/v1", "api_key": "sk-test"}
client = openai.OpenAI(http_client=openai.DefaultHttpxClient(trust_env=False), **base)
unhurried = openai.AsyncOpenAI(http_client=openai.DefaultAsyncHttpxClient(trust_env=False), **base)


def said(item):
    return [item.type, item.role, item.content[0].text] if item.type == "message" else [item.type]


def refused(call):
    try:
        call()
    except openai.APIStatusError as error:
        return [error.status_code, error.code]
    return None


def conversation():
    conversations = client.conversations
    made = conversations.create(
        metadata={"a": "b"}, items=[{"type": "message", "role": "user", "content": "My name is Ada."}]
    )
    client.responses.create(model="test", input="Hi", conversation=made.id)
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "Seen"}
    added = conversations.items.create(made.id, items=[call, output, {"role": "assistant", "content": "Done."}])
    ascending = list(conversations.items.list(made.id, order="asc", limit=2))
    newest = list(conversations.items.list(made.id, limit=4))
    last = newest[0]
    one = conversations.items.retrieve(last.id, conversation_id=made.id)
    not_last = refused(lambda: conversations.items.delete(ascending[0].id, conversation_id=made.id))
    left = conversations.items.delete(last.id, conversation_id=made.id)
    gone = refused(lambda: conversations.items.retrieve(last.id, conversation_id=made.id))
    updated = conversations.update(made.id, metadata={"c": "d"})
    deleted = conversations.delete(made.id)
    return {
        "made": [made.object, made.id.startswith("conv_"), made.metadata],
        "added": [item.type for item in added.data],
        "items": [said(item) for item in ascending],
        "same": [item.id for item in reversed(newest)] == [item.id for item in ascending],
        "one": said(one),
        "not_last": not_last,
        "left": left.id == made.id,
        "gone": gone,
        "updated": updated.metadata,
        "deleted": [deleted.object, deleted.deleted],
        "after": refused(lambda: conversations.retrieve(made.id)),
    }


async def session_of_agents():
    # It takes seconds to load, which the other case does without.
    import agents

    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel(model="test", openai_client=unhurried)
    agent = agents.Agent(name="tester", model=model)
    session = agents.OpenAIConversationsSession(openai_client=unhurried)
    texts = [(await agents.Runner.run(agent, text, session=session)).final_output for text in ["Hi", "And now?"]]
    contents = [item["content"][0]["text"] for item in await session.get_items()]
    newest = [item["content"][0]["text"] for item in await session.get_items(limit=1)]
    popped = await session.pop_item()
    left = len(await session.get_items())
    await session.add_items([{"role": "user", "content": str(number)} for number in range(45)])
    many = len(await session.get_items())
    await session.clear_session()
    return {
        "texts": texts,
        "contents": contents,
        "newest": newest,
        "popped": popped["content"][0]["text"],
        "left": left,
        "many": many,
    }


case = {"conversation": conversation, "session_of_agents": lambda: asyncio.run(session_of_agents())}[sys.argv[1]]
print(json.dumps(case()))
