"""A trainer of one's own, as many repositories have it."""
import torch


class Trainer:
    def __init__(self, model, criterion, optimizer, train_loader, val_loader, device="cuda", use_amp=False, max_epochs=10):
        self.model = model.to(device)
        self.criterion = criterion
        self.optimizer = optimizer
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.device = device
        self.scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
        self.use_amp = use_amp
        self.max_epochs = max_epochs
        self.history = {"train_loss": [], "val_loss": []}

    def _step(self, batch):
        inputs, targets = (part.to(self.device, non_blocking=True) for part in batch)
        with torch.autocast("cuda", enabled=self.use_amp):
            outputs = self.model(inputs)
            loss = self.criterion(outputs, targets)
        return loss, outputs

    def train_epoch(self):
        self.model.train()
        total = 0
        for batch in self.train_loader:
            self.optimizer.zero_grad()
            loss, _ = self._step(batch)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            total += loss.item()
        return total / len(self.train_loader)

    def validate(self):
        self.model.eval()
        total_loss = 0
        all_outputs = []
        for batch in self.val_loader:
            loss, outputs = self._step(batch)
            total_loss += loss
            all_outputs.append(outputs)
        return total_loss / len(self.val_loader)

    def fit(self):
        for epoch in range(self.max_epochs):
            self.history["train_loss"].append(self.train_epoch())
            self.history["val_loss"].append(self.validate())
