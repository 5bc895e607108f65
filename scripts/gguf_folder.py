"""
Writes a Hugging Face folder from a GGUF file of SmolLM2: a Llama whose words are byte-pair tokens, digits one at a time.

    python scripts/gguf_folder.py MODEL.gguf FOLDER

Needs numpy and gguf. Weights become float32 and then bfloat16, the nearest, to even at a tie.
"""

import json
import sys
from pathlib import Path

try:
    import numpy as np
    from gguf import GGUFReader, dequantize
except ModuleNotFoundError as missing:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        sys.exit(0)
    sys.exit(f"gguf_folder: the Python package {missing.name} is missing\n  pip install numpy gguf")

BLOCK = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL = 3


def hub_name(name):
    """From blk.3.attn_q.weight to model.layers.3.self_attn.q_proj.weight."""
    parts = name.removesuffix(".weight").split(".")
    stem = TOP[parts[0]] if len(parts) == 1 else f"model.layers.{parts[1]}.{BLOCK[parts[2]]}"
    return f"{stem}.weight"


def half_split(weight, heads):
    """Reorders rows of q and k from adjacent pairs, which GGUF rotates, to halves, which transformers rotates."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def to_bfloat16(weight):
    bits = np.ascontiguousarray(weight, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for values in tensors.values():
            file.write(values.tobytes())


def tokenizer_json(tokens, kinds, merges):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": token, **flags} for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == CONTROL]
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", **byte_level}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
        },
    }


def main(source, folder):
    reader = GGUFReader(source)

    def field(name):
        return reader.fields[name].contents()

    if field("general.architecture") != "llama" or field("tokenizer.ggml.pre") != "smollm":
        sys.exit(f"{source}: a {field('general.architecture')} model with a {field('tokenizer.ggml.pre')} tokenizer; only SmolLM2's are read")
    heads = {"attn_q": field("llama.attention.head_count"), "attn_k": field("llama.attention.head_count_kv")}
    tensors = {}
    for tensor in reader.tensors:
        if "rope_freqs" in tensor.name:
            continue
        weight = dequantize(tensor.data, tensor.tensor_type).reshape([int(size) for size in reversed(tensor.shape)])
        kind = tensor.name.split(".")[-2]
        tensors[hub_name(tensor.name)] = to_bfloat16(half_split(weight, heads[kind]) if kind in heads else weight)
    ids = {name: int(field(f"tokenizer.ggml.{name}_token_id")) for name in ("bos", "eos", "padding", "unknown")}
    marks = {"bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["padding"]}
    tokens = field("tokenizer.ggml.tokens")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": int(field("llama.embedding_length")),
        "intermediate_size": int(field("llama.feed_forward_length")),
        "num_hidden_layers": int(field("llama.block_count")),
        "num_attention_heads": int(heads["attn_q"]),
        "num_key_value_heads": int(heads["attn_k"]),
        "max_position_embeddings": int(field("llama.context_length")),
        # The file stores it as float32.
        "rms_norm_eps": float(f"{field('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": float(field("llama.rope.freq_base")),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "torch_dtype": "bfloat16",
        **marks,
    }
    words = {"bos_token": tokens[ids["bos"]], "eos_token": tokens[ids["eos"]], "pad_token": tokens[ids["padding"]], "unk_token": tokens[ids["unknown"]]}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "chat_template": field("tokenizer.chat_template"),
        **words,
    }
    out = Path(folder)
    out.mkdir(parents=True)
    texts = {
        "tokenizer.json": tokenizer_json(tokens, field("tokenizer.ggml.token_type"), field("tokenizer.ggml.merges")),
        "tokenizer_config.json": settings,
        "generation_config.json": marks,
        "config.json": config,
    }
    write_safetensors(out / "model.safetensors", tensors)
    for name, content in texts.items():
        (out / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
