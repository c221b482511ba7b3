"""Generated code is that of the .proto files beside it."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_generated_code_is_not_stale():
    spec = importlib.util.spec_from_file_location("proto_digest", ROOT / "tools" / "proto_digest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kept = (ROOT / "protos" / "profproto" / "v1" / "GENERATED").read_text()
    assert module.digests() == kept, "the .proto files or their code changed: run `make protos` and commit the result"
