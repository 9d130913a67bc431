"""Makes the Helm chart from the manifests: chart.py make RENDERED CHART

RENDERED holds what kustomize makes of the overlays and components, a file each; see scripts/check-k8s. The chart has the
same objects, with the values of VALUES in their places.

chart.py compare CHART_OBJECTS MANIFESTS: whether Helm makes of the chart what kustomize makes of the manifests. Names
every mistake and ends with 1 if there is one.
"""

import copy
import difflib
import json
import re
import sys
import tomllib
from pathlib import Path

import yaml

from template import Block, If, Text, Value, add, text_of

ROOT = Path(__file__).parents[2]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
INSTANCE = "app.kubernetes.io/instance"
# The components, each with the value that switches it on.
COMPONENTS = {
    "gateway": ".Values.gateway.enabled",
    "gateway-gke": '(eq .Values.gateway.kind "gke")',
    "gateway-envoy": '(eq .Values.gateway.kind "envoy")',
    "gateway-aws": '(eq .Values.gateway.kind "aws")',
    "ingress": ".Values.ingress.enabled",
    "mesh": ".Values.mesh.enabled",
    "ca": ".Values.ca.enabled",
    "ipv6": ".Values.ipv6.enabled",
    "memorystore": ".Values.memorystore.enabled",
    "monitoring": ".Values.monitoring.enabled",
    "live-runs": ".Values.liveRuns.enabled",
    "backup": ".Values.backup.enabled",
}
STORES = {"production": '(eq .Values.store "redis")', "single": '(eq .Values.store "embedded")'}
# What stands beside a component in its overlay.
BESIDE = {"live-runs": "-monitoring", "gateway-gke": "-gateway", "gateway-envoy": "-gateway", "gateway-aws": "-gateway"}
CONFIGURATION = ("ConfigMap", "loopgate")
# What cannot be together, with what is said of it.
REFUSALS = {
    "and .Values.gateway.enabled .Values.ingress.enabled": "clients come in one way: gateway or ingress, not both",
    "and .Values.gateway.kind (not .Values.gateway.enabled)": "gateway.kind needs gateway.enabled",
    'and .Values.backup.enabled (ne .Values.store "embedded")': "backups are of the embedded store; Redis has its own",
    'and .Values.memorystore.enabled (ne .Values.store "redis")': "memorystore is a Redis: store=redis",
    'and .Values.liveRuns.enabled (ne .Values.store "redis")': "liveRuns needs several replicas: store=redis",
    "and .Values.liveRuns.enabled (not .Values.monitoring.enabled)": "liveRuns needs monitoring.enabled",
}


def main():
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    return compare(*(objects_of(Path(path)) for path in sys.argv[2:4]))


def objects_of(path):
    """The objects of a file by kind and name, without what differs between a chart and manifests."""
    found = {}
    # kustomize names a ConfigMap by its contents; a chart notes them at the pods instead.
    text = re.sub(r"\b(loopgate(-[a-z]+)?)-[2456789bcdfghkmt]{10}\b", r"\1", path.read_text())
    for item in yaml.load_all(text, LOADER):
        if not item:
            continue
        item["metadata"].pop("namespace", None)
        found[item["kind"], item["metadata"]["name"]] = item
    return found


def make(rendered, chart):
    templates = {}
    stores = {store: objects_of(rendered / f"{store}.yaml") for store in STORES}
    for store, condition in STORES.items():
        other = next(objects for name, objects in stores.items() if name != store)
        for key, base in stores[store].items():
            node = copy.deepcopy(base)
            for component, switch in COMPONENTS.items():
                path = rendered / f"{store}-{component}.yaml"
                # The configuration is a value, whatever a component needs of it.
                if path.exists() and key != CONFIGURATION:
                    before = objects_of(rendered / f"{store}{BESIDE.get(component, '')}.yaml")[key]
                    add(node, before, objects_of(path)[key], switch)
            same = key in other and without_instance(other[key]) == without_instance(base)
            if not same:
                templates.setdefault(key, []).append((condition, node))
            elif key not in templates:
                templates[key] = [(None, node)]
        for component, switch in COMPONENTS.items():
            path = rendered / f"{store}-{component}.yaml"
            for key, item in (objects_of(path) if path.exists() else {}).items():
                if key not in stores[store] and key not in templates:
                    templates[key] = [(switch, copy.deepcopy(item))]
    (chart / "templates").mkdir(parents=True)
    refusals = [f'{{{{- if {what} }}}}{{{{ fail "{why}" }}}}{{{{ end }}}}' for what, why in REFUSALS.items()]
    (chart / "templates/refusals.yaml").write_text("\n".join(refusals) + "\n")
    for (kind, name), variants in templates.items():
        # Dashes are for Helm's own files; the file says what it holds.
        file = chart / "templates" / f"{kind.lower()}-{name}.yaml"
        file.write_text("".join(variant(condition, parameters(node)) for condition, node in variants))
    (chart / "Chart.yaml").write_text(description())
    values = (ROOT / "tests/k8s/values.yaml").read_text()
    (chart / "values.yaml").write_text(values.replace("CONFIG", indented((ROOT / "k8s/base/loopgate.toml").read_text())))
    schema = schema_of(yaml.safe_load((chart / "values.yaml").read_text()))
    # Helm hands this to every chart.
    schema["properties"]["global"] = {"type": "object"}
    schema["properties"]["store"] = {"enum": ["redis", "embedded"]}
    schema["properties"]["gateway"]["properties"]["kind"] = {"enum": ["", "gke", "envoy", "aws"]}
    (chart / "values.schema.json").write_text(json.dumps(schema, indent=2) + "\n")


