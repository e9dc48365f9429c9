# Orihon with all extras, without root. The store is in /data.
#
#   docker build -t orihon .
#   docker run --rm -it -v orihon:/data -e OPENAI_API_KEY orihon chat
#   docker run -d --stop-timeout 600 -v orihon:/data -e OPENAI_API_KEY orihon
#
# Without a command it is a worker. To work on a directory, mount it and name it: `orihon run … --workspace /work`.

FROM python:3.13-slim-trixie AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY examples/demo ./examples/demo
RUN python -m pip wheel --quiet --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim-trixie
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 orihon \
    && install -d -m 0700 -o orihon -g orihon /data
COPY locks/all.txt /tmp/all.txt
RUN python -m pip install --quiet --no-cache-dir --require-hashes --requirement /tmp/all.txt
COPY --from=build /wheels /tmp/wheels
RUN python -m pip install --quiet --no-cache-dir --no-deps --no-index --find-links /tmp/wheels orihon
USER orihon
WORKDIR /data
VOLUME /data
ENV ORIHON_STORE=/data/contexts PYTHONUNBUFFERED=1
STOPSIGNAL SIGTERM
ENTRYPOINT ["orihon"]
CMD ["worker", "--health", "/tmp/health"]
