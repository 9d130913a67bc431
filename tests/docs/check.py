"""Runs or checks every block of code in the README and below docs: check.py LOOPGATE [PAGE…]

`sh` is typed into a shell, against a server with the demo model, and what the page shows below it must be what it prints.
`toml` must be a configuration. `json` must be JSON, of members that the description of the API has; a request must be a valid one.
`python` and `js` must compile; those that are no fragments are run. `yaml`, `http` and `markdown` must be what they say.
A comment above a block says why it is not run; EXCEPTED lists how many there are, so that none is added unseen.

It believes what it does not read: sentences, tables but for their tests, comments within blocks, and the values of JSON that no
block before it prints.
"""

import ast
import base64
import collections
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema
import yaml

import pages
import shown
from shell import Shell

ROOT = Path(__file__).resolve().parents[2]
API = json.loads((ROOT / "openapi/openapi.json").read_text())
COMPLETIONS = ("/v1/agent/completions", "/v1/chat/completions")

# The blocks that are not run, and those that nothing reads, by page. Each says why in its page. Only ever shorter.
EXCEPTED = {
    "README.md": 4,
    "docs/api.md": 2,
    "docs/backup.md": 1,
    "docs/budgets.md": 1,
    "docs/cli.md": 3,
    "docs/clients.md": 2,
    "docs/concepts.md": 1,
    "docs/configuration.md": 1,
    "docs/context.md": 3,
    "docs/deployment.md": 3,
    "docs/kubernetes.md": 6,
    "docs/loop.md": 1,
    "docs/mcp.md": 1,
    "docs/memory.md": 1,
    "docs/messages.md": 1,
    "docs/prompts.md": 1,
    "docs/responses.md": 1,
    "docs/run-code.md": 2,
    "docs/tools.md": 2,
    "docs/upstreams.md": 1,
}


# The messages of hooks are no answers of the API: their members stand in the code that writes them.
MESSAGES = set(re.findall(r"\w+", (ROOT / "src/hooks/message.rs").read_text()))


def started(*command, **more):
    """What a program printed, and how it ended."""
    return subprocess.run(command, capture_output=True, text=True, **more)


def members(node, found):
    """The names of all members that the description knows."""
    if isinstance(node, dict):
        found.update(node.get("properties", {}))
        for value in node.values():
            members(value, found)
    elif isinstance(node, list):
        for value in node:
            members(value, found)
    return found


KNOWN = members(API, set())
# What stands below a name that anybody chooses is not the API's.
FREE = {"metadata", "arguments", "parameters", "schema", "answer", "properties", "settings", "effective", "structured", "metrics", "input"}


def unknown(value, path="", known=KNOWN):
    """The members that no schema of the description has."""
    if isinstance(value, list):
        return [name for entry in value for name in unknown(entry, path, known)]
    if not isinstance(value, dict):
        return []
    found = []
    for name, inner in value.items():
        if name == shown.HOLE:
            continue
        if name not in known:
            found.append(f"{path}/{name}")
        elif name not in FREE:
            found += unknown(inner, f"{path}/{name}", known)
    return found


def without_required(node):
    """A schema by which any member may be left out."""
    if isinstance(node, list):
        return [without_required(value) for value in node]
    if not isinstance(node, dict):
        return node
    return {name: without_required(value) for name, value in node.items() if not (name == "required" and isinstance(value, list))}


def without_holes(value):
    """What is shown of a value, without what stands for the rest of it."""
    if isinstance(value, dict):
        return {name: without_holes(inner) for name, inner in value.items() if shown.HOLE not in (name, inner)}
    if isinstance(value, list):
        return [without_holes(inner) for inner in value if inner != shown.HOLE]
    return value


LOOSE = without_required(API["components"])


def properties(node, name):
    """The schemas that the description has for members of this name."""
    if isinstance(node, list):
        for value in node:
            yield from properties(value, name)
    elif isinstance(node, dict):
        if isinstance(node.get("properties"), dict) and name in node["properties"]:
            yield node["properties"][name]
        for value in node.values():
            yield from properties(value, name)


