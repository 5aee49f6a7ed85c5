"""`python -m distrl.networks.policy.bundle_export`: exports one policy on TensorFlow for a learner on JAX.

Reads an `ExportRequest` as JSON from standard input and writes the ONNX graph, weights outside, to the file that it
names. Who asked verifies the graph, against the network that is to be trained. Exits with 1 and one line on standard
error if the network cannot be exported.
"""

import sys
from pathlib import Path

from distrl.errors import DistrlError
from distrl.networks.framework.lean_import import import_keras
from distrl.networks.policy.export_process import ExportRequest


def main() -> int:
    """Does what the module says; returns the exit code."""
    request = ExportRequest.from_json(sys.stdin.read())
    import_keras("tensorflow")
    from distrl.networks.network import Architecture
    from distrl.networks.policy.bundle import export_graph

    try:
        # Weights are inputs of the graph: whatever they start as is not in it.
        network = Architecture(request.parameters, request.spec, request.heads, request.name, seed=0)
        graph = export_graph(network.model, network.policy_variables)
    except DistrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    Path(request.path).write_bytes(graph)
    return 0


if __name__ == "__main__":
    sys.exit(main())
