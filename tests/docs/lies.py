"""Pages that lie, each in one way: whether check.py finds every lie, and believes what is true."""

import os
import sys
from pathlib import Path

import check
import pages

ASK = """curl -s http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' -d '{
  "model": "demo", "messages": [{"role": "user", "content": "What is 6 * 7?"}], "agent": {"include_report": false}}'"""
ANSWER = '{"id":"chatcmpl-01a2…","object":"chat.completion","choices":[{"message":{"content":"[demo model] 6 * 7 = 42.",…},…}],…}'
GREP = ASK + " | grep -o '\"content\":\"[^\"]*\"'"


def fenced(language, text, comment=""):
    return f"{comment}\n```{language}\n{text}\n```\n"


# What is said of each page, and a part of the complaint about it; none about what is true.
PAGES = [
    ("what a request prints", fenced("sh", ASK) + fenced("json", ANSWER), ""),
    ("another answer", fenced("sh", ASK) + fenced("json", ANSWER.replace("42", "43")), "43"),
    ("a member that is not there", fenced("sh", ASK) + fenced("json", ANSWER.replace('"object"', '"kind"')), "/kind is shown, and is not there"),
    ("a member that is left out", fenced("sh", ASK) + fenced("json", ANSWER.replace(",…}],…}", ",…}]}")), "and is not shown"),
    ("a line that was not printed", fenced("sh", GREP) + fenced("", '"content":"[demo model] 6 * 7 = 42."\nDone.'), "ends before 'Done.'"),
    ("a line that is not shown", fenced("sh", f"{GREP}\necho more") + fenced("", '"content":"[demo model] 6 * 7 = 42."'), "goes on with 'more'"),
    ("lines that do not stand together", fenced("sh", "printf 'a\\nb\\nc\\n'") + fenced("", "…\na\nc"), "is shown"),
    ("a beginning that is another", fenced("sh", "printf 'a\\nb\\nc\\n'") + fenced("", "b\nc", "<!-- about: it differs -->"), "is shown"),
    ("a middle that is another", fenced("sh", "printf 'a\\nb\\nc\\n'") + fenced("", "a\nx\nc", "<!-- about: it differs -->"), ""),
    ("a request that is refused", fenced("sh", ASK.replace('"demo"', '"no-model"')), "is refused"),
    ("a body with a wrong type", fenced("sh", ASK.replace('"What is 6 * 7?"', "7")), "/v1/chat/completions"),
    ("a body that is no JSON", fenced("sh", ASK.replace("}}'", "}'")), "the body is no JSON"),
    ("a path that is not there", fenced("sh", ASK.replace("/v1/chat/completions", "/v1/chat")), "there is no such request"),
    ("a command that fails", fenced("sh", "loopgate models --nonsense"), "failed, and printed"),
    ("a shell that cannot be read", fenced("sh", "for a in b; do"), "syntax error"),
    ("a setting that is not there", fenced("toml", "[agents.default]\nmax_iteration = 3"), "max_iteration"),
    ("a setting with a context", fenced("toml", "[keys.web.layers.tone]\ntext = 'Be kind.'", '<!-- with: [keys.web]\nkey_env = "A" -->'), ""),
    ("the same without it", fenced("toml", "[keys.web.layers.tone]\ntext = 'Be kind.'"), "needs key_sha256"),
    ("members that no answer has", fenced("json", '{"object": "run", "state": "queued"}'), "/state"),
    ("a status that no run has", fenced("json", '{"object": "run", "status": "finished"}'), "no schema of the description allows this status"),
    ("a number that is a text", fenced("json", '"budget": {"token_limit": "900", …}'), "no schema of the description allows this budget"),
    ("a request with a wrong limit", fenced("json", '{"model": "demo", "messages": [], "agent": {"limits": {"max_iterations": "5"}}}'), "/v1/agent/completions"),
    ("JSON that breaks off", fenced("json", '{"object": "run"'), "is no JSON"),
    ("a program that compiles and fails", fenced("python", "print(1)\nraise SystemExit(2)"), "failed, and printed"),
    ("a program that does not compile", fenced("python", "print(1", "<!-- fragment: of one -->"), "was never closed"),
    ("a page's program", fenced("js", "import { Text } from './loopgate.js';\nconsole.log(new Text().toString() === '');") + fenced("", "true"), ""),
    ("a page's program that imports nothing", fenced("js", "import { Txt } from './loopgate.js';"), "failed, and printed"),
    ("a language that nobody checks", fenced("ruby", "puts 1"), "nothing checks blocks of ruby"),
    ("a block that is not run for no reason", fenced("sh", "true", "<!-- not run -->"), "does not say why"),
    ("output of nothing", fenced("", "42"), "follows no block that is run"),
    ("a skill without a description", fenced("markdown", "---\nname: a\n---\n\nDo."), "description"),
    ("a server with a configuration", fenced("toml", '[keys.web]\nkey_env = "A"', "<!-- serve: A=lg_web -->")
        + fenced("sh", ASK.replace("-H", "-H 'authorization: Bearer lg_web' -H", 1)) + fenced("json", ANSWER), ""),
    ("a key that it does not have", fenced("toml", '[keys.web]\nkey_env = "A"', "<!-- serve: A=lg_web -->")
        + fenced("sh", ASK.replace("-H", "-H 'authorization: Bearer lg_other' -H", 1)), "is refused"),
]


def main(loopgate):
    python, modules = os.environ["LOOPGATE_TEST_PYTHON"], os.environ["LOOPGATE_TEST_NODE_MODULES"]
    wrong = []
    for said, text, complaint in PAGES:
        checker = check.Checker(str(Path(loopgate).resolve()), python, modules)
        checker.page(pages.blocks("page.md", text))
        found = "\n".join(checker.faults)
        if bool(found) != bool(complaint) or complaint not in found:
            wrong.append(f"{said}: {complaint!r} is expected, and found is {found!r}")
    print(f"lies: {len(PAGES) - len(wrong)} of {len(PAGES)} pages are judged as they should be")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
