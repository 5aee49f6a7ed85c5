"""Tests of several hosts and of Redis as companies run it: `make cluster` runs them.

A test that cannot run here skips with the reason. `make cluster` sets CLUSTER_SKIPS_FAIL, by which every skip of this
folder is a failure that shows the same reason.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from distrl.memory_backend.embedded_redis import find_server
from image.build import USUAL
from tests.faults.api_server import ApiServer
from tests.faults.arguments import environment
from tests.faults.built_images import Image, files_of_images, missing_for_images
from tests.faults.checkout_files import checkout_files, missing_for_checkout
from tests.faults.hosts import REDIS_PORT, Host, Network
from tests.faults.kube_api import KubeApi
from tests.faults.kube_tools import programs
from tests.faults.kubelet import NAMESPACE, Cluster
from tests.faults.slurm import SlurmCluster, missing_for_slurm
from tests.faults.tls_redis import Authority
from tests.helm.rendering import UnavailableError

SKIPS_FAIL = "CLUSTER_SKIPS_FAIL"
KUBERNETES_PORT = 6443


def missing_for_hosts(directory: Path) -> str | None:
    """Return the reason why this machine cannot make hosts, and the remedy; or None.

    Args:
        directory: Takes files of a host that is made for a trial.
    """
    what = "hosts are network namespaces, which"
    if os.geteuid() != 0:
        return f"{what} only root makes, and this is uid {os.geteuid()}: sudo make cluster"
    try:
        with closing(Network(directory)) as network:
            network.host("trial")
    except OSError as error:
        return f"{what} need a kernel that allows them, and the packages util-linux, mount, hostname, iproute2: {error}"
    return None


@pytest.fixture(scope="session")
def needs_hosts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips a test of several hosts where they cannot be made."""
    if (reason := missing_for_hosts(tmp_path_factory.mktemp("trial"))) is not None:
        pytest.skip(reason)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    network = Network(tmp_path)
    yield network
    network.close()


@pytest.fixture
def slurm_cluster(needs_hosts: None, tmp_path: Path, free_port: int) -> Iterator[SlurmCluster]:
    """Return a cluster of three nodes of four cores, which share this machine's files."""
    if (reason := missing_for_slurm()) is not None:
        pytest.skip(reason)
    with closing(Network(tmp_path)) as network:
        cluster = SlurmCluster(network, tmp_path / "slurm", free_port)
        yield cluster
        cluster.end()


@pytest.fixture
def redis_host(network: Network) -> Host:
    """Return a host on which a Redis answers the whole network."""
    host = network.host("redis")
    settings = {"port": REDIS_PORT, "bind": host.address, "protected-mode": "no", "save": "", "dir": "."}
    settings |= {"maxmemory": 2**28, "maxmemory-policy": "noeviction"}
    command = [find_server(), *(part for name, value in settings.items() for part in (f"--{name}", str(value)))]
    host.start(*command, variables=environment(), stdout=subprocess.DEVNULL)
    return host


@pytest.fixture
def kube_api(free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    """An API of Kubernetes that the real helm and kubectl find in their configuration, until the end of the test."""
    try:
        monkeypatch.setenv("PATH", str(programs()), prepend=":")
    except UnavailableError as error:
        pytest.skip(str(error))
    api = KubeApi(free_port)
    api.write_config(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("HOME", str(tmp_path))  # of their caches
    yield api
    api.close()
    assert not api.unknown


@pytest.fixture(scope="session")
def images(needs_hosts: None) -> Iterator[Mapping[str, Image]]:
    """The usual images by target, built unless they are there."""
    if (reason := missing_for_images()) is not None:
        pytest.skip(reason)
    with ExitStack() as cleanup:
        yield {target: cleanup.enter_context(closing(Image(target))) for target in USUAL}


@pytest.fixture
def cluster(needs_hosts: None, network: Network, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of one node.

    Its containers have the files of this checkout. With the parameter "images", those of distrl's images have the files
    of the built images.
    """
    if (reason := missing_for_checkout()) is not None:
        pytest.skip(reason)
    files = checkout_files(tmp_path)
    if getattr(request, "param", "checkout") == "images":
        files = files_of_images(request.getfixturevalue("images").values(), files)
    cluster = Cluster(network, tmp_path, files)
    yield cluster
    cluster.close()
    print("\n".join(cluster.events))  # pytest shows it where a test has failed


@pytest.fixture
def hook_api(needs_helm: None, cluster: Cluster, tmp_path: Path) -> Iterator[ApiServer]:
    """The API server of the cluster's Pods, which lets the hook of the release "demo" make the Secret."""
    authority, address = Authority(tmp_path / "authority"), cluster.network.address
    certificate = authority.sign("api", f"kubernetes,IP:{address}")
    api = ApiServer((address, KUBERNETES_PORT), certificate, cluster.objects, NAMESPACE, account="demo-distrl-secret")
    cluster.account = {
        "token": api.token.encode(),
        "ca.crt": authority.file.read_bytes(),
        "namespace": NAMESPACE.encode(),
    }
    cluster.variables |= {"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": str(KUBERNETES_PORT)}
    with closing(api):
        yield api


def _no_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and SKIPS_FAIL in os.environ:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"a skip is a failure with {SKIPS_FAIL}: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    report = yield
    _no_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[Any]:
    report = yield
    _no_skip(report)
    return report
