"""Summaries with T5 and Seq2SeqTrainer; the evaluation generates (predict_with_generate) with beams."""
import numpy as np
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration


class Articles(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.src = torch.randint(3, 32128, (n, 256), generator=g)
        self.tgt = torch.randint(3, 32128, (n, 32), generator=g)

    def __len__(self):
        return len(self.src)

    def __getitem__(self, i):
        return dict(input_ids=self.src[i], attention_mask=torch.ones(256, dtype=torch.long), labels=self.tgt[i])


def compute_metrics(pred):
    return {"gen_len": float(np.mean([np.count_nonzero(p != 0) for p in pred.predictions]))}


def main():
    config = T5Config(vocab_size=32128, d_model=256, d_kv=32, d_ff=1024, num_layers=2, num_heads=8,
                      decoder_start_token_id=0, tie_word_embeddings=True)
    model = T5ForConditionalGeneration(config)
    args = Seq2SeqTrainingArguments(
        output_dir="t5", per_device_train_batch_size=4, per_device_eval_batch_size=32, predict_with_generate=True,
        generation_max_length=10, generation_num_beams=8, num_train_epochs=1, eval_strategy="epoch", save_strategy="no",
        logging_steps=4, report_to="none", learning_rate=3e-4,
    )
    trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=Articles(48, 0), eval_dataset=Articles(64, 1),
                             compute_metrics=compute_metrics)
    trainer.train()
    print(trainer.state.log_history[-1])


main()
