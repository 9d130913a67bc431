# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN scripts/dist \
 && scripts/sbom \
 && install -D target/dist/loopgate /image/usr/local/bin/loopgate \
 && install -D -m 644 target/dist/loopgate.cdx.json /image/usr/local/share/loopgate/loopgate.cdx.json \
 && install -d -o 65532 -g 65532 /image/data

# glibc, certificate authorities and time zones; no shell and no package manager. Its user is 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
# Given by who builds it: --build-arg REVISION=$(git rev-parse HEAD) --build-arg CREATED=$(date -u +%FT%TZ) --build-arg
# SOURCE=URL
ARG REVISION=""
ARG CREATED=""
ARG SOURCE=""
LABEL org.opencontainers.image.title="Loopgate" \
      org.opencontainers.image.description="An OpenAI-compatible agent API: one POST runs the whole tool loop on the server." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="gcr.io/distroless/cc-debian12:nonroot"
COPY --from=build --chown=65532:65532 /image/data /data
COPY --from=build /image/usr/local/bin/loopgate /usr/local/bin/loopgate
# Which crates are in it, for those who look for vulnerable ones.
COPY --from=build /image/usr/local/share/loopgate /usr/local/share/loopgate
# The default store, ./data, is the volume from here, and a file mounted as /loopgate.toml is read.
WORKDIR /
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/loopgate"]
# Reachable from outside, so it starts only with keys configured, or with --insecure-no-auth.
CMD ["serve", "--listen", "0.0.0.0:8080"]
