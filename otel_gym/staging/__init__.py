"""External token staging: exact token ids, staged inside the inference worker under digests that NeMo Gym 0.7 shares.

A worker captures with `RolloutTokenCapture` into a `StagingSink`; the model server sees coordinates only. See
`docs/staging.md`.
"""

from otel_gym.errors import CaptureError, DamagedStagingError, StreamingUnsupportedError
from otel_gym.staging.adapters import CaptureAdapter, MegatronCaptureAdapter, TokenMaterial, VLLMCaptureAdapter
from otel_gym.staging.capture import ActiveCall, RolloutTokenCapture
from otel_gym.staging.chains import verify_chain
from otel_gym.staging.delta import build_staging_delta
from otel_gym.staging.digests import (
    DIGEST_VERSION,
    EXTRAS_DIGEST_VERSION,
    SCHEMA_VERSION,
    compute_chain_hash,
    compute_extras_digest,
    compute_staging_digest,
    hash_token_ids,
)
from otel_gym.staging.directory_sink import DirectorySink
from otel_gym.staging.records import (
    CallRecord,
    CaptureAdmission,
    CommitCoords,
    StagedBaseSnapshot,
    StagedCallRecord,
    StageResult,
    staging_key,
)
from otel_gym.staging.routes import (
    RoutedExperts,
    classify_route_span,
    decode_routed_experts,
    encode_routed_experts,
    routed_experts_token_count,
)
from otel_gym.staging.sinks import StagingSink
from otel_gym.staging.staged_calls import Buffer, StagedCall, StagedCalls
from otel_gym.staging.token_lists import encode_token_ids

__all__ = [
    "DIGEST_VERSION",
    "EXTRAS_DIGEST_VERSION",
    "SCHEMA_VERSION",
    "ActiveCall",
    "Buffer",
    "CallRecord",
    "CaptureAdapter",
    "CaptureAdmission",
    "CaptureError",
    "CommitCoords",
    "DamagedStagingError",
    "DirectorySink",
    "MegatronCaptureAdapter",
    "RolloutTokenCapture",
    "RoutedExperts",
    "StageResult",
    "StagedBaseSnapshot",
    "StagedCall",
    "StagedCallRecord",
    "StagedCalls",
    "StagingSink",
    "StreamingUnsupportedError",
    "TokenMaterial",
    "VLLMCaptureAdapter",
    "build_staging_delta",
    "classify_route_span",
    "compute_chain_hash",
    "compute_extras_digest",
    "compute_staging_digest",
    "decode_routed_experts",
    "encode_routed_experts",
    "encode_token_ids",
    "hash_token_ids",
    "routed_experts_token_count",
    "staging_key",
    "verify_chain",
]
