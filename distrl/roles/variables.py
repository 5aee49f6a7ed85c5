"""The environment variables of a role's process, wherever it runs."""

import os


def role_variables(kind: str, threads: int) -> dict[str, str]:
    """They keep numeric libraries to their threads, and all but the learner off the GPU.

    Args:
        kind: As of `plan.Role`.
        threads: Numeric threads of the role.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    variables = dict.fromkeys(names, str(threads))
    variables["TF_CPP_MIN_LOG_LEVEL"] = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")
    if kind != "learner":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables
