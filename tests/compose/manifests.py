"""Reads the manifests of ``compose/kubernetes``, and knows the rules that they have to keep."""

from __future__ import annotations

from typing import Any

import yaml

from tests.compose.programs import COMPOSE

KUBERNETES = COMPOSE / "kubernetes"
FILES = ("masters.yaml", "check.yaml", "app.yaml")
MAX_TTL = 60.0  # the default of `Masters`
Documents = dict[str, Any]


def read():
    """All documents, by kind and name: ``StatefulSet/master``."""
    found = {}
    for name in FILES:
        for document in yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8")):
            found[f"{document['kind']}/{document['metadata']['name']}"] = document
    return found


def pods(documents):
    """The templates of pods, by the document that they are in."""
    found = {}
    for name, document in documents.items():
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            found[name] = spec["template"]
    return found


def containers(pod):
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


LABELS = {"app": "redlock-master"}
SET, POD = "StatefulSet/master spec", "StatefulSet/master spec template spec"
SERVER = f"{POD} containers 0"
# Where it is said, what is allowed there, and why; None: nothing.
RULES: list[tuple[str, Any, str]] = [
    (f"{SET} replicas", 5, "one set of five (R1)"),
    (f"{SET} updateStrategy", {"type": "RollingUpdate"}, "one at a time"),
    (f"{SET} podManagementPolicy", "Parallel", "none waits for another one to start"),
    (f"{SET} minReadySeconds", MAX_TTL, "the next one is restarted when this one votes (R21)"),
    (f"{SET} serviceName", "masters", "the set's names are the service's"),
    (f"{SET} volumeClaimTemplates", None, "no disk, so no old one"),
    (f"{SET} template metadata labels", LABELS, "what the others select"),
    (f"{SERVER} env", [{"name": "MAX_TTL", "value": f"{MAX_TTL:.0f}"}], "ready is who votes (R21)"),
    (f"{SERVER} livenessProbe", None, "nobody restarts a slow one"),
    (f"{SERVER} startupProbe", None, "nobody restarts a slow one"),
    (f"{POD} affinity podAntiAffinity requiredDuringSchedulingIgnoredDuringExecution",
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}], "one on a node"),
    (f"{POD} topologySpreadConstraints", [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": LABELS}}], "over the zones"),
    (f"{SERVER} command", [
        "redis-server", "--save", "", "--appendonly", "no", "--maxmemory", "64mb", "--maxmemory-policy", "noeviction",
        "--port", "0", "--tls-port", "6379", "--tls-auth-clients", "no", "--tls-cert-file", "/secrets/tls.crt",
        "--tls-key-file", "/secrets/tls.key", "--tls-ca-cert-file", "/secrets/ca.crt", "--aclfile", "/secrets/users.acl",
    ], "no disk, no eviction, nothing without TLS, users, no replica"),
    (f"{POD} volumes", [{"name": "secrets", "secret": {"secretName": "masters", "defaultMode": 0o440}}], "no disk, so no old one"),
    (f"{SERVER} resources", {"requests": {"cpu": "100m", "memory": "192Mi"}, "limits": {"memory": "192Mi"}},
        "thrice what it may keep, not the first to be evicted, not throttled (R7)"),
    ("Service/masters spec clusterIP", "None", "each has an address of its own"),
    ("Service/masters spec selector", LABELS, "of the masters"),
    ("Service/masters spec publishNotReadyAddresses", True, "one that does not vote is asked (R21)"),
    ("PodDisruptionBudget/masters spec", {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": LABELS}}, "one is evicted at a time, and a broken one blocks no node"),
    ("NetworkPolicy/masters spec", {"podSelector": {"matchLabels": LABELS}, "policyTypes": ["Ingress", "Egress"], "egress": [],
        "ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"redlock-client": "true"}}}],
                     "ports": [{"port": 6379}]}]}, "clients only, and a master calls nobody"),
    ("CronJob/redlock-check spec concurrencyPolicy", "Forbid", "one check at a time"),
    ("CronJob/redlock-check spec jobTemplate spec backoffLimit", 0, "a failed check stays failed"),
    ("Namespace/redlock metadata labels pod-security.kubernetes.io/enforce", "restricted", "the cluster holds us to that"),
]  # fmt: skip
NOT_ROOT = {
    "runAsNonRoot": True, "runAsUser": 999, "runAsGroup": 999, "fsGroup": 999, "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
NO_PRIVILEGES = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def broken(documents):
    """The rules that are not kept."""
    found = {rule for place, allowed, rule in RULES if at(documents, place) != allowed}
    if '[ "$up" -gt "$MAX_TTL" ]' not in at(documents, f"{SERVER} readinessProbe exec command 2"):
        found.add("ready is who votes (R21)")
    for name, pod in pods(documents).items():
        spec, labels = pod["spec"], pod["metadata"]["labels"]
        kept = {
            "reaches the masters": labels == LABELS or labels.get("redlock-client") == "true",
            "not root": spec["securityContext"] == NOT_ROOT,
            "no token": spec["automountServiceAccountToken"] is False,
            "its group reads the secrets": [one["secret"]["defaultMode"] for one in spec["volumes"]] == [0o440],
            "no privileges": all(one["securityContext"] == NO_PRIVILEGES for one in containers(pod)),
            "memory is limited": all("memory" in one["resources"]["limits"] for one in containers(pod)),
            "no password in the environment": "redis://" not in str(pod) and "PASS" not in str(pod),
        }
        found |= {f"{name}: {rule}" for rule, is_kept in kept.items() if not is_kept}
    return found


def at(documents, place):
    found: Any = documents
    for step in place.split(" "):
        found = found[int(step)] if isinstance(found, list) else (found or {}).get(step)
    return found
