"""What stands between a call and its servicer: identity, then errors, audit and counts.

Our own services need a token; health and reflection do not (they tell nothing
of anybody, and probes have no way to get one).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import grpc

from profd.errors import Denied, ProfdError
from profd.metrics import Metrics
from profd.rpc.errors import Draining, Fault, abort, known, status_code
from profd.trust import caller as callers
from profd.trust.token import Tokens, Unidentified

TOKEN_KEY: Final = "profd-token"  # noqa: S105 - the name of a metadata key
OURS: Final = "/profd.v1."
_REFUSED_WHILE_DRAINING: Final = frozenset(
    f"/profd.v1.{name}"
    for name in ("CaptureService/StartCapture", "CaptureService/RetryCapture", "TraceService/Import")
)

log = logging.getLogger("profd.rpc")

Context = grpc.aio.ServicerContext[Any, Any]
# Generic in the stubs only.
if TYPE_CHECKING:
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    _Interceptor: TypeAlias = grpc.aio.ServerInterceptor[Any, Any]
else:
    Handler = grpc.RpcMethodHandler
    _Interceptor = grpc.aio.ServerInterceptor


class Audit(Protocol):
    """The durable log of who did what."""

    def write(self, action: str, uid: int, **details: object) -> None:
        """One line. Never raises."""
        ...


class Guard(_Interceptor):
    """Identifies callers, turns our errors into statuses, audits denials."""

    def __init__(self, tokens: Tokens, audit: Audit, metrics: Metrics) -> None:
        self._tokens = tokens
        self._audit = audit
        self._metrics = metrics
        self.draining = False

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wrap handlers of our services; others pass."""
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(OURS):
            return handler  # type: ignore[return-value]  # None: nobody implements it; the stubs do not know
        metadata = dict(handler_call_details.invocation_metadata or ())
        call = _Call(self, handler_call_details.method, str(metadata.get(TOKEN_KEY, "")))
        return call.wrapped(handler)

    def admit(self, method: str, token: str) -> None:
        """Set the caller of this call. Raises Unidentified or Draining."""
        if not token:
            raise Unidentified(
                "this call carries no token. Connect to control.sock beside the gRPC socket (SOCK_SEQPACKET), "
                f"read one JSON message and send its `token` as metadata {TOKEN_KEY!r}; profctl does that by itself."
            )
        callers.enter(self._tokens.verify(token))
        if self.draining and method in _REFUSED_WHILE_DRAINING:
            raise Draining("profd is shutting down; try again when it is back")

    def failed(self, method: str, error: Exception) -> ProfdError:
        """The error to answer with; counted, and logged or audited as its kind asks for."""
        ours = known(error)
        if isinstance(ours, Fault):
            log.error("call failed", extra={"method": method}, exc_info=error)
        if isinstance(ours, Denied | Unidentified):
            self._audit.write("denied", _uid(ours), method=method, why=str(ours))
        self._metrics.rpc.labels(method.removeprefix(OURS), status_code(ours).name).inc()
        return ours

    def succeeded(self, method: str) -> None:
        """Count a call that went well."""
        self._metrics.rpc.labels(method.removeprefix(OURS), "OK").inc()


class _Call:
    """One call of one method; `wrapped` has the arity of what it wraps."""

    def __init__(self, guard: Guard, method: str, token: str) -> None:
        self._guard = guard
        self._method = method
        self._token = token
        self._inner: Callable[[Any, Any], Any]

    def wrapped(self, handler: Handler) -> Handler:
        serialisers = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary is not None:
            self._inner = handler.unary_unary
            return grpc.unary_unary_rpc_method_handler(self._one, **serialisers)
        if handler.unary_stream is not None:
            self._inner = handler.unary_stream
            return grpc.unary_stream_rpc_method_handler(self._many, **serialisers)
        if handler.stream_unary is not None:
            self._inner = handler.stream_unary
            return grpc.stream_unary_rpc_method_handler(self._one, **serialisers)
        if handler.stream_stream is not None:
            self._inner = handler.stream_stream
            return grpc.stream_stream_rpc_method_handler(self._many, **serialisers)
        raise Fault(f"{self._method} has no handler")

    async def _one(self, request: Any, context: Context) -> Any:
        try:
            self._guard.admit(self._method, self._token)
            answer = await self._inner(request, context)
        except Exception as error:
            return await abort(context, self._guard.failed(self._method, error))
        self._guard.succeeded(self._method)
        return answer

    async def _many(self, request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            self._guard.admit(self._method, self._token)
            # Closed at once when the call ends early, not when the collector finds it: it may hold a worker.
            async with contextlib.aclosing(self._inner(request, context)) as answers:
                async for answer in answers:
                    yield answer
        except Exception as error:
            await abort(context, self._guard.failed(self._method, error))
        else:
            self._guard.succeeded(self._method)


def _uid(error: ProfdError) -> int:
    """Who was denied; -1 when nobody could be identified."""
    if isinstance(error, Unidentified):
        return -1
    try:
        return callers.current().uid
    except LookupError:
        return -1
