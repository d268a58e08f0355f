"""One update for a whole book: the hidden state is carried over without being detached."""
import torch
import torch.nn as nn


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, hidden):
        x, hidden = self.rnn(self.embed(x), hidden)
        return self.out(x), hidden


def train(model, data, seq_len=32):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    hidden = None
    for step, start in enumerate(range(0, data.size(1) - seq_len - 1, seq_len)):
        inputs = data[:, start : start + seq_len].cuda()
        targets = data[:, start + 1 : start + seq_len + 1].cuda()
        logits, hidden = model(inputs, hidden)
        loss = criterion(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
        loss.backward(retain_graph=True)
        if step % 5 == 0:
            print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated, loss {loss.item():.3f}")
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()


if __name__ == "__main__":
    text = torch.randint(0, 128, (16, 32 * 102))
    train(CharRNN(128, 256).cuda(), text)
