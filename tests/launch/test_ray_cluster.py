"""Whether a run can start on a Ray cluster, from its nodes; tests/cluster/test_ray_nodes.py asks real ones."""

import pytest

from distrl.errors import ConfigError
from distrl.launch import ray_cluster
from distrl.launch.ray_cluster import Node, check_redis, check_versions, shortage
from distrl.roles.plan import RoleNeed

HERE = {"distrl": "1.0", "Ray": "2.60.0", "Python": "3.11.2"}


def node(cpus: float, gpus: float = 0.0, host: str = "10.0.0.1", **more) -> Node:
    return Node(cpus, gpus, host, HERE, **more)


def needs(actors: int, threads: int = 4, gpus: int = 0) -> list[RoleNeed]:
    return [RoleNeed("learner", 1, threads, gpus), RoleNeed("actor", actors, 1)]


def test_what_does_not_fit_is_said_with_numbers():
    assert shortage(needs(60), [node(8), node(8)]) == (
        "it needs 64 CPU (learner 4, 60 actors of 1), the cluster has 16, its largest node 8"
    )
    assert shortage(needs(1, gpus=2), [node(8, 1), node(8)]) == (
        "it needs 5 CPU (learner 4 and 2 GPU, actor 1), the cluster has 16, its largest node 8, and at most 1 GPU on a "
        "node"
    )
    assert shortage(needs(1), []) == "it needs 5 CPU (learner 4, actor 1), the cluster has 0, its largest node 0"


@pytest.mark.parametrize(
    ("actors", "nodes", "fits"),
    [
        (12, [node(8), node(8)], True),
        (13, [node(8), node(8)], False),
        (1, [node(3), node(3)], False),  # enough together, and no node has room for the learner
        (3, [node(4), node(1.5), node(2.9)], True),
        (4, [node(4), node(1.5), node(2.9)], False),  # a role does not use parts of two cores
        (2, [node(4), node(0), node(2)], True),
    ],
)
def test_the_learner_needs_one_node_and_actors_whole_cores(actors, nodes, fits):
    assert (shortage(needs(actors), nodes) is None) == fits


def test_the_learner_needs_its_gpus_beside_its_cores():
    assert shortage(needs(1, gpus=1), [node(2, 1), node(8)]) is not None
    assert shortage(needs(1, gpus=1), [node(4, 1), node(8)]) is None


def test_other_versions_are_one_line_that_names_both():
    check_versions(HERE, [node(1), Node(1, 0, "10.0.0.9", {})])  # the last one was not asked in time
    with pytest.raises(ConfigError, match=r"the Ray node 10.0.0.2 has distrl 0.9, this host has 1.0; use the same"):
        check_versions(HERE, [node(1), Node(1, 0, "10.0.0.2", {**HERE, "distrl": "0.9"})])
    with pytest.raises(ConfigError, match=r"10.0.0.2 cannot run distrl: .*No module named 'distrl'; install distrl on"):
        check_versions(HERE, [node(1, host="10.0.0.2", problem="ModuleNotFoundError: No module named 'distrl'")])


def test_a_redis_of_each_host_itself_is_refused_where_there_are_several():
    check_redis("redis://localhost:6379", [node(1), node(1)])
    check_redis("redis://10.0.0.7:6379", [node(1), node(1, host="10.0.0.2")])
    with pytest.raises(ConfigError, match="each node of the Ray cluster would look for Redis on its own host"):
        check_redis("redis://localhost:6379", [node(1), node(1, host="10.0.0.2")])


class Clocked:
    """A child that sends messages at given seconds of a clock that only waiting for it moves."""

    def __init__(self, messages):
        self.now, self.sent = 0.0, messages

    def __call__(self, *_, **__):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait(self, seconds):
        self.now += seconds

    def messages(self):
        due = [message for at, message in self.sent if at <= self.now]
        self.sent = self.sent[len(due) :]
        return due

    def output(self):
        return ""


@pytest.mark.parametrize(("imports_s", "answers_s", "is_error"), [(20, 29, False), (20, 31, True), (40, 41, True)])
def test_a_host_that_is_slow_to_import_ray_is_no_cluster_that_does_not_answer(
    monkeypatch, imports_s, answers_s, is_error
):
    nodes = {"here": HERE, "nodes": [{"cpus": 2.0, "gpus": 0.0, "host": "10.0.0.1", "versions": HERE}]}
    child = Clocked([(imports_s, {"connects": "head:1"}), (answers_s, nodes)])
    monkeypatch.setattr(ray_cluster, "Child", child)
    monkeypatch.setattr(ray_cluster.time, "monotonic", lambda: child.now)
    if is_error:
        with pytest.raises(ConfigError, match="Ray at head:1 does not answer within 10 s"):
            ray_cluster._examine("head:1")
    else:
        assert ray_cluster._examine("head:1") == (HERE, [node(2)])
