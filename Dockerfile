# The images of distrl: targets actor, actor-environments, learner, learner-gpu and dashboard. docs/cluster.md describes them.
# A release adds the digest of this image.
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS tools
# Without these, packages come from PyPI; image/build.py mounts a folder with all of them. pip ignores empty ones.
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ENV PIP_FIND_LINKS=${PIP_FIND_LINKS} PIP_NO_INDEX=${PIP_NO_INDEX} \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements/build.lock requirements/
# setuptools of venv is old, and not needed to run.
RUN python3 -m venv /opt/distrl && /opt/distrl/bin/pip uninstall --yes setuptools && python3 -m venv /tools && \
    /tools/bin/pip install --require-hashes --requirement requirements/build.lock

FROM tools AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY distrl distrl
COPY helm helm
RUN /tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist .

FROM tools AS build-actor
COPY requirements/actor.lock requirements/
RUN /opt/distrl/bin/pip install --require-hashes --requirement requirements/actor.lock
COPY --from=wheel /build/dist dist
RUN /opt/distrl/bin/pip install --no-deps --no-index dist/*.whl && \
    /tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/distrl/sbom.cdx.json /opt/distrl

FROM tools AS build-actor-environments
COPY requirements/environments.lock requirements/
RUN /opt/distrl/bin/pip install --require-hashes --requirement requirements/environments.lock
COPY --from=wheel /build/dist dist
RUN /opt/distrl/bin/pip install --no-deps --no-index dist/*.whl && \
    /tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/distrl/sbom.cdx.json /opt/distrl

FROM tools AS build-learner
COPY requirements/learner.lock requirements/
RUN /opt/distrl/bin/pip install --require-hashes --requirement requirements/learner.lock
COPY --from=wheel /build/dist dist
RUN /opt/distrl/bin/pip install --no-deps --no-index dist/*.whl && \
    /tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/distrl/sbom.cdx.json /opt/distrl

FROM tools AS build-learner-gpu
COPY requirements/gpu.lock requirements/
RUN /opt/distrl/bin/pip install --require-hashes --requirement requirements/gpu.lock
COPY --from=wheel /build/dist dist
RUN /opt/distrl/bin/pip install --no-deps --no-index dist/*.whl && \
    /tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/distrl/sbom.cdx.json /opt/distrl

FROM tools AS build-dashboard
COPY requirements/dashboard.lock requirements/
RUN /opt/distrl/bin/pip install --require-hashes --requirement requirements/dashboard.lock
COPY --from=wheel /build/dist dist
RUN /opt/distrl/bin/pip install --no-deps --no-index dist/*.whl && \
    /tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/distrl/sbom.cdx.json /opt/distrl

FROM ${BASE} AS runtime
# Here and not beside the labels: buildah keys RUN by its arguments, but takes labels of others from its cache.
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
RUN groupadd --gid 10001 distrl && \
    useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin distrl && \
    install --directory --owner 10001 --group 10001 /runs
# The root file system may be read-only: all that programs write without being told where goes to /tmp.
ENV PATH=/opt/distrl/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    MPLCONFIGDIR=/tmp/matplotlib \
    DISTRL_HEALTH_DIR=/tmp/distrl-health
LABEL org.opencontainers.image.title="distrl" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001
WORKDIR /runs
VOLUME ["/runs"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["distrl", "health"]
ENTRYPOINT ["distrl"]
CMD ["--help"]

FROM runtime AS actor
COPY --from=build-actor /opt/distrl /opt/distrl

FROM runtime AS actor-environments
COPY --from=build-actor-environments /opt/distrl /opt/distrl

FROM runtime AS learner-gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-learner-gpu /opt/distrl /opt/distrl

FROM runtime AS dashboard
COPY --from=build-dashboard /opt/distrl /opt/distrl

FROM runtime AS learner
COPY --from=build-learner /opt/distrl /opt/distrl
