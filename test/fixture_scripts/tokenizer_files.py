"""
Writes test/models/fixtures/tokenizers/: small tokenizers of the kinds that models have, trained here, with transformers' results for hostile
strings and conversations. Two of the trainers number their tokens differently each time. Run with transformers 5 and tokenizers:
python test/fixture_scripts/tokenizer_files.py
"""

import json
import random
import shutil
import string
from pathlib import Path

from chat_templates import CONVERSATIONS, EXPRESSIONS, TEMPLATES, VARIABLES, message
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

OUT = Path(__file__).parents[2] / "test/models/fixtures/tokenizers"

TEXT = """
A red circle stands above a blue square, and the green triangle lies to the left of both. Move the circle down; what changes?
The picture's colours aren't what they'd been: they're paler, and I've said so. It'll be 12 or 345, maybe 6789 of 100,000.
def draw(shape, colour="red"):\n    for i in range(10):\n        print(f"{shape}: {colour}")  # a comment\n    return {"a": [1, 2, 3]}
Der rote Kreis steht über dem blauen Quadrat. Où est le cercle ? El círculo está aquí. Круг стоит над квадратом. 赤い円は青い四角の上にあります。红色的圆在蓝色的正方形上面。
the the the picture picture shows shows a a crimson crimson orb orb above above cobalt cobalt tile tile answer answer question user assistant system
""".strip().split("\n") * 4

GPT2_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3_SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|User|>", "<|Assistant|>"]
SPM_SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]
LLAMA3_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2_REGEX = LLAMA3_REGEX.replace("{1,3}", "")

# Added tokens with every option of how they are matched in a text.
VARIANTS = [
    AddedToken("<left>", lstrip=True, special=True),
    AddedToken("<right>", rstrip=True, special=True),
    AddedToken("whole", single_word=True, special=False, normalized=False),
    AddedToken("Norm", normalized=True, special=False),
    AddedToken("café", normalized=True, special=False),
    AddedToken("<both>", lstrip=True, rstrip=True, single_word=True, special=False),
]


def byte_level(pre_tokenizer, special, size, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(special)
    return tokenizer


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), GPT2_SPECIAL, 420)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_tokens(VARIANTS)
    return tokenizer, {"eos_token": "<|im_end|>", "unk_token": "<|endoftext|>", "pad_token": "<|im_end|>"}


def split_then_bytes(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3():
    tokenizer = byte_level(split_then_bytes(LLAMA3_REGEX), LLAMA3_SPECIAL, 420, ignore_merges=True)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", begin)]),
    ])
    tokenizer.enable_truncation(12)
    tokenizer.enable_padding(length=30, pad_id=begin, pad_token="<|begin_of_text|>")
    # clean_up_tokenization_spaces has no effect on a tokenizer of this kind, although the file sets it.
    return tokenizer, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "clean_up_tokenization_spaces": True}


