"""Spans and metrics of tasks, seen by the SDK's collectors in memory, and the same spans from the log."""

import base64
import http.server
import json
import os
import subprocess
import sys
import threading
from uuid import UUID

import pytest
import yaml
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import orihon
from orihon.settings.schema import Settings
from orihon.telemetry import Telemetry
from orihon.telemetry.spans import iter_spans, render_otlp

SECRET = "what the model must not tell a collector"
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]


def reply(content, *calls, usage=(1200, 30)):
    made = [{"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in calls]
    message = {"role": "assistant", "content": content} | ({"tool_calls": made} if made else {})
    return {
        "model": "gpt-4o-2024-11-20",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "prompt_tokens_details": {"cached_tokens": 1000},
        },
    }


@pytest.fixture
def seen():
    """A hook with collectors in memory: `seen.spans()` and `seen.points(metric)`."""
    return Seen()


class Seen:
    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.hook = Telemetry(tracer_provider=tracers, meter_provider=MeterProvider([self.reader]))

    def spans(self):
        return self.exporter.get_finished_spans()

    def points(self, name):
        data = self.reader.get_metrics_data()
        metrics = [
            metric for found in data.resource_metrics for scope in found.scope_metrics for metric in scope.metrics
        ]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


def work(engine, *, rounds=1, length=100, fail=False):
    """Run a task with tool calls whose results are long enough to be folded."""
    with engine.start(
        "local/issue/shop",
        model="gpt-4o",
        llm_provider="openai",
        context_length=4_000,
        reserved_output=500,
        tools=TOOLS,
    ) as task:
        task.add("user", SECRET)
        for number in range(rounds):
            task.window()
            task.add_reply(reply(SECRET, "read"))
            for call in task.pending_calls():
                with task.tool(call) as run:
                    if fail:
                        raise ValueError(SECRET)
                    run.result = f"{SECRET} {number}\n" * length
        task.window()
        task.add_reply(reply(SECRET))
    return task.uuid


def test_a_run_is_a_trace_of_calls_and_tools(seen):
    """The names, kinds, parents and attributes of the conventions, and no text of a message."""
    with orihon.open("memory:", settings=Settings(), hooks=[seen.hook]) as engine:
        uuid = work(engine)
    tool, first, second, root = sorted(seen.spans(), key=lambda span: (span.name != "execute_tool read", span.end_time))
    assert [first.name, tool.name, second.name, root.name] == [
        "chat gpt-4o", "execute_tool read", "chat gpt-4o", "invoke_agent orihon",
    ]  # fmt: skip
    assert (first.kind, tool.kind, root.kind) == (SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.INTERNAL)
    assert {span.parent.span_id for span in (first, tool, second)} == {root.context.span_id}
    assert root.parent is None
    assert {**first.attributes} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": uuid,
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-11-20",
        "gen_ai.usage.input_tokens": 1200,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 1000,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "orihon.cost.usd": pytest.approx(200 * 2.5e-6 + 1000 * 1.25e-6 + 30 * 1e-5),
        "orihon.window.limit": first.attributes["orihon.window.limit"],
        "orihon.window.tokens": first.attributes["orihon.window.tokens"],
        "orihon.window.whole": 1,
        "orihon.window.folded": 0,
        "orihon.window.left_out": 0,
    }
    assert 0 < first.attributes["orihon.window.tokens"] < first.attributes["orihon.window.limit"] <= 3500
    assert tool.attributes["gen_ai.tool.call.id"] == "call_read"
    assert (root.attributes["orihon.task.status"], root.attributes["orihon.task.key"]) == (
        "completed", "local/issue/shop",
    )  # fmt: skip
    assert first.start_time <= first.end_time <= second.start_time
    assert SECRET not in "".join(span.to_json() for span in seen.spans())


def test_a_fold_is_an_event_of_the_call_that_it_made_room_for(seen):
    """Each batch of folds is told once, with the size of the window and why."""
    with orihon.open("memory:", settings=Settings(), hooks=[seen.hook]) as engine:
        uuid = work(engine, rounds=4, length=150)
        batches = sum(event.type == "folds" for event in engine.read(uuid).events())
    told = [event for span in seen.spans() for event in span.events if event.name == "orihon.fold"]
    assert len(told) == batches > 0
    assert told[0].attributes["orihon.window.tokens"] <= told[0].attributes["orihon.window.limit"] <= 3500
    assert told[0].attributes["orihon.fold.reason"]
    (folds,) = seen.points("orihon.folds")
    assert folds.value == batches


def test_a_failure_is_an_error_without_its_text(seen):
    """A tool that raises, and a run that fails."""
    with orihon.open("memory:", settings=Settings(), hooks=[seen.hook]) as engine:
        work(engine, fail=True)
        with pytest.raises(RuntimeError), engine.start("local/issue/shop"):
            raise RuntimeError("out of order")
    tool = next(span for span in seen.spans() if span.name == "execute_tool read")
    assert (tool.status.status_code, tool.status.description) == (StatusCode.ERROR, "ValueError")
    failed = [span for span in seen.spans() if span.name.startswith("invoke_agent")][-1]
    assert (failed.status.status_code, failed.attributes["orihon.task.status"]) == (StatusCode.ERROR, "failed")


