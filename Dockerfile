# syntax=docker/dockerfile:1
# profd for one host. To reach processes of the host it needs its pid namespace and the capabilities of
# docs/security.md. CHOWN, DAC_OVERRIDE, SETGID and SETUID are for its workers: without one of them it does not start.
#
#   docker run --pid=host --cap-drop=ALL --cap-add=CHOWN --cap-add=SETGID --cap-add=SETUID --cap-add=KILL \
#     --cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH --cap-add=DAC_OVERRIDE --cap-add=FOWNER --cap-add=BPF \
#     --security-opt=no-new-privileges --read-only -v /etc/profd:/etc/profd \
#     -v /run/profd:/run/profd -v /var/lib/profd:/var/lib/profd profd
#
# Add --network=host for metrics on the host's loopback, for profiler servers of JAX and for Kineto's abstract socket;
# docs/clusters.md says what works without it.
#
# `kineto/` below /run/profd is open to everybody. So that nobody fills /run by it, mount a small tmpfs there on the host,
# before the container starts: deploy/systemd/run-profd-kineto.mount, or what it says for mount(8).
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml CMakeLists.txt README.md LICENSE ./
COPY native native
COPY protos protos
COPY client client
COPY daemon daemon
RUN python -m venv /opt/profd && /opt/profd/bin/pip install --no-cache-dir '.[daemon]'

FROM python:3.12-slim
RUN useradd --system --uid 920 --no-create-home profd-worker
COPY --from=build /opt/profd /opt/profd
ENV PATH=/opt/profd/bin:$PATH
VOLUME /var/lib/profd
# Root is the daemon's own need (other users' processes); its workers run as profd-worker.
# For one uid only: docker run --user UID … profd --user
ENTRYPOINT ["profd"]
