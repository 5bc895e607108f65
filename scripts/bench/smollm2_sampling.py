"""Runs one turn of `generate` for each line of the standard input. Arguments: FOLDER plain|lora REQUEST, see smollm2_sampling.ts."""
import json
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM

folder, kind, request = sys.argv[1:]
asked = json.loads(request)
torch.set_num_threads(asked["threads"])
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
if kind == "lora":
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
model.eval()
ids = torch.tensor(asked["prompts"])
tokens = asked["answer_tokens"]

for _ in sys.stdin:
    start, cpu = time.perf_counter(), time.process_time()
    with torch.no_grad():
        answers = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            num_return_sequences=asked["answers_per_prompt"],
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=0,
        )
    assert answers.shape == (len(ids) * asked["answers_per_prompt"], ids.shape[1] + tokens), answers.shape
    turn = {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(turn), flush=True)
