"""Whether a program says what a page shows.

`…` in what is shown stands for anything: within a line for some of it, alone on a line for some lines, in JSON for members or
entries that are left out. Times, ids, keys and hashes differ from run to run, and counts of tokens with the tools' descriptions, so any will do where
one is shown. All else must be as it is shown, to the letter: an answer, a name, a status, a price, what is there and what is not.
"""

import json
import re

HOLE = "…"
# What differs from run to run, and what stands for it.
VOLATILE = [
    (re.compile(r"\b\d{4}-\d\d-\d\d(T[0-9:.…]+(Z|[+-]\d\d:\d\d)?)?\b"), "TIME"),
    (re.compile(r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"), "DAY"),
    (re.compile(r"\b(run|call|chatcmpl|sess|approval)([_-])[0-9a-f]{4,}…?"), r"\1\2ID"),
    (re.compile(r"\blg_[0-9a-f]{4,}…?"), "KEY"),
    (re.compile(r"\b[0-9a-f]{32,}\b|\b[0-9a-f]{4,}…"), "HEX"),
    (re.compile(r"\b\d{10}(\d{3})?\b"), "CLOCK"),
    (re.compile(r"\b\d+ ms\b"), "MS"),
    (re.compile(r"\b(retry-after: |-reset-\w+: |begins anew in )\d+"), r"\1S"),
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+"), "HERE"),
    (re.compile(r'("[a-z_]*_ms"|"latency_ms"|"created"): ?\d+'), r"\1:CLOCK"),
]
# Numbers that the definitions of tools, or the time, move: only their kind is compared.
MOVING = re.compile(r"(_ms|_tokens|_in_s)$|^created$|^tokens_(used|remaining)$")


def steady(line):
    for pattern, word in VOLATILE:
        line = pattern.sub(word, line)
    return line


def fits(shown, real):
    """Whether a line, or a text in JSON, is as it is shown."""
    pieces = [re.escape(piece) for piece in steady(shown).split(HOLE)]
    return re.fullmatch(".*".join(pieces), steady(real), re.S) is not None


def with_holes(text):
    """JSON in which `…` is an entry of its own, or a member, so that it can be parsed."""
    out, stack, at = [], [], 0
    while at < len(text):
        char = text[at]
        if char == '"':
            end = at + 1
            while end < len(text) and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            out.append(text[at : end + 1])
            at = end + 1
            continue
        if char in "{[":
            stack.append(char)
        elif char in "}]" and stack:
            stack.pop()
        if char == HOLE:
            is_value = "".join(out).rstrip().endswith(":")
            out.append('"…": 0' if stack and stack[-1] == "{" and not is_value else '"…"')
        else:
            out.append(char)
        at += 1
    return "".join(out)


def parsed(text):
    """What a page shows as JSON: a whole value, or some members of an object."""
    holed = with_holes(text)
    try:
        return json.loads(holed)
    except ValueError as error:
        if not text.lstrip().startswith('"'):
            raise
        try:
            return json.loads("{" + holed + ', "…": 0}')
        except ValueError:
            raise error from None


def differences(shown, real, path=""):
    """Where `real` is not as it is shown, each as a sentence."""
    if shown == HOLE:
        return []
    if isinstance(shown, dict) and isinstance(real, dict):
        found = []
        for name, value in shown.items():
            if name == HOLE:
                continue
            if name in real:
                found += differences(value, real[name], f"{path}/{name}")
            else:
                found.append(f"{path}/{name} is shown, and is not there")
        if HOLE not in shown:
            found += [f"{path}/{name} is there, and is not shown" for name in real if name not in shown]
        return found
    if isinstance(shown, list) and isinstance(real, list):
        whole = HOLE not in shown
        shown = [value for value in shown if value != HOLE]
        if len(real) < len(shown) or (whole and len(real) != len(shown)):
            return [f"{path} has {len(real)} entries, and {len(shown)} are shown"]
        return [line for n, value in enumerate(shown) for line in differences(value, real[n], f"{path}/{n}")]
    if isinstance(shown, str) and isinstance(real, str):
        return [] if fits(shown, real) else [f"{path} is {real!r}, and {shown!r} is shown"]
    number = isinstance(shown, (int, float)) and isinstance(real, (int, float))
    if number and not isinstance(shown, bool) and MOVING.search(path.rsplit("/", 1)[-1]):
        return []
    return [] if type(shown) is type(real) and shown == real else [f"{path} is {real!r}, and {shown!r} is shown"]


def compare(shown, real):
    """Where what a program printed is not as a page shows it."""
    shown, real = shown.strip("\n"), real.strip("\n")
    # JSON may be laid out for readers.
    if shown.lstrip().startswith(("{", '"')):
        try:
            return differences(parsed(shown), json.loads(real))
        except ValueError:
            pass
    return lines(shown.split("\n"), real.split("\n"))


def alike(shown, real, numbered=True):
    """Whether a line is as it is shown: as JSON, where it is an event's data. What was left out decides the numbers behind it."""
    if not numbered:
        shown, real = (re.sub(r'^id: \d+$|(?<="seq":)\d+', "0", line) for line in (shown, real))
    if shown.startswith(("data: {", "{")) and real.startswith(("data: {", "{")):
        try:
            prefix = len("data: ") if shown.startswith("data") else 0
            return not differences(parsed(shown[prefix:]), json.loads(real[prefix:]))
        except ValueError:
            pass
    return fits(shown, real)


def lines(shown, real):
    """Matches lines, where `…` alone stands for any number of them: what stands between two of these must stand together."""
    parts = [[]]
    for line in shown:
        parts.append([]) if line.strip() == HOLE else parts[-1].append(line)
    at = 0
    for number, part in enumerate(parts):
        is_first, is_last = number == 0, number == len(parts) - 1
        if is_first:
            places = [0]
        elif is_last:
            places = [max(at, len(real) - len(part))]
        else:
            places = range(at, len(real) - len(part) + 1)
        place = next((n for n in places if mismatch(part, real[n:], is_first) is None), None)
        if place is None:
            return [mismatch(part, real[places[0] :] if len(places) else [], is_first)]
        at = place + len(part)
    goes_on = at < len(real) and (parts[-1] or len(parts) == 1)
    return [f"goes on with {real[at]!r}"] if goes_on else []


def mismatch(shown, real, numbered):
    """The first of these lines that is not as it is shown."""
    for n, line in enumerate(shown):
        if n >= len(real):
            return f"ends before {line!r}"
        if not alike(line, real[n], numbered):
            return f"says {real[n]!r}, and {line!r} is shown{why(line, real[n])}"
    return None


def why(shown, real):
    try:
        return ": " + "; ".join(differences(parsed(shown.removeprefix("data: ")), json.loads(real.removeprefix("data: "))))
    except ValueError:
        return ""