def test_tokens_and_durations_are_metrics(seen):
    """By operation, model and kind of token."""
    with orihon.open("memory:", settings=Settings(), hooks=[seen.hook]) as engine:
        work(engine)
    sums = {point.attributes["gen_ai.token.type"]: point.sum for point in seen.points("gen_ai.client.token.usage")}
    assert sums == {"input": 2400, "output": 60}
    counts = {
        point.attributes["gen_ai.operation.name"]: point.count
        for point in seen.points("gen_ai.client.operation.duration")
    }
    assert counts == {"chat": 2, "execute_tool": 1}
    (window,) = seen.points("orihon.window.tokens")
    assert (window.count, window.attributes["gen_ai.request.model"]) == (2, "gpt-4o")


def test_a_resumed_task_is_a_second_run_of_the_conversation(seen, tmp_path):
    """What an earlier process told is not told again."""
    with orihon.open(tmp_path, settings=Settings(), hooks=[seen.hook]) as engine:
        task = engine.start("local/issue/shop", model="gpt-4o", context_length=4_000, tools=TOOLS)
        task.add("user", "Read it.\n" * 3000)
        task.window()
        task.add_reply(reply("Done.", "read"))
        task.pause()
    again = Seen()
    with (
        orihon.open(tmp_path, settings=Settings(), hooks=[again.hook]) as engine,
        engine.resume(task.uuid) as task,
    ):
        task.answer(task.pending_calls()[0], "text")
        task.window()
        task.add_reply(reply("All done."))
    runs = [span for found in (seen, again) for span in found.spans() if span.name == "invoke_agent orihon"]
    assert [span.attributes["orihon.task.status"] for span in runs] == ["paused", "completed"]
    assert {span.attributes["gen_ai.conversation.id"] for span in runs} == {task.uuid}
    told = [
        event.attributes["orihon.event"] for found in (seen, again) for span in found.spans() for event in span.events
    ]
    assert len(told) == len(set(told))


def read_otlp(text):
    """Parse OTLP in JSON as a collector does: ids are hexadecimal there, and base64 in JSON of protobuf."""
    value = json.loads(text)
    for span in value["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return json_format.ParseDict(value, ExportTraceServiceRequest())


def test_the_export_of_a_stored_task_is_what_was_reported(seen, tmp_path):
    """The same spans as live, in one trace whose id is the task, with the texts that live telemetry leaves out."""
    with orihon.open(tmp_path, settings=Settings(), hooks=[seen.hook]) as engine:
        uuid = work(engine, rounds=4, length=150)
        text = "".join(render_otlp(engine.read(uuid)))
        assert text == "".join(render_otlp(engine.read(uuid)))
    request = read_otlp(text)
    spans = request.resource_spans[0].scope_spans[0].spans
    assert {span.trace_id for span in spans} == {UUID(uuid).bytes}
    assert len({span.span_id for span in spans}) == len(spans)
    (root,) = [span for span in spans if not span.parent_span_id]
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    assert sorted(span.name for span in spans) == sorted(span.name for span in seen.spans())
    live = [{**span.attributes} for span in seen.spans() if span.name.startswith("chat")]
    counts = {"orihon.window.whole", "orihon.window.folded", "orihon.window.left_out"}
    for span, told in zip([span for span in spans if span.name.startswith("chat")], live, strict=True):
        stored = {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}
        assert SECRET in stored.pop("gen_ai.output.messages")
        assert stored == pytest.approx({name: value for name, value in told.items() if name not in counts})
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
    folds = [event.name for span in spans for event in span.events if event.name == "orihon.fold"]
    assert len(folds) == sum(event.name == "orihon.fold" for span in seen.spans() for event in span.events)


def test_a_task_with_another_id_has_a_trace(tmp_path):
    """A conversation that another program named."""
    with orihon.open(tmp_path, settings=Settings()) as engine:
        with engine.start("local/issue/shop", uuid="not-a-uuid") as task:
            task.add("user", "Hello.")
        spans = list(iter_spans(engine.read("not-a-uuid")))
        assert [span.name for span in spans] == ["invoke_agent orihon"]
        assert len(json.loads("".join(render_otlp(engine.read("not-a-uuid"))))["resourceSpans"]) == 1


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, body, self.headers.get("Content-Encoding", "")))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.slow
def test_a_command_sends_to_a_collector(tmp_path):
    """`orihon run` with `telemetry.enabled` reports its run to the endpoint of the environment before it exits."""
    (tmp_path / "script.json").write_text(json.dumps(["Done."]))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"telemetry": {"enabled": True}}))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.posted = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        env = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}"}
        command = [sys.executable, "-m", "orihon", "run", "Say done.", "--no-plan", "--model", "scripted:script.json"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert done.returncode == 0, done.stderr
    bodies = [body for path, body, encoding in server.posted if path == "/v1/traces" and not encoding]
    names = [
        span.name
        for body in bodies
        for found in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in found.scope_spans
        for span in scope.spans
    ]
    assert max(names) == "invoke_agent orihon"
    assert any(name.startswith("chat") for name in names)
    assert any(path == "/v1/metrics" for path, _, _ in server.posted)
