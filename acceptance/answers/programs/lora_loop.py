"""LoRA on a small Qwen with PEFT and a hand-written loop: accumulation, checkpointing, a merge at the end."""
import math

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(0)
config = Qwen2Config(vocab_size=151936, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8,
                     num_key_value_heads=2, tie_word_embeddings=True)
with torch.device("cuda"):
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
model.print_trainable_parameters()
rows = [torch.randint(151936, (512,)) for _ in range(64)]
loader = DataLoader(rows, batch_size=4, shuffle=True)
accumulate, epochs = 4, 2
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
steps = math.ceil(len(loader) / accumulate) * epochs
progress = tqdm(range(steps))
for epoch in range(epochs):
    model.train()
    for i, ids in enumerate(loader):
        ids = ids.to("cuda")
        loss = model(input_ids=ids, labels=ids).loss / accumulate
        loss.backward()
        if (i + 1) % accumulate == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            progress.update(1)
            progress.set_description(f"loss {loss.item() * accumulate:.3f}")
model = model.merge_and_unload()
model.save_pretrained("merged")
