"""The text, vision and speech models of the grid, built from their public configurations with unset weights."""

import torch
import transformers as tf
from torch import nn

# name: (configuration class, its values, parameters as published by the model's hub page or counted from its weights)
CAUSAL = {
    "gpt2": (tf.GPT2Config, dict(), 124_439_808),
    "gpt2-medium": (tf.GPT2Config, dict(n_embd=1024, n_layer=24, n_head=16), 354_823_168),
    "llama-2-7b": (tf.LlamaConfig, dict(vocab_size=32000, hidden_size=4096, intermediate_size=11008,
                   num_hidden_layers=32, num_attention_heads=32, max_position_embeddings=4096), 6_738_415_616),
    "llama-3-8b": (tf.LlamaConfig, dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336,
                   num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                   max_position_embeddings=8192), 8_030_261_248),
    "llama-3.2-1b": (tf.LlamaConfig, dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192,
                     num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64,
                     max_position_embeddings=131072, tie_word_embeddings=True), 1_235_814_400),
    "mistral-7b": (tf.MistralConfig, dict(sliding_window=4096, max_position_embeddings=32768), 7_241_732_096),
    "qwen2.5-0.5b": (tf.Qwen2Config, dict(vocab_size=151936, hidden_size=896, intermediate_size=4864,
                     num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                     tie_word_embeddings=True), 494_032_768),
    "qwen2.5-1.5b": (tf.Qwen2Config, dict(vocab_size=151936, hidden_size=1536, intermediate_size=8960,
                     num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
                     tie_word_embeddings=True), 1_543_714_304),
    "qwen2.5-7b": (tf.Qwen2Config, dict(vocab_size=152064, hidden_size=3584, intermediate_size=18944,
                   num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4), 7_615_616_512),
    "qwen3-0.6b": (tf.Qwen3Config, dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072,
                   num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
                   tie_word_embeddings=True), 596_049_920),
    "qwen3-8b": (tf.Qwen3Config, dict(vocab_size=151936, hidden_size=4096, intermediate_size=12288,
                 num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128), 8_190_735_360),
    "qwen3-30b-a3b": (tf.Qwen3MoeConfig, dict(vocab_size=151936, hidden_size=2048, intermediate_size=6144,
                      num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
                      moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True),
                      30_532_122_624),
    "gemma-2-2b": (tf.Gemma2Config, dict(), 2_614_341_888),
    "gemma-3-4b": (tf.Gemma3TextConfig, dict(vocab_size=262208, hidden_size=2560, intermediate_size=10240,
                   num_hidden_layers=34, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
                   sliding_window=1024), 3_880_263_168),
    "phi-3-mini": (tf.Phi3Config, dict(sliding_window=2047), 3_821_079_552),
    "opt-1.3b": (tf.OPTConfig, dict(hidden_size=2048, num_hidden_layers=24, ffn_dim=8192, num_attention_heads=32,
                 word_embed_proj_dim=2048), 1_315_758_080),
    "pythia-1.4b": (tf.GPTNeoXConfig, dict(vocab_size=50304, hidden_size=2048, intermediate_size=8192,
                    num_hidden_layers=24, num_attention_heads=16), 1_414_647_808),
    "falcon-7b": (tf.FalconConfig, dict(num_attention_heads=71, new_decoder_architecture=False, bias=False,
                  alibi=False), 6_921_720_704),
    "deepseek-v2-lite": (tf.DeepseekV2Config, dict(vocab_size=102400, hidden_size=2048, intermediate_size=10944,
                         num_hidden_layers=27, num_attention_heads=16, num_key_value_heads=16,
                         moe_intermediate_size=1408, n_shared_experts=2, n_routed_experts=64, num_experts_per_tok=6,
                         first_k_dense_replace=1, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
                         qk_rope_head_dim=64, v_head_dim=128, max_position_embeddings=32768), 15_706_484_224),
}
OTHERS = {
    "t5-large": (tf.T5Config, dict(d_model=1024, d_ff=4096, num_layers=24, num_decoder_layers=24, num_heads=16,
                 decoder_start_token_id=0),
                 737_668_096),
    "bert-large": (tf.BertConfig, dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                   intermediate_size=4096), None),
    "roberta-base": (tf.RobertaConfig, dict(max_position_embeddings=514, type_vocab_size=1), None),
    "deberta-v3-base": (tf.DebertaV2Config, dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                        intermediate_size=3072, relative_attention=True, position_buckets=256,
                        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
                        position_biased_input=False, type_vocab_size=0,
                        problem_type="single_label_classification"), None),  # Else it asks the card which labels count.
    "vit-large": (tf.ViTConfig, dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                  intermediate_size=4096, num_labels=1000), 304_326_632),
    "whisper-small": (tf.WhisperConfig, dict(d_model=768, encoder_layers=12, decoder_layers=12,
                      encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072,
                      decoder_ffn_dim=3072, decoder_start_token_id=50258), 241_734_912),
}
MODELS = CAUSAL | OTHERS

HEADS = {
    "causal-lm": tf.AutoModelForCausalLM,
    "masked-lm": tf.AutoModelForMaskedLM,
    "sequence-classification": tf.AutoModelForSequenceClassification,
    "seq2seq-lm": tf.AutoModelForSeq2SeqLM,
    "image-classification": tf.AutoModelForImageClassification,
    "speech-to-text": tf.AutoModelForSpeechSeq2Seq,
}


def configuration(name):
    """The configuration of a model of the grid. No token ends a sequence, so that generation runs its length."""
    kind, values, _ = MODELS[name]
    return kind(**values)


def build(name, head, dtype, attention, four_bit=None):
    """The model on the card. Its weights are never set: they are made on `meta` and then given memory, layer by layer.

    With `four_bit` (a bool: whether its scales are quantized as well), the linear layers, all but the head, become
    bitsandbytes NF4 ones as `from_pretrained` makes them: each weight lies on the card in full only while it is quantized.
    """
    with torch.device("meta"):
        model = HEADS[head].from_config(configuration(name), dtype=dtype, attn_implementation=attention)
    if four_bit is not None:
        quantize_linears(model, four_bit)
    for module in model.modules():
        if not hasattr(module, "quant_type"):
            module.to_empty(device="cuda", recurse=False)
    model.tie_weights()  # Giving memory to each module in turn parted what was tied.
    return model


def quantize_linears(model, double_quant):
    """Puts bitsandbytes NF4 layers in place of the linear ones of a model on `meta`, all but its head."""
    import bitsandbytes as bnb

    kept = model.get_output_embeddings()
    for parent in list(model.modules()):
        for key, layer in list(parent.named_children()):
            if type(layer) is not nn.Linear or layer is kept:
                continue
            with torch.device("meta"):
                small = bnb.nn.Linear4bit(layer.in_features, layer.out_features, layer.bias is not None,
                                          compute_dtype=torch.bfloat16, compress_statistics=double_quant,
                                          quant_type="nf4")
            weight = bnb.nn.Params4bit(torch.empty_like(layer.weight, device="cuda"), requires_grad=False,
                                       compress_statistics=double_quant, quant_type="nf4", module=small)
            small.weight = weight._quantize("cuda")
            if layer.bias is not None:
                small.bias = nn.Parameter(torch.empty_like(layer.bias, device="cuda"))
            small.quant_type = "nf4"
            setattr(parent, key, small)
    model.is_loaded_in_4bit = True
    model.is_quantized = True
