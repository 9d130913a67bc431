"""A reader's shell: types the blocks of a page, one after the other, into a Bash of its own.

Ports, which a page names as they are by default, become free ones. `loopgate` is the program that was built, and a server
that stays in the foreground gets a terminal of its own. Everything that was started ends with the shell.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE

PORTS = ["8080", "8081", "8082", "8000", "8001", "9000", "6379"]
PATIENCE_S = 90
LAST_ID = re.compile(r"\b(run|call)_[0-9a-f]{32}\b")
SHOWN_ID = re.compile(r"\b(run|call)_[0-9a-f]{4,}…")
# What a shell says of what a page kills.
KILLED = re.compile(r"^bash: line \d+: +\d+ Killed .*\n", re.M)
FOREGROUND = re.compile(r"^((?:[A-Z_]+=\S+ )*(?:loopgate serve|python3 -m http\.server|node \S*(?:backend|tokens)\.mjs)[^&#\n]*?)( *#.*)?$", re.M)

# What stands before the programs of the machine. Nothing is built or installed: the program is there.
SHIMS = {
    "loopgate": r"""
port=8080_IS
for word in "$@"; do
    case ${before-} in --listen) port=${word##*:} ;; esac
    before=$word
done
[ "${1-}" != serve ] || echo $$ >"$SHELL_HOME/$port.pid"
exec "$LOOPGATE_REAL" "$@"
""",
    "cargo": 'case "$*" in "install --path .") ;; *) echo "not for a reader: cargo $*" >&2; exit 1 ;; esac\n',
    "python3": 'exec "$PYTHON_REAL" "$@"\n',
    "redis-server": r"""
words=()
for word in "$@"; do
    case $word in --daemonize) skip=yes ;; *) [ -n "${skip-}" ] || words+=("$word"); skip= ;; esac
