"""Makes the fixtures of test/data/rows.test.ts: parquet files as Hugging Face's datasets write them.

    python -m venv /tmp/rows && /tmp/rows/bin/pip install pyarrow
    /tmp/rows/bin/python test/fixture_scripts/rows.py
"""

import struct
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2] / "test" / "data" / "fixtures" / "rows"
TURN = pa.struct([("role", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema(
    [
        ("prompt", pa.list_(TURN)),
        ("answer", pa.string()),
        ("count", pa.int64()),
        ("score", pa.float64()),
        ("right", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("large", pa.int64()),
    ]
)


def rows(start: int, stop: int) -> list[dict]:
    return [
        {
            "prompt": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"What is {i} + {i}? \u00e9\U0001f600"},
            ],
            "answer": None if i == 1 else str(2 * i),
            "count": i,
            "score": i / 4,
            "right": i % 2 == 0,
            "tags": ["sum"] * i,
            "large": 2**53 + 2 * i + 1,
        }
        for i in range(start, stop)
    ]


def write(path: Path, start: int, stop: int, codec: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several row groups, as larger files have.
    pq.write_table(pa.Table.from_pylist(rows(start, stop), SCHEMA), path, compression=codec, row_group_size=2)


write(ROOT / "snappy.parquet", 0, 3, "snappy")
write(ROOT / "zstd.parquet", 0, 3, "zstd")
write(ROOT / "shards" / "train-00000-of-00002.parquet", 0, 2, "snappy")
write(ROOT / "shards" / "train-00001-of-00002.parquet", 2, 3, "zstd")
(ROOT / "shards" / "README.md").write_text("What lies beside the shards is none of them.\n")


def small(name: str, columns: dict[str, pa.Array], **options) -> None:
    pq.write_table(pa.table(columns), ROOT / f"{name}.parquet", store_schema=False, **options)


DECIMALS = [Decimal("3.10"), Decimal("-0.05"), Decimal("1200.00"), None]
LONG = [Decimal("12345678901234567890.123456789"), Decimal("-1.000000001"), Decimal("0E-9"), None]
small(
    "decimals",
    {
        "short": pa.array(DECIMALS, pa.decimal128(6, 2)),
        "long": pa.array(LONG, pa.decimal128(38, 9)),
        "list": pa.array([[one, None] for one in DECIMALS], pa.list_(pa.decimal128(6, 2))),
        "inner": pa.array([{"price": one} for one in DECIMALS], pa.struct([("price", pa.decimal128(6, 2))])),
        "map": pa.array([[("key", one)] for one in DECIMALS], pa.map_(pa.string(), pa.decimal128(6, 2))),
    },
)
small("decimal_integers", {"n": pa.array(DECIMALS, pa.decimal128(6, 2))}, store_decimal_as_integer=True)
# A label that is missing, as pandas writes it.
small("nan", {"prompt": pa.array(["a", "b"]), "expected": pa.array([1.5, float("nan")], from_pandas=False)})
LATIN = "Gruß".encode("latin1")
BROKEN = pa.StringArray.from_buffers(2, pa.py_buffer(struct.pack("<3i", 0, 1, 5)), pa.py_buffer(b"a" + LATIN))
small("latin1", {"prompt": BROKEN})
PICTURE = {"bytes": bytes.fromhex("89504e470d0a1a0a") + bytes(64), "path": "a.png"}
small("pictures", {"source": pa.array([PICTURE, PICTURE]), "instruction": pa.array(["a", "b"])})
small("picture_lists", {"prompt": pa.array(["a", "b"]), "images": pa.array([[PICTURE], []])})
VERL = {"style": "rule", "ground_truth": "5"}
small("nested", {"prompt": pa.array(["a", "b"]), "reward_model": pa.array([VERL, VERL]), "x.y": pa.array(["1", "2"])})
