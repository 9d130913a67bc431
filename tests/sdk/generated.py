"""Uses the client that was generated from the description: generated.py DIRECTORY URL"""

import json
import sys

sys.path.insert(0, sys.argv[1])

from described import Client, models
from described.api.completions import create_agent_completion, create_chat_completion
from described.api.runs import cancel_run, follow_run, get_run, list_runs
from described.api.sessions import create_session, get_session, list_session_messages

client = Client(base_url=sys.argv[2])
question = models.ChatMessage(role=models.ChatRole.USER, content="What is 6 * 7?")


def ask(operation, **more):
    body = models.CompletionRequest(messages=[question], model="demo", **more)
    return operation.sync(client=client, body=body)


plain = ask(create_chat_completion)
session = create_session.sync(client=client, body=models.CreateSession(metadata=None))
agent = ask(
    create_agent_completion,
    tool_choice=models.ChatToolMode.AUTO,
    stop=["never"],
    max_tokens=100,
    agent=models.AgentOptions(session_id=session.id, on_limit=models.OnLimit.STOP),
)
run = get_run.sync(agent.agent.run_id, client=client)
events = follow_run.sync(run.id, client=client, stream=False)
messages = list_session_messages.sync(session.id, client=client, limit=1)
refused = create_agent_completion.sync(
    client=client, body=models.CompletionRequest(messages=[question], model="nowhere")
)
print(json.dumps({
    "contents": [answer.choices[0].message.content for answer in (plain, agent)],
    "run": [run.status, run.agent.stop_reason],
    "cancelled": cancel_run.sync(run.id, client=client).status,
    "runs": len(list_runs.sync(client=client, status=models.RunStatus.COMPLETED).data),
    "events": [type(event).__name__ for event in events.data],
    "messages": [entry.message.role for entry in messages.data],
    "message_count": get_session.sync(session.id, client=client).message_count,
    "refused": refused.error.code,
}))
