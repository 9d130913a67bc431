"""Makes docs/pictures/top.svg of a real run: docs/pictures/top.py LOOPGATE

Starts two replicas of the binary LOOPGATE over a Redis of their own, with a model that answers by a script and takes its time,
lets some dozens of runs go on, and draws what `loopgate top --once` prints then. Needs python3 and redis-server.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL, PIPE

QUESTIONS = 24
CONFIG = """
[upstreams.lab]
kind = "openai"
base_url = "http://127.0.0.1:{model}/v1"
models = ["gpt-large", "gpt-small"]
[models.gpt-large]
price = {{ input = 2.5, output = 10.0 }}
[models.gpt-small]
price = {{ input = 0.15, output = 0.6 }}
[agents.default]
tools = ["search", "calculator"]
[agents.default.limits]
max_iterations = 40
[tools.search]
description = "Searches the archive"
method = "POST"
url = "http://127.0.0.1:{model}/search"
effect = "read"
timeout = "20s"
parameters = {{ type = "object", properties = {{ query = {{ type = "string" }} }} }}
"""


class Model(BaseHTTPRequestHandler):
    """Calls a tool some times and then answers; one request in twenty fails."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(random.uniform(0.5, 4))
        if self.path == "/search":
            return self.answer(200, {"found": ["rivers", "bridges"]})
        if random.random() < 0.05:
            return self.answer(503, {"error": {"message": "busy", "type": "server_error"}})
        steps = sum(message["role"] == "tool" for message in body["messages"])
        text = " ".join(random.choices(["rivers", "bend", "where", "the", "ground", "is", "soft"], k=60))
        message = {"role": "assistant", "content": text}
        if steps < random.randint(2, 9):
            name, arguments = random.choice([("search", {"query": f"rivers {steps}"}), ("calculator", {"expression": f"6 * {steps}"})])
            call = {"id": f"call_{steps}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"prompt_tokens": 400 + 350 * steps, "completion_tokens": 120, "total_tokens": 520 + 350 * steps}
        self.stream(body["model"], message, usage)

    def stream(self, model, message, usage):
        def chunk(**more):
            event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model, **more}
            return f"data: {json.dumps(event)}\n\n"

        for index, call in enumerate(message.get("tool_calls", [])):
            call["index"] = index
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choice = [{"index": 0, "delta": message, "finish_reason": None}]
        end = [{"index": 0, "delta": {}, "finish_reason": reason}]
        chunks = chunk(choices=choice) + chunk(choices=end) + chunk(choices=[], usage=usage)
        self.reply(200, "text/event-stream", chunks + "data: [DONE]\n\n")

    def answer(self, status, value):
        self.reply(status, "application/json", json.dumps(value))

    def reply(self, status, kind, text):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def main():
    binary = str(Path(sys.argv[1]).resolve())
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "loopgate.toml")
        config.write_text(CONFIG.format(model=model.server_address[1]))
        redis, urls = 16379, ["http://127.0.0.1:8081", "http://127.0.0.1:8082"]
        started = [start(directory, "redis-server", "--port", str(redis), "--appendonly", "yes")]
        for url in urls:
            listen, store = url.removeprefix("http://"), f"redis://127.0.0.1:{redis}"
            started.append(start(directory, binary, "serve", "--config", str(config), "--listen", listen, "--store", store))
        try:
            until_ready(urls)
            for number in range(QUESTIONS):
                ask(urls[number % 2], number)
                time.sleep(0.6)
            servers = [part for url in urls for part in ("--server", url)]
            top = start(directory, binary, "top", "--once", *servers, stdout=PIPE, env={**os.environ, "COLUMNS": "112"})
            table = top.communicate()[0].decode()
        finally:
            for process in started[::-1]:
                process.terminate()
                process.wait()
    Path(__file__).with_name("top.svg").write_text(drawn(table.splitlines()))


def start(directory, *command, stdout=DEVNULL, env=None):
    return subprocess.Popen(command, cwd=directory, stdout=stdout, stderr=DEVNULL, env=env)


def until_ready(urls):
    for url in urls:
        for _ in range(100):
            try:
                urllib.request.urlopen(url + "/readyz")
                break
            except OSError:
                time.sleep(0.1)


def ask(url, number):
    model = random.choice(["gpt-large", "gpt-large", "gpt-small"])
    body = {"model": model, "messages": [{"role": "user", "content": "Why do rivers bend?"}],
            "agent": {"background": True, "session_id": f"desk-{number:02}"}}
    headers = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), headers)).read()


def drawn(lines):
    """The lines as a terminal shows them."""
    width, height = 8.4 * max(map(len, lines)) + 32, 19 * len(lines) + 28
    text = []
    for number, line in enumerate(lines):
        bold = ' font-weight="bold"' if line.startswith(("REPLICA", "RUN ")) else ""
        text.append(f'<text x="16" y="{30 + 19 * number}"{bold} xml:space="preserve">{escape(line)}</text>')
    box = f'viewBox="0 0 {width:.0f} {height}" font-family="monospace" font-size="14" fill="#d8dee9"'
    back = '<rect width="100%" height="100%" rx="8" fill="#1f2430"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', back, *text, "</svg>", ""])


main()
