"""Reads the manifests of ``compose/kubernetes``, and knows the rules that they have to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from tests.compose.programs import COMPOSE

if TYPE_CHECKING:
    from collections.abc import Iterator

KUBERNETES = COMPOSE / "kubernetes"
FILES = ("masters.yaml", "check.yaml", "app.yaml")
MAX_TTL = 60.0  # the default of `Masters`
MAJORITY_NEEDS = 5
Documents = dict[str, Any]


def read() -> Documents:
    """All documents, by kind and name: ``StatefulSet/master``."""
    found = {}
    for name in FILES:
        for document in yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8")):
            found[f"{document['kind']}/{document['metadata']['name']}"] = document
    return found


def pods(documents: Documents) -> dict[str, Any]:
    """The templates of pods, by the document that they are in."""
    found = {}
    for name, document in documents.items():
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            found[name] = spec["template"]
    return found


def containers(pod: Any) -> list[Any]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def options(command: list[str]) -> dict[str, str]:
    """Of a command line of which every option has a value."""
    assert len(command) % 2 == 1
    return dict(zip(command[1::2], command[2::2], strict=True))


def broken(documents: Documents) -> set[str]:
    """The names of the rules that are not kept."""
    return {name for name, kept in (*_masters(documents), *_around(documents), *_everywhere(documents)) if not kept}


def _masters(documents: Documents) -> Iterator[tuple[str, bool]]:
    found = documents["StatefulSet/master"]["spec"]
    pod = found["template"]["spec"]
    (server,) = pod["containers"]
    labels = found["template"]["metadata"]["labels"]
    yield "one set of five (R1)", found["replicas"] == MAJORITY_NEEDS
    yield "one at a time", found["updateStrategy"] == {"type": "RollingUpdate"}
    yield "none waits for another one to start", found["podManagementPolicy"] == "Parallel"
    yield "the next one is restarted when this one votes (R21)", found["minReadySeconds"] >= MAX_TTL
    (environment,) = [one["value"] for one in server["env"] if one["name"] == "MAX_TTL"]
    probe = server["readinessProbe"]["exec"]["command"][-1]
    yield "ready is who votes (R21)", float(environment) >= MAX_TTL and '[ "$up" -gt "$MAX_TTL" ]' in probe
    yield "nobody restarts a slow one", "livenessProbe" not in server and "startupProbe" not in server
    anti = pod["affinity"]["podAntiAffinity"].get("requiredDuringSchedulingIgnoredDuringExecution", [])
    yield (
        "one on a node",
        [(one["topologyKey"], one["labelSelector"]["matchLabels"]) for one in anti]
        == [("kubernetes.io/hostname", labels)],
    )
    spread = [
        (one["topologyKey"], one["maxSkew"], one["whenUnsatisfiable"], one["labelSelector"]["matchLabels"])
        for one in pod["topologySpreadConstraints"]
    ]
    yield "over the zones", spread == [("topology.kubernetes.io/zone", 1, "DoNotSchedule", labels)]
    says = options(server["command"])
    yield "never evicts", says["--maxmemory-policy"] == "noeviction"
    volumes = [set(volume) - {"name"} for volume in pod["volumes"]]
    no_disk = says["--save"] == "" and says["--appendonly"] == "no" and volumes == [{"secret"}]
    yield "no disk, so no old one", no_disk and "volumeClaimTemplates" not in found
    yield "nothing without TLS", says["--port"] == "0" and says["--tls-port"] == "6379"
    yield "users", says.get("--aclfile") == "/secrets/users.acl"
    yield "no replica", not any(option.startswith(("--replicaof", "--slaveof", "--cluster")) for option in says)
    megabytes = int(says["--maxmemory"].removesuffix("mb"))
    limits, requests = server["resources"]["limits"], server["resources"]["requests"]
    yield "memory for it", int(limits["memory"].removesuffix("Mi")) >= 2 * megabytes
    yield "not the first to be evicted", requests["memory"] == limits["memory"]
    yield "not throttled (R7)", "cpu" not in limits and "cpu" in requests


def _around(documents: Documents) -> Iterator[tuple[str, bool]]:
    labels = documents["StatefulSet/master"]["spec"]["template"]["metadata"]["labels"]
    service = documents["Service/masters"]["spec"]
    yield "each has an address of its own", service["clusterIP"] == "None" and service["selector"] == labels
    yield "the set's names are the service's", documents["StatefulSet/master"]["spec"]["serviceName"] == "masters"
    yield "one that does not vote is asked (R21)", service.get("publishNotReadyAddresses") is True
    budget = documents["PodDisruptionBudget/masters"]["spec"]
    yield "one is evicted at a time", budget["maxUnavailable"] == 1 and budget["selector"]["matchLabels"] == labels
    yield "a broken one blocks no node", budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    policy = documents["NetworkPolicy/masters"]["spec"]
    yield "of the masters", policy["podSelector"]["matchLabels"] == labels
    yield "a master calls nobody", "Egress" in policy["policyTypes"] and policy["egress"] == []
    ((rule),) = policy["ingress"]
    (client,) = [one["podSelector"]["matchLabels"] for one in rule["from"]]
    only_redis = [one["port"] for one in rule["ports"]] == [6379]
    yield "clients only", "Ingress" in policy["policyTypes"] and only_redis and client == {"redlock-client": "true"}
    for name, pod in pods(documents).items():
        if name != "StatefulSet/master":
            yield f"{name} reaches the masters", client.items() <= pod["metadata"]["labels"].items()
    check = documents["CronJob/redlock-check"]["spec"]
    yield "one check at a time", check["concurrencyPolicy"] == "Forbid"
    yield "a failed check stays failed", check["jobTemplate"]["spec"]["backoffLimit"] == 0


def _everywhere(documents: Documents) -> Iterator[tuple[str, bool]]:
    enforced = documents["Namespace/redlock"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    yield "the cluster holds us to that", enforced == "restricted"
    for name, pod in pods(documents).items():
        security = pod["spec"]["securityContext"]
        yield f"{name}: not root", security["runAsNonRoot"] is True and security["runAsUser"] > 0
        yield f"{name}: seccomp", security["seccompProfile"] == {"type": "RuntimeDefault"}
        yield f"{name}: no token", pod["spec"]["automountServiceAccountToken"] is False
        secret = [one["secret"]["defaultMode"] for one in pod["spec"]["volumes"]]
        yield f"{name}: its group reads the secrets", secret == [0o440] and security["fsGroup"] > 0
        for container in containers(pod):
            own = container["securityContext"]
            unprivileged = own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}
            yield f"{name}: no privileges", unprivileged
            yield f"{name}: nothing is written", own["readOnlyRootFilesystem"] is True
            yield f"{name}: memory is limited", "memory" in container["resources"]["limits"]
            plain = [one for one in container.get("env", []) if "pass" in one["name"].lower()]
            yield f"{name}: no password in the environment", not plain and "redis://" not in str(container)
