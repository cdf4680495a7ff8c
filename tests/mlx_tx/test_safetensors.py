"""The header of a safetensors file is believed only where it is consistent."""

import json
import struct

import mlx.core as mx
import pytest

from mlx_tx.safetensors import Tensor, read_header


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "x.safetensors"
    mx.save_safetensors(str(place), {"a": mx.zeros((2, 3)), "b": mx.zeros((4,), dtype=mx.bfloat16)}, {"k": "v"})
    return place


def change(path, edit):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + n])
    text = edit(header)
    text = text if isinstance(text, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + n :])


def test_what_mlx_writes_is_read(path):
    header = read_header(path)
    assert header.metadata["k"] == "v"
    assert {name: (t.dtype, t.shape) for name, t in header.tensors.items()} == {
        "a": ("F32", (2, 3)),
        "b": ("BF16", (4,)),
    }
    assert sum(t.end - t.begin for t in header.tensors.values()) == 32
    assert Tensor("F32", (), 0, 4).shape == ()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda h: b"{", "its header is not JSON"),
        (lambda h: b"[" * 200000, "its header is not JSON"),
        (lambda h: b"[]", "its header is no JSON object"),
        (lambda h: h.update(__metadata__={"k": 3}), "its metadata must hold strings"),
        (lambda h: h["a"].update(shape=[2, 4]), "'a' of F32"),
        (lambda h: h["a"].update(shape=[-2, -3]), "'a' must have whole numbers"),
        (lambda h: h["a"].update(shape=[2**62, 2**62]), "takes other than"),
        (lambda h: h["a"].update(dtype="F99"), "'a' must have a dtype of"),
        (lambda h: h["a"].update(data_offsets=[0]), "'a' must have dtype, shape and data_offsets"),
        (lambda h: h["a"].pop("dtype"), "'a' must have dtype, shape and data_offsets"),
        (lambda h: h["b"].update(data_offsets=[x + 8 for x in h["b"]["data_offsets"]]), "must begin at byte"),
        (
            lambda h: h.update(c={"dtype": "U8", "shape": [9], "data_offsets": [32, 41]}),
            "its tensors take 41 bytes of 32",
        ),
        (lambda h: h.pop("a"), "must begin at byte|its tensors take"),
    ],
)
def test_a_header_that_lies_is_refused(path, edit, message):
    change(path, edit)
    with pytest.raises(ValueError, match=message):
        read_header(path)


def test_a_length_beyond_the_file_is_refused(path):
    raw = path.read_bytes()
    path.write_bytes(struct.pack("<Q", 2**63) + raw[8:])
    with pytest.raises(ValueError, match="its header would have 9223372036854775808 bytes"):
        read_header(path)
