"""Writes the .npy files under good/ and bad/, which the tests of src/io and of the program read, and the fuzzer starts from.

They are kept in the repository, so that the tests need no Python; run this again (with NumPy) to add one:
    python3 tests/io/make_corpus.py
"""

import io
import itertools
import pathlib
import struct

import numpy as np

HERE = pathlib.Path(__file__).parent
MAGIC = b"\x93NUMPY"


def header(dictionary, version=1):
    """A header around any dictionary, right or wrong."""
    text = dictionary.encode("latin1")
    return MAGIC + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


def described(descr="'<f4'", fortran="False", shape="(2, 3)"):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def by_numpy(array, version):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def good():
    """(2, 3, 4) arrays of 0, 0.5, 1 ...; integers 0 - 5, 1 - 5 ...; booleans true at every third place."""
    steps = np.arange(24).reshape(2, 3, 4)
    arrays = {"f64": steps * 0.5, "f32": steps * 0.5, "f16": steps * 0.5, "bf16": steps * 0.5, "bool": steps % 3 == 0,
              "i64": steps - 5, "i32": steps - 5}
    codes = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": "u2", "bool": "b1", "i64": "i8", "i32": "i4"}
    versions = itertools.cycle([(1, 0), (2, 0), (3, 0)])
    for name, endian, order in itertools.product(arrays, "<>", "CF"):
        array = arrays[name]
        if name == "bf16":  # the upper half of a float32; ml_dtypes stores it as '<V2'
            array = np.ascontiguousarray(array, "<f4").view("<u2")[..., 1::2]
        array = np.array(array, dtype=endian + codes[name], order=order)
        version = next(versions)
        file = by_numpy(array, version)
        if name == "bf16":
            file = file.replace(b"u2'", b"V2'")
        yield f"{name}_{'little' if endian == '<' else 'big'}_{order}_v{version[0]}", file
    yield "scalar", by_numpy(np.array(1.5, "<f4"), (1, 0))
    yield "empty", by_numpy(np.zeros((1, 2, 0, 64), "<f4"), (1, 0))
    yield "vector", by_numpy(np.arange(3, dtype="<i8"), (1, 0))
    yield "native_order", header(described("'=f4'", shape="(2,)")) + struct.pack("=2f", 1.5, 2.5)
    yield "keys_in_another_order", (header('{"shape":(2,),"descr":"<f4","fortran_order":False}')
                                    + struct.pack("<2f", 1.5, 2.5))


def bad():
    data = bytes(24)  # of (2, 3) f32
    yield "empty_file", b""
    yield "no_magic", b"hello, world"
    yield "zip", b"PK\x03\x04" + bytes(26)
    yield "magic_only", MAGIC
    yield "no_header_length", MAGIC + b"\x01\x00\x10"
    yield "version_0", MAGIC + b"\x00\x00\x10\x00" + bytes(16)
    yield "version_4", MAGIC + b"\x04\x00\x10\x00\x00\x00" + bytes(16)
    yield "version_1_1", MAGIC + b"\x01\x01\x10\x00" + bytes(16)
    yield "header_of_4_gigabytes", MAGIC + b"\x02\x00\xff\xff\xff\xff" + bytes(16)
    yield "header_cut", header(described())[:40]
    yield "data_cut", header(described()) + data[:23]
    yield "data_missing", header(described())
    yield "data_too_long", header(described()) + data + b"\0\0"
    yield "shape_of_a_terabyte", header(described(shape="(1024, 1024, 1024, 256)")) + data
    yield "shape_overflows", header(described(shape="(4294967296, 4294967296)")) + data
    yield "shape_overflows_but_for_a_zero", header(described(shape="(9223372036854775807, 9223372036854775807, 0)"))
    yield "size_over_64_bits", header(described(shape="(99999999999999999999, 2)")) + data
    yield "size_negative", header(described(shape="(2, -3)")) + data
    yield "size_float", header(described(shape="(2.0, 3)")) + data
    yield "size_missing", header(described(shape="(2, , 3)")) + data
    yield "rank_33", header(described(shape="(" + "1, " * 33 + ")")) + data[:4]
    yield "shape_a_number", header(described(shape="6")) + data
    yield "shape_in_parentheses", header(described(shape="(6)")) + data
    yield "shape_a_list", header(described(shape="[2, 3]")) + data
    yield "shape_without_comma", header(described(shape="(2 3)")) + data
    yield "shape_unclosed", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3") + data
    yield "no_brace", header("'descr': '<f4'") + data
    yield "brace_unclosed", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), ") + data
    yield "no_colon", header("{'descr' '<f4', 'fortran_order': False, 'shape': (2, 3), }") + data
    yield "no_comma", header("{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3), }") + data
    yield "key_unquoted", header("{descr: '<f4', 'fortran_order': False, 'shape': (2, 3), }") + data
    yield "quote_unclosed", header("{'descr': '<f4") + data
    yield "quote_escaped", header(described("'<f\\x34'")) + data
    yield "key_twice", header("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }") + data
    yield "key_unknown", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'extra': 1, }") + data
    yield "descr_missing", header("{'fortran_order': False, 'shape': (2, 3), }") + data
    yield "order_missing", header("{'descr': '<f4', 'shape': (2, 3), }") + data
    yield "shape_missing", header("{'descr': '<f4', 'fortran_order': False, }") + data
    yield "after_the_brace", header(described().rstrip() + " import os") + data
    yield "zero_bytes_after_the_brace", header(described().rstrip() + "\0\0") + data
    yield "order_0", header(described(fortran="0")) + data
    yield "descr_a_number", header(described("4")) + data
    yield "descr_empty", header(described("''")) + data
    yield "descr_without_byte_order", header(described("'f4'")) + data
    yield "descr_unprintable", header(described("'<\x1b[2J\x07'")) + data
    yield "dtype_complex64", header(described("'<c8'")) + bytes(48)
    yield "dtype_complex128", header(described("'<c16'")) + bytes(96)
    yield "dtype_longdouble", header(described("'<f16'")) + bytes(96)
    yield "dtype_int8", header(described("'|i1'")) + bytes(6)
    yield "dtype_int16", header(described("'<i2'")) + bytes(12)
    yield "dtype_uint8", header(described("'|u1'")) + bytes(6)
    yield "dtype_uint64", header(described("'<u8'")) + bytes(48)
    yield "dtype_bytes", header(described("'|S5'")) + bytes(30)
    yield "dtype_string", header(described("'<U2'")) + bytes(48)
    yield "dtype_object", by_numpy_pickled()
    yield "dtype_datetime", header(described("'<M8[s]'")) + bytes(48)
    yield "dtype_timedelta", header(described("'<m8[s]'")) + bytes(48)
    yield "dtype_raw", header(described("'|V3'")) + bytes(18)
    yield "dtype_structured", by_numpy(np.zeros((2,), [("x", "<f4"), ("y", "<i8")]), (1, 0))
    yield "dtype_unknown", header(described("'<z4'")) + data
    yield "bool_of_7", header(described("'|b1'")) + b"\x00\x01\x00\x07\x01\x00"


def by_numpy_pickled():
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([None, 1], dtype=object), version=(1, 0), allow_pickle=True)
    return file.getvalue()


def main():
    for folder, files in (("good", good()), ("bad", bad())):
        (HERE / folder).mkdir(exist_ok=True)
        for name, content in files:
            (HERE / folder / f"{name}.npy").write_bytes(content)


if __name__ == "__main__":
    main()