def shape_faults(value):
    """The members of an object whose values no schema of the description allows."""
    found = []
    value = without_holes(value) if isinstance(value, dict) else {}
    # What says which object it is must be that one.
    told = f"`{value.get('object')}`"
    objects = [schema for schema in LOOSE["schemas"].values() if told in schema.get("properties", {}).get("object", {}).get("description", "")]
    for name, inner in value.items():
        known = [schema["properties"][name] for schema in objects if name in schema["properties"]] or properties(LOOSE, name)
        schemas = [{**schema, "components": LOOSE} for schema in known if isinstance(schema, dict)]
        if name not in FREE and not any(jsonschema.Draft202012Validator(schema).is_valid(inner) for schema in schemas):
            found.append(f"no schema of the description allows this {name}: {json.dumps(inner, ensure_ascii=False)[:200]}")
    return found


def body_faults(path, body):
    """What is wrong with the body of a request, by the description."""
    templates = [re.sub(r"\{[^}]*\}", "[^/]+", name) for name in API["paths"]]
    for name, template in zip(API["paths"], templates):
        if not re.fullmatch(template, path):
            continue
        for method in ("post", "put", "patch"):
            content = API["paths"][name].get(method, {}).get("requestBody", {}).get("content", {})
            if "application/json" in content:
                schema = {**content["application/json"]["schema"], "components": API["components"]}
                best = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(body))
                return [f"{path}: {best.message}"] if best else []
    return [f"{path}: there is no such request"]


def requests(text):
    """The bodies that a block sends with curl, each with its path. A quote within a quote is where the shell puts a variable."""
    for command in re.split(r"\bcurl ", text)[1:]:
        path = re.search(r"(?:\$\w+|localhost:\d+|127\.0\.0\.1:\d+)(/v1/[^\s'\"?]*)", command)
        body = re.search(r"-d '(.*?)'(?=[\s)]|$)", re.sub(r"'\"?\$\w+\"?'", "x", command), re.S)
        if path and body:
            yield re.sub(r"\$\w+|…", "x", path[1]), body[1]