done
"$REDIS_REAL" --port 6379_IS --dir "$SHELL_HOME" "${words[@]}" >/dev/null 2>&1 &
echo $! >"$SHELL_HOME/6379_IS.pid"
until (exec 3<>/dev/tcp/127.0.0.1/6379_IS) 2>/dev/null; do sleep 0.05; done
""",
}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return found


class Shell:
    def __init__(self, root, loopgate, python, modules):
        self.home = Path(tempfile.mkdtemp(prefix="loopgate-docs-"))
        self.ports = dict(zip(PORTS, free_ports(len(PORTS))))
        self.ids = {}
        self.count = 0
        shutil.copytree(root / "examples", self.home / "examples", ignore=shutil.ignore_patterns("node_modules"))
        for file in self.home.glob("examples/**/*"):
            if file.is_file():
                file.write_text(re.sub(r"\b(8080|8000|9000)\b", lambda m: self.ports[m[1]], file.read_text()))
        (self.home / "node_modules").symlink_to(modules)
        # As at a terminal, where curl shows no progress beside what it prints.
        (self.home / ".curlrc").write_text("silent\nshow-error\n")
        bin = self.home / "bin"
        bin.mkdir()
        for name, text in SHIMS.items():
            text = re.sub(r"(\d{4})_IS", lambda m: self.ports[m[1]], text)
            (bin / name).write_text(f"#!/usr/bin/env bash\n{text}")
            (bin / name).chmod(0o755)
        self.env = {
            "PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(self.home), "SHELL_HOME": str(self.home), "LANG": "C.UTF-8",
            "LOOPGATE_REAL": str(loopgate), "PYTHON_REAL": str(python), "REDIS_REAL": shutil.which("redis-server") or "",
            "LOOPGATE_LISTEN": f"127.0.0.1:{self.ports['8080']}", "LOOPGATE_URL": f"http://127.0.0.1:{self.ports['8080']}",
            "URL": f"http://127.0.0.1:{self.ports['8080']}", "LOOPGATE": f"http://127.0.0.1:{self.ports['8080']}", "KEY": "lg_web", "MODEL": "demo",
            "LOOPGATE_LOG_FORMAT": "json", "PYTHONUNBUFFERED": "1",
        }
        command = ["bash", "--norc"]
        pipes = {"stdin": PIPE, "stdout": DEVNULL, "stderr": DEVNULL}
        self.bash = subprocess.Popen(command, cwd=self.home, env=self.env, text=True, start_new_session=True, **pipes)

    def here(self, text):
        """A text of a page with the ports of this shell."""
        text = re.sub(r"(127\.0\.0\.1|localhost|0\.0\.0\.0):(\d{4})\b", lambda m: f"{m[1]}:{self.ports.get(m[2], m[2])}", text)
        text = re.sub(r"http\.server (\d{4})\b", lambda m: f"http.server {self.ports.get(m[1], m[1])}", text)
        text = re.sub(r"\bPORT=(\d{4})\b", lambda m: f"PORT={self.ports.get(m[1], m[1])}", text)
        return re.sub(r"redis://127\.0\.0\.1(?=\s|$)", f"redis://127.0.0.1:{self.ports['6379']}", text)

    def type(self, text):
        """Runs a block and returns what it printed, and whether it went well. Ids that are cut short are the last such ones."""
        if self.bash.poll() is not None:
            return "the shell has ended: see the block before\n", False
        self.count += 1
        out = self.home / f"{self.count}.out"
        text = SHOWN_ID.sub(lambda m: self.ids.get(m[1], m[0]), self.here(text))
        if re.search(r"^(\w+=\S+ )*loopgate serve(?!.*--listen)", text, re.M):
            self.stop(self.ports["8080"])
        awaited = self.awaited(text)
        text = FOREGROUND.sub(r"\1 &", text)
        done = self.home / f"{self.count}.done"
        # A pause of a page is for what it has started, however slow the machine is.
        wait = "".join(f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do command sleep 0.05; done; " for port in awaited)
        if "sleep" in text:
            text = f"sleep() {{ {wait}\n}}\n{text}"
            wait = ""
        # The block's own output alone: what servers in the background say later goes there as well.
        self.bash.stdin.write(f"exec >{out} 2>&1\nset -e\n{text}\n{wait}\nset +e\nexec >/dev/null 2>&1\necho >{done}\n")
        self.bash.stdin.flush()
        deadline = time.monotonic() + PATIENCE_S
        while not done.exists():
            if self.bash.poll() is not None or time.monotonic() > deadline:
                return out.read_text() if out.exists() else "", False
            time.sleep(0.02)
        printed = KILLED.sub("", out.read_text())
        for match in LAST_ID.finditer(printed):
            self.ids[match[1]] = match[0]
        return printed, True

    def awaited(self, text):
        """The ports of the servers that a block starts."""
        found = set()
        for line in text.split("\n"):
            if "loopgate serve" in line:
                listen = re.search(r"--listen \S*:(\d+)", line)
                found.add(listen[1] if listen else self.ports["8080"])
            elif "http.server" in line or re.search(r"node \S*(backend|tokens)\.mjs", line):
                found.add(re.search(r"(?:http\.server |PORT=)(\d+)", line)[1])
        return sorted(found)

    def stop(self, port):
        """Stops the server at a port, as the reader of a page is told to who starts another one."""
        pid = self.home / f"{port}.pid"
        if not pid.exists():
            return
        number = int(pid.read_text())
        os.kill(number, signal.SIGTERM)
        while True:
            try:
                os.kill(number, 0)
                # A child that nobody has waited for yet has ended all the same.
                if Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    break
            except (ProcessLookupError, FileNotFoundError):
                break
            time.sleep(0.02)
        pid.unlink()

    def serve(self, config="", variables=""):
        """Starts a server with this configuration in place of the one that there is."""
        (self.home / "loopgate.toml").write_text(self.here(config))
        exports = "".join(f"export {pair}\n" for pair in variables.split())
        return self.type(f"{exports}loopgate serve")

    def end(self):
        try:
            os.killpg(self.bash.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.bash.wait()
        shutil.rmtree(self.home, ignore_errors=True)
