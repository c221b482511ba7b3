"""The interceptor between a call and its servicer: identity and shares, then errors, audit and counts.

Our own services need a token. Health and reflection need none, since they tell nothing
of any user and probes cannot get one: a small pool bounds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from profd.errors import BadInput, Denied, ProfdError
from profd.fairness.shares import Holder, Refused
from profd.kernel import nobody
from profd.limits import RECEIVE_SECONDS, MiB
from profd.rpc.calls import CallsByUser, HeldAnswers, OpenCalls, Unproved
from profd.rpc.errors import Draining, Fault, abort, known, status_code
from profd.rpc.memory import Trimmer
from profd.rpc.messages import OURS, STREAM, Messages, Paced
from profd.telemetry.metrics import Metrics
from profd.trust import caller as callers
from profd.trust.audit_line import Audit
from profd.trust.caller import Caller
from profd.trust.token import Tokens, Unidentified

TOKEN_KEY: Final = "profd-token"  # noqa: S105 - the name of a metadata key
_REFUSED_WHILE_DRAINING: Final = frozenset(
    f"/profd.v1.{name}"
    for name in ("CaptureService/StartCapture", "CaptureService/RetryCapture", "TraceService/Import")
)
# Times its bytes: an answer of many short strings. A hundred unread lists of 275 KiB each took 190 MB.
_OBJECTS: Final = 4
_WATCH: Final = f"{OURS}CaptureService/WatchCapture"

log = logging.getLogger("profd.rpc")

Context = grpc.aio.ServicerContext[Any, Any]
# Generic in the stubs only.
if TYPE_CHECKING:
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    _Interceptor: TypeAlias = grpc.aio.ServerInterceptor[Any, Any]
else:
    Handler = grpc.RpcMethodHandler
    _Interceptor = grpc.aio.ServerInterceptor


class Guard(_Interceptor):
    """Identifies and admits callers, turns our errors into statuses, audits denials."""

    def __init__(
        self,
        tokens: Tokens,
        audit: Audit,
        metrics: Metrics,
        payer: Callable[[int, int], int] = lambda uid, pid: uid,
    ) -> None:
        """`payer`: whose share a caller of this uid and pid uses up."""
        self._tokens = tokens
        self._audit = audit
        self._metrics = metrics
        self._payer = payer
        self._calls = CallsByUser()
        self.held = HeldAnswers()
        self.unproved = Unproved()
        self.open = OpenCalls()
        self.memory = Trimmer()
        self.draining = False

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wrap every handler."""
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None:
            return handler  # type: ignore[return-value]  # nobody implements it; the stubs do not know
        metadata = dict(handler_call_details.invocation_metadata or ())
        call = _Call(self, handler_call_details.method, str(metadata.get(TOKEN_KEY, "")))
        return call.wrapped(handler)

    def admit(self, method: str, token: str) -> None:
        """Set the caller of this call, and count it. Raises Unidentified, Refused, Denied or Draining."""
        if not method.startswith(OURS):
            self.unproved.enter()
            return
        if not token:
            raise Unidentified(
                "this call carries no token. Connect to control.sock beside the gRPC socket (SOCK_SEQPACKET), "
                f"read one JSON message and send its `token` as metadata {TOKEN_KEY!r}; profctl does that by itself."
            )
        caller = self._tokens.verify(token)
        callers.enter(caller)
        self._calls.enter(method, self._holder(caller))
        self.open.enter(caller)
        if caller.uid == nobody.STREAMER and method != STREAM:
            raise Denied("a streamer sends events, and may nothing else")
        if self.draining and method in _REFUSED_WHILE_DRAINING:
            raise Draining("profd is shutting down; try again when it is back")

    def keep(self, method: str, answer: Message) -> None:
        """Count an answer until it is read. Raises Refused."""
        if method.startswith(OURS):
            self.held.hold(self._holder(callers.current()), _mib(answer))

    def keeping(self, method: str, answer: Message) -> AbstractContextManager[None]:
        """Count one answer of a stream until it is read, the next of which may be another size. Raises Refused."""
        mib = _mib(answer) if method == _WATCH else 0  # of other streams gRPC has pieces of bounded size
        return self.held.holding(self._holder(callers.current()), mib) if mib else contextlib.nullcontext()

    def pause(self, method: str, small: int) -> float:
        """Seconds to wait after so many small messages of this call. Raises Refused."""
        if not method.startswith(OURS):
            return self.unproved.pause(small)
        return self._calls.pause(method, self._holder(callers.current()), small)

    def _holder(self, caller: Caller) -> Holder:
        """The user whose share a call uses; streamers of root's processes have a share, too."""
        holder = Holder.of(caller)
        return replace(holder, uid=self._payer(caller.uid, caller.pid))

    def failed(self, method: str, error: Exception) -> ProfdError:
        """The error to answer with; counted, and logged or audited as its kind asks for."""
        ours = known(error)
        if isinstance(ours, Fault):
            log.error("call failed", extra={"method": method}, exc_info=error)
        if isinstance(ours, Denied | Unidentified):
            self._audit.write("denied", _uid(ours), method=method, why=str(ours))
        if isinstance(ours, Refused):
            self._metrics.count_refusal(ours.kind)
        self._metrics.rpc.labels(method.removeprefix(OURS), status_code(ours).name).inc()
        return ours

    def succeeded(self, method: str) -> None:
        """Count a call that went well."""
        self._metrics.rpc.labels(method.removeprefix(OURS), "OK").inc()


