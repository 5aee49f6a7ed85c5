"""NetworkPolicies and Services as nft rules of a Pod's own network, as a network and kube-proxy enforce them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]
DIRECTIONS = {"Ingress": ("input", "saddr", "iif", "from"), "Egress": ("output", "daddr", "oif", "to")}
"""Type of a policy -> hook, the other's address, its interface, field of a rule."""


@dataclass(frozen=True)
class Endpoint:
    """A Pod as policies see it.

    Attributes:
        ports: Numbers of its named ports.
    """

    address: str
    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Forward:
    """A port of a Service, and the ready ones behind it: address and port."""

    address: str
    port: int
    targets: tuple[tuple[str, int], ...]


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches; an empty one matches everything."""
    if unknown := selector.keys() - {"matchLabels", "matchExpressions"}:
        raise ValueError(f"unknown in a selector: {sorted(unknown)}")
    if any(labels.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions", ()))


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", ())
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"unknown operator of a selector: {operator}")


def rules(
    pod: Endpoint,
    policies: Iterable[Object],
    others: Sequence[Endpoint],
    namespaces: Mapping[str, Mapping[str, str]],
    node: str,
) -> str:
    """Return the nft rules of a Pod: what it may receive and send.

    Without a policy that selects it, a direction is open. Its node may open connections to it, for probes.

    Args:
        policies: NetworkPolicy objects of all namespaces, with metadata.namespace.
        others: All Pods.
        namespaces: Name -> labels.
    """
    lines = ["table inet policies", "delete table inet policies", "table inet policies {"]
    for kind, (hook, address, interface, peers) in DIRECTIONS.items():
        selecting = [policy for policy in policies if _isolates(policy, pod, kind)]
        lines += [
            f"chain {hook} {{",
            f"type filter hook {hook} priority 0; policy {'drop' if selecting else 'accept'};",
            f"{interface} lo accept",
            "ct state established,related accept",
        ]
        if kind == "Ingress":
            lines.append(f"ip saddr {node} accept")
        for policy in selecting:
            for rule in policy["spec"].get(kind.lower(), ()):
                _known(rule, peers, "ports")
                sources = list(_sources(rule.get(peers, ()), policy, others, namespaces, address))
                lines += [f"{source} {port} accept" for source in sources for port in _ports(rule, pod, kind)]
        lines.append("}")
    return "\n".join([*lines, "}", ""])


def _isolates(policy: Object, pod: Endpoint, kind: str) -> bool:
    spec = policy["spec"]
    _known(spec, "podSelector", "policyTypes", "ingress", "egress")
    kinds = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
    mine = policy["metadata"]["namespace"] == pod.namespace and selects(spec["podSelector"], pod.labels)
    return mine and kind in kinds


def _sources(
    peers: Sequence[Object],
    policy: Object,
    others: Sequence[Endpoint],
    namespaces: Mapping[str, Mapping[str, str]],
    address: str,
) -> Iterator[str]:
    """Yield a match of nft for each peer of a rule; no peers are all."""
    if not peers:
        yield ""
    for peer in peers:
        _known(peer, "podSelector", "namespaceSelector", "ipBlock")
        if "ipBlock" in peer:
            but = "".join(f"ip {address} != {cidr} " for cidr in peer["ipBlock"].get("except", ()))
            yield f"{but}ip {address} {peer['ipBlock']['cidr']}"
            continue
        found = [
            other.address
            for other in others
            if selects(peer.get("podSelector", {}), other.labels)
            and (
                selects(peer["namespaceSelector"], namespaces[other.namespace])
                if "namespaceSelector" in peer
                else other.namespace == policy["metadata"]["namespace"]
            )
        ]
        if found:
            yield f"ip {address} {{ {', '.join(found)} }}"


def _ports(rule: Object, pod: Endpoint, kind: str) -> Iterator[str]:
    """Yield a match of nft for each port of a rule; no ports are all."""
    if not rule.get("ports"):
        yield ""
    for port in rule.get("ports", ()):
        _known(port, "protocol", "port", "endPort")
        protocol, number = port.get("protocol", "TCP").lower(), port.get("port")
        if isinstance(number, str):
            if kind == "Egress":
                raise ValueError(f"a named port of egress is a different one for each peer: {number}")
            number = pod.ports[number]
        if number is None:
            yield f"meta l4proto {protocol}"
        else:
            yield f"{protocol} dport {number}" + (f"-{port['endPort']}" if "endPort" in port else "")


def _known(found: Object, *names: str) -> None:
    if unknown := found.keys() - {*names}:
        raise ValueError(f"unknown in a NetworkPolicy: {sorted(unknown)}")


def forwards(services: Iterable[Forward]) -> str:
    """Return the nft rules by which a Pod reaches Services: without a ready Pod, connections are refused."""
    lines = ["table ip services", "delete table ip services", "table ip services {"]
    chosen, refused = [], []
    for service in services:
        match = f"ip daddr {service.address} tcp dport {service.port}"
        if service.targets:
            choice = ", ".join(f"{i} : {host} . {port}" for i, (host, port) in enumerate(service.targets))
            chosen.append(f"{match} dnat to numgen random mod {len(service.targets)} map {{ {choice} }}")
        else:
            refused.append(f"{match} reject with tcp reset")
    lines += ["chain choose {", "type nat hook output priority -100;", *chosen, "}"]
    lines += ["chain refuse {", "type filter hook output priority -50;", *refused, "}", "}", ""]
    return "\n".join(lines)
