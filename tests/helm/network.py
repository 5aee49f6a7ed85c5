"""Network policies of the chart: everything is denied but the pairs that talk to each other."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.helm.rendering import Object, name_of, pods_in
from tests.helm.words import INSTANCE, WORKLOADS, component_of, selects, vague

ALLOWED_PORTS: Sequence[Any] = (
    [(53, "TCP"), (53, "UDP")],
    [(5353, "TCP"), (5353, "UDP")],
    [(8443, "TCP")],
    [(443, "TCP"), (6443, "TCP")],
    [(6379, "TCP")],
    [(8265, "TCP")],
    [(8720, "TCP")],
    [(8730, "TCP")],
)
"""Ports of the rules of network policies."""


POD_LABELS = {"k8s-app", "app.kubernetes.io/name", "dns.operator.openshift.io/daemonset-dns"}
"""Labels of Pods in other namespaces that rules name."""


def network_problems(objects: Sequence[Object]) -> Iterator[str]:
    """Every Pod is denied everything by default, and every rule names peers and ports."""
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    if not policies:
        return
    pods = [metadata for each in objects if each["kind"] in WORKLOADS for metadata, _ in pods_in(each)]
    denying = [policy for policy in policies if not policy["spec"].keys() & {"ingress", "egress"}]
    yield from _denied(policies, denying, pods)
    yield from _reached(policies, pods)
    if (allowed := _allowed(policies, pods)) != (wanted := _wanted(pods)):
        yield f"allowed too much: {sorted(allowed - wanted, key=str)}, too little: {sorted(wanted - allowed, key=str)}"
    for policy in policies:
        name = name_of(policy)
        yield from (f"{name}: {line}" for line in _policy(policy, policy in denying, pods))


def _denied(policies: Sequence[Object], denying: Sequence[Object], pods: Sequence[Object]) -> Iterator[str]:
    for metadata in pods:
        if not any(selects(policy["spec"].get("podSelector"), metadata) for policy in denying):
            yield f"nothing is denied to {component_of(metadata)}"
        if not any(
            selects(policy["spec"].get("podSelector"), metadata) for policy in policies if policy not in denying
        ):
            yield f"no policy allows {component_of(metadata)} anything"


def _reached(policies: Sequence[Object], pods: Sequence[Object]) -> Iterator[str]:
    """Yield what the Pods need outside the release, and do not reach."""
    rules = [(policy, rule) for policy in policies for rule in policy["spec"].get("egress") or ()]
    for metadata in pods:
        mine = [rule for policy, rule in rules if selects(policy["spec"].get("podSelector"), metadata)]
        resolves = any(port.get("port") in (53, 5353) for rule in mine for port in rule.get("ports") or ())
        component = component_of(metadata)
        if component not in ("redis", "secret") and not resolves:
            yield f"{component} finds no host"
        reaches = any("ipBlock" in peer for rule in mine for peer in rule.get("to") or ())
        if component == "secret" and not reaches:
            yield f"{component} does not reach the API server"
    operator = [
        str(policy["spec"].get("ingress")) for policy in policies if policy["metadata"]["name"].endswith("-ray-head")
    ]
    has_ray = any(component_of(pod) == "ray-head" for pod in pods)
    if has_ray is not any("kuberay-operator" in text for text in operator):
        yield "KubeRay's operator does not reach the head"
    scraping = [
        str(policy["spec"].get("ingress")) for policy in policies if policy["metadata"]["name"].endswith("-dashboard")
    ]
    if any("monitoring" not in text for text in scraping):
        yield "Prometheus does not reach the dashboard"
    asking = [policy for policy in policies if policy["metadata"]["name"].endswith("-serve")]
    ports = [
        port.get("port") for policy in asking for rule in policy["spec"].get("ingress") or () for port in rule["ports"]
    ]
    if ports != ([8730] if any(component_of(pod) == "serve" for pod in pods) else []):
        yield "no client reaches the servers"


def _allowed(policies: Sequence[Object], pods: Sequence[Object]) -> set[tuple[str, str, Any]]:
    """Return the connections that the policies allow: (from component, to component, port or None for all)."""
    sides: dict[str, set[tuple[str, str, Any]]] = {"ingress": set(), "egress": set()}
    for policy in policies:
        for direction, side in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction) or ():
                for peer in rule.get(side) or ():
                    for mine in (pod for pod in pods if selects(policy["spec"].get("podSelector"), pod)):
                        for other in (pod for pod in pods if selects(peer.get("podSelector"), pod)):
                            pair = component_of(mine), component_of(other)
                            for port in rule.get("ports") or ({},):
                                sides[direction].add((*(pair if side == "to" else pair[::-1]), port.get("port")))
    return sides["ingress"] & sides["egress"]


def _wanted(pods: Sequence[Object]) -> set[tuple[str, str, Any]]:
    there = {component_of(pod) for pod in pods}
    clients = there & {"learner", "actor", "dashboard", "test", "ray-head", "ray-worker"}
    wanted: set[tuple[str, str, Any]] = {(client, "redis", 6379) for client in clients if "redis" in there}
    ray = there & {"ray-head", "ray-worker"}
    wanted |= {(one, other, None) for one in ray for other in ray}
    return wanted | ({("test", "dashboard", 8720)} if "dashboard" in there else set())


def _policy(policy: Object, denies: bool, pods: Sequence[Object]) -> Iterator[str]:
    spec = policy["spec"]
    directions = {"ingress", "egress"} if denies else spec.keys() & {"ingress", "egress"}
    if {direction.lower() for direction in spec.get("policyTypes") or ()} != directions:
        yield f"it is for {spec.get('policyTypes')}, and its rules are for {sorted(directions)}"
    if not any(selects(spec.get("podSelector"), metadata) for metadata in pods):
        yield "it is for no Pod"
    if denies and set((spec.get("podSelector") or {}).get("matchLabels") or {}) != {INSTANCE}:
        yield f"it is for {spec.get('podSelector')}"
    if not denies:
        yield from vague(spec.get("podSelector"))
        if not all(spec.get(direction) for direction in directions):
            yield "it allows nothing"
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction) or ():
            yield from _rule(rule, side, pods)


def _rule(rule: Object, side: str, pods: Sequence[Object]) -> Iterator[str]:
    peers = rule.get(side)
    if not peers or any(not peer for peer in peers):
        yield f"a rule without {side} is for everyone"
        return
    is_ray = str(peers).count("ray-head") and "ports" not in rule
    if not is_ray and not rule.get("ports"):
        yield "a rule without ports is for all of them"
    if any("port" not in port or "protocol" not in port for port in rule.get("ports") or ()):
        yield "a rule leaves port or protocol open"
    ports = sorted((port.get("port"), port.get("protocol")) for port in rule.get("ports") or ())
    if ports and ports not in ALLOWED_PORTS:
        yield f"a rule is for {ports}"
    for peer in peers:
        own = peer.get("podSelector")
        if "namespaceSelector" in peer:
            yield from _peer_of_others(peer)
        elif own is not None:
            yield from vague(own)
        if own is not None and "namespaceSelector" not in peer and not any(selects(own, pod) for pod in pods):
            yield f"a peer is no Pod of the release: {own}"
        if own == {}:
            yield "a peer is every Pod of a namespace"


def _peer_of_others(peer: Object) -> Iterator[str]:
    namespace = (peer["namespaceSelector"] or {}).get("matchLabels") or {}
    pods = (peer.get("podSelector") or {}).get("matchLabels") or {}
    if namespace.keys() - {"kubernetes.io/metadata.name"} or pods.keys() - POD_LABELS:
        yield f"a peer is found by labels that nothing has: {peer}"
    if not namespace and not pods:
        yield "a peer is every Pod of the cluster"
    if namespace.get("kubernetes.io/metadata.name") == "kube-system" and not pods:
        yield "a peer is every Pod of the system"
    if pods.keys() & {"k8s-app", "dns.operator.openshift.io/daemonset-dns"} and not namespace:
        yield "a peer is a name server of any namespace"
