"""Generates text in each of the ways of transformers: `generation.py KIND DEVICE VOCABULARY [WAY...]`.

The models are small and their weights random. Each way prints the shape of its result and the length of its limit.
"""

import sys

import torch
import transformers as t

kind, device, vocabulary = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0)
NEW = 40
ENCODED = dict(d_model=64, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=128, decoder_ffn_dim=128,
               encoder_attention_heads=4, decoder_attention_heads=4)  # fmt: skip


def make(kind):
    """A model, what it is given, and how many tokens the result begins with."""
    tokens = torch.randint(10, vocabulary - 10, (3, 12))
    if kind == "t5":
        config = t.T5Config(vocab_size=vocabulary, d_model=64, d_ff=128, num_layers=1, num_heads=4, d_kv=16, decoder_start_token_id=0)
        return t.T5ForConditionalGeneration(config), {"input_ids": tokens}, 1
    if kind == "bart":
        config = t.BartConfig(vocab_size=vocabulary, **ENCODED)
        return t.BartForConditionalGeneration(config), {"input_ids": tokens}, 1
    if kind == "marian":
        config = t.MarianConfig(vocab_size=vocabulary, eos_token_id=0, pad_token_id=vocabulary - 1,
                                decoder_start_token_id=vocabulary - 1, forced_eos_token_id=0, **ENCODED)  # fmt: skip
        return t.MarianMTModel(config), {"input_ids": tokens}, 1
    if kind == "whisper":
        config = t.WhisperConfig(vocab_size=vocabulary, bos_token_id=vocabulary - 8, eos_token_id=vocabulary - 8,
                                 pad_token_id=vocabulary - 8, decoder_start_token_id=vocabulary - 7, suppress_tokens=None,
                                 begin_suppress_tokens=None, **ENCODED)  # fmt: skip
        # Its result leaves out the token that decoding starts with.
        return t.WhisperForConditionalGeneration(config), {"input_features": torch.randn(3, 80, 3000)}, 0
    if kind == "gpt2":
        config = t.GPT2Config(vocab_size=vocabulary, n_embd=64, n_layer=1, n_head=4, bos_token_id=vocabulary - 1,
                              eos_token_id=vocabulary - 1)  # fmt: skip
        return t.GPT2LMHeadModel(config), {"input_ids": tokens}, 12
    # The ids that end a turn lie together, at the end of the vocabulary or anywhere.
    ends = list(range(vocabulary // 3, vocabulary // 3 + 5)) if kind == "llama_many_ends" else 2
    config = t.LlamaConfig(vocab_size=vocabulary, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                           eos_token_id=ends)  # fmt: skip
    return t.LlamaForCausalLM(config), {"input_ids": tokens}, 12


WAYS = {
    "greedy": {},
    "sample": dict(do_sample=True),
    "top_k": dict(do_sample=True, top_k=20, temperature=0.7),
    "top_p": dict(do_sample=True, top_p=0.9),
    "typical": dict(do_sample=True, typical_p=0.9, top_k=0),
    "min_p": dict(do_sample=True, min_p=0.05),
    "returned": dict(do_sample=True, num_return_sequences=3),
    "penalties": dict(repetition_penalty=1.2, no_repeat_ngram_size=3),
    "least": dict(min_new_tokens=10),
    "beams": dict(num_beams=4),
    "beams_of_3": dict(num_beams=3),
    "beams_of_6": dict(num_beams=6),
    "beams_returned": dict(num_beams=5, num_return_sequences=5, no_repeat_ngram_size=3),
    "beams_early": dict(num_beams=4, early_stopping=True),
    "beams_never": dict(num_beams=4, early_stopping="never"),
    "beams_shorter": dict(num_beams=4, length_penalty=-1.0),
    "beams_longer": dict(num_beams=4, length_penalty=2.0, repetition_penalty=1.3),
    "beams_sampled": dict(num_beams=4, do_sample=True),
    "beams_sampled_3": dict(num_beams=3, do_sample=True, top_k=50, top_p=0.95, temperature=0.8),
    "static": dict(cache_implementation="static"),
    "offloaded": dict(cache_implementation="offloaded"),
    "no_cache": dict(use_cache=False),
    "beams_no_cache": dict(num_beams=4, use_cache=False),
    "scores": dict(output_scores=True, return_dict_in_generate=True),
    "beams_scores": dict(num_beams=4, output_scores=True, output_logits=True, return_dict_in_generate=True),
    "sequence_bias": dict(sequence_bias=[[[20, 21], -5.0]], bad_words_ids=[[30]]),
    "lookup": dict(prompt_lookup_num_tokens=3),
    "assisted": {},
    "streamed": {},
    "compiled_static": dict(cache_implementation="static", disable_compile=True),
    "length": dict(max_length=44),
    "penalised_decay": dict(exponential_decay_length_penalty=(60, 1.1)),
    "guided": dict(guidance_scale=1.5),
    "beams_long": dict(num_beams=4, max_new_tokens=1000),
}


class Silent(t.generation.streamers.BaseStreamer):
    def put(self, value):
        pass

    def end(self):
        pass


def go(model, given, first, way):
    settings = dict(WAYS[way])
    if kind == "whisper" and "return_dict_in_generate" in settings:
        first += 1
    if way == "length":
        limit = settings["max_length"]
    else:
        limit = first + settings.setdefault("max_new_tokens", NEW)
    if way in ("lookup", "assisted", "streamed"):
        given = {name: value[:1] for name, value in given.items()}
    if way == "assisted":
        settings["assistant_model"] = make(kind)[0].eval().to(device)
    if way == "streamed":
        settings["streamer"] = Silent()
    out = model.generate(**given, **settings)
    out = getattr(out, "sequences", out)
    print(way, *out.shape, limit, flush=True)


def main():
    model, given, first = make(kind)
    model = model.eval().to(device)
    given = {name: value.to(device) for name, value in given.items()}
    # Most have no positions for a long text.
    for way in sys.argv[4:] or [way for way in WAYS if way != "beams_long" or kind == "llama"]:
        try:
            go(model, given, first, way)
        except (ValueError, TypeError, AttributeError, RuntimeError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            # Not every model generates in every way.
            print(way, "refused", repr(error)[:150], flush=True)


if __name__ == "__main__":
    main()
