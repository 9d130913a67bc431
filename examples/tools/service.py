"""Three tools for an agent, as HTTP endpoints in Python's standard library.

    python service.py                      # listens on 127.0.0.1:9000; --port 0 takes any free port
    loopgate serve --config loopgate.toml  # in another terminal, in this directory

    loopgate ask 'Call order with {"sku": "umbrella", "count": 2}'
"""

import argparse
import json
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

STOCK = {"umbrella": 12, "raincoat": 3}
ORDERS = {}  # by the key of their call, so that a call that comes again gets the same order
LOCK = Lock()


class Service(BaseHTTPRequestHandler):
    def do_GET(self):
        place = urllib.parse.urlsplit(self.path)
        if place.path == "/weather":
            city = urllib.parse.parse_qs(place.query).get("city", ["?"])[0]
            self.answer(200, {"city": city, "celsius": 7, "sky": "rain"})
        elif place.path.startswith("/stock/"):
            sku = urllib.parse.unquote(place.path.removeprefix("/stock/"))
            if sku in STOCK:
                self.answer(200, {"sku": sku, "in_stock": STOCK[sku]})
            else:
                # The model is told the body of an error too: say what would help it.
                self.answer(404, {"error": f"no {sku} here", "skus": sorted(STOCK)})
        else:
            self.answer(404, {"error": "no such path"})

    def do_POST(self):
        # The server has checked the arguments by the schema of the tool.
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        # After a crash an `idempotent` call may come a second time, with the same key.
        key = self.headers["idempotency-key"]
        with LOCK:
            if key not in ORDERS:
                if STOCK.get(order["sku"], 0) < order["count"]:
                    return self.answer(409, {"error": "not enough in stock", "in_stock": STOCK.get(order["sku"], 0)})
                STOCK[order["sku"]] -= order["count"]
                ORDERS[key] = {"order": f"O-{len(ORDERS) + 1}", **order}
            return self.answer(201, ORDERS[key])

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        # One write, as calls of `read` tools come at the same time.
        print(f"{self.command} {self.path} of {self.headers.get('x-loopgate-run-id')}\n", end="", flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=9000)
    server = ThreadingHTTPServer(("127.0.0.1", options.parse_args().port), Service)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
