"""QR-DQN beside sb3-contrib's: whole updates."""

from gymnasium.spaces import Discrete
from sb3_contrib import QRDQN

from benchmarks.references import tasks
from benchmarks.references.figures import agree
from benchmarks.references.stable_baselines import LIKE_KERAS, Adam, Spaces, feed, model, observations
from benchmarks.references.weights import Twins, dense

UPDATES, QUANTILES = 30, 7
# distrl's outputs are choice by choice, the reference's quantile by quantile.
COLUMNS = [choice * QUANTILES + quantile for quantile in range(QUANTILES) for choice in range(tasks.CHOICES)]


def test_updates():
    head = {"kind": "quantile_q", "quantiles": QUANTILES}
    algorithm, networks = tasks.make("qrdqn", tasks.DISCRETE, {"heads_parameters": [head]}, activation="relu")
    theirs = model(
        QRDQN,
        Spaces(observations(tasks.INPUTS), Discrete(tasks.CHOICES)),
        learning_rate=tasks.RATE,
        gamma=tasks.GAMMA,
        buffer_size=10,
        policy_kwargs={
            "net_arch": [tasks.HIDDEN],
            "n_quantiles": QUANTILES,
            "optimizer_class": Adam,
            "optimizer_kwargs": {"epsilon": tasks.EPSILON},
        },
    )
    layers = theirs.quantile_net.quantile_net
    pairs = [*dense("middleware_dense_0", layers[0]), *dense("quantile_q_head", layers[2], columns=COLUMNS)]
    both = Twins(networks["main"].online, pairs)
    theirs.quantile_net_target.load_state_dict(theirs.quantile_net.state_dict())
    batches = [tasks.transitions(seed, tasks.DISCRETE) for seed in range(UPDATES)]
    feed(theirs, batches)
    losses, references = [], []
    for batch in batches:
        losses.append(algorithm.update(networks, batch).metrics["td_loss"])
        theirs.train(gradient_steps=1, batch_size=tasks.ROWS)
        references.append(theirs.logger.name_to_value["train/loss"])
    name = "sb3-contrib QRDQN.train()"
    agree("QR-DQN", f"loss of {UPDATES} updates", name, losses, references, allowed=5e-6, note=LIKE_KERAS)
    both.agree("QR-DQN", f"every weight after {UPDATES} updates", name, allowed=1e-6, note=LIKE_KERAS)
