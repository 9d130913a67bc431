"""A model by rules, and a tool, over HTTP: what a coding agent is answered, by what it was asked."""

import http.server
import json
import threading

# A shell of the client by the name that an agent gives it, and how it is told to say 42.
SHELLS = {
    "Bash": {"command": "echo 6x7=$((6*7))", "description": "Counts"},
    "exec_command": {"cmd": "echo 6x7=$((6*7))"},
    "shell_command": {"command": "echo 6x7=$((6*7))"},
    "shell": {"command": ["bash", "-lc", "echo 6x7=$((6*7))"]},
}
HELLO = "Hello from the model."
REFUSAL = "No such thing."


class Upstream:
    """Listens until the process ends. `requests` are the bodies that the model was sent, `notes` what the tool was."""

    def __init__(self):
        self.requests, self.notes = [], []
        told = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                send(self, 200, {"object": "list", "data": []})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/note":
                    told.notes.append(body)
                    send(self, 200, {"noted": True})
                else:
                    told.requests.append(body)
                    answer(self, body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def answer(handler, body):
    """What the model says. The task is named by a word in capitals in what the user says."""
    messages = body["messages"]
    said = json.dumps([message["content"] for message in messages if message["role"] == "user"])
    offered = [tool["function"]["name"] for tool in body.get("tools") or []]
    result = messages[-1]["content"] if messages[-1]["role"] == "tool" else None
    if "REFUSED" in said or (result is not None and "NOTE" in said):
        send(handler, 400, {"error": {"message": REFUSAL, "type": "invalid_request_error", "code": "bad"}})
    elif result is not None and "BROKEN" in said:
        stream(handler, [{"content": "It is "}], None)
    elif result is not None:
        stream(handler, [{"content": "It says: " + json.dumps(result)}], "stop")
    elif "SHELL" in said:
        name = next(name for name in SHELLS if name in offered)
        stream(handler, [call(name, SHELLS[name])], "tool_calls")
    elif "COUNT" in said:
        stream(handler, [call("calculator", {"expression": "6 * 7"})], "tool_calls")
    elif "NOTE" in said or "BROKEN" in said:
        stream(handler, [call("note", {"note": "x"})], "tool_calls")
    else:
        stream(handler, [{"content": HELLO[:6]}, {"content": HELLO[6:]}], "stop")


def call(name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}


def send(handler, status, body):
    text = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


def stream(handler, deltas, reason):
    """Streams an answer; without a reason the stream breaks off."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "test"}
    chunks = [about | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if reason:
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        chunks += [about | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}]
        chunks += [about | {"choices": [], "usage": usage}]
    for chunk in chunks:
        handler.wfile.write(b"data: %s\n\n" % json.dumps(chunk).encode())
    if reason:
        handler.wfile.write(b"data: [DONE]\n\n")
