"""Makes the fixtures of test/compute/nets/clip: a small CLIP of random weights as transformers has it, what it embeds, and the gradients of its loss.

    python -m venv /tmp/clip && /tmp/clip/bin/pip install torch transformers safetensors
    /tmp/clip/bin/python test/fixture_scripts/clip_training.py

config.json and model.safetensors are the model; expected.safetensors holds ids, pixels, both embeddings, the loss, and the gradients of all weights.
All is computed in float64.
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import CLIPConfig, CLIPModel

ROOT = Path(__file__).resolve().parents[2] / "test" / "compute" / "nets" / "clip" / "fixtures"
TOWER = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3, hidden_act="gelu_pytorch_tanh", attention_dropout=0.0)
VOCABULARY, LENGTH, END, BATCH, SIDE = 11, 7, 10, 3, 8


def main() -> None:
    torch.manual_seed(0)
    config = CLIPConfig(
        projection_dim=6,
        text_config=dict(TOWER, vocab_size=VOCABULARY, max_position_embeddings=LENGTH, bos_token_id=9, eos_token_id=END, pad_token_id=END),
        vision_config=dict(TOWER, image_size=SIDE, patch_size=4),
    )
    model = CLIPModel(config)
    for value in model.parameters():
        fan_in = value[0].numel() if value.ndim > 1 else 1
        value.data = torch.randn_like(value) / fan_in**0.5 if value.ndim > 1 else value.data + 0.2 * torch.randn_like(value)
    shutil.rmtree(ROOT, ignore_errors=True)
    model.save_pretrained(ROOT)
    model.double()
    ids = torch.randint(0, 9, (BATCH, LENGTH))
    ids[:, 0] = 9
    for row, end in enumerate((2, LENGTH - 1, 4)):
        ids[row, end:] = END
    pixels = torch.randn(BATCH, 3, SIDE, SIDE).double()
    out = model(input_ids=ids, pixel_values=pixels, return_loss=True)
    out.loss.backward()
    texts = model.text_projection(model.text_model(input_ids=ids).pooler_output)
    pictures = model.visual_projection(model.vision_model(pixel_values=pixels).pooler_output)
    expected = dict(
        pixels=pixels,
        texts=texts,
        pictures=pictures,
        loss=out.loss.reshape(1),
        **{f"gradient:{name}": value.grad for name, value in model.named_parameters()},
    )
    save_file(
        {"ids": ids.to(torch.int32).float(), **{name: value.detach().float().contiguous() for name, value in expected.items()}},
        ROOT / "expected.safetensors",
    )


if __name__ == "__main__":
    main()
