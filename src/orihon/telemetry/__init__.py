"""Telemetry: a hook that reports runs, model calls, tool runs and folds to OpenTelemetry.

    import orihon
    from orihon.telemetry import Telemetry

    engine = orihon.open("logs/contexts", hooks=[Telemetry()])

It needs the extra `otel`. Without arguments it uses the providers of the process. It reports no texts of messages and
no results of tools, only names, times and counts. `orihon export --format otlp` writes the spans of a stored task.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from orihon.errors import UsageError
from orihon.records import Event, Message
from orihon.telemetry.spans import MILLISECOND, SCOPE, SECOND, Span, make_call_span, make_run_span, make_tool_span

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from orihon.task.task import Task
    from orihon.task.tool_run import ToolRun
    from orihon.task.window import Window

__all__ = ["Telemetry", "open_telemetry"]


class _Run:
    """A task that runs in this process: its span, and what is known of its current call."""

    def __init__(self, span: Any, event: int) -> None:
        self.span, self.event = span, event  # `event`: the newest that an earlier call counted
        self.sent_at = time.time_ns()
        self.counts: dict[str, int] = {}  # of the last window


class Telemetry:
    """Reports tasks as they run. Pass it to `orihon.open(hooks=[…])`."""

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise UsageError("Telemetry needs OpenTelemetry.", hint="Run: pip install 'orihon[otel]'.") from error
        self._trace = trace
        self._tracer = (tracer_provider or trace.get_tracer_provider()).get_tracer(SCOPE)
        meter = (meter_provider or metrics.get_meter_provider()).get_meter(SCOPE)
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of model calls.")
        self._seconds = meter.create_histogram("gen_ai.client.operation.duration", "s", "Duration of operations.")
        self._window = meter.create_histogram("orihon.window.tokens", "{token}", "Tokens of windows.")
        self._folds = meter.create_counter("orihon.folds", "{fold}", "Batches of folds.")
        self._runs: dict[str, _Run] = {}

    def before_request(self, task: Task, window: Window) -> None:
        run = self._open_run(task)
        run.sent_at, report = time.time_ns(), window.report
        run.counts = {"whole": report.whole, "folded": report.folded, "left_out": report.left_out}

    def after_reply(self, task: Task, message: Message) -> None:
        run = self._open_run(task)
        newest = message.window.event if message.window is not None else run.event
        events = [event for event in task.log.store.read(task.uuid, Event, first=run.event + 1) if event.id <= newest]
        run.event = newest
        span = make_call_span(task.config, task.uuid, message, start=run.sent_at, end=time.time_ns(), events=events)
        span.attributes.update({f"orihon.window.{name}": count for name, count in run.counts.items()})
        self._emit(run, span)
        self._measure_call(span)

    def after_tool(self, task: Task, tool: ToolRun) -> None:
        run, end = self._open_run(task), time.time_ns()
        start = end - tool.duration_ms * MILLISECOND
        error = type(tool.exception).__name__ if tool.exception is not None else "error" if tool.is_error else ""
        span = make_tool_span(task.uuid, tool.call.name, tool.call.id, start=start, end=end, error=error)
        self._emit(run, span)
        names = ("gen_ai.operation.name", "gen_ai.tool.name")
        self._seconds.record((end - start) / SECOND, {name: span.attributes[name] for name in names})

    def on_started(self, task: Task) -> None:
        self._open_run(task)

    def on_resumed(self, task: Task) -> None:
        self._open_run(task)

    def on_paused(self, task: Task) -> None:
        self._end_run(task)

    def on_completed(self, task: Task) -> None:
        self._end_run(task)

    def on_stopped(self, task: Task) -> None:
        self._end_run(task)

    def on_failed(self, task: Task) -> None:
        self._end_run(task)

    def _open_run(self, task: Task) -> _Run:
        run = self._runs.get(task.uuid)
        if run is None:
            described = make_run_span(task.row, start=time.time_ns(), end=0)
            span = self._tracer.start_span(described.name, start_time=described.start, attributes=described.attributes)
            run = self._runs[task.uuid] = _Run(span, task.log.view.last_event)
        return run

    def _end_run(self, task: Task) -> None:
        run = self._runs.pop(task.uuid, None)
        if run is None:
            return
        described = make_run_span(task.row, start=0, end=time.time_ns())
        run.span.set_attributes(described.attributes)
        self._set_status(run.span, described.error)
        run.span.end(described.end)

    def _emit(self, run: _Run, described: Span) -> None:
        kind = self._trace.SpanKind.CLIENT if described.kind == "client" else self._trace.SpanKind.INTERNAL
        span = self._tracer.start_span(
            described.name,
            context=self._trace.set_span_in_context(run.span),
            kind=kind,
            attributes=described.attributes,
            start_time=described.start,
        )
        for moment in described.moments:
            span.add_event(moment.name, moment.attributes, moment.at)
        self._set_status(span, described.error)
        span.end(described.end)

    def _set_status(self, span: Any, error: str) -> None:
        if error:
            span.set_status(self._trace.StatusCode.ERROR, error)

    def _measure_call(self, span: Span) -> None:
        given: dict[str, Any] = dict(span.attributes)
        names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model")
        about = {name: given[name] for name in names if name in given}
        self._seconds.record((span.end - span.start) / SECOND, about)
        for kind in ("input", "output"):
            if (count := given.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                self._tokens.record(count, about | {"gen_ai.token.type": kind})
        if "orihon.window.tokens" in given:
            self._window.record(given["orihon.window.tokens"], about)
        if folds := sum(moment.name == "orihon.fold" for moment in span.moments):
            self._folds.add(folds, about)


def open_telemetry() -> Telemetry:
    """Return telemetry that is sent by OTLP over HTTP, to the address in `OTEL_EXPORTER_OTLP_ENDPOINT`."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("Telemetry needs OpenTelemetry.", hint="Run: pip install 'orihon[otel]'.") from error
    resource = Resource.create({"service.name": SCOPE})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
    return Telemetry(tracer_provider=tracers, meter_provider=meters)
