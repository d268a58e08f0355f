"""A character model with an LSTM whose state goes from one chunk to the next; one update for each pass over the text."""
import torch
import torch.nn as nn


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=512, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.rnn = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        out, state = self.rnn(self.embed(x), state)
        return self.fc(out), state


def chunks(text, batch, length):
    n = text.numel() // (batch * length)
    text = text[: n * batch * length].view(batch, -1)
    for i in range(0, text.size(1) - length, length):
        yield text[:, i:i + length], text[:, i + 1:i + length + 1]


def main():
    torch.manual_seed(0)
    vocab, batch, length = 256, 64, 100
    text = torch.randint(vocab, (64 * 100 * 25,))
    model = CharRNN(vocab).cuda()
    opt = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        state, loss, step = None, 0, 0
        for x, y in chunks(text, batch, length):
            x, y = x.cuda(), y.cuda()
            logits, state = model(x, state)
            loss = loss + criterion(logits.reshape(-1, vocab), y.reshape(-1))
            step += 1
            if step % 10 == 0:
                print(epoch, step, loss.item() / step)
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
