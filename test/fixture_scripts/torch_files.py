"""Makes the fixtures of test/data/torch_file.test.ts: files of torch.save, and files that only look like them.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python test/fixture_scripts/torch_files.py

expected.json holds the values that Python reads from each readable file.
"""

import builtins
import io
import json
import os
import pickle
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2] / "test" / "data" / "fixtures" / "torch"

CODES = np.arange(6, dtype=np.int64).reshape(2, 3) * 1000
EARL = {
    "edit_id": "task_obj_add_12.pth",
    "original_image": CODES,
    "edited_image": CODES[::-1].copy(),
    "CoT": {"thinking": " the sky is [1, 2]\n", "conditioning_information": "é"},
    "instruction": "Add a \U0001f600 to the sky",
}


def tensors() -> dict:
    torch.manual_seed(0)
    base = torch.arange(24, dtype=torch.int64).reshape(4, 6)
    return {
        "int64": base,
        "int32": base.to(torch.int32) - 12,
        "int16": base.to(torch.int16) * 999 - 12000,
        "int8": torch.tensor([-128, 0, 127], dtype=torch.int8),
        "uint8": torch.tensor([[0, 1], [254, 255]], dtype=torch.uint8),
        "bool": torch.tensor([True, False]),
        "float64": torch.tensor([0.1, -1e300], dtype=torch.float64),
        "float32": torch.randn(2, 3),
        "float16": torch.tensor([0.1, -65504.0, 6e-8], dtype=torch.float16),
        "bfloat16": torch.tensor([0.1, -3e38], dtype=torch.bfloat16),
        "transposed": base.t(),
        "part": base[1:3, 1::2],
        "one": torch.tensor(7),
        "empty": torch.zeros(0, 3, dtype=torch.int32),
        "expanded": torch.tensor([[5], [6]]).expand(2, 4),
    }


def arrays() -> dict:
    return {
        "int64": CODES,
        "fortran": np.asfortranarray(CODES.astype(np.int32)),
        "big": CODES.astype(">i2"),
        "uint16": np.array([0, 65535], dtype=np.uint16),
        "float32": np.array([0.5, -1.5], dtype=np.float32),
        "scalar": np.int64(9),
        "empty": np.zeros((0, 2), dtype=np.int64),
    }


def mixed() -> dict:
    shared = torch.tensor([1, 2, 3])
    return {
        "list": [1, 2.5, None, True, "text", b"\x00\xff", (1, 2, 3, 4), ()],
        "nested": {"a": {"b": [{"c": -1}]}},
        "large": 2**40,
        "negative": -(2**40),
        "huge": 2**70,
        "twice": [shared, shared],
        "ordered": OrderedDict(),
        7: "a number as a key",
        "long": "x" * 300,
    }


