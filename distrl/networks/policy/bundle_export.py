"""The child process that exports one policy on TensorFlow for a learner on JAX, which cannot export it itself."""

from pathlib import Path
from typing import Any

from distrl.child import Parent
from distrl.networks.framework.lean_import import import_keras
from distrl.networks.policy.export_process import ExportRequest


def export(request: Any, _: Parent) -> None:
    """Write the ONNX graph, weights outside, to the file that an `ExportRequest` names.

    Raises:
        DistrlError: The network cannot be exported.
    """
    given = ExportRequest.from_json(request)
    import_keras("tensorflow")
    from distrl.networks.network import Network
    from distrl.networks.policy.bundle import export_graph

    # The weights' values are not in the graph. The caller verifies it against its own network.
    network = Network(given.parameters, given.spec, given.heads, given.name, seed=0)
    graph = export_graph(network.model, network.policy_variables, as_inputs=given.as_inputs)
    Path(given.path).write_bytes(graph)