class Checker:
    def __init__(self, loopgate, python, modules):
        self.loopgate, self.python, self.modules = loopgate, python, modules
        self.faults = []
        self.is_refused = False
        self.excepted = collections.Counter()
        self.done = collections.Counter()

    def fault(self, block, what):
        self.faults.append(f"{block}: {what}")

    def page(self, blocks):
        shell, last = None, None
        try:
            for block, following in zip(blocks, [*blocks[1:], None]):
                if block.word in ("not run", "shape", "about", "drawing"):
                    if block.word != "drawing" and not block.more:
                        self.fault(block, "does not say why it is not run")
                    self.excepted[block.page] += 1
                judge = getattr(self, f"judge_{block.language or 'output'}", None)
                if judge is None:
                    self.fault(block, f"nothing checks blocks of {block.language}")
                    continue
                if shell is None and (block.word in ("serve", "file") or (self.is_run(block) and block.word != "fragment")):
                    shell = Shell(ROOT, self.loopgate, self.python, self.modules)
                    if not re.search(r"^(\w+=\S+ )*loopgate serve", block.text, re.M) and block.word != "serve":
                        shell.serve()
                if block.word == "file":
                    (shell.home / block.more).write_text(shell.here(block.text))
                # An error that the page shows is what the request is there for.
                is_shown = bool(following) and following.language in ("", "json") and '"error"' in following.text
                self.is_refused = is_shown
                last = judge(block, shell, last)
                if last and re.search(r'"error": ?\{', last[1]) and not is_shown:
                    self.fault(block, f"is refused: {last[1][-500:]}")
                self.done[block.language or "output"] += 1
        finally:
            if shell:
                shell.end()

    def page_twice(self, blocks):
        """Types a page once more where it failed: on a busy machine a run may end before the next command of the page reaches it."""
        before = (list(self.faults), self.excepted.copy(), self.done.copy())
        self.page(blocks)
        if len(self.faults) > len(before[0]):
            print(f"{blocks[0].page} is typed once more, because of:", *self.faults[len(before[0]) :], sep="\n  ")
            self.faults, self.excepted, self.done = before
            self.page(blocks)

    @staticmethod
    def is_run(block):
        return block.language in ("sh", "python", "js") and block.word not in ("not run", "fragment")

    # Each judge returns what the block printed, as far as the next block may show it.

    def judge_sh(self, block, shell, _):
        checked = started("bash", "-n", input=block.text)
        if checked.returncode:
            return self.fault(block, checked.stderr.strip())
        for path, body in requests(block.text):
            try:
                value = shown.parsed(body)
            except ValueError as error:
                self.fault(block, f"the body is no JSON: {error}")
                continue
            if not self.is_refused and shown.HOLE not in json.dumps(value, ensure_ascii=False).replace("_01a2…", ""):
                for fault in body_faults(path, value):
                    self.fault(block, fault)
        return self.run(block, shell, block.text) if self.is_run(block) else None

    def run(self, block, shell, text):
        printed, well = shell.type(text)
        if not well:
            self.fault(block, f"failed, and printed:\n{printed[-2000:]}")
        return block, printed

    def judge_python(self, block, shell, _):
        try:
            ast.parse(block.text)
        except SyntaxError as error:
            return self.fault(block, str(error))
        if self.is_run(block):
            return self.run(block, shell, f"python3 - <<'PROGRAM'\n{block.text}PROGRAM")

    def judge_js(self, block, shell, _):
        with tempfile.NamedTemporaryFile("w", suffix=".mjs") as file:
            file.write(block.text)
            file.flush()
            checked = started("node", "--check", file.name)
        if checked.returncode:
            return self.fault(block, checked.stderr.strip())
        if self.is_run(block):
            text = f"cat >examples/web/block.mjs <<'PROGRAM'\n{block.text}PROGRAM\nnode examples/web/block.mjs"
            return self.run(block, shell, text)

    def judge_output(self, block, _, last):
        if block.word in ("not run", "drawing"):
            return None
        if block.word == "shape":
            for line in block.text.split("\n"):
                text = line.removeprefix("data: ")
                if text.startswith("{"):
                    for name in unknown(shown.parsed(text)):
                        self.fault(block, f"no schema of the description has {name}")
            return None
        if last is None:
            return self.fault(block, "follows no block that is run: what should print this?")
        ran, printed = last
        text = block.text
        if block.word == "about":
            first, *_, end = text.rstrip("\n").split("\n")
            text = f"{first}\n{shown.HOLE}\n{end}\n"
        for fault in shown.compare(text, printed):
            self.fault(block, f"is not what {ran} prints: {fault}")
        self.done["compared"] += 1

    def judge_json(self, block, shell, last):
        try:
            value = shown.parsed(block.text)
        except ValueError as error:
            return self.fault(block, f"is no JSON: {error}")
        if block.word == "not run":
            return None
        if last is not None and block.word not in ("shape", "message"):
            return self.judge_output(block, shell, last)
        if block.word != "message":
            for fault in shape_faults(value):
                self.fault(block, fault)
        for name in unknown(value, known=KNOWN | MESSAGES if block.word == "message" else KNOWN):
            self.fault(block, f"nothing that the server writes has {name}")
        if isinstance(value, dict) and "messages" in value and shown.HOLE not in value and "object" not in value:
            for fault in body_faults(COMPLETIONS[0], value):
                self.fault(block, fault)

    def judge_toml(self, block, shell, _):
        config = block.text + (block.more + "\n" if block.word == "with" else "")
        for fault in self.mistakes(config):
            self.fault(block, fault)
        if block.word == "serve":
            printed, well = shell.serve(block.text, block.more)
            if not well:
                self.fault(block, f"the server does not start:\n{printed}")

    def mistakes(self, config):
        """What the reader of configurations says. Variables and files that the text names are there."""
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            fixtures(home)
            config = re.sub(r'"(/[\w./-]+)', lambda m: f'"{home}{m[1]}' if (home / m[1][1:]).exists() else m[0], config)
            (home / "loopgate.toml").write_text(config)
            env = {"PATH": os.environ["PATH"], "HOME": directory}
            for _ in range(8):
                checked = started(self.loopgate, "check-config", cwd=home, env=env)
                wanted = re.findall(r"environment variable (\w+)", checked.stderr)
                if "there is no upstream `openai`" in checked.stderr:
                    wanted.append("OPENAI_API_KEY")
                if checked.returncode == 0 or not wanted:
                    break
                # Thirty-two bytes in base64, which any of them may be, each another.
                env.update((name, f"whsec_{base64.b64encode(hashlib.sha256(name.encode()).digest()).decode()}") for name in wanted)
            return [] if checked.returncode == 0 else checked.stderr.strip().split("\n")

    def judge_yaml(self, block, *_):
        try:
            if not isinstance(yaml.safe_load(block.text), dict):
                self.fault(block, "is no mapping")
        except yaml.YAMLError as error:
            self.fault(block, str(error))

    def judge_http(self, block, *_):
        head, _, body = block.text.partition("\n\n")
        first, *headers = head.split("\n")
        if not re.fullmatch(r"(GET|POST|PUT|PATCH|DELETE) /\S*", first) or not all(re.fullmatch(r"[a-z-]+: .+", line) for line in headers):
            self.fault(block, "is no request")
        if "application/json" in head:
            try:
                json.loads(body)
            except ValueError as error:
                self.fault(block, f"the body is no JSON: {error}")

    def judge_markdown(self, block, *_):
        """Markdown that the server reads is a skill."""
        with tempfile.TemporaryDirectory() as directory:
            name = re.search(r"^name: (.*)$", block.text, re.M)
            skill = Path(directory, "skills", name[1] if name else "nameless", "SKILL.md")
            skill.parent.mkdir(parents=True)
            skill.write_text(block.text)
            for fault in self.mistakes(f'[skills]\ndirectories = ["{directory}/skills"]\n[agents.default]\nskills = ["*"]\n'):
                self.fault(block, fault)


