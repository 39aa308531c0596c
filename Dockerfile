# elman serve: small, not root, nothing to write to. docs/serve.md says how it is run.
FROM python:3.11-slim AS build
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN python -m venv /opt/elman \
 && /opt/elman/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.10,<2.15" \
 && /opt/elman/bin/pip install --no-cache-dir "/src[serve]"

FROM python:3.11-slim
COPY --from=build /opt/elman /opt/elman
RUN useradd --system --no-create-home --uid 10001 elman
USER elman
ENV PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=3s CMD ["/opt/elman/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz')"]
# the key is a file that is mounted; without it the server refuses to listen on more than the container itself
ENTRYPOINT ["/opt/elman/bin/elman", "serve", "--host", "0.0.0.0", "--port", "8000", "--api-key-file", "/run/secrets/key"]
