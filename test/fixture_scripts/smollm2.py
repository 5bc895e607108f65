"""Makes test/models/fixtures/smollm2.json: what transformers computes with SmolLM2-135M-Instruct, as scripts/fetch_smollm2 makes its folder.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers
    scripts/fetch_smollm2 /tmp/smollm2
    /tmp/torch/bin/python test/fixture_scripts/smollm2.py /tmp/smollm2

For each conversation it holds the template's text, its ids, every STRIDEth logit after it, and the ids with which greedy decoding continues.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TARGET = Path(__file__).resolve().parents[2] / "test" / "models" / "fixtures" / "smollm2.json"
STRIDE, NEW = 97, 16
CONVERSATIONS = [
    [{"role": "user", "content": "Say it plainly: a crimson orb above a cobalt tile."}],
    [
        {"role": "system", "content": "You answer in one word."},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Österreich, in 1914? 🙂"},
    ],
]

folder = sys.argv[1]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

cases = []
for messages in CONVERSATIONS:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
        went_on = model.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False)[0, len(ids) :]
    cases.append(
        dict(
            messages=messages,
            text=text,
            ids=ids,
            logits=[round(value, 5) for value in logits[::STRIDE].tolist()],
            continued=went_on.tolist(),
        )
    )
TARGET.write_text(json.dumps(dict(stride=STRIDE, cases=cases), ensure_ascii=False) + "\n")
