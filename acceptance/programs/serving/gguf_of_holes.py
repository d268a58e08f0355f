"""Writes a GGUF file of a Llama shape whose weights are holes: a file of any size that takes a few kilobytes of disk.

The layout is that of the GGUF specification, version 3: a header, key-value pairs, one entry a tensor, and the tensors,
each on a multiple of 32 bytes.
"""

import struct

# Value types and tensor types by their numbers in the specification; of a tensor type the elements and bytes of a block.
UINT32, FLOAT32, STRING = 4, 6, 8
BLOCKS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34)}
ALIGNMENT = 32


def _text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def _pair(key, kind, value):
    packed = _text(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
    return _text(key) + struct.pack("<I", kind) + packed


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


def write(path, shape, kind):
    """Writes the file of a `shape`, its matrices of the type `kind`. Without a vocabulary: tokens are numbers."""
    pairs = [
        _pair("general.architecture", STRING, "llama"),
        _pair("tokenizer.ggml.model", STRING, "no_vocab"),
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