def fixtures(home):
    """The files that configurations of the pages name."""
    shop = {"openapi": "3.1.0", "info": {"title": "shop", "version": "1"}, "paths": {
        "/orders": {"get": {"operationId": "orders/get", "responses": {"200": {"description": "them"}}}}}}
    for name in ("openapi.json", "shop.yaml"):
        (home / name).write_text(json.dumps(shop))
    for name in ("release-notes", "sql-style"):
        skill = home / "etc/loopgate/skills" / name / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: {name}\ndescription: Use it.\n---\n\nDo it.\n")
    key = home / "etc/loopgate/client.key"
    made = started("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x",
        "-keyout", str(key), "-out", str(home / "etc/loopgate/client.pem"))
    assert made.returncode == 0, made.stderr
    (home / "etc/loopgate/ca.pem").write_bytes((home / "etc/loopgate/client.pem").read_bytes())


def claims(root):
    """The tests that tables name in a column `shown by`, and that are not there."""
    names = {path.relative_to(root).as_posix() for folder in ("src", "tests") for path in (root / folder).rglob("*.rs")}
    modules = {name.split("/", 1)[1].removesuffix(".rs").removesuffix("/mod").replace("/", "::") for name in names}
    found, missing = 0, []
    for page in pages.names(root):
        is_claim = False
        for line in (root / page).read_text().split("\n"):
            is_claim = line.startswith("|") and (is_claim or "| shown by |" in line)
            last = line.rstrip(" |").rsplit("|", 1)[-1] if is_claim else ""
            for name in re.findall(r"`([^`]+)`", last):
                found += 1
                if name not in names and name not in modules:
                    missing.append(f"{page}: {name} shows something, and is not there")
    return missing if found > 50 else ["no table of what is promised was found"]


def main(arguments):
    loopgate, *only = arguments
    python, modules = os.environ["LOOPGATE_TEST_PYTHON"], os.environ["LOOPGATE_TEST_NODE_MODULES"]
    checker = Checker(str(Path(loopgate).resolve()), python, modules)
    for name, blocks in pages.of(ROOT).items():
        if not only or name in only:
            checker.page_twice(blocks)
    if not only and dict(checker.excepted) != EXCEPTED:
        for page in sorted({*EXCEPTED, *checker.excepted}):
            real, listed = checker.excepted[page], EXCEPTED.get(page, 0)
            if real != listed:
                checker.faults.append(f"{page}: {real} blocks are not run, and EXCEPTED in tests/docs/check.py says {listed}")
    checker.faults += claims(ROOT)
    print("blocks:", ", ".join(f"{count} {kind}" for kind, count in sorted(checker.done.items())))
    print("\n".join(checker.faults))
    return 1 if checker.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
