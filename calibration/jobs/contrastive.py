"""An embedding model trained by sentence-transformers with the usual loss over pairs."""

import argparse

import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers import models as parts
from sentence_transformers.losses import MultipleNegativesRankingLoss

import data

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--seq", type=int, default=128)
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()

word = parts.Transformer(args.model, max_seq_length=args.seq)
model = SentenceTransformer(modules=[word, parts.Pooling(word.get_word_embedding_dimension())], device="cuda")
arguments = SentenceTransformerTrainingArguments(
    output_dir="out", per_device_train_batch_size=args.batch, max_steps=4, logging_steps=100, save_strategy="no",
    bf16=args.bf16, report_to="none",
)
SentenceTransformerTrainer(
    model=model, args=arguments, train_dataset=data.sentences(args.seq, 4 * args.batch),
    loss=MultipleNegativesRankingLoss(model),
).train()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
