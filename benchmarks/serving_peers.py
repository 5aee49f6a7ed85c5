"""The servers that `benchmarks.serving` compares with: the same ONNX session behind plain Starlette and Ray Serve.

python -m benchmarks.serving_peers starlette policy.onnx
python -m benchmarks.serving_peers ray policy.onnx
"""

import asyncio
import signal
import socket
import sys

import numpy as np
import onnxruntime

OUTPUT = "policy/action"


def session_of(path: str) -> onnxruntime.InferenceSession:
    """Return a session with the options that distrl sets."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def actions(session: onnxruntime.InferenceSession, observations: list[list[float]]) -> list[int]:
    """Return the most probable actions."""
    (logits,) = session.run([OUTPUT], {"observation": np.array(observations, np.float32)})
    chosen: list[int] = logits.argmax(axis=-1).tolist()
    return chosen


def serve_starlette(path: str) -> None:
    """Serve without batches, by the server that distrl uses."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    session = session_of(path)

    async def act(request: Request) -> JSONResponse:
        message = await request.json()
        return JSONResponse({"action": actions(session, [message["observation"]])[0], "version": 1})

    app = Starlette(routes=[Route("/act", act, methods=["POST"])])
    port = free_port()
    config = uvicorn.Config(app, port=port, log_level="warning", access_log=False, http="httptools", loop="asyncio")
    server = uvicorn.Server(config)

    async def serve() -> None:
        starting = asyncio.ensure_future(server.serve())
        while not server.started and not starting.done():
            await asyncio.sleep(0.01)
        print(f"port {port}")
        await starting

    asyncio.run(serve())


def free_port() -> int:
    """Return a port on which no program listens. The servers bind it themselves, as their users' do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def serve_ray(path: str) -> None:
    """Serve by one replica of Ray Serve, in batches."""
    import ray
    from ray import serve
    from starlette.requests import Request

    port = free_port()

    @serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
    class Policy:
        def __init__(self) -> None:
            self._session = session_of(path)

        @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.0)
        async def batched(self, observations: list[list[float]]) -> list[int]:
            return actions(self._session, observations)

        async def __call__(self, request: Request) -> dict[str, int]:
            message = await request.json()
            return {"action": await self.batched(message["observation"]), "version": 1}

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(Policy.bind(), route_prefix="/act")
    print(f"port {port}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.pause()


if __name__ == "__main__":
    {"starlette": serve_starlette, "ray": serve_ray}[sys.argv[1]](sys.argv[2])
