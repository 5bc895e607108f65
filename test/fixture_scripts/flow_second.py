"""Makes expected_second.safetensors and, for models that take them, expected_several.safetensors beside the models of test/compute/nets/flow: diffusers'
output when the tokens of a second picture follow, and of two further ones of other sizes.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers safetensors
    /tmp/diffusers/bin/python test/fixture_scripts/flow_second.py [NAME ...]

The inputs are those of expected.safetensors; the output is that of the first picture. Where the class modulates the second picture otherwise than
the first, or is trained with several, the gradients of all weights for the sum of the output times `projection` are in both files, too, computed in
float64.
"""

import sys
from pathlib import Path

import torch
from diffusers import Flux2KleinPipeline, Flux2Transformer2DModel, FluxTransformer2DModel, QwenImageTransformer2DModel
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2] / "test" / "compute" / "nets" / "flow" / "fixtures"
BATCH, ROWS, COLUMNS = 2, 3, 4
FURTHER = ((5, 2), (2, 7))
MODELS = {
    "flux": FluxTransformer2DModel,
    "qwen_image": QwenImageTransformer2DModel,
    "qwen_clean": QwenImageTransformer2DModel,
    "flux2": Flux2Transformer2DModel,
}


def flux2_places(text: torch.Tensor, sizes) -> dict:
    """The ids of a text and of images of these sizes, of which the first is drawn, as the pipeline makes them."""
    drawn = Flux2KleinPipeline._prepare_latent_ids(torch.zeros(BATCH, 1, *sizes[0]))
    shown = Flux2KleinPipeline._prepare_image_ids([torch.zeros(1, 1, *size) for size in sizes[1:]]).expand(BATCH, -1, -1)
    return {"txt_ids": Flux2KleinPipeline._prepare_text_ids(text), "img_ids": torch.cat((drawn, shown), 1)}


def differentiated(model, output: torch.Tensor, inputs: dict) -> tuple[torch.Tensor, dict]:
    """The output of the first picture, and the gradients of all weights for a model that is trained with several."""
    output = output[:, : ROWS * COLUMNS]
    gradients = {}
    if model.config.get("zero_cond_t") or isinstance(model, Flux2Transformer2DModel):
        model.zero_grad()
        (output * inputs["projection"]).sum().backward()
        gradients = {f"gradient:{key}": value.grad.float() for key, value in model.named_parameters() if value.grad is not None}
    return output.detach().float().contiguous(), gradients


def main() -> None:
    for seed, (name, kind) in enumerate(MODELS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(seed)
        folder = ROOT / name
        model = kind.from_pretrained(folder).double()
        inputs = load_file(folder / "expected.safetensors")
        second = torch.randn_like(inputs["hidden"])
        common = dict(
            hidden_states=torch.cat((inputs["hidden"], second), 1).double(),
            encoder_hidden_states=inputs["text"].double(),
            timestep=inputs["sigma"].double(),
            return_dict=False,
        )
        if kind is QwenImageTransformer2DModel:
            output = model(**common, img_shapes=[[(1, ROWS, COLUMNS)] * 2] * BATCH)[0]
        elif kind is Flux2Transformer2DModel:
            output = model(**common, **flux2_places(inputs["text"], [(ROWS, COLUMNS)] * 2))[0]
        else:
            ids = torch.zeros(2, ROWS, COLUMNS, 3)
            ids[..., 0] = torch.arange(2)[:, None, None]
            ids[..., 1] = torch.arange(ROWS)[:, None]
            ids[..., 2] = torch.arange(COLUMNS)
            text = torch.zeros(inputs["text"].shape[1], 3)
            output = model(**common, pooled_projections=inputs["pooled"].double(), img_ids=ids.reshape(-1, 3), txt_ids=text)[0]
        output, gradients = differentiated(model, output, inputs)
        save_file({"second": second, "output": output, **gradients}, folder / "expected_second.safetensors")
        print(name, float(output.abs().max()), float((output - inputs["output"]).abs().max()))
        if kind is FluxTransformer2DModel:
            continue
        further = torch.randn(BATCH, sum(rows * columns for rows, columns in FURTHER), second.shape[-1])
        several = torch.cat((second, further), 1)
        sizes = [(ROWS, COLUMNS), (ROWS, COLUMNS), *FURTHER]
        places = {"img_shapes": [[(1, *size) for size in sizes]] * BATCH}
        if kind is Flux2Transformer2DModel:
            places = flux2_places(inputs["text"], sizes)
        shown = model(**{**common, "hidden_states": torch.cat((inputs["hidden"], several), 1).double()}, **places)[0]
        shown, gradients = differentiated(model, shown, inputs)
        save_file({"second": several, "output": shown, **gradients}, folder / "expected_several.safetensors")
        print(name, "several", float(shown.abs().max()), float((shown - output).abs().max()))


main()
