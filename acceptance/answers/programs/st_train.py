"""A sentence encoder trained with MultipleNegativesRankingLoss, and evaluated on pairs after the epoch."""
import random
import sys

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.losses import MultipleNegativesRankingLoss

random.seed(0)
words = [w for w in open(random.__file__).read().split() if w.isalpha()]


def sentence(n):
    return " ".join(random.choices(words, k=n))


model = SentenceTransformer("models/bge-small")
model.max_seq_length = 256
train = Dataset.from_dict({"anchor": [sentence(10) for _ in range(320)], "positive": [sentence(40) for _ in range(320)]})
pairs = [sentence(200) for _ in range(128)]
evaluator = EmbeddingSimilarityEvaluator(pairs, pairs[::-1], [random.random() for _ in pairs], batch_size=128, name="dev")
args = SentenceTransformerTrainingArguments(
    output_dir="st", num_train_epochs=1, per_device_train_batch_size=16, eval_strategy="epoch", save_strategy="no",
    logging_steps=5, report_to="none", fp16="--fp16" in sys.argv,
)
trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=train, evaluator=evaluator,
                                     loss=MultipleNegativesRankingLoss(model))
trainer.train()
