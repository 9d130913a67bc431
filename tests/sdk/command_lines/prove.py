"""Drives coding agents of the command line, without a person, against a server whose model goes by rules.

Usage: prove.py LOOPGATE PROGRAMS, where PROGRAMS is the directory `node_modules/.bin` with `codex` and `claude`. Prints a
line for each thing that was asked of each, and fails if one of them was not as it should be.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from upstream import HELLO, REFUSAL, Upstream

CONFIG = """
[server]
drain_delay = "0s"

[upstreams.scripted]
kind = "openai"
base_url = "{url}/v1"
models = ["test"]
free = true

[agents.coder]
model = "scripted/test"
tools = ["calculator", "note"]

[tools.note]
description = "Notes something"
method = "POST"
url = "{url}/note"
effect = "write"
parameters = {{ type = "object", properties = {{ note = {{ type = "string" }} }}, required = ["note"] }}
"""
CODEX = """
model = "coder"
model_provider = "loopgate"

[model_providers.loopgate]
name = "Loopgate"
base_url = "{url}/v1"
env_key = "LOOPGATE_KEY"
wire_api = "responses"
http_headers = {{ "x-loopgate-agent" = '{agent}' }}
"""
# An agent does nothing here that takes long.
AT_MOST_S = 120


def codex(programs, home, url, prompt, agent):
    """What Codex says at last, and whether it says that it succeeded."""
    home.joinpath("config.toml").write_text(CODEX.format(url=url, agent=json.dumps(agent)))
    command = [programs / "codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    done = run([*command, prompt], home, {"CODEX_HOME": str(home), "LOOPGATE_KEY": "sk-test"})
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    said = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
    said += [event["error"]["message"] for event in events if event["type"] == "turn.failed"]
    return (said or [done.stdout + done.stderr])[-1], done.returncode == 0


def claude(programs, home, url, prompt, agent):
    """The same of Claude Code."""
    variables = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-test",
        "ANTHROPIC_MODEL": "coder",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "coder",
        "ANTHROPIC_CUSTOM_HEADERS": "x-loopgate-agent: " + json.dumps(agent),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        # It would ask for the whole answer again, three times, where a stream brought nothing but an error.
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        # It makes no calls as root otherwise.
        "IS_SANDBOX": "1",
    }
    command = [programs / "claude", "-p", prompt, "--output-format", "json", "--allowedTools", "Bash"]
    done = run(command, home, variables)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return told[-1]["result"] if told else done.stdout + done.stderr, done.returncode == 0


def run(command, home, variables):
    work = home / "work"
    work.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)} | variables
    # Nothing is to be read: they would wait for it.
    return subprocess.run(command, cwd=work, env=environment, input="", capture_output=True, text=True, timeout=AT_MOST_S)


class Server:
    """A server with the scripted upstream."""

    def __init__(self, loopgate, directory, upstream):
        directory.joinpath("loopgate.toml").write_text(CONFIG.format(url=upstream.url))
        self.log = directory / "log"
        command = [loopgate, "serve", "--listen", "127.0.0.1:0", "--store", "memory:"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
        while True:
            listening = [line for line in self.log.read_text().splitlines() if "listens on http://" in line]
            if listening:
                self.url = json.loads(listening[0])["message"].split(" listens on ")[1]
                break
            if self.process.poll() is not None:
                raise SystemExit(self.log.read_text())
            time.sleep(0.05)

    def runs(self):
        with urllib.request.urlopen(self.url + "/v1/runs") as answer:
            return json.load(answer)["data"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


LIMIT = {"limits": {"max_iterations": 1}}
# What each is asked: the prompt, whether it succeeds, what it says, and how often the tool is called.
TASKS = {
    "text": ("Say hello.", True, HELLO, 0),
    "client tool": ("Use the SHELL.", True, "6x7=42", 0),
    "server tool": ("Please COUNT.", True, "42", 0),
    # Both take it for the limit of the model's output. Claude Code goes on three times before it gives up.
    "limit": ("Please COUNT.", False, "output", 0),
    "failure": ("This is REFUSED.", False, REFUSAL, 0),
    "failure after a tool": ("Take a NOTE.", False, REFUSAL, 1),
    "text that breaks off after a tool": ("This is BROKEN.", False, "", 1),
}


def prove(agent, loopgate, programs):
    """Complaints about an agent."""
    complaints = []
    for task, (prompt, succeeds, words, calls) in TASKS.items():
        with tempfile.TemporaryDirectory() as directory:
            directory, upstream = pathlib.Path(directory), Upstream()
            server = Server(loopgate, directory, upstream)
            try:
                options = LIMIT if task == "limit" else {}
                said, succeeded = agent(programs, directory, server.url, prompt, options)
                runs = len(server.runs())
            finally:
                server.stop()
            is_right = succeeded == succeeds and words in said and len(upstream.notes) == calls
            print(f"{agent.__name__:8}{task:36}{'as it should be' if is_right else 'WRONG'}, runs: {runs}, "
                  f"model calls: {len(upstream.requests)}, tool calls: {len(upstream.notes)}", flush=True)
            if not is_right:
                complaints.append(f"{agent.__name__}, {task}: {said!r}\n{server.log.name}")
    return complaints


def main():
    loopgate, programs = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    complaints = [complaint for agent in (codex, claude) for complaint in prove(agent, loopgate, programs)]
    sys.exit("\n".join(complaints) if complaints else 0)


main()
