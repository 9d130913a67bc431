"""A collector of traces over HTTP and gRPC, of OpenTelemetry's own package. Prints its two ports, and at the end of its
input all spans that it was sent, as JSON."""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc

spans = []
lock = threading.Lock()


def value(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(one) for one in any_value.array_value.values]
    return getattr(any_value, kind)


def attributes(pairs):
    return {pair.key: value(pair.value) for pair in pairs}


def take(request, protocol, metadata):
    with lock:
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    spans.append({
                        "protocol": protocol,
                        "key": metadata.get("api-key"),
                        "resource": attributes(of_resource.resource.attributes),
                        "scope": of_scope.scope.name,
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "state": span.trace_state,
                        "name": span.name,
                        "kind": span.kind,
                        "start": span.start_time_unix_nano,
                        "end": span.end_time_unix_nano,
                        "attributes": attributes(span.attributes),
                        "events": [{"name": event.name, "attributes": attributes(event.attributes)} for event in span.events],
                        "links": [link.span_id.hex() for link in span.links],
                        "status": span.status.code,
                        "message": span.status.message,
                    })


class OverHttp(BaseHTTPRequestHandler):
    def do_POST(self):
        request = service.ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
        assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
        take(request, "http", dict(self.headers))
        answer = service.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class OverGrpc(service_grpc.TraceServiceServicer):
    def Export(self, request, context):
        take(request, "grpc", dict(context.invocation_metadata()))
        return service.ExportTraceServiceResponse()


over_http = ThreadingHTTPServer(("127.0.0.1", 0), OverHttp)
threading.Thread(target=over_http.serve_forever, daemon=True).start()
over_grpc = grpc.server(ThreadPoolExecutor(2))
service_grpc.add_TraceServiceServicer_to_server(OverGrpc(), over_grpc)
grpc_port = over_grpc.add_insecure_port("127.0.0.1:0")
over_grpc.start()
print(json.dumps({"http": over_http.server_address[1], "grpc": grpc_port}), flush=True)
sys.stdin.read()
over_grpc.stop(1).wait()
print(json.dumps(spans), flush=True)
