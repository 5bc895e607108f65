"""Writes src/models/adapters/peft_defaults.ts: each key of the adapter_config.json of a LoRA adapter, and its default in peft.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch peft
    /tmp/torch/bin/python test/fixture_scripts/peft_defaults.py

If a later version of peft adds a key, the code does not compile until src/models/adapters/peft_config.ts handles the key.
"""

import json
from pathlib import Path

import peft

TARGET = Path(__file__).resolve().parents[2] / "src/models/adapters/peft_defaults.ts"


def literal(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def main() -> None:
    defaults = peft.LoraConfig().to_dict()
    keys = {key: getattr(value, "value", value) for key, value in defaults.items() if key != "peft_version"}
    keys["peft_version"] = None
    lines = [
        "/** Written by test/fixture_scripts/peft_defaults.py: the keys of a LoRA adapter's adapter_config.json, with peft's defaults. */",
        f"export const PEFT_VERSION = {literal(peft.__version__)};",
        "",
        "export const peftDefaults = {",
        *(f"  {key}: {literal(keys[key])}," for key in sorted(keys)),
        "} as const;",
        "",
    ]
    TARGET.write_text("\n".join(lines))


main()