def qwen2():
    tokenizer = byte_level(split_then_bytes(QWEN2_REGEX), ["<|endoftext|>"], 420, normalizer=normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    after = tokenizer.get_vocab_size()
    added = [AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True), *VARIANTS]
    decoder = {str(after + i): {"content": token.content, "lstrip": token.lstrip, "rstrip": token.rstrip, "single_word": token.single_word, "normalized": token.normalized, "special": token.special} for i, token in enumerate(added)}
    decoder[str(after - 1)] = {"content": "<|endoftext|>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    return tokenizer, {"added_tokens_decoder": decoder, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "image_token": "<|image_pad|>"}


def sentencepiece_bpe(metaspace):
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trained.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=680, special_tokens=SPM_SPECIAL + BYTES, limit_alphabet=110, show_progress=False))
    parts = json.loads(trained.to_str())
    # As in the Hub's files, bytes are plain tokens of the vocabulary.
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["content"] in SPM_SPECIAL]
    if metaspace:
        parts["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
        parts["normalizer"] = None
    else:
        parts["pre_tokenizer"] = None
        parts["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2():
    return sentencepiece_bpe(False), {}


def metaspace():
    tokenizer = sentencepiece_bpe(True)
    tokenizer.add_tokens(VARIANTS)
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "extra_special_tokens": ["[INST]", "[/INST]", "<end>"]}


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(TEXT, trainers.UnigramTrainer(vocab_size=330, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_tokens(VARIANTS)
    return tokenizer, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "clean_up_tokenization_spaces": True}


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=380, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.add_tokens(VARIANTS)
    return tokenizer, {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]", "clean_up_tokenization_spaces": True}


KINDS = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "llama2": llama2, "metaspace": metaspace, "unigram": unigram, "wordpiece": wordpiece}

HOSTILE = [
    "", " ", "  ", "\n", "\r\n", "\t", "\n\n\n", " \n \n ", "a", " a", "a ", "  a  b   c    d     ", "\r\n\r\nx\r\n", "x\ry", "\x00", "a\x00b", "\x01\x02\x1c\x1f\x7f\x85\xa0",
    "\ufeffBOM", "\u200b\u200c\u200d\u2060", "\u2028\u2029", "\u3000 ideographic", "\xa0nbsp\xa0", "e\u0301 é cafe\u0301 café", "n\u0303o\u0308", "\u1e9b\u0323", "Å Å A\u030a",
    "\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", "\U0001F1E9\U0001F1EA", "\U0001F44D\U0001F3FD", "\u2764\ufe0f", "\U0001F600" * 9, "\U0010FFFF\U000E0001",
    "שלום עולם", "مرحبا بالعالم", "\u202Ertl\u202C", "नमस्ते दुनिया", "ไทยภาษา", "한국어 \u1112\u1161\u11ab", "赤い円は青い四角の上", "红色的圆", "ﬁ ﬂ ² ① ½ Ⅷ ™ Å", "ǅ İ ı ß ẞ ſ",
    "z̸̢̛a̶l̵g̷o̸", "0", "12", "1234567890", "3.14159e-10", "1,000,000", "０１２", "٣٤٥", "v1.2.3-rc4", "12abc34", "١٢٣٤٥٦٧", "  123  456", "1 2 3 4", "-5 +6 ×7",
    "don't can't I'm you're they'd we'll it's 'tis", "DON'T I'M", "’s ’t", "'S 'LL", "hello.", "a . b , c ! d ? e ' f n't 's 've", "...", "--", "—", "!!!???", "a,b;c:d", "(x)[y]{z}", "\"'`",
    "def f(x):\n    return x + 1\n", "if (a && b) { c(); }\n\t\t// end", "<div class=\"x\">&amp;</div>", "SELECT * FROM t WHERE a='b';", "https://example.org/a?b=c&d=%20#e", "a@b.co", "C:\\dir\\n", "\\n\\t\\u0041", "$\\frac{1}{2}$",
    "<|im_start|>user\nhi<|im_end|>", "x<|im_end|>y", "<|im_end|><|im_end|>", "<|im_end", "|im_end|>", "<|IM_END|>", "<s>", "</s>", "a</s>b", "<s> x </s>", "<unk>", "<pad>", "[CLS] a [SEP]", "[MASK]", "[UNK]unk", "<|endoftext|>x", "<|begin_of_text|>", "  <|eot_id|>  ", "<0x41>", "<0xFF> <0x0A>", "▁", "▁▁a", "a▁b", " ▁ ", "##a ##", "Ġ Ċ ĉ", "<|image_pad|>", "[INST] x [/INST]", "<end>",
    "  <left>  ", "a<left>b", "  <right>  x", "<right>\n\ny", "whole", "the whole thing", "wholesome whole, whole.", "unwhole whole_ _whole whole1", "a whole\n", "Norm", "norm NORM Norm", "xNormx", "café", "cafe\u0301", "CAFÉ", "xcaféx", " <both> ", "a<both>b", "a <both> b", ".<both>.", "<left><right><both>", "whole<left>whole",
    "the  the", "The THE tHe", "crimson orb above cobalt tile", "a" * 60, "ab" * 40, "the" * 20, "x" * 130, "é" * 30, " " * 40, "\n" * 30, "\t" * 20, "-" * 50, "1" * 40,
]  # fmt: skip


def hostile_strings():
    random.seed(17)
    pieces = [text for text in HOSTILE if 0 < len(text) < 30] + list(string.printable) + [chr(random.randrange(0x80, 0xD800)) for _ in range(60)] + [chr(random.randrange(0x10000, 0x1F9FF)) for _ in range(30)]
    strings = list(dict.fromkeys(HOSTILE))
    while len(strings) < 500:
        glue = random.choice(["", " ", "", "\n"])
        text = glue.join(random.choice(pieces) for _ in range(random.randrange(2, 7)))[:48]
        if text not in strings:
            strings.append(text)
    return strings


def short(ids):
    """Ids in base 36, to keep the file small."""
    digits = string.digits + string.ascii_lowercase

    def one(value):
        return digits[value] if value < 36 else one(value // 36) + digits[value % 36]

    return " ".join(one(value) for value in ids)


def expectations(tokenizer, strings):
    random.seed(5)
    size = max(tokenizer.get_vocab().values()) + 1
    encoded = [tokenizer.encode(text, add_special_tokens=False) for text in strings]
    decoded = [tokenizer.decode(ids) for ids in encoded]
    skipped = [tokenizer.decode(ids, skip_special_tokens=True) for ids in encoded]
    loose = [[random.randrange(size + 3) for _ in range(random.randrange(0, 12))] for _ in range(60)]
    return {
        "size": size,
        "special": tokenizer.special_tokens_map,
        "ids": [short(ids) for ids in encoded],
        # Only if it differs from the string itself.
        "decoded": {i: text for i, text in enumerate(decoded) if text != strings[i]},
        # Only if it differs from `decoded`.
        "skipped": {i: text for i, text in enumerate(skipped) if text != decoded[i]},
        "with_special": [short(tokenizer.encode(text)) for text in strings[:40]],
        "loose": [[short(ids), tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=True)] for ids in loose],
    }


def render(tokenizer, template, conversation, generation, extra):
    try:
        text = tokenizer.apply_chat_template(conversation, chat_template=template, add_generation_prompt=generation, tokenize=False, **extra)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    ids = tokenizer.apply_chat_template(conversation, chat_template=template, add_generation_prompt=generation, tokenize=True, return_dict=False, **extra)
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    return {"text": text, "ids": short(ids)}


def save(name, make):
    folder = OUT / name
    folder.mkdir(parents=True)
    tokenizer, config = make()
    parts = json.loads(tokenizer.to_str())
    if name == "gpt2":
        # Older files join the two halves of a merge, and leave keys out.
        parts["model"]["merges"] = [" ".join(pair) for pair in parts["model"]["merges"]]
        for key in ("normalizer", "truncation", "padding"):
            del parts[key]
    (folder / "tokenizer.json").write_text(json.dumps(parts, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}, ensure_ascii=False))
    if name == "llama2":
        # Older folders have this file in place of added_tokens_decoder.
        flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
        tokens = {key: {"content": content, **flags} for key, content in (("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"))}
        (folder / "special_tokens_map.json").write_text(json.dumps({**tokens, "pad_token": "<pad>", "additional_special_tokens": ["<|user|>", "<start_of_turn>"]}))
    return PreTrainedTokenizerFast.from_pretrained(folder)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    strings = hostile_strings()
    tokenizers = {name: save(name, make) for name, make in KINDS.items()}
    # The class that transformers has for these models must agree with the file.
    own = Qwen2Tokenizer.from_pretrained(OUT / "qwen2")
    for text in strings:
        assert own.encode(text) == tokenizers["qwen2"].encode(text), text
    expected = {"strings": strings, "tokenizers": {name: expectations(tokenizer, strings) for name, tokenizer in tokenizers.items()}}
    (OUT / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0))
    chats = {}
    for name, (template, kind) in TEMPLATES.items():
        cases = []
        for conversation in CONVERSATIONS:
            for generation in (False, True):
                for extra in [{"date_string": "1 May 2026"}] if name == "llama3" else [{}, {"enable_thinking": False}] if name == "qwen3" and generation else [{}]:
                    cases.append({"messages": CONVERSATIONS.index(conversation), "generation": generation, "extra": extra, **render(tokenizers[kind], template, conversation, generation, extra)})
        chats[name] = {"template": template, "tokenizer": kind, "cases": cases}
    plain = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, unk_token="x")))
    expressions = []
    for source in EXPRESSIONS:
        try:
            outcome = {"text": plain.apply_chat_template([message("user", "hi")], chat_template=source, tokenize=False, **VARIABLES)}
        except Exception as error:
            outcome = {"error": f"{type(error).__name__}: {error}"}
        expressions.append({"source": source, **outcome})
    (OUT / "chats.json").write_text(json.dumps({"conversations": CONVERSATIONS, "chats": chats, "variables": VARIABLES, "expressions": expressions}, ensure_ascii=False, indent=0))


if __name__ == "__main__":
    main()
