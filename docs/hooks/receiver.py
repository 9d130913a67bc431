"""Receives messages of Loopgate's hooks, and believes only those that are signed with the secret.

Usage: WEBHOOK_SECRET=whsec_… python3 receiver.py PORT
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
TOLERANCE_S = 300
seen = set()  # Ids of messages that were handled. A service with several processes keeps them in a database.


def is_genuine(headers, body):
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    signatures = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(f"v1,{expected}", signature) for signature in signatures)


def texts(value):
    """All texts in a JSON value. In `input_raw` they would be as the model wrote them: `rm\\u0020x` is `rm x`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)


def decide(message):
    """What is to become of a call: here, no command may delete files."""
    if message["event"] == "before_tool" and any("rm " in text for text in texts(message.get("input"))):
        return {"decision": "block", "reason": "Files are not deleted here."}
    if message["event"] == "guardrail":
        return judge(message)
    return {}


def judge(message):
    """Whether a text passes a guardrail: here, none may speak of passwords."""
    if "password" in message["text"].lower():
        return {"verdict": "fail", "reason": "It speaks of passwords."}
    return {"verdict": "pass"}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not is_genuine(self.headers, body):
            return self.answer(401, {"error": "the signature is not valid"})
        message, message_id = json.loads(body), self.headers["webhook-id"]
        if message["event"] == "run_end" and message_id not in seen:
            seen.add(message_id)
            print(message["run_id"], message["run"]["status"], flush=True)
        self.answer(200, decide(message))

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
