"""Writes a Llama with random weights and a tokenizer of bytes, for a trial without a download.

python3 tiny_model.py FOLDER [--hidden 256] [--layers 4]
"""

import argparse
import json
import os
import pathlib

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--hidden", type=int, default=256, help="a multiple of 128")
parser.add_argument("--layers", type=int, default=4)
args = parser.parse_args()

HEAD = 64
heads, wide, vocabulary = args.hidden // HEAD, 4 * args.hidden, 4096
keys = heads // 2 * HEAD


def weights(*shape):
    """Values of 0.016 to 0.031 with random signs, as bf16."""
    count = 1
    for size in shape:
        count *= size
    random = int.from_bytes(os.urandom(2 * count), "little")
    mask = int.from_bytes(b"\x7f\x80" * count, "little")
    exponent = int.from_bytes(b"\x80\x3c" * count, "little")
    return shape, (random & mask | exponent).to_bytes(2 * count, "little")


def ones(size):
    return (size,), b"\x80\x3f" * size


tensors = {
    "model.embed_tokens.weight": weights(vocabulary, args.hidden),
    "model.norm.weight": ones(args.hidden),
    "lm_head.weight": weights(vocabulary, args.hidden),
}
for layer in range(args.layers):
    tensors |= {
        f"model.layers.{layer}.{name}.weight": value
        for name, value in {
            "input_layernorm": ones(args.hidden),
            "post_attention_layernorm": ones(args.hidden),
            "self_attn.q_proj": weights(args.hidden, args.hidden),
            "self_attn.k_proj": weights(keys, args.hidden),
            "self_attn.v_proj": weights(keys, args.hidden),
            "self_attn.o_proj": weights(args.hidden, args.hidden),
            "mlp.gate_proj": weights(wide, args.hidden),
            "mlp.up_proj": weights(wide, args.hidden),
            "mlp.down_proj": weights(args.hidden, wide),
        }.items()
    }

header, end = {}, 0
for name, (shape, data) in tensors.items():
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(data)]}
    end += len(data)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)

config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": args.hidden,
    "intermediate_size": wide,
    "num_hidden_layers": args.layers,
    "num_attention_heads": heads,
    "num_key_value_heads": heads // 2,
    "head_dim": HEAD,
    "vocab_size": vocabulary,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 256,
    "eos_token_id": 257,
}

# The letters by which byte-level tokenizers write bytes.
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = {byte: chr(byte) for byte in printable}
letters |= {byte: chr(256 + n) for n, byte in enumerate(byte for byte in range(256) if byte not in letters)}
special = [
    {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    for id, content in [(256, "<s>"), (257, "</s>")]
]
bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": special,
    "normalizer": None,
    "pre_tokenizer": bytes_alone,
    "post_processor": None,
    "decoder": bytes_alone,
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": {letters[byte]: byte for byte in range(256)}
        | {"<s>": 256, "</s>": 257}
        | {f"<{n}>": n for n in range(258, vocabulary)},
        "merges": [],
    },
}
tokenizer_config = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "chat_template": "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}",
}

args.folder.mkdir(parents=True, exist_ok=True)
with open(args.folder / "model.safetensors", "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text)
    for _, data in tensors.values():
        file.write(data)
for name, content in [("config", config), ("tokenizer", tokenizer), ("tokenizer_config", tokenizer_config)]:
    (args.folder / f"{name}.json").write_text(json.dumps(content, indent=1))
print(f"{args.folder}: {end / 2e6:.1f} million parameters")
