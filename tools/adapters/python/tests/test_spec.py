"""Specs from keywords, dicts, text and files; reasons of refusals."""
import pytest

import kvjit


def test_keywords_find_their_tables():
    spec = kvjit.Spec(k="q8_0", v={"bits": 3, "block": 64}, head_dim=64, layout="paged", page_tokens=32, checks=True,
                      features=["causal"], window=[63, -1], title="a test")
    assert spec.to_dict() == {
        "k": {"format": "q8_0"}, "v": {"bits": 3, "block": 64}, "title": "a test",
        "attention": {"head_dim": 64, "features": ["causal"], "window": [63, -1]},
        "cache": {"layout": "paged", "page_tokens": 32}, "target": {"checks": True}}


def test_all_sources_agree(tmp_path):
    spec = kvjit.Spec(k="kv4", v="kv4", q_heads_per_kv=8)
    path = tmp_path / "a.toml"
    path.write_text(spec.toml)
    assert spec == kvjit.Spec(spec.toml) == kvjit.Spec(spec.to_dict()) == kvjit.Spec(path) == kvjit.Spec(str(path))
    assert hash(spec) == hash(kvjit.Spec(path))
    assert kvjit.Spec(spec.line) == spec and "\n" not in spec.line
    assert kvjit.Spec(path, q_heads_per_kv=4) == kvjit.Spec(k="kv4", v="kv4", q_heads_per_kv=4)
    with pytest.raises(AttributeError, match="immutable"):
        spec.toml = ""


def test_an_unknown_keyword_names_the_near_one():
    with pytest.raises(TypeError, match="'head_dims'; is 'head_dim' meant"):
        kvjit.Spec(k="kv4", v="kv4", head_dims=64)


def test_text_that_is_no_toml():
    with pytest.raises(kvjit.BadInputError, match="no TOML"):
        kvjit.Spec("[k\nformat = 1", head_dim=64)
    with pytest.raises(kvjit.BadInputError, match="no JSON"):
        kvjit.Spec('{"k": kv4}')
    with pytest.raises(kvjit.BadInputError) as caught:
        kvjit.Program("[k]\nformat = \"kv4\"\n[v]\nformat = kv4\n", "cpu")
    assert caught.value.line == 4


def test_supported():
    assert kvjit.supported(kvjit.Spec(k="kv4", v="kv4"), "sm_90a") == []
    reasons = kvjit.supported(kvjit.Spec(k="tbq4_0", v="tbq4_0", head_dim=96), "sm_90a")
    assert len(reasons) == 1 and "head_dim 96" in reasons[0] and "multiples of 128" in reasons[0]
    assert "nothing" in kvjit.supported({"k": {"format": "kv4"}, "v": {"format": "nothing"}}, "sm_90a")[0]


def test_a_refused_spec_says_where_and_what_works():
    with pytest.raises(kvjit.BadInputError, match="head_dim 96") as caught:
        kvjit.Program(kvjit.Spec(k="tbq4_0", v="tbq4_0", head_dim=96), "cpu")
    assert caught.value.line == 8 and any("multiples of 128" in note for note in caught.value.notes)
    with pytest.raises(kvjit.BadInputError, match="nothing") as caught:
        kvjit.Program(kvjit.Spec(k="nothing", v="kv4"), "cpu")
    assert caught.value.line == 2
