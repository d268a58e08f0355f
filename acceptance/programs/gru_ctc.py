"""Speech recognition in small: convolutions over a spectrogram, packed bidirectional GRUs, CTC loss."""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from common import device, print_peaks


class Recognizer(nn.Module):
    def __init__(self, mels, width, layers, characters):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(mels, width, 11, stride=2, padding=5), nn.BatchNorm1d(width), nn.ReLU()
        )
        self.gru = nn.GRU(width, width, layers, bidirectional=True)
        self.head = nn.Linear(2 * width, characters)

    def forward(self, spectrogram, lengths):
        hidden = self.front(spectrogram).permute(2, 0, 1)
        packed = pack_padded_sequence(hidden, lengths, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.gru(packed)[0], total_length=hidden.shape[0])
        return self.head(hidden).log_softmax(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--frames", type=int, default=800)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--ctc", choices=["native", "cudnn"], default="native")
    args = parser.parse_args()

    characters, label_length = 29, 60
    model = Recognizer(80, args.width, args.layers, characters).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    # cuDNN's loss wants 32-bit labels in one row on the host; PyTorch's own takes them on the card.
    cudnn = args.ctc == "cudnn"

    for step in range(args.steps):
        spectrogram = torch.randn(args.batch_size, 80, args.frames, device=device())
        lengths = torch.full((args.batch_size,), args.frames // 2, dtype=torch.int32 if cudnn else torch.int64)
        target_lengths = torch.full_like(lengths, label_length)
        targets = torch.randint(1, characters, (args.batch_size, label_length), dtype=lengths.dtype)
        targets = targets.flatten() if cudnn else targets.to(device())
        if not cudnn:
            lengths = lengths - torch.arange(args.batch_size) % 8
        log_probs = model(spectrogram, lengths)
        # As lists, because PyTorch wants tensors of lengths to be on the device of the labels and of the output alike.
        sizes = (lengths.tolist(), target_lengths.tolist()) if cudnn else (lengths, target_lengths)
        loss = nn.functional.ctc_loss(log_probs, targets, *sizes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")
    print_peaks()


if __name__ == "__main__":
    main()
