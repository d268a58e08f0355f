"""Fine-tune GPT-2 (124M parameters, fp32, AdamW) on blocks of 1024 tokens."""

import argparse
import os

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup


class TokenBlocks(Dataset):
    """A corpus cut into blocks of equal length. It is synthetic, so that the script needs no download."""

    def __init__(self, blocks, block_size, vocab_size):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocab_size, (blocks, block_size), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def train(args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)

    config = GPT2Config(
        n_layer=args.layers,
        n_embd=args.width,
        n_head=args.heads,
        n_positions=max(args.seq_len, 1024),
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).to(device)
    model.train()

    dataset = TokenBlocks(args.blocks, args.seq_len, config.vocab_size)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total_steps = args.epochs * len(loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, total_steps // 10, total_steps)

    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            input_ids = batch.to(device)
            loss = model(input_ids=input_ids, labels=input_ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % args.log_every == 0:
                print(f"epoch {epoch} step {step}/{total_steps} loss {loss.item():.4f}")

        checkpoint = os.path.join(args.output_dir, f"epoch-{epoch}")
        model.save_pretrained(checkpoint)
        torch.save(optimizer.state_dict(), os.path.join(checkpoint, "optimizer.pt"))
        print(f"saved {checkpoint}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--output-dir", default="gpt2-finetuned")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--blocks", type=int, default=1024, help="blocks in the corpus")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    train(parse_args())
