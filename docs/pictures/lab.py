"""Loopgate at work, for the pictures beside this file: replicas of a real binary over a Redis of their own, and models, tools and
a collector of traces that answer by a script and take their time. Needs python3 and redis-server."""

import http.client
import json
import random
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL

REDIS = 16379
PORTS = (8081, 8082)
CONFIG = """
[upstreams.lab]
kind = "openai"
base_url = "http://127.0.0.1:{port}/lab/v1"
models = ["gpt-large", "gpt-small"]
[upstreams.distant]
kind = "openai"
base_url = "http://127.0.0.1:{port}/distant/v1"
models = ["qwen-large"]
[models.gpt-large]
price = {{ input = 2.5, output = 10.0 }}
[models.gpt-small]
price = {{ input = 0.15, output = 0.6 }}
[models.qwen-large]
price = {{ input = 0.8, output = 2.4 }}
[agents.default]
tools = ["search", "calculator"]
[agents.default.limits]
max_iterations = 40
[agents.researcher]
model = "lab/gpt-large"
[agents.researcher.limits]
max_iterations = 6
[agents.support]
model = "distant/qwen-large"
tools = ["tickets", "search"]
[tools.search]
description = "Searches the archive"
method = "POST"
url = "http://127.0.0.1:{port}/search"
effect = "read"
timeout = "20s"
parameters = {{ type = "object", properties = {{ query = {{ type = "string" }} }} }}
[tools.tickets]
description = "Finds a customer's tickets"
method = "POST"
url = "http://127.0.0.1:{port}/tickets"
effect = "idempotent"
timeout = "20s"
parameters = {{ type = "object", properties = {{ query = {{ type = "string" }} }} }}
[traces]
endpoint = "http://127.0.0.1:{port}"
"""
WORDS = ["rivers", "bend", "where", "the", "ground", "is", "soft"]


class Services(BaseHTTPRequestHandler):
    """Models that call tools some times and then answer, the tools, and a collector. `server.lab` says how they are."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        lab = self.server.lab
        if self.path == "/v1/traces":
            return self.reply(503 if random.random() < lab.failing else 200, "application/x-protobuf", "")
        if self.path == "/search":
            time.sleep(lab.pace * random.uniform(0.1, 1))
            return self.answer(200, {"found": ["rivers", "bridges"]})
        if self.path == "/tickets":
            time.sleep(lab.pace * random.expovariate(1.5))
            return self.answer(*random.choice([(200, {"tickets": [7]})] * 6 + [(500, {"error": "the archive is closed"})]))
        slow = 3 if self.path.startswith("/distant") else 1
        time.sleep(slow * lab.pace * random.uniform(0.3, 1))
        if random.random() < (lab.failing if slow == 1 else 0.03):
            return self.answer(*random.choice([(503, {"error": {"message": "busy"}}), (429, {"error": {"message": "slow down"}})]))
        self.speak(json.loads(body), slow * lab.pace)

    def speak(self, asked, pace):
        steps = sum(message["role"] == "tool" for message in asked["messages"])
        used = {"prompt_tokens": 400 + 350 * steps, "completion_tokens": 60, "total_tokens": 460 + 350 * steps}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        names = [tool["function"]["name"] for tool in asked.get("tools", [])]
        if names and steps < random.randint(0, 8):
            name = random.choice(names)
            arguments = {"expression": f"6 * {steps}"} if name == "calculator" else {"query": f"rivers {steps}"}
            function = {"name": name, "arguments": json.dumps(arguments)}
            self.say(asked, {"tool_calls": [{"index": 0, "id": f"call_{steps}", "type": "function", "function": function}]})
            end = "tool_calls"
        else:
            for _ in range(20):
                self.say(asked, {"content": " ".join(random.choices(WORDS, k=3)) + " "})
                time.sleep(pace * random.uniform(0.02, 0.08))
            end = "stop"
        self.say(asked, {}, end)
        self.chunk(asked, choices=[], usage=used)
        self.piece("data: [DONE]\n\n")
        self.piece("")

    def say(self, asked, delta, end=None):
        self.chunk(asked, choices=[{"index": 0, "delta": delta, "finish_reason": end}])

    def chunk(self, asked, **more):
        event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": asked["model"], **more}
        self.piece(f"data: {json.dumps(event)}\n\n")

    def piece(self, text):
        self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())

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


class Quiet(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_):
        """Who asked is gone, as it happens when a replica is killed."""


class Lab:
    """Two replicas and everything around them, until the end of a `with`."""

    def __init__(self, binary, pace):
        self.binary = str(Path(binary).resolve())
        self.urls = [f"http://127.0.0.1:{port}" for port in PORTS]
        # How slow models and tools are, and how many of their answers are errors.
        self.pace, self.failing = pace, 0.05
        self.others, self.replicas = [], [None for _ in PORTS]

    def __enter__(self):
        self.services = Quiet(("127.0.0.1", 0), Services)
        self.services.lab = self
        threading.Thread(target=self.services.serve_forever, daemon=True).start()
        self.directory = tempfile.TemporaryDirectory()
        config = Path(self.directory.name, "loopgate.toml")
        config.write_text(CONFIG.format(port=self.services.server_address[1]))
        self.others.append(self.start("redis-server", "--port", str(REDIS), "--appendonly", "yes"))
        for number in range(len(PORTS)):
            self.start_replica(number)
        for url in self.urls:
            self.until_ready(url + "/readyz")
        return self

    def __exit__(self, *_):
        for process in self.replicas + self.others[::-1]:
            process.terminate()
            process.wait()
        self.services.shutdown()
        self.directory.cleanup()

    def start(self, *command, **more):
        """Starts a program in the lab's directory."""
        return subprocess.Popen(command, cwd=self.directory.name, stderr=DEVNULL, **{"stdout": DEVNULL, **more})

    def start_replica(self, number):
        listen, store = f"127.0.0.1:{PORTS[number]}", f"redis://127.0.0.1:{REDIS}"
        arguments = ["serve", "--config", "loopgate.toml", "--listen", listen, "--store", store]
        self.replicas[number] = self.start(self.binary, *arguments)

    def kill_replica(self, number):
        self.replicas[number].send_signal(signal.SIGKILL)
        self.replicas[number].wait()

    def until_ready(self, url):
        for _ in range(200):
            try:
                return urllib.request.urlopen(url).read()
            except OSError:
                time.sleep(0.1)
        raise TimeoutError(url)

    def ask(self, path, body, replica):
        """Sends a request and reads its answer. A refusal and a replica that is gone are answers too."""
        request = urllib.request.Request(self.urls[replica] + path, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            return urllib.request.urlopen(request).read()
        except (OSError, http.client.HTTPException):
            return b""
