#!/usr/bin/env python3
"""Writes the golden files of the byte-level and Metaspace tokenizers (needs `pip install tokenizers==0.22.2`).

Trains tiny BPE vocabularies on the text below and records what the reference implementation makes of
the cases: tests/golden/data/<name>/{tokenizer.json,golden.json}.
"""
import json
import pathlib

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

TARGET = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/data"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = [
    "A planner that knows the lengths of the answers can place every stage of the training job.",
    "The reward model reads the answer, the critic reads the answer, and the actor writes the answer.",
    "It's what they've planned: we'll train, they're waiting, I'd say; don't stop, I'm here.",
    "Numbers: 1 12 123 1234 12345 3.14159 1,000,000 0x1F 2026-11-29 50% $20.00",
    "def add(a, b):\n    return a + b\n\n\nfor i in range(10):\n\tprint(i)\n",
    "Größe, naïve café, Zürich, façade, señor, smörgåsbord, œuvre, Ångström",
    "Планировщик знает длину ответов и размещает задачи на узлах кластера.",
    "計画は訓練を速くする。長い回答は待たれる。模型は答えを書く。",
    "한국어 문장도 토큰으로 나뉩니다. 계획은 훈련을 빠르게 합니다.",
    "Emoji: 😀 😃 👍🏽 👨‍👩‍👧‍👦 🇨🇭 ❤️ — and dashes – … “quotes” ‘single’",
    "the the the then there their they them this that with which while when where who what why",
] * 3

CASES = [
    "", " ", "  ", "a", " a", "a ", "Hello, world!", "hello   world", "   leading", "trailing   ",
    "\n", "\n\n", "a\nb", "a\n\n  b", "\t\tx\r\ny\r\n", " \n \n", "don't DON'T we'Ve I'LL they'rE o'clock",
    "\u017fomething '\u017f it'\u017f", "1 12 123 1234 1234567 0001", "3.14159e-10, 1,000,000.50$",
    "x=1;y=22;z=333", "a+b==c && d!=e || f<=g", "...!!!???", "#### 72", "( 9 - 3 ) * 2 = <<(9-3)*2=12>>12",
    "Größe café cafe\u0301 Zu\u0308rich A\u030angstro\u0308m", "o\u0328\u0301 o\u0301\u0328 q\u0323\u0307 q\u0307\u0323",
    "\u1100\u1161\u11a8 \u1112\u1161\u11ab\u1100\u1173\u11af 한글 각", "\u212b \u2126 \ufb01 \u0958 \u2adc \u0344",
    "Планировщик и ЗАДАЧИ", "計画は訓練を速くする。", "ไทย हिन्दी العربية עברית", "Ⅷ ½ ٣٤٥ ①②",
    "😀", "👍🏽👨‍👩‍👧‍👦🇨🇭", "a😀b 😀 c", "\u00a0nbsp\u2003em\u3000ideographic\u200bzero", "\ufeffbom",
    "\u0000\u0001\u007f", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "\u0301", "e\u0301\u0301\u0301", "the answer reads the answer",
    "<|begin|>", "<|begin|>user\nhi<|end|>", "x<|end|>y", "x <|end|> y", "<|end|><|end|>", "<|en d|>", "<|end",
    "<|endless|>", "<|end|>less", "a<mask>b", "a  <mask>  b", "<mask> <mask>", "call<tool>now", "call <tool> now",
    "def f(x):\n    if x:\n        return 1\n    return 2\n", "a" * 40, "the" * 20, " " * 17 + "x", "ab " * 15,
    "▁underscored ▁ ▁▁ text", "<0x41> literal", "  \u180ea \u180e \u180e", "\U00011935\U00011930", "mixed العربية 123 and 中文456字",
]


def golden(tokenizer, about, name):
    folder = TARGET / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cases = []
    for text in CASES:
        ids = tokenizer.encode(text).ids
        cases.append({
            "text": text,
            "ids": ids,
            "plain_ids": tokenizer.encode(text, add_special_tokens=False).ids,
            "decoded": tokenizer.decode(ids),
            "decoded_all": tokenizer.decode(ids, skip_special_tokens=False),
            # Cutting a sequence anywhere must decode to the same replacement characters, too.
            "decoded_tail": tokenizer.decode(ids[len(ids) // 2 :]),
        })
    about += f"; ids and texts by tokenizers {tokenizers.__version__}, written by scripts/make_tokenizer_golden.py"
    lines = ",\n".join(json.dumps(case) for case in cases)
    (folder / "golden.json").write_text(f'{{"about": {json.dumps(about)},\n"cases": [\n{lines}]}}\n')


def add_tokens(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<|begin|>", special=True, normalized=False),
                                  AddedToken("<|end|>", special=True, normalized=False),
                                  AddedToken("<|endless|>", special=True, normalized=False),
                                  AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=True)])


def begin_template(tokenizer):
    return processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B",
        special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))])


def train(tokenizer, initial_alphabet=None, vocab_size=420, special_tokens=()):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, special_tokens=list(special_tokens),
                                  initial_alphabet=initial_alphabet or pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer)
    add_tokens(tokenizer)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begin_template(tokenizer)])
    golden(tokenizer, "byte-level BPE in the form of Llama 3", "bytelevel")


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer)
    add_tokens(tokenizer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    golden(tokenizer, "byte-level BPE with NFC in the form of Qwen2", "bytelevel_nfc")


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer)
    add_tokens(tokenizer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    golden(tokenizer, "byte-level BPE in the form of GPT-2, with a prefix space", "bytelevel_gpt2")


def metaspace(scheme, split, name):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme, split=split),
                                           decoders.Fuse()])
    train(tokenizer, ["▁"], 520, ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)])
    add_tokens(tokenizer)
    tokenizer.post_processor = begin_template(tokenizer)
    golden(tokenizer, f"Metaspace BPE with byte fallback, prepend {scheme}, split {split}", name)


def unknown(fuse, name):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"),
                                                 normalizers.Replace(Regex(r"\p{N}{2,}"), "0")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=120, show_progress=False, special_tokens=["<unk>"], limit_alphabet=40)
    tokenizer.train_from_iterator(CORPUS, trainer)
    add_tokens(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A <|end|>", pair="$A $B",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<|begin|>", "<|end|>")])
    golden(tokenizer, f"BPE without byte fallback, fuse_unk {fuse}", name)


llama3()
qwen2()
gpt2()
metaspace("always", True, "metaspace_always")
metaspace("first", False, "metaspace_first")
unknown(True, "unknown_fused")
unknown(False, "unknown_single")