def variant(condition, node):
    text = text_of(node)
    return f"{{{{- if {condition} }}}}\n---\n{text}{{{{- end }}}}\n" if condition else text


def without_instance(item):
    return json.loads(re.sub(rf'"{INSTANCE}": "\w+"', f'"{INSTANCE}": "x"', json.dumps(item)))


def indented(text):
    return "\n".join(f"  {line}".rstrip() for line in text.rstrip("\n").split("\n"))


def description():
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    return (
        "# Made from the manifests beside it: `UPDATE_K8S=1 scripts/check-k8s`. Change those.\n"
        "apiVersion: v2\nname: loopgate\ndescription: An OpenAI-compatible agent API\ntype: application\n"
        f'version: {version}\nappVersion: "{version}"\nkubeVersion: ">=1.30.0-0"\n'
    )


def schema_of(value):
    """A value that is not there is a mistake; one that is null may be anything."""
    if isinstance(value, dict) and value:
        properties = {key: schema_of(part) for key, part in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": properties} | (
            {} if "image" not in value else {"$schema": "http://json-schema.org/draft-07/schema#"}
        )
    names = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    return {} if value is None else {"type": names[type(value)]}


def parameters(item):
    """Puts values in the places that are an operator's to choose."""
    for labels in found(item, INSTANCE):
        labels[INSTANCE] = Value(".Release.Name")
    kind, name = item["kind"], item["metadata"]["name"]
    spec = item.get("spec", {})
    if (kind, name) == CONFIGURATION:
        item["data"]["loopgate.toml"] = Text(".Values.config")
    if kind == "Deployment":
        deployment(spec["template"])
    if kind == "HorizontalPodAutoscaler":
        spec["minReplicas"] = Value(".Values.autoscaling.minReplicas")
        spec["maxReplicas"] = Value(".Values.autoscaling.maxReplicas")
        for metric in spec["metrics"]:
            if isinstance(metric, If):
                metric.part["pods"]["target"]["averageValue"] = Value(".Values.liveRuns.perReplica | quote")
    if kind == "PersistentVolumeClaim":
        values = ".Values.backup" if name.endswith("backup") else ".Values.persistence"
        spec["resources"]["requests"]["storage"] = Value(f"{values}.size")
        spec["storageClassName"] = If(f"{values}.storageClass", Value(f"{values}.storageClass"))
    if kind == "HTTPRoute":
        spec["hostnames"] = [Value(".Values.host")]
        spec["parentRefs"] = Block(".Values.gateway.parentRefs")
    if kind == "Ingress":
        spec["ingressClassName"] = Value(".Values.ingress.className")
        spec["tls"] = [{"hosts": [Value(".Values.host")], "secretName": Value(".Values.ingress.tlsSecret")}]
        spec["rules"][0]["host"] = Value(".Values.host")
    return item


def deployment(template):
    pod = template["spec"]
    container = pod["containers"][0]
    # A changed configuration replaces the pods.
    template["metadata"]["annotations"] = {"checksum/config": Value(".Values.config | sha256sum")}
    image = ".Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion"
    container["image"] = Value(image)
    container["resources"] = Block(".Values.resources", otherwise=container["resources"])
    for variable in container["env"]:
        if not isinstance(variable, If) and "valueFrom" in variable:
            variable["valueFrom"]["secretKeyRef"]["name"] = Value(".Values.secret")
    for source in container.get("envFrom", []):
        source["secretRef"]["name"] = Value(".Values.secret")
    container["volumeMounts"].append(Block(".Values.volumeMounts"))
    pod["volumes"].append(Block(".Values.volumes"))
    for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
        pod[name] = Block(f".Values.{name}")


def found(node, key):
    """The maps in a tree that have a key."""
    if isinstance(node, dict):
        if key in node:
            yield node
        for part in node.values():
            yield from found(part, key)
    elif isinstance(node, list):
        for part in node:
            yield from found(part, key)


def compare(chart, manifests):
    mistakes = [f"{kind} {name} is in one of both only" for kind, name in chart.keys() ^ manifests.keys()]
    for kind, name in chart.keys() & manifests.keys():
        ours, theirs = (normal(without_instance(objects[kind, name])) for objects in (chart, manifests))
        if ours != theirs:
            ours, theirs = (yaml.safe_dump(item).splitlines() for item in (ours, theirs))
            differing = [line for line in difflib.ndiff(theirs, ours) if not line.startswith(("  ", "? "))]
            mistakes.append("\n  ".join([f"{kind} {name} differs from the manifests:", *differing]))
    for mistake in mistakes:
        print(f"error: the chart: {mistake}", file=sys.stderr)
    return 1 if mistakes else 0


def normal(node):
    """Without what only a chart has, and with what has names in their order."""
    if isinstance(node, dict):
        return {key: normal(part) for key, part in node.items() if not is_note(key, part)}
    if isinstance(node, list):
        parts = [normal(part) for part in node]
        named = all(isinstance(part, dict) and "name" in part for part in parts)
        return sorted(parts, key=lambda part: part["name"]) if named else parts
    return node


def is_note(key, part):
    return key == "annotations" and isinstance(part, dict) and part.keys() == {"checksum/config"}


if __name__ == "__main__":
    sys.exit(main())
