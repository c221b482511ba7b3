"""Generated code is that of the .proto files beside it."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_generated_code_is_not_stale():
    spec = importlib.util.spec_from_file_location("proto_digest", ROOT / "tools" / "proto_digest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folders = module.folders()
    assert {"v1", "xspace"} <= {folder.name for folder in folders}
    for folder in folders:
        kept = (folder / "GENERATED").read_text()
        assert module.digests(folder) == kept, f"{folder}: run `make protos` and commit the result"
