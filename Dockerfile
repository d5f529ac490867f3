# The image with the embedded model server. `docker build -t pierhead .`, then `docker run IMAGE serve`.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS packages
COPY container/requirements-embedded.lock /tmp/requirements.lock
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.lock

FROM ${BASE_IMAGE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends nginx-light ca-certificates \
 && rm -rf /var/lib/apt/lists/*
COPY --from=packages /opt/venv /opt/venv
COPY serve nginx.conf.template /sagemaker/
COPY container/ /sagemaker/
# No process may write byte code there, and each would compile the same sources at its start.
RUN /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /sagemaker/pierhead
ENV PATH=/sagemaker:/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true \
      com.amazonaws.sagemaker.capabilities.multi-models=true
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT []
CMD ["serve"]
