"""Writes the folders of models that the jobs load: a configuration and a tokenizer, no weights.

    python models.py FOLDER
"""

import pathlib
import sys

import transformers as tf
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import text_models

MORE = {
    "bert-base": (tf.BertConfig, dict(), "BertModel"),
    "llama-3.2-3b": (tf.LlamaConfig, dict(vocab_size=128256, hidden_size=3072, intermediate_size=8192,
                     num_hidden_layers=28, num_attention_heads=24, num_key_value_heads=8, head_dim=128,
                     max_position_embeddings=131072, tie_word_embeddings=True), "LlamaForCausalLM"),
    "qwen2.5-3b": (tf.Qwen2Config, dict(vocab_size=151936, hidden_size=2048, intermediate_size=11008,
                   num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
                   tie_word_embeddings=True), "Qwen2ForCausalLM"),
}
NAMES = ["gpt2", "qwen2.5-0.5b", "qwen2.5-1.5b", "llama-3.2-1b", "llama-3-8b", "qwen2.5-7b", *MORE]
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"


def tokenizer():
    """Characters, which is enough for data that means nothing."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate(["<pad>", "<s>", "</s>", *letters])}
    inner = Tokenizer(BPE(vocabulary, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return tf.PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                      model_max_length=131072, chat_template=TEMPLATE)


def main(folder):
    for name in NAMES:
        kind, values, architecture = MORE.get(name) or (*text_models.MODELS[name][:2], None)
        config = kind(**values, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        causal = tf.AutoModelForCausalLM._model_mapping.get(type(config), None)
        config.architectures = [architecture or causal.__name__]
        config.dtype = "bfloat16"
        path = pathlib.Path(folder) / name
        config.save_pretrained(path)
        tokenizer().save_pretrained(path)


if __name__ == "__main__":
    main(sys.argv[1])
