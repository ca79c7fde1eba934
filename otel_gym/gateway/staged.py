"""A call of a training rollout: answered whole by a worker that stages its tokens, replayed where a stream is wanted.

The order is the contract: the worker answers; all of the client's answer is made, to its last byte; only then is the
call recorded as staged, and only then does the client get it. What cannot be given is recorded before the client hears
of it. A call whose staging failed is recorded with its reason; its answer goes out all the same. Source: the staging
contract, "Server side: buffered SSE".
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Final

from otel_gym.asgi import ROUTE, TAKEN, Receive, Scope, Send
from otel_gym.correlation import TOKEN_CAPTURE_SEGMENT, Route
from otel_gym.dialects import DIALECTS
from otel_gym.exchange import MODEL_CALL_ID
from otel_gym.gateway.asking import Asking
from otel_gym.gateway.attempts import Attempt
from otel_gym.gateway.failures import ClientLeft, GatewayFailure, send_failure
from otel_gym.gateway.outcomes import Outcome
from otel_gym.gateway.request_bodies import RequestBody
from otel_gym.gateway.staging_log import StagingLog
from otel_gym.gateway.workers import CANNOT_BE_GIVEN, Asked, Given, WorkerCall
from otel_gym.staging.buffered import BufferedCall
from otel_gym.staging.ledger import CallLedger
from otel_gym.staging.replay import KEEP_ALIVE, KEEP_ALIVE_SECONDS
from otel_gym_jsonl.files import is_rollout_id

logger = logging.getLogger(__name__)

CANCELLED: Final = "cancelled"
GATEWAY_ERROR: Final = "gateway_error"

_EVENT_STREAM: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


class Staging:
    """What the calls of one gateway share.

    Args:
        log: where it is recorded what became of each.
        keep_alive_s: between two signs of life to a client that waits for a stream.
    """

    def __init__(self, log: StagingLog, keep_alive_s: float = KEEP_ALIVE_SECONDS) -> None:
        self.log = log
        self.keep_alive_s = keep_alive_s
        self.ledger = CallLedger()


def staged_route(scope: Scope) -> Route | None:
    """The route of a call whose tokens are to be staged; None for any other request."""
    route: Route | None = scope.get(TAKEN) or scope.get(ROUTE)
    if (
        route is None
        or not route.prefix.endswith(TOKEN_CAPTURE_SEGMENT)
        or route.rest not in DIALECTS
        or scope["method"].upper() != "POST"
        or not is_rollout_id(route.rollout_id)
    ):
        return None
    return route


class StagedCall:
    """The responder of one call: made inside the call, never shared.

    Args:
        asking: of the gateway; its upstreams are workers.
        staging: of the gateway.
        route: of the call (`staged_route`).
        scope, receive, send: of the server.
    """

    def __init__(
        self, asking: Asking, staging: Staging, route: Route, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._staging = staging
        self._rollout_id = route.rollout_id
        self._call_id: str = scope.get(MODEL_CALL_ID) or os.urandom(16).hex()
        dialect = DIALECTS[route.rest].name
        self._worker = WorkerCall(asking, staging.ledger, dialect, self._rollout_id, self._call_id)
        self._scope = scope
        self._send = send
        self._body = RequestBody(receive)
        self._attempt = Attempt.of(scope)
        self._begun = False

    async def run(self) -> None:
        """Serve it.

        Raises:
            ClientLeft: the client hung up.
        """
        try:
            await self._body.begin()
            try:
                asked = await self._worker.read(await self._body.whole(), self._scope["headers"])
            except GatewayFailure as refusal:  # nothing was spent
                await self._refuse(refusal)
                return
            await self._serve(asked)
        except asyncio.CancelledError:
            self._body.unwatch()
            if self._body.left():
                raise ClientLeft from None
            raise

    async def _serve(self, asked: Asked) -> None:
        call = asked.call
        self._body.watch()
        working = asyncio.ensure_future(self._worker.answer(asked))
        try:
            await self._wait(working, call.stream)
            given = working.result()
        except GatewayFailure as failure:
            self._body.unwatch()
            await self._failed(failure.code)
            await self._give_up(call, failure)
            return
        except BaseException as error:  # the client has left, the server ends: tokens may have been spent
            working.cancel()
            await asyncio.wait({working})
            await self._failed(CANCELLED if isinstance(error, asyncio.CancelledError) else GATEWAY_ERROR)
            raise
        self._body.unwatch()
        await self._record(asked, given)
        self._leave(200, Outcome(True, 200, "upstream"))
        await self._give(call.stream, given.body)

    async def _wait(self, working: asyncio.Future[Given], stream: bool) -> None:
        """Until the answer is there; a client that waits for a stream gets signs of life."""
        while not (await asyncio.wait({working}, timeout=self._staging.keep_alive_s))[0]:
            if stream:
                await self._begin()
                await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    # ------------------------------------------------------------------ the record

    async def _record(self, asked: Asked, given: Given) -> None:
        coords, reason, detail = given.commit
        if coords is not None:
            row = await self._worker.commit(asked, coords, given)
            await self._staging.log.staged(self._rollout_id, row)
            return
        logger.warning("otel-gym gateway: call %r of %r: %s %s", self._call_id, self._rollout_id, reason, detail)
        await self._failed(str(reason))

    async def _failed(self, reason: str) -> None:
        await self._staging.log.failed(self._rollout_id, self._call_id, reason)

    def _leave(self, status: int, outcome: Outcome) -> None:
        if not self._begun:  # once it has begun, there is no other attempt
            self._attempt.answered(status, ())
        self._attempt.mark(outcome).leave(self._scope)

    # ------------------------------------------------------------------ the client

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(_EVENT_STREAM)})

    async def _give(self, stream: bool, body: list[bytes]) -> None:
        if stream:
            await self._begin()
            for event in body:
                await self._send({"type": "http.response.body", "body": event, "more_body": True})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        (whole,) = body
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(whole)).encode("ascii"))]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": whole, "more_body": False})

    async def _give_up(self, call: BufferedCall, failure: GatewayFailure) -> None:
        """Say that there is no answer: by its status, or, in a stream, by the terminal event that says so."""
        if call.stream and (self._begun or failure.message == CANNOT_BE_GIVEN):
            self._leave(200, failure.outcome)
            await self._give(True, call.failure(failure.message))
        else:
            await self._refuse(failure)

    async def _refuse(self, failure: GatewayFailure) -> None:
        self._leave(failure.status, failure.outcome)
        await send_failure(self._scope, self._send, failure)