class _Call:
    """One call of one method.

    Every handler is wrapped in one whose request is a stream: gRPC itself would read a single request before it asks
    us, and wait for it for ever.
    """

    def __init__(self, guard: Guard, method: str, token: str) -> None:
        self._guard = guard
        self._method = method
        self._token = token
        self._single = False  # it takes one request
        self._inner: Callable[[Any, Any], Any]
        self._messages: Messages

    def wrapped(self, handler: Handler) -> Handler:
        self._messages = Messages(self._method, handler.request_deserializer, self._guard.memory.later)
        serialisers = {
            "request_deserializer": self._messages.parsed,
            "response_serializer": handler.response_serializer,
        }
        self._single = not handler.request_streaming
        inner: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        self._inner = inner
        if not handler.response_streaming:
            return grpc.stream_unary_rpc_method_handler(self._one, **serialisers)
        if inspect.iscoroutinefunction(self._inner):  # it writes to the context
            return grpc.stream_stream_rpc_method_handler(self._one, **serialisers)
        return grpc.stream_stream_rpc_method_handler(self._many, **serialisers)

    async def _one(self, requests: Any, context: Context) -> Any:
        async with self._answering(context):
            self._guard.admit(self._method, self._token)
            answer = await self._inner(await self._received(requests), context)
            if isinstance(answer, Message):  # and no stream that its handler has written
                self._guard.keep(self._method, answer)
            return answer

    async def _many(self, requests: Any, context: Context) -> AsyncIterator[Any]:
        async with self._answering(context):
            self._guard.admit(self._method, self._token)
            # Closed at once when the call ends early, not when the collector finds it: it may hold a worker.
            async with contextlib.aclosing(self._inner(await self._received(requests), context)) as answers:
                async for answer in answers:
                    with self._guard.keeping(self._method, answer):
                        yield answer

    async def _received(self, requests: Any) -> Any:
        """The request; where it is a stream, its handler has deadlines of its own."""
        if not self._single:
            return Paced(requests, self._messages, partial(self._guard.pause, self._method))
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                request = await anext(requests, None)
        except TimeoutError:
            raise BadInput(f"no request came within {RECEIVE_SECONDS:g} s of the call") from None
        if request is None:
            raise BadInput("the call ended without a request")
        return request

    @contextlib.asynccontextmanager
    async def _answering(self, context: Context) -> AsyncIterator[None]:
        """Count how the block ends; an error becomes the status of the call."""
        try:
            try:
                yield
            except asyncio.CancelledError:
                self._guard.unproved.check()
                self._guard.open.check()
                raise
        except grpc.aio.AbortError:  # its handler has said it
            raise
        except Exception as error:
            await abort(context, self._guard.failed(self._method, error))
        else:
            self._guard.succeeded(self._method)


def _mib(answer: Message) -> int:
    return answer.ByteSize() * _OBJECTS // MiB


def _uid(error: ProfdError) -> int:
    """The uid of a denied caller; -1 where there is none."""
    if isinstance(error, Unidentified):
        return -1
    try:
        return callers.current().uid
    except LookupError:
        return -1
