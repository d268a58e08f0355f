"""A reward model with TRL's RewardTrainer."""
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from trl import RewardConfig, RewardTrainer

name = "models/Qwen2.5-tiny"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=1, dtype="bfloat16")
model.config.pad_token_id = tokenizer.pad_token_id
data = load_dataset("json", data_files="data/pref.jsonl", split="train").train_test_split(test_size=32, seed=1)
args = RewardConfig(output_dir="reward", per_device_train_batch_size=2, per_device_eval_batch_size=16, max_length=512,
                    num_train_epochs=1, max_steps=10, eval_strategy="steps", eval_steps=10, save_strategy="no", report_to="none")
RewardTrainer(model=model, args=args, train_dataset=data["train"], eval_dataset=data["test"], processing_class=tokenizer).train()
