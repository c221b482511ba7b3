"""`meta.json` as the daemon takes it: by members, unread, whatever is in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadTrace
from profd.limits import META_MEMBERS_MAX, META_PART_BYTES_MAX
from profd.segments.meta import FORMAT, META_FILE, TraceMeta, encode_json, joined, members_of, part_of, read_members

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('ab"\\{}[],:\ud800é'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\{}a', max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcé", min_size=1), VALUES, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_members_are_those_of_any_reader_of_json(value, indent, plain):
    text = json.dumps(value, indent=indent, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    members = members_of(text, "it")
    names = {name.encode().decode("unicode_escape") if plain else name: one for name, one in members.items()}
    assert {name: json.loads(one) for name, one in names.items()} == value


def test_what_the_writer_of_traces_writes_comes_back():
    text = encode_json(TraceMeta(title='"}{', top_level={"half": "\ud800"}, lost=[]))
    assert json.loads(joined(members_of(text, "it"))) == json.loads(text)


NO_OBJECTS = ("", "[]", "{", '{"a"}', '{"a":}', '{"a":1', '{"a":"x', '{"a":1} x', '{"a":[1}', "{a:1}", '{"a":1,}', '"')
TOO_MANY = json.dumps(dict.fromkeys(map(str, range(META_MEMBERS_MAX + 1)), 1))


@pytest.mark.parametrize("text", [*NO_OBJECTS, '{"a":"\\"}', TOO_MANY])
def test_what_is_no_object_says_where(text):
    with pytest.raises(BadTrace, match="node7 is damaged: at byte"):
        members_of(text.encode(), "node7")


def test_a_part_is_bounded_and_checked():
    members = {"title": b'"x"', "format": b"2", "top_level": b"[nobody reads"}
    assert part_of({"title": b'"x"'}, TraceMeta, "it").title == "x"
    with pytest.raises(BadTrace, match="it is damaged"):
        part_of(members, TraceMeta, "it")
    with pytest.raises(BadTrace, match="it says more than"):
        part_of({"title": b'"%b"' % bytes(META_PART_BYTES_MAX)}, TraceMeta, "it")


def test_a_newer_format_is_not_believed(tmp_path):
    (tmp_path / META_FILE).write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(BadTrace, match="upgrade profd"):
        read_members(tmp_path)