def plain(value):
    """The value in the form that the test compares."""
    if isinstance(value, torch.Tensor):
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "values": plain(value.double().flatten().tolist())}
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.newbyteorder("=").name, "shape": list(value.shape), "values": value.astype(float).flatten().tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {"keys": [[plain(k), plain(v)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return {"bytes": list(value)}
    if isinstance(value, int) and abs(value) > 2**53:
        return {"big": str(value)}
    return value


class Calls:
    """An object whose pickle calls something."""

    def __init__(self, call, *args):
        self.call = (call, args)

    def __reduce__(self):
        return self.call


class Plain:
    pass


class Own(np.ndarray):
    pass


def zipped(pickled: bytes, storages: dict | None = None, root: str = "x", compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr(f"{root}/data.pkl", pickled)
        archive.writestr(f"{root}/byteorder", "little")
        for name, data in (storages or {}).items():
            archive.writestr(f"{root}/data/{name}", data)
        archive.writestr(f"{root}/version", "3\n")
    return out.getvalue()


class ToStorage(pickle.Pickler):
    """Pickles references to storages that need not be there."""

    def persistent_id(self, value):
        return value.id if isinstance(value, Reference) else None


class Reference:
    def __init__(self, *id):
        self.id = id


class Tensor:
    def __init__(self, *args):
        self.args = args

    def __reduce__(self):
        return (torch._utils._rebuild_tensor_v2, self.args)


def with_storage(key, count: int, offset: int, shape: tuple, strides: tuple, data: dict | None = None, kind=torch.LongStorage, **more) -> bytes:
    reference = Reference("storage", kind, key, "cpu", count)
    out = io.BytesIO()
    ToStorage(out, 2).dump({"x": Tensor(reference, offset, shape, strides, False, OrderedDict())})
    return zipped(out.getvalue(), {"0": b"\0" * 64} if data is None else data, **more)


def dumped(value, protocol: int = 2) -> bytes:
    return pickle.dumps(value, protocol)


def saved(value, **settings) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, **settings)
    return out.getvalue()


def hostile() -> dict[str, bytes]:
    whole = saved(EARL)
    many = io.BytesIO()
    reference = Reference("storage", torch.LongStorage, "0", "cpu", 1)
    ToStorage(many, 2).dump([Tensor(reference, 0, (4000, 4000), (0, 0), False, OrderedDict()) for _ in range(9)])
    return {
        "os_system": zipped(dumped({"instruction": Calls(os.system, "touch /tmp/executed")})),
        "os_system_4": zipped(dumped({"instruction": Calls(os.system, "touch /tmp/executed")}, 4)),
        "eval": zipped(dumped(Calls(builtins.eval, "1"))),
        "getattr": zipped(dumped(Calls(getattr, "text", "upper"))),
        "nested_call": zipped(dumped({"a": [Calls(OrderedDict, [("k", "v")])]})),
        "torch_load": zipped(dumped(Calls(torch.load, "other.pth"))),
        "class": zipped(dumped(Plain())),
        "mentioned_and_called": zipped(b"\x80\x02ctorch\nLongStorage\n(K\x05tR."),
        "own_array": zipped(dumped(Calls(np._core.multiarray._reconstruct, Own, (0,), b"b"))),
        "objects": zipped(dumped(np.array([{"a": 1}], dtype=object))),
        "inst": zipped(b"(S'touch /tmp/executed'\nios\nsystem\n."),
        "extension": zipped(b"\x80\x02\x82\x01."),
        "protocol_9": zipped(b"\x80\x09N."),
        "long_claims": zipped(b"\x80\x02\x8d" + (2**62).to_bytes(8, "little") + b"x."),
        "no_stop": zipped(b"\x80\x02}"),
        "empty_stack": zipped(b"\x80\x02."),
        "no_mark": zipped(b"\x80\x02u."),
        "not_remembered": zipped(b"\x80\x02h\x05."),
        "open_line": zipped(b"\x80\x02cos"),
        "path": with_storage("../../../etc/passwd", 8, 0, (8,), (1,)),
        "no_storage": with_storage("5", 8, 0, (8,), (1,)),
        "short_storage": with_storage("0", 100, 0, (8,), (1,)),
        "beyond": with_storage("0", 8, 4, (8,), (1,)),
        "negative_stride": with_storage("0", 8, 7, (8,), (-1,)),
        "huge_shape": with_storage("0", 8, 0, (2**31, 2**31), (0, 0)),
        "huge_together": zipped(many.getvalue(), {"0": b"\0" * 8}),
        "odd_storage": with_storage("0", 8, 0, (8,), (1,), kind=torch.ComplexFloatStorage),
        "compressed": with_storage("0", 8, 0, (8,), (1,), compression=zipfile.ZIP_DEFLATED),
        "no_pickle": zipped(b"N.", root="a/b"),
        "two_roots": b"",
        "cut": whole[: len(whole) // 2],
        "cut_end": whole[:-10],
        "empty": b"",
        "text": b"instruction: add a cat",
        "before_1_6": saved(EARL, _use_new_zipfile_serialization=False),
        "uint16": saved({"x": torch.tensor([1], dtype=torch.uint16)}),
        "big_numbers": saved({"x": torch.tensor([2**60])}),
    }


def two_roots() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for root in "ab":
            archive.writestr(f"{root}/data.pkl", b"N.")
    return out.getvalue()


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    (ROOT / "hostile").mkdir(parents=True)
    files = {"earl": EARL, "tensors": tensors(), "arrays": arrays(), "mixed": mixed()}
    expected = {"torch": torch.__version__, "numpy": np.__version__}
    for name, value in files.items():
        (ROOT / f"{name}.pth").write_bytes(saved(value))
        expected[name] = plain(value)
    # NumPy before version 2 has another name for this module.
    pickled = dumped(EARL).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    (ROOT / "earl_numpy_1.pth").write_bytes(zipped(pickled))
    (ROOT / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
    for name, data in {**hostile(), "two_roots": two_roots()}.items():
        (ROOT / "hostile" / f"{name}.pth").write_bytes(data)


main()
