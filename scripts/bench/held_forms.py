"""Writes models of eight layers of two products each to a folder, by how they get their weights (package onnx, with numpy and ml_dtypes)."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

LAYERS, WIDTH, INNER = 8, 2048, 8192
SIZE = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2, TensorProto.UINT16: 2}
FILES = {4: "float32.bin", TensorProto.FLOAT16: "float16.bin", TensorProto.BFLOAT16: "bfloat16.bin"}


def in_file(name: str, dtype: int, layer: int) -> TensorProto:
    """An initializer that lies in a file."""
    file = FILES.get(dtype, FILES[4])
    length = WIDTH * INNER * SIZE[dtype]
    tensor = TensorProto(name=name, data_type=dtype, dims=[INNER, WIDTH], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", file), ("offset", layer * length), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write(folder: Path, form: str, dtype: int, fed: bool, first: bool) -> None:
    """`first`: what widens a matrix stands before all other nodes."""
    widening, nodes, initializers = [], [], []
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, WIDTH])]
    if dtype == TensorProto.UINT16:
        initializers.append(helper.make_tensor("bits", TensorProto.UINT32, [], [16]))
    rows = "x"
    for layer in range(LAYERS):
        name = wide = f"w{layer}"
        if fed:
            inputs.append(helper.make_tensor_value_info(name, dtype, [INNER, WIDTH]))
        else:
            initializers.append(in_file(name, dtype, layer))
        target = widening if first else nodes
        if dtype == TensorProto.UINT16:
            wide = f"{name}.wide"
            target.append(helper.make_node("Cast", [name], [f"{name}.long"], to=TensorProto.UINT32))
            target.append(helper.make_node("BitShift", [f"{name}.long", "bits"], [f"{name}.up"], direction="LEFT"))
            target.append(helper.make_node("BitCast", [f"{name}.up"], [wide], to=TensorProto.FLOAT))
        elif dtype != TensorProto.FLOAT:
            wide = f"{name}.wide"
            target.append(helper.make_node("Cast", [name], [wide], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Gemm", [rows, wide], [f"up{layer}"], transB=1))
        nodes.append(helper.make_node("Gemm", [f"up{layer}", wide], [f"down{layer}"]))
        rows = f"down{layer}"
    outputs = [helper.make_tensor_value_info(rows, TensorProto.FLOAT, [None, WIDTH])]
    graph = helper.make_graph(widening + nodes, "held", inputs, outputs, initializers)
    opset = helper.make_opsetid("", 26 if dtype == TensorProto.UINT16 else 23)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    (folder / f"{form}.onnx").write_bytes(model.SerializeToString())


def main() -> None:
    folder = Path(sys.argv[1])
    drawn = np.random.default_rng(0).standard_normal((LAYERS, INNER, WIDTH), dtype=np.float32) * 0.02
    brains = drawn.astype(ml_dtypes.bfloat16)
    brains.view(np.uint16).tofile(folder / "bfloat16.bin")
    brains.astype(np.float32).tofile(folder / "float32.bin")
    brains.astype(np.float32).astype(np.float16).tofile(folder / "float16.bin")
    for form, dtype, fed, first in (
        ("float32_fed", TensorProto.FLOAT, True, False),
        ("float32_file", TensorProto.FLOAT, False, False),
        ("float16_fed", TensorProto.FLOAT16, True, False),
        ("float16_fed_first", TensorProto.FLOAT16, True, True),
        ("float16_file_first", TensorProto.FLOAT16, False, True),
        ("bfloat16_file_first", TensorProto.BFLOAT16, False, True),
        ("integers_fed_first", TensorProto.UINT16, True, True),
    ):
        write(folder, form, dtype, fed, first)


main()
