import pytest

from distrl.config.load import load
from distrl.errors import ConfigError
from distrl.jobs.kubernetes_checks import check_config, pods_for


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["launch.launcher=ray"], "launch.launcher: ray has no use with --on kubernetes"),
        (["actors.count=0"], "actors.count: 0 is one process, which needs no cluster; use --on here"),
        (["launch.start_actors=false", "memory.listen=auto"], "--no-actors has no use with --on kubernetes"),
        (["kubernetes.values.actors.perPod=3"], "actors: 4 is no multiple of 3, the number of actors in each Pod"),
        (["memory.url=redis://localhost"], "each Pod would look for Redis on itself"),
        (["memory.url=redis://redis"], "name it in kubernetes.values.secret.existing"),
        (["memory.namespace=team"], "memory.namespace has no use with --on kubernetes, whose chart has"),
        (["memory.listen=auto"], "memory.listen has no use with --on kubernetes"),
    ],
)
def test_what_cannot_run_there_is_refused(sets, message):
    with pytest.raises(ConfigError) as caught:
        check_config(load(sets=["actors.count=4", *sets]).config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pods_are_counted():
    assert pods_for(6, 3) == 2
