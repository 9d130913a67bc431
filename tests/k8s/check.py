"""Checks rendered manifests: check.py LOOPGATE IMAGE FILE…

First their form, against the schemas of Kubernetes, where an unknown field is a mistake. Then what no schema
says: that the parts fit together, and that the binary LOOPGATE takes the configuration that they hand it.
IMAGE is the name that the server's image must have in files whose names begin with `own-`. Names every mistake and ends with 1 if there is one.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[2]
# The same objects come in many files, and libyaml reads them ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The oldest Kubernetes that docs/kubernetes.md names, and the newest that has schemas.
VERSIONS = ["1.30", "1.37"]
# What the server takes after its drain to end what is still open, in seconds.
CLOSING = 7
# Kinds that Kubernetes' own schemas lack, and where theirs are.
EXTENSIONS = {
    "HTTPRoute": "httproute.json",
    "ServiceMonitor": "prometheus.json",
    "PrometheusRule": "prometheus.json",
    "GCPBackendPolicy": "policies.json",
    "HealthCheckPolicy": "policies.json",
    "BackendTrafficPolicy": "policies.json",
    "LoadBalancerConfiguration": "policies.json",
    "TargetGroupConfiguration": "policies.json",
}
# What has a template of pods and selects them.
WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet"}


def main():
    loopgate, image = sys.argv[1:3]
    failed = False
    for path in map(Path, sys.argv[3:]):
        text = path.read_text()
        mistakes = judge_file(text, loopgate, image if path.name.startswith("own-") else "")
        for mistake in mistakes:
            print(f"error: {path.stem}: {mistake}", file=sys.stderr)
        print(f"{path.stem}: {len(re.findall('^kind: ', text, re.M))} objects")
        failed = failed or bool(mistakes)
    return 1 if failed else 0


def judge_file(text, loopgate, image):
    objects = [item for item in yaml.load_all(text, LOADER) if item]
    mistakes = [] if objects else ["nothing was rendered"]
    for item in objects:
        mistakes += [f"{title(item)}: {mistake}" for mistake in against_schema(item)]
    # What has the wrong form cannot be looked into.
    if not mistakes:
        mistakes += [f"{title(item)}: {mistake}" for item in objects for mistake in judge(item, objects)]
        mistakes += entries(objects)
        mistakes += foreign_images(objects, image)
        mistakes += read_by_the_binary(objects, loopgate)
    return mistakes


def title(item):
    return f"{item.get('kind')} {item.get('metadata', {}).get('name')}"


def against_schema(item):
    """An object of an unknown kind is a mistake too: it would go unchecked."""
    return list(against_schema_of(json.dumps(item, sort_keys=True)))


@functools.cache
def against_schema_of(text):
    item = json.loads(text)
    if item.get("kind") in EXTENSIONS:
        schema = json.loads((ROOT / "tests/k8s" / EXTENSIONS[item["kind"]]).read_text())
        return [str(error.message) for error in jsonschema.Draft202012Validator(schema).iter_errors(item)]
    mistakes = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(str(part) for part in error.path)
            mistakes.append(f"Kubernetes {version}: {where}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            mistakes.append(error.message)
    return mistakes


def judge(item, objects):
    """What no schema says of one object."""
    spec, kind = item.get("spec", {}), item["kind"]
    if "app.kubernetes.io/name" not in item["metadata"].get("labels", {}) and kind not in {"Namespace", "ConfigMap"}:
        yield "has no label app.kubernetes.io/name"
    if kind in WORKLOADS:
        yield from judge_pod(spec["template"], objects)
        if spec["selector"]["matchLabels"].items() - spec["template"]["metadata"]["labels"].items():
            yield "selects other pods than its own"
        scaled = {other["spec"]["scaleTargetRef"]["name"] for other in of_kind(objects, "HorizontalPodAutoscaler")}
        if item["metadata"]["name"] in scaled and "replicas" in spec:
            yield "sets replicas, which its autoscaler decides"
    if kind == "Service" and not selected(spec["selector"], objects):
        yield "selects no pods"
    if kind == "PodDisruptionBudget" and not selected(spec["selector"]["matchLabels"], objects):
        yield "selects no pods"
    if kind == "NetworkPolicy" and not selected(spec["podSelector"]["matchLabels"], objects):
        yield "selects no pods"
    if kind == "HorizontalPodAutoscaler":
        target = spec["scaleTargetRef"]
        if not any(other["metadata"]["name"] == target["name"] for other in of_kind(objects, target["kind"])):
            yield "scales what is not there"
    if kind == "ServiceMonitor":
        yield from judge_monitor(spec, objects)
    for target in targets(item):
        if not any(other["metadata"]["name"] == target["name"] for other in of_kind(objects, target["kind"])):
            yield f"is for {target['kind']} {target['name']}, which is not there"
    for name, port in backends(item):
        services = [other for other in of_kind(objects, "Service") if other["metadata"]["name"] == name]
        ports = [wanted for service in services for wanted in service["spec"]["ports"]]
        if not any(port in (known["port"], known["name"]) for known in ports):
            yield f"routes to {name}:{port}, which no Service has"


def judge_monitor(spec, objects):
    """What is read must be where the server answers."""
    labels = spec["selector"]["matchLabels"].items()
    services = [one for one in of_kind(objects, "Service") if labels <= one["metadata"]["labels"].items()]
    for endpoint in spec["endpoints"]:
        ports = [port for one in services for port in one["spec"]["ports"] if port["name"] == endpoint["port"]]
        if len(services) != 1 or len(ports) != 1:
            yield f"reads the port {endpoint['port']} of {len(services)} Services, of which {len(ports)} have it"
            continue
        for template in selected(services[0]["spec"]["selector"], objects):
            for container in template["spec"]["containers"]:
                known = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
                metrics = tomllib.loads(configuration(template["spec"], objects)).get("metrics", {})
                if not metrics.get("listen", "").endswith(f":{known.get(ports[0]['targetPort'])}"):
                    yield f"reads a port at which there are no metrics: {metrics}"
                if metrics.get("open") is not True:
                    yield "has no key for metrics that take one"


def judge_pod(template, objects):
    pod = template["spec"]
    if pod.get("automountServiceAccountToken") is not False:
        yield "its pods get a token of the cluster"
    user = pod.get("securityContext", {})
    if not user.get("runAsUser") or user.get("runAsNonRoot") is not True:
        yield "its pods may run as root"
    for container in pod.get("initContainers", []) + pod["containers"]:
        for mistake in judge_container(container, pod, template["metadata"]["labels"], objects):
            yield f"container {container['name']}: {mistake}"


def judge_container(container, pod, labels, objects):
    security = container.get("securityContext", {})
    for key, wanted in {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }.items():
        if security.get(key) != wanted:
            yield f"securityContext.{key} must be {wanted}"
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        yield f"the image {container['image']} names no version"
    resources = container.get("resources", {})
    if "memory" not in resources.get("limits", {}) or "cpu" in resources.get("limits", {}):
        yield "must have a limit on memory and none on CPU"
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        if mount["name"] not in volumes:
            yield f"mounts {mount['name']}, which is no volume of the pod"
    if container["name"] == "loopgate":
        yield from judge_server(container, pod, labels, tag, objects)


def judge_server(container, pod, labels, tag, objects):
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    if tag != version or labels.get("app.kubernetes.io/version") != version:
        yield f"is not of version {version}"
    paths = json.loads((ROOT / "openapi/openapi.json").read_text())["paths"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    written = tomllib.loads(configuration(pod, objects))
    settings = written["server"]
    listen = next((one["value"] for one in container["env"] if one["name"] == "LOOPGATE_LISTEN"), settings["listen"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        request = container.get(probe, {}).get("httpGet", {})
        if request.get("path") not in paths:
            yield f"{probe} asks for {request.get('path')}, which the server does not have"
        if not listen.endswith(f":{ports.get(request.get('port'))}"):
            yield f"{probe} asks another port than {listen}"
    backups = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "backup"]
    if backups != [one for one in [written.get("store", {}).get("backup", {}).get("directory")] if one]:
        yield f"has a volume for backups at {backups}, and its configuration says otherwise"
    drain = seconds(settings["drain_delay"]) + seconds(settings["drain_timeout"]) + CLOSING
    if pod["terminationGracePeriodSeconds"] <= drain:
        yield f"is killed after {pod['terminationGracePeriodSeconds']} s, but its drain may take {drain} s"


def entries(objects):
    """Clients come in one way, which the operator chose."""
    found = [title(item) for item in objects if item["kind"] in {"HTTPRoute", "Ingress"}]
    if len(found) > 1:
        yield f"clients have several ways in: {', '.join(found)}"


def foreign_images(objects, wanted):
    """An image that an overlay sets must be the one that runs."""
    for workload in of_kind(objects, "Deployment"):
        for container in workload["spec"]["template"]["spec"]["containers"]:
            name = container["image"].rpartition(":")[0]
            if wanted and container["name"] == "loopgate" and name != wanted:
                yield f"{title(workload)}: runs the image {name}, not {wanted}"


def read_by_the_binary(objects, loopgate):
    """Has the server check its configuration, with its own flags and variables and made-up secrets."""
    for workload in of_kind(objects, "Deployment"):
        pod = workload["spec"]["template"]["spec"]
        for container in (one for one in pod["containers"] if one["name"] == "loopgate"):
            text = configuration(pod, objects)
            variables = dict.fromkeys(re.findall(r'env = "(\w+)"', text), "made-up")
            variables["LOOPGATE_STORE"] = "redis://127.0.0.1:6379"
            variables |= {one["name"]: one["value"] for one in container["env"] if "value" in one}
            with tempfile.TemporaryDirectory() as directory:
                file = Path(directory, "loopgate.toml")
                file.write_text(text)
                variables |= {"LOOPGATE_CONFIG": str(file), "PATH": os.environ["PATH"]}
                arguments = [loopgate, "check-config", *container["args"][1:]]
                checked = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False)
            if checked.returncode != 0:
                yield f"{title(workload)}: loopgate refuses its configuration:\n{checked.stderr or checked.stdout}"


def configuration(pod, objects):
    """The loopgate.toml that a pod mounts."""
    mounted = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    maps = [item for item in of_kind(objects, "ConfigMap") if item["metadata"]["name"] in mounted]
    texts = [item["data"]["loopgate.toml"] for item in maps]
    if len(texts) != 1:
        raise SystemExit(f"error: a pod mounts {len(texts)} configurations")
    return texts[0]


def backends(item):
    """The Services that an object sends requests to, each with a port's number or name."""
    for rule in item.get("spec", {}).get("rules", []) if item["kind"] in {"HTTPRoute", "Ingress"} else []:
        for reference in rule.get("backendRefs", []):
            yield reference["name"], reference["port"]
        for path in rule.get("http", {}).get("paths", []):
            service = path["backend"]["service"]
            yield service["name"], service["port"].get("name", service["port"].get("number"))


def targets(item):
    """What the policy of a gateway is for."""
    spec = item.get("spec", {})
    found = [spec.get("targetRef"), spec.get("targetReference"), *spec.get("targetRefs", [])]
    return [target for target in found if target]


def selected(labels, objects):
    templates = [item["spec"]["template"] for item in objects if item["kind"] in WORKLOADS]
    return [one for one in templates if labels.items() <= one["metadata"]["labels"].items()]


def of_kind(objects, kind):
    return [item for item in objects if item["kind"] == kind]


def seconds(duration):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", duration).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


if __name__ == "__main__":
    sys.exit(main())
