"""QLoRA as in the PEFT notebooks: NF4 weights, prepare_model_for_kbit_training, the Trainer with a paged optimizer."""
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (AutoModelForCausalLM, BitsAndBytesConfig, DataCollatorForLanguageModeling, AutoTokenizer, Trainer,
                          TrainingArguments)

name = "models/Llama-small"
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                         bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(name, quantization_config=bnb, device_map={"": 0})
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
tokenizer = AutoTokenizer.from_pretrained(name)
rows = [{"input_ids": torch.randint(5, 3000, (384,)).tolist()} for _ in range(64)]
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="qlora", per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=8,
                           bf16=True, optim="paged_adamw_8bit", logging_steps=2, save_steps=8, report_to="none"),
    train_dataset=rows,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
model.config.use_cache = False
trainer.train()
