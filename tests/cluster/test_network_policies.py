"""The translation of NetworkPolicies to nft rules, by hand-made policies and connections between hosts."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.connections import PORTS, listen, reached
from tests.faults.network_policies import Endpoint, rules, selects

pytestmark = pytest.mark.cluster

NAMESPACES = {"mine": {"team": "a"}, "theirs": {"team": "b"}}
PODS = {
    "client": ("mine", {"app": "client", "tier": "front"}),
    "server": ("mine", {"app": "server"}),
    "namesake": ("theirs", {"app": "client"}),
    "odd": ("theirs", {"app": "odd"}),
}
ALL = {(source, port) for source in ("client", "namesake", "odd") for port in PORTS}


def policy(*, pods=None, namespace="mine", **spec):
    return {"metadata": {"namespace": namespace}, "spec": {"podSelector": {"matchLabels": pods or {}}, **spec}}


def ingress(*rules, **more):
    return policy(pods={"app": "server"}, policyTypes=["Ingress"], ingress=list(rules), **more)


def selector(**labels):
    return {"matchLabels": labels}


CASES = {
    "no policy": ([], ALL),
    "of another namespace": ([policy(namespace="theirs", policyTypes=["Ingress"])], ALL),
    "default deny": ([policy(policyTypes=["Ingress"])], set()),
    "all may come": ([ingress({})], ALL),
    "an empty list of peers is all": (
        [ingress({"from": [], "ports": [{"port": 8001}]})],
        {p for p in ALL if p[1] == 8001},
    ),
    "Pods of this namespace": (
        [ingress({"from": [{"podSelector": selector(app="client")}]})],
        {("client", port) for port in PORTS},
    ),
    "a namespace": (
        [ingress({"from": [{"namespaceSelector": selector(team="b")}]})],
        {(name, port) for name in ("namesake", "odd") for port in PORTS},
    ),
    "Pods of all namespaces": (
        [ingress({"from": [{"namespaceSelector": {}, "podSelector": selector(app="client")}]})],
        {(name, port) for name in ("client", "namesake") for port in PORTS},
    ),
    "one peer or the other": (
        [ingress({"from": [{"namespaceSelector": selector(team="b")}, {"podSelector": selector(app="client")}]})],
        ALL,
    ),
    "a port by its name": (
        [ingress({"from": [{"podSelector": {}}], "ports": [{"port": "web", "protocol": "TCP"}]})],
        {("client", 8001)},
    ),
    "a range of ports": ([ingress({"ports": [{"port": 8001, "endPort": 8002}]})], {p for p in ALL if p[1] != 8000}),
    "policies add up": (
        [ingress({"ports": [{"port": 8000}]}), ingress({"ports": [{"port": 8002}]}), policy(policyTypes=["Ingress"])],
        {p for p in ALL if p[1] != 8001},
    ),
    "UDP is not TCP": ([ingress({"ports": [{"port": 8000, "protocol": "UDP"}]})], set()),
    "a kind that is not named": ([policy(ingress=[{"ports": [{"port": 8000}]}])], {p for p in ALL if p[1] == 8000}),
    "egress": (
        [policy(pods={"app": "client"}, egress=[{"ports": [{"port": 8002}]}], policyTypes=["Egress"])],
        ALL - {("client", 8000), ("client", 8001)},
    ),
    "both ends must allow it": (
        [
            policy(policyTypes=["Ingress", "Egress"]),
            ingress({"from": [{"podSelector": selector(app="client")}]}),
            policy(pods={"tier": "front"}, policyTypes=["Egress"], egress=[{"ports": [{"port": 8001}]}]),
        ],
        {("client", 8001)},
    ),
}


def test_selectors():
    labels = {"app": "a", "tier": "front"}
    assert selects({}, {})
    assert selects({"matchLabels": {"app": "a"}}, labels)
    assert not selects({"matchLabels": {"app": "a", "tier": "back"}}, labels)
    for operator, values, expected in (
        ("In", ["b", "a"], True),
        ("In", ["b"], False),
        ("NotIn", ["b"], True),
        ("NotIn", ["a"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ):
        expression = {"key": "app", "operator": operator, "values": values}
        assert selects({"matchExpressions": [expression]}, labels) is expected
    assert selects({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}, labels)
    with pytest.raises(ValueError, match="operator of a selector: Like"):
        selects({"matchExpressions": [{"key": "app", "operator": "Like"}]}, labels)
    with pytest.raises(ValueError, match="matchlabels"):
        selects({"matchlabels": {}}, labels)


def test_what_it_does_not_know_is_an_error():
    pod = Endpoint("10.0.0.1", "mine", {})
    for odd in (
        policy(policytypes=[]),
        policy(ingress=[{"to": []}]),
        policy(ingress=[{"from": [{"podselector": {}}]}]),
    ):
        with pytest.raises(ValueError, match="unknown in a NetworkPolicy"):
            rules(pod, [odd], [pod], NAMESPACES, "10.0.0.254")
    with pytest.raises(ValueError, match="a named port of egress"):
        rules(pod, [policy(egress=[{"ports": [{"port": "web"}]}])], [pod], NAMESPACES, "10.0.0.254")


@pytest.fixture
def pods(needs_hosts, network):
    hosts = {name: network.host(name) for name in PODS}
    ports = {"web": 8001}
    ends = {name: Endpoint(hosts[name].address, *PODS[name], ports) for name in PODS}
    listen(hosts["server"])
    return hosts, ends


def test_allowed_connections_are_made_and_all_others_time_out(pods, network):
    hosts, ends = pods
    for name, (policies, expected) in CASES.items():
        _apply(hosts, ends, policies, network)
        assert _found(hosts) == expected, name


def test_blocks_of_addresses(pods, network):
    hosts, ends = pods
    block = {"cidr": network.address.rsplit(".", 1)[0] + ".0/24", "except": [f"{hosts['odd'].address}/32"]}
    _apply(hosts, ends, [ingress({"from": [{"ipBlock": block}]})], network)
    assert _found(hosts) == {p for p in ALL if p[0] != "odd"}


def test_its_node_may_probe_a_pod_and_answers_come_back(pods, network):
    hosts, ends = pods
    _apply(hosts, ends, [policy(policyTypes=["Ingress", "Egress"])], network)
    assert reached(None, {port: (hosts["server"].address, port) for port in PORTS}) == {*PORTS}
    assert _found(hosts) == set()


def _apply(hosts, ends, policies, network):
    for name, host in hosts.items():
        text = rules(ends[name], policies, [*ends.values()], NAMESPACES, network.address)
        subprocess.run(host.enter("nft", "-f", "-"), input=text, text=True, check=True)


def _found(hosts):
    targets = {port: (hosts["server"].address, port) for port in PORTS}
    sources = [name for name in hosts if name != "server"]
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: reached(hosts[name], targets), sources)
        return {(name, port) for name, ports in zip(sources, found, strict=True) for port in ports}
