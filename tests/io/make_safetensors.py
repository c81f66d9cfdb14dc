"""Writes the .safetensors files under safetensors/, which the tests of src/io read and the fuzzer starts from.

They are kept in the repository, so that the tests need no Python; run this again (with NumPy and safetensors) to add one:
    python3 tests/io/make_safetensors.py
"""

import json
import pathlib
import struct

import numpy as np
from safetensors.numpy import save

HERE = pathlib.Path(__file__).parent / "safetensors"


def raw(header, data=b"", length=None):
    """A file around any header, right or wrong."""
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2, 3), offsets=(0, 24)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def one(**changes):
    return raw(json.dumps({"x": entry(**changes)}), bytes(24))


def good():
    steps = np.arange(6).reshape(2, 3)
    yield "all_dtypes", save({"f64": steps * 0.5, "f32": (steps * 0.5).astype("f4"), "f16": (steps * 0.5).astype("f2"),
                              "bool": steps % 3 == 0, "i64": steps - 5}, {"made by": "safetensors", "ü": "ß"})
    bf16 = np.ascontiguousarray((steps * 0.5).astype("<f4")).view("<u2")[..., 1::2].tobytes()
    yield "bf16", raw(json.dumps({"bf16": entry("BF16", offsets=(0, 12))}), bf16)
    yield "nothing", raw("{}")
    yield "scalar_and_empty", save({"scalar": np.array(1.5, "f4"), "empty": np.zeros((2, 0, 3), "f4")})
    yield "names_out_of_order", raw(json.dumps({"b": entry(offsets=(24, 48)), "a": entry()}),
                                    np.arange(12, dtype="<f4").tobytes())
    yield "padded_with_spaces", raw(json.dumps({"x": entry()}) + "   ", bytes(24))


def bad():
    yield "empty_file", b""
    yield "length_cut", b"\x10\0\0"
    yield "header_of_8_exabytes", raw("{}", length=2**63)
    yield "header_cut", raw("{}", length=100)
    yield "zip", b"PK\x03\x04\x14" + bytes(25)
    yield "no_header", raw("")
    yield "no_brace", raw("[]")
    yield "space_first", raw(" {}")
    yield "not_json", raw('{"x": }')
    yield "cut_json", raw('{"x": {"dtype": "F32"')
    yield "two_values", raw("{} {}")
    yield "not_utf8", raw(b'{"\xff": {}}')
    yield "number_overflows", raw('{"x": {"shape": [1e999]}}')
    yield "deep", raw('{"x":' * 1000 + "1" + "}" * 1000)
    yield "deep_lists", raw('{"x": {"shape": [[1]]}}')
    yield "long_list", raw('{"x": {"shape": [' + ", ".join(["1"] * 33) + "]}}")
    yield "name_twice", raw('{"x": {"dtype": "F32"}, "x": {"dtype": "F32"}}')
    yield "key_twice", raw('{"x": {"dtype": "F32", "dtype": "F64"}}')
    yield "tensor_a_number", raw('{"x": 3}')
    yield "dtype_missing", raw('{"x": {"shape": [1], "data_offsets": [0, 4]}}')
    yield "shape_missing", raw('{"x": {"dtype": "F32", "data_offsets": [0, 4]}}')
    yield "offsets_missing", raw('{"x": {"dtype": "F32", "shape": [1]}}')
    yield "key_unknown", raw(json.dumps({"x": entry() | {"extra": 1}}), bytes(24))
    yield "dtype_a_number", one(dtype=4)
    yield "dtype_unknown", one(dtype="F8_E4M3")
    yield "dtype_unprintable", one(dtype="\x1b[2J")
    yield "shape_a_number", raw('{"x": {"dtype": "F32", "shape": 6, "data_offsets": [0, 24]}}', bytes(24))
    yield "size_negative", one(shape=(2, -3))
    yield "size_float", one(shape=(2, 3.0))
    yield "size_text", one(shape=(2, "3"))
    yield "size_over_63_bits", one(shape=(2, 2**63))
    yield "size_over_64_bits", one(shape=(2, 2**70))
    yield "shape_overflows", one(shape=(2**32, 2**32))
    yield "shape_overflows_but_for_a_zero", one(shape=(2**62, 2**62, 0), offsets=(0, 0))
    yield "offsets_three", one(offsets=(0, 24, 24))
    yield "offsets_negative", one(offsets=(-4, 20))
    yield "offsets_reversed", one(offsets=(24, 0))
    yield "offsets_too_short", one(offsets=(0, 20))
    yield "data_cut", raw(json.dumps({"x": entry()}), bytes(23))
    yield "data_missing", raw(json.dumps({"x": entry()}))
    yield "data_too_long", raw(json.dumps({"x": entry()}), bytes(26))
    yield "terabyte", raw(json.dumps({"x": entry(shape=(2**38,), offsets=(0, 2**40))}), bytes(24))
    yield "starts_late", raw(json.dumps({"x": entry(offsets=(4, 28))}), bytes(28))
    yield "hole", raw(json.dumps({"x": entry(), "y": entry(offsets=(28, 52))}), bytes(52))
    yield "overlap", raw(json.dumps({"x": entry(), "y": entry(offsets=(20, 44))}), bytes(44))
    yield "same_data_twice", raw(json.dumps({"x": entry(), "y": entry()}), bytes(24))
    yield "metadata_a_list", raw('{"__metadata__": []}')
    yield "metadata_a_number", raw('{"__metadata__": {"step": 3}}')
    yield "bool_of_7", raw(json.dumps({"x": entry("BOOL", (2,), (0, 2))}), b"\1\7")


for folder, files in (("good", good()), ("bad", bad())):
    (HERE / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files:
        (HERE / folder / f"{name}.safetensors").write_bytes(content)
