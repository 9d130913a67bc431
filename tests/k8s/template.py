"""Writes objects of Kubernetes as templates of Helm: YAML in which parts depend on values."""

import copy
from dataclasses import dataclass

import yaml


@dataclass
class If:
    """A part that is there if the condition holds."""

    condition: str
    part: object


@dataclass
class Value:
    """A scalar that an expression gives."""

    expression: str


@dataclass
class Text:
    """A text of several lines that an expression gives."""

    expression: str


@dataclass
class Block:
    """What an expression gives: a list or a map. Where it is empty, `otherwise` stands, or the whole entry is left out."""

    expression: str
    otherwise: object = None


def text_of(node):
    return "\n".join(lines_of(node)) + "\n"


def lines_of(node, indent=0):
    pad = " " * indent
    if isinstance(node, dict):
        return [line for key, part in node.items() for line in entry(key, part, indent)]
    lines = []
    for item in node:
        if isinstance(item, If):
            lines += [f"{pad}{{{{- if {item.condition} }}}}", *lines_of([item.part], indent), f"{pad}{{{{- end }}}}"]
        elif isinstance(item, Block):
            lines += [f"{pad}{{{{- with {item.expression} }}}}", f"{pad}{{{{- toYaml . | nindent {indent} }}}}"]
            lines.append(f"{pad}{{{{- end }}}}")
        elif isinstance(item, (dict, list)) and item:
            inner = lines_of(item, indent + 2)
            lines += [f"{pad}- {inner[0].lstrip()}", *inner[1:]]
        else:
            lines.append(f"{pad}- {scalar(item, indent)}")
    return lines


def entry(key, part, indent):
    pad = " " * indent
    name = f"{pad}{scalar(key, 0)}:"
    if isinstance(part, If):
        return [f"{pad}{{{{- if {part.condition} }}}}", *entry(key, part.part, indent), f"{pad}{{{{- end }}}}"]
    if isinstance(part, Block):
        lines = [f"{pad}{{{{- with {part.expression} }}}}", name, f"{pad}  {{{{- toYaml . | nindent {indent + 2} }}}}"]
        if part.otherwise is not None:
            lines += [f"{pad}{{{{- else }}}}", *entry(key, part.otherwise, indent)]
        return [*lines, f"{pad}{{{{- end }}}}"]
    if isinstance(part, Text):
        return [f"{name} |", f"{pad}  {{{{- {part.expression} | nindent {indent + 2} }}}}"]
    if isinstance(part, (dict, list)) and part:
        return [name, *lines_of(part, indent + 2)]
    return [f"{name} {scalar(part, indent)}"]


def scalar(value, indent):
    if isinstance(value, Value):
        return f"{{{{ {value.expression} }}}}"
    if isinstance(value, str) and "\n" in value:
        ends = "" if value.endswith("\n") else "-"
        body = [f"{' ' * (indent + 2)}{line}".rstrip() for line in value.rstrip("\n").split("\n")]
        return escaped("\n".join([f"|{ends}", *body]))
    return escaped(yaml.safe_dump(value, width=float("inf"), default_flow_style=True).removesuffix("\n...\n").strip())


def escaped(text):
    """What Prometheus and Grafana fill in is not for Helm."""
    return text.replace("{{", "{{ `{{` }}")


def additions(base, variant, path=()):
    """What `variant` has beyond `base`: for each addition the path of the map or list, and the key or None."""
    if isinstance(base, dict) and isinstance(variant, dict):
        if missing := base.keys() - variant.keys():
            raise SystemExit(f"error: {path} lost {missing}, which a chart cannot do")
        for key, part in variant.items():
            if key in base:
                yield from additions(base[key], part, (*path, key))
            else:
                yield path, key, part
    elif isinstance(base, list) and isinstance(variant, list):
        # By their names, or else by their places.
        names = {item["name"]: number for number, item in enumerate(base) if isinstance(item, dict) and "name" in item}
        for place, item in enumerate(variant):
            number = names.get(item["name"]) if isinstance(item, dict) and "name" in item else place
            if number is not None and number < len(base):
                yield from additions(base[number], item, (*path, number))
            else:
                yield path, None, item
    elif base != variant:
        raise SystemExit(f"error: {path} changed from {base} to {variant}, which a chart cannot do")


def add(node, base, variant, condition):
    """Puts what `variant` has beyond `base` into `node`, which began as a copy of `base`."""
    for path, key, part in additions(base, variant):
        place = node
        for step in path:
            place = place[step]
        if key is None:
            place.append(If(condition, copy.deepcopy(part)))
        else:
            place[key] = If(condition, copy.deepcopy(part))
