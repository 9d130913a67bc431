"""Checks lists of models and their prices; scripts/check-prices starts it."""

import argparse
import datetime
import json
import pathlib
import sys
import tomllib
import urllib.request

LISTS = pathlib.Path("src/llm/pricing")
# A public collection of prices, and what it calls our providers.
COLLECTION = "https://models.dev/api.json"
PROVIDERS = {
    "OpenAI": "openai",
    "Anthropic": "anthropic",
    "Google": "google",
    "xAI": "xai",
    "DeepSeek": "deepseek",
    "Mistral": "mistral",
    "Groq": "groq",
    "Together": "togetherai",
}
# Prices that are older than this should be read again.
STALE_AFTER = datetime.timedelta(days=180)

OF_FILE = {"provider", "source", "read", "hosts", "models"}
OF_MODEL = {
    "also", "price", "long_context", "tiers", "context_window", "max_output_tokens", "takes", "read", "unconfirmed",
}
OF_PRICE = {"input", "cached_input", "cache_write", "cache_write_1h", "audio_input", "output"}
CAPABILITIES = {"image", "audio", "video", "file", "tools", "thinking", "structured_output"}
# From the cheapest to the dearest.
IN_ORDER = ["cached_input", "input", "cache_write", "cache_write_1h", "output"]


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_rates(rates, known):
    """What is wrong with a table of prices."""
    for key in sorted(rates.keys() - known):
        yield f"the key {key} is not known"
    for key in ("input", "output"):
        if key not in rates:
            yield f"{key} is missing"
    wrong = [key for key, value in rates.items() if not is_number(value) or not 0 <= value < 10_000]
    for key in wrong:
        yield f"{key} is no price of a million tokens: {rates[key]}"
    given = [(key, rates[key]) for key in IN_ORDER if key in rates and key not in wrong]
    for (cheaper, low), (dearer, high) in zip(given, given[1:]):
        if low > high:
            yield f"{cheaper} ({low}) is dearer than {dearer} ({high})"


def check_long(price, long):
    """What is wrong with the price of long contexts beside the ordinary one."""
    above = long.get("above")
    if not isinstance(above, int) or above < 1:
        yield "long_context.above is no number of tokens"
    rates = {key: value for key, value in long.items() if key != "above"}
    for complaint in check_rates(rates, OF_PRICE):
        yield f"long_context: {complaint}"
    for key in rates.keys() & price.keys():
        if is_number(rates[key]) and is_number(price[key]) and rates[key] < price[key]:
            yield f"long_context.{key} ({rates[key]}) is cheaper than the ordinary one ({price[key]})"
    for key in price.keys() - rates.keys():
        yield f"long_context.{key} is missing"


def check_tiers(tiers):
    """What is wrong with the prices of tiers."""
    for name, multiple in tiers.items():
        if not is_number(multiple) or not 0 < multiple <= 10:
            yield f"the tier {name} costs no multiple of the ordinary price: {multiple}"
        elif name in ("flex", "batch") and multiple > 1:
            yield f"the tier {name} is dearer than the ordinary one"
        elif name == "priority" and multiple < 1:
            yield f"the tier {name} is cheaper than the ordinary one"


def check_date(date, today):
    """What is wrong with the day on which a price was read."""
    if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
        yield f"read is no day: {date}"
    elif date > today:
        yield f"read is a day to come: {date}"


def check_model(model, today):
    """What is wrong with a model."""
    for key in sorted(model.keys() - OF_MODEL):
        yield f"the key {key} is not known"
    price = model.get("price", {})
    yield from check_rates(price, OF_PRICE)
    yield from check_tiers(model.get("tiers", {}))
    if "long_context" in model:
        yield from check_long(price, model["long_context"])
        if model["long_context"].get("above", 0) >= model.get("context_window", 0):
            yield "long_context begins beyond the window"
    sizes = [model.get(key) for key in ("max_output_tokens", "context_window")]
    if not all(isinstance(size, int) and 1 <= size <= 100_000_000 for size in sizes):
        yield f"max_output_tokens and context_window are no numbers of tokens: {sizes}"
    elif sizes[0] > sizes[1]:
        yield f"max_output_tokens ({sizes[0]}) is more than context_window ({sizes[1]})"
    for word in set(model.get("takes", [])) - CAPABILITIES:
        yield f"takes what is not known: {word}"
    if "read" in model:
        yield from check_date(model["read"], today)


