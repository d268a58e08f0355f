"""One step of training and one of evaluation, for epoch_losses.py."""


def train_step(model, optimizer, x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def evaluate_step(model, x):
    return (model(x) - 1).square().mean()
