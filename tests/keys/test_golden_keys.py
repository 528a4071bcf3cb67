"""Encodings and fingerprints of released versions never change."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

from bloomstore.keys import TagCode

GOLDEN = Path(__file__).parent.parent / "golden"
ROWS = json.loads((GOLDEN / "keys.json").read_text())


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_keys", GOLDEN / "make_keys.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_golden_key_is_still_encoded_and_hashed_the_same() -> None:
    assert generator().problems(ROWS) == []


def test_golden_keys_cover_every_tag_and_are_all_in_the_file() -> None:
    assert {row["tag"] for row in ROWS} == set(TagCode)
    assert [row["key"] for row in ROWS] == generator().KEYS