def check_list(listed, today):
    """What is wrong with a list."""
    for key in sorted(listed.keys() - OF_FILE):
        yield f"the key {key} is not known"
    for key in sorted(OF_FILE - listed.keys() - {"hosts"}):
        yield f"{key} is missing"
    if not str(listed.get("source", "")).startswith("https://"):
        yield "source is no page"
    yield from check_date(listed.get("read"), today)
    for name, model in listed.get("models", {}).items():
        for complaint in check_model(model, today):
            yield f"{name}: {complaint}"


def names_of(listed):
    """All names of a list, with the models that they mean."""
    for name, model in listed.get("models", {}).items():
        for known in [name, *model.get("also", [])]:
            yield known, name


def twice(lists):
    """Names that mean two models: within a list, or in two lists whose prices hold everywhere."""
    everywhere = {}
    for path, listed in lists.items():
        here = everywhere if not listed.get("hosts") else {}
        for name, model in names_of(listed):
            if name in here:
                yield f"{path}: {name} is listed twice, as {model} and as {here[name]}"
            here[name] = model


def stale(lists, today):
    """Prices that should be read again."""
    for path, listed in lists.items():
        dates = [model.get("read", listed.get("read")) for model in listed.get("models", {}).values()]
        old = [date for date in dates if isinstance(date, datetime.date) and today - date > STALE_AFTER]
        if old:
            yield f"{path}: {len(old)} of {len(dates)} prices were read before {today - STALE_AFTER}; see {listed['source']}"


def differences(lists, collection):
    """Where a collection of prices says something else."""
    for path, listed in lists.items():
        theirs = collection.get(PROVIDERS.get(listed["provider"]), {}).get("models", {})
        for name, model in listed["models"].items():
            if name not in theirs:
                yield f"{path}: {name} is not in the collection"
                continue
            cost, limit = theirs[name].get("cost", {}), theirs[name].get("limit", {})
            price = model["price"]
            pairs = [
                ("input", price["input"], cost.get("input")),
                ("cached_input", price.get("cached_input"), cost.get("cache_read")),
                ("cache_write", price.get("cache_write"), cost.get("cache_write")),
                ("output", price["output"], cost.get("output")),
                ("context_window", model["context_window"], limit.get("context")),
                ("max_output_tokens", model["max_output_tokens"], limit.get("output")),
            ]
            for key, ours, other in pairs:
                if other is not None and ours != other:
                    yield f"{path}: {name}: {key} is {ours}, in the collection {other}"
        for name in sorted(theirs.keys() - dict(names_of(listed)).keys()):
            yield f"{path}: {name} of the collection is not listed"


def fetch(place):
    """The collection at an address or in a file."""
    if not place.startswith("https://"):
        return json.loads(pathlib.Path(place).read_text())
    with urllib.request.urlopen(place, timeout=30) as answer:
        return json.load(answer)


def main():
    parser = argparse.ArgumentParser(prog="scripts/check-prices", description="Checks lists of models and their prices.")
    parser.add_argument("files", nargs="*", help="lists in place of the built-in ones")
    parser.add_argument("--compare", nargs="?", const=COLLECTION, metavar="PLACE", help=f"say where {COLLECTION} differs")
    options = parser.parse_args()
    lists, complaints, today = {}, [], datetime.datetime.now(datetime.timezone.utc).date()
    for path in options.files or sorted(map(str, LISTS.glob("*.toml"))):
        try:
            lists[path] = tomllib.loads(pathlib.Path(path).read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            complaints.append(f"{path}: {error}")
    complaints += [f"{path}: {what}" for path, listed in lists.items() for what in check_list(listed, today)]
    complaints += twice(lists)
    if complaints:
        sys.exit("\n".join(complaints))
    for remark in stale(lists, today):
        print(remark)
    if options.compare:
        try:
            found = list(differences(lists, fetch(options.compare)))
        except (OSError, ValueError) as error:
            pages = "\n".join(sorted(listed["source"] for listed in lists.values()))
            sys.exit(f"{options.compare} cannot be read ({error}). Compare with the pages of the providers:\n{pages}")
        for difference in found:
            print(difference)
    count = sum(len(listed["models"]) for listed in lists.values())
    print(f"{count} models in {len(lists)} lists")


main()
