"""Writes a GGUF file of a Llama shape whose weights are holes: a file of any size that takes a few kilobytes of disk.

The layout is that of the GGUF specification, version 3: a header, key-value pairs, one entry a tensor, and the tensors,
each on a multiple of 32 bytes.
"""

import struct

# Value types and tensor types by their numbers in the specification; of a tensor type the elements and bytes of a block.
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
BLOCKS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34)}
ALIGNMENT = 32


def _text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def _packed(kind, value):
    return _text(value) if kind == STRING else struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f"}[kind], value)


def _pair(key, kind, value):
    return _text(key) + struct.pack("<I", kind) + _packed(kind, value)


def _array(key, kind, values):
    head = struct.pack("<IIQ", ARRAY, kind, len(values))
    return _text(key) + head + b"".join(_packed(kind, value) for value in values)


def _vocabulary(size):
    """Three marks, the 256 bytes, and words: what a server needs to answer in text."""
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words += [f"word{number}" for number in range(len(words), size)]
    # The specification's types of a token: 1 normal, 2 unknown, 3 control, 6 a byte.
    kinds = [2, 3, 3] + [6] * 256 + [1] * (size - 259)
    return [
        _pair("tokenizer.ggml.model", STRING, "llama"),
        _array("tokenizer.ggml.tokens", STRING, words),
        _array("tokenizer.ggml.scores", FLOAT32, [-float(number) for number in range(size)]),
        _array("tokenizer.ggml.token_type", INT32, kinds),
    ]


def tensors(shape, kind):
    """Names, dimensions (the fastest first) and types."""
    wide, between, kv = shape["embedding"], shape["feed_forward"], shape["embedding"] // shape["heads"] * shape["kv_heads"]
    yield "token_embd.weight", (wide, shape["vocabulary"]), kind
    yield "output_norm.weight", (wide,), "F32"
    yield "output.weight", (wide, shape["vocabulary"]), kind
    for layer in range(shape["layers"]):
        for name, size, of in [
            ("attn_norm", (wide,), "F32"), ("attn_q", (wide, wide), kind), ("attn_k", (wide, kv), kind),
            ("attn_v", (wide, kv), kind), ("attn_output", (wide, wide), kind), ("ffn_norm", (wide,), "F32"),
            ("ffn_gate", (wide, between), kind), ("ffn_up", (wide, between), kind), ("ffn_down", (between, wide), kind),
        ]:
            yield f"blk.{layer}.{name}.weight", size, of


def write(path, shape, kind, *, words=False):
    """Writes the file of a `shape`, its matrices of the type `kind`; tokens are numbers where it shall have no words."""
    vocabulary = _vocabulary(shape["vocabulary"]) if words else [_pair("tokenizer.ggml.model", STRING, "no_vocab")]
    pairs = [
        _pair("general.architecture", STRING, "llama"),
        *vocabulary,
        _pair("llama.vocab_size", UINT32, shape["vocabulary"]),
        _pair("llama.block_count", UINT32, shape["layers"]),
        _pair("llama.context_length", UINT32, shape["context"]),
        _pair("llama.embedding_length", UINT32, shape["embedding"]),
        _pair("llama.feed_forward_length", UINT32, shape["feed_forward"]),
        _pair("llama.attention.head_count", UINT32, shape["heads"]),
        _pair("llama.attention.head_count_kv", UINT32, shape["kv_heads"]),
        _pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
    ]
    entries, at = [], 0
    for name, size, of in tensors(shape, kind):
        number, elements, block = BLOCKS[of]
        dimensions = struct.pack(f"<{len(size)}Q", *size)
        entries.append(_text(name) + struct.pack("<I", len(size)) + dimensions + struct.pack("<IQ", number, at))
        count = 1
        for dimension in size:
            count *= dimension
        at += -(-(count // elements * block) // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(pairs)) + b"".join(pairs + entries)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(-(-len(head) // ALIGNMENT) * ALIGNMENT + at)
