import pytest

from distrl.apps.config.configuration import load
from distrl.errors import ConfigError


def test_values_are_any_of_the_chart():
    config = load(sets=["kubernetes.values={actors: {perPod: 4}, images: {registry: r}}"]).config.kubernetes
    assert (config.per_pod, config.namespace) == (4, None)
    assert load().config.kubernetes.per_pod == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("run.config.seed=1", "run is not yours to set: the job's configuration is in its place; leave it out"),
        ("redis.mode=external", "redis.mode is not yours to set: it is external with memory.url, and else own"),
        ("dashboard.enabled=false", "dashboard.enabled is not yours to set: distrl stop and distrl autoscale send"),
        ("learner.gpus=2", "learner.gpus is not yours to set: set learner.device: gpu"),
        ("actors.replicas=null", "actors.replicas is not yours to set: actors.count and actors.perPod set it"),
        ("actors=null", "actors.replicas is not yours to set"),
        ("redis=null", "redis.external.url is not yours to set"),
        ("mode=null", "mode is not yours to set"),
        ("secret.existing=null", "secret.existing must be the name of a Secret; leave it out"),
        ("secret=null", "secret.existing must be the name of a Secret; leave it out"),
        ("actors.perPod=null", "actors.perPod: None must be a whole number, at least 1"),
        ("actors.perPod=0", "actors.perPod: 0 must be a whole number, at least 1"),
        ("actors.perPod=true", "actors.perPod: True must be a whole number, at least 1"),
    ],
)
def test_values_that_the_job_makes_are_refused(path, message):
    with pytest.raises(ConfigError) as caught:
        load(sets=[f"kubernetes.values.{path}"])
    assert message in str(caught.value)
    assert str(caught.value).startswith("kubernetes.values")


def test_a_namespace_is_a_name_of_kubernetes():
    with pytest.raises(ConfigError, match=r"^kubernetes\.namespace"):
        load(sets=["kubernetes.namespace=Team_A"])
