"""SFTTrainer on chats, assistant tokens and prompts alike, evaluation every few steps."""
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

name = "models/Qwen2.5-tiny"
dataset = load_dataset("json", data_files="data/chat.jsonl", split="train").train_test_split(test_size=24, seed=0)
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(name, dtype="bfloat16"),
    args=SFTConfig(output_dir="sft", per_device_train_batch_size=2, per_device_eval_batch_size=8, max_length=512, max_steps=12,
                   eval_strategy="steps", eval_steps=6, logging_steps=3, save_strategy="no", report_to="none", bf16=True),
    train_dataset=dataset["train"],
    eval_dataset=dataset["test"],
    processing_class=AutoTokenizer.from_pretrained(name),
)
trainer.train()
