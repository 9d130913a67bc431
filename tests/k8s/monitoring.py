"""Checks k8s/components/monitoring: monitoring.py SCRATCH

Every metric that alerts, dashboard and documentation name is one that the server has, by docs/metrics.md, with labels
that it has; every alert has its section in docs/operations.md and a test in which it fires. Writes the rules to SCRATCH
as Prometheus reads them, with the tests of them and with the dashboard's queries, for promtool. Names every mistake and
ends with 1 if there is one.
"""

import json
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
COMPONENT = ROOT / "k8s/components/monitoring"
# Labels that Prometheus adds to what it reads, and those of histograms' series.
ADDED = {"namespace", "instance", "job", "pod", "le", "alertname", "alertstate"}
# What a histogram's series are called beside its name.
SUFFIXES = ("_bucket", "_count", "_sum")


def main():
    scratch = Path(sys.argv[1])
    metrics = documented()
    rules = yaml.safe_load((COMPONENT / "rules.yaml").read_text())["spec"]
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    tests = (ROOT / "tests/k8s/alerts.yaml").read_text()
    queries = dashboard()
    mistakes = []
    for rule in alerts:
        mistakes += [f"{rule['alert']}: {mistake}" for mistake in judge_query(rule["expr"], metrics)]
        mistakes += judge_alert(rule, tests)
    for title, query in queries:
        mistakes += [f"the panel {title!r}: {mistake}" for mistake in judge_query(query, metrics)]
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", *sorted((ROOT / "k8s").rglob("*.yaml"))]:
        for name in re.findall(r"\bloopgate_\w+", page.read_text()):
            if base(name, metrics) is None:
                mistakes.append(f"{page.relative_to(ROOT)}: there is no metric {name}")
    for name in sections() - {rule["alert"] for rule in alerts}:
        mistakes.append(f"docs/operations.md: there is no alert {name}")
    for mistake in mistakes:
        print(f"error: {mistake}", file=sys.stderr)
    (scratch / "rules.yaml").write_text(yaml.safe_dump(rules, sort_keys=False))
    (scratch / "alerts.yaml").write_text(tests)
    recorded = [{"record": f"panel:{number}", "expr": query} for number, (_, query) in enumerate(queries)]
    (scratch / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    return 1 if mistakes else 0


def documented():
    """The labels of each metric, by docs/metrics.md, which is generated."""
    rows = re.findall(r"^\| `(loopgate_\w+)` \| (\w+) \| ([^|]*) \|", (ROOT / "docs/metrics.md").read_text(), re.M)
    if not rows:
        raise SystemExit("error: docs/metrics.md lists no metrics")
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def base(name, metrics):
    """The metric that a series belongs to, if there is one."""
    if name in metrics:
        return name
    for suffix in SUFFIXES:
        if name.endswith(suffix) and metrics.get(name.removesuffix(suffix), ("",))[0] == "histogram":
            return name.removesuffix(suffix)
    return None


def judge_query(query, metrics):
    """A metric that is not there, or a label that none of the query's metrics has."""
    names = set(re.findall(r"\bloopgate_\w+", query))
    if not names and "up{" not in query:
        yield f"asks for no metric: {query}"
    labels = set(ADDED)
    for name in names:
        found = base(name, metrics)
        if found is None:
            yield f"there is no metric {name}"
        elif found == name and metrics[name][0] == "histogram":
            yield f"{name} is a histogram, which has no series of that name"
        else:
            labels |= metrics[found][1]
    used = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query)
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        used += re.findall(r"\w+", grouped)
    for label in set(used) - labels:
        yield f"none of its metrics has the label {label}"


def judge_alert(rule, tests):
    name, severity = rule["alert"], rule.get("labels", {}).get("severity")
    if severity not in ("page", "warning"):
        yield f"{name}: its severity is {severity}"
    if name not in sections():
        yield f"{name}: docs/operations.md has no section of this name"
    runbook = rule.get("annotations", {}).get("runbook")
    if runbook != f"docs/operations.md#{name.lower()}":
        yield f"{name}: its runbook is {runbook}"
    if f'{{alertname="{name}"}}' not in tests:
        yield f"{name}: tests/k8s/alerts.yaml has no test in which it fires"


def sections():
    return set(re.findall(r"^#+ (Loopgate[A-Z]\w+)$", (ROOT / "docs/operations.md").read_text(), re.M))


def dashboard():
    """The title and query of each line of the dashboard."""
    panels = json.loads((COMPONENT / "dashboard.json").read_text())["panels"]
    found = []
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "5m").replace("$namespace", ".*")
            found.append((panel["title"], query))
    if not found:
        raise SystemExit("error: the dashboard has no queries")
    return found


if __name__ == "__main__":
    sys.exit(main())
