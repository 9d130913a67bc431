"""Makes docs/pictures/top.svg of a real run: docs/pictures/top.py LOOPGATE

Lets some dozens of runs go on at two replicas of the binary LOOPGATE, and draws what `loopgate top --once` prints then. `lab.py`
has what is around the replicas.
"""

import os
import random
import sys
import time
from html import escape
from pathlib import Path
from subprocess import PIPE

from lab import Lab

QUESTIONS = 24


def main():
    with Lab(sys.argv[1], pace=4) as lab:
        for number in range(QUESTIONS):
            model = random.choice(["gpt-large", "gpt-large", "gpt-small"])
            body = {"model": model, "messages": [{"role": "user", "content": "Why do rivers bend?"}],
                    "agent": {"background": True, "session_id": f"desk-{number:02}"}}
            lab.ask("/v1/chat/completions", body, number % 2)
            time.sleep(0.6)
        servers = [part for url in lab.urls for part in ("--server", url)]
        top = lab.start(lab.binary, "top", "--once", *servers, stdout=PIPE, env={**os.environ, "COLUMNS": "112"})
        table = top.communicate()[0].decode()
    Path(__file__).with_name("top.svg").write_text(drawn(table.splitlines()))


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
