"""BERT scores batches of growing length, without gradients."""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256, 192, 384, 512, 320])
    args = parser.parse_args()

    config = BertConfig(num_hidden_layers=args.layers)
    model = BertForSequenceClassification(config).to(device()).eval()
    scores = []
    with torch.no_grad():
        for length in args.lengths:
            tokens = torch.randint(0, config.vocab_size, (args.batch_size, length)).to(device())
            scores.append(model(tokens, attention_mask=torch.ones_like(tokens)).logits.cpu())
    print(f"scored={sum(len(batch) for batch in scores)}")
    print_peaks()


if __name__ == "__main__":
    main()
