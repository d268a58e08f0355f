"""DPO with LoRA on a small Qwen; the reference is the model without its adapter."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def main():
    name = "models/Qwen2.5-tiny"
    trainer = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16),
        args=DPOConfig(output_dir="dpo", per_device_train_batch_size=2, gradient_accumulation_steps=2, max_length=512,
                       max_steps=6, logging_steps=2, save_strategy="no", report_to="none", bf16=True,
                       gradient_checkpointing=False),
        train_dataset=load_dataset("json", data_files="data/pref.jsonl", split="train"),
        processing_class=AutoTokenizer.from_pretrained(name),
        peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
