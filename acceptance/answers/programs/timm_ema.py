"""In the shape of timm's train.py: create_model, mixup, model EMA, validate() of the model and of its average."""
import argparse
import time

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, accuracy

parser = argparse.ArgumentParser(description="Training")
parser.add_argument("--model", default="resnet26d")
parser.add_argument("-b", "--batch-size", type=int, default=16)
parser.add_argument("-vb", "--validation-batch-size", type=int, default=128)
parser.add_argument("--img-size", type=int, default=96)
parser.add_argument("--epochs", type=int, default=2)


def batches(n, batch, size):
    for i in range(n):
        yield torch.full((batch, 3, size, size), 0.5), torch.randint(0, 100, (batch,))


def train_one_epoch(epoch, model, args, optimizer, loss_fn, mixup_fn, ema, updates):
    model.train()
    losses, batch_time, end = AverageMeter(), AverageMeter(), time.time()
    for i, (x, y) in enumerate(batches(12, args.batch_size, args.img_size)):
        x, y = mixup_fn(x.cuda(), y.cuda())
        with torch.amp.autocast("cuda"):
            loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        ema.update(model, step=updates)
        losses.update(loss.item(), x.size(0))
        batch_time.update(time.time() - end)
        end = time.time()
    print(f"Train: {epoch} loss {losses.avg:.3f} ({batch_time.avg:.3f}s)")
    return updates


@torch.inference_mode()
def validate(model, args):
    model.eval()
    top1 = AverageMeter()
    for x, y in batches(3, args.validation_batch_size, args.img_size * 2):
        with torch.amp.autocast("cuda"):
            out = model(x.cuda())
        top1.update(accuracy(out, y.cuda())[0].item(), x.size(0))
    return top1.avg


def main():
    args = parser.parse_args()
    model = timm.create_model(args.model, num_classes=100).cuda()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    ema = ModelEmaV3(model, decay=0.9998)
    scheduler = CosineLRScheduler(optimizer, t_initial=args.epochs)
    mixup_fn = Mixup(mixup_alpha=0.8, num_classes=100)
    updates = 0
    for epoch in range(args.epochs):
        updates = train_one_epoch(epoch, model, args, optimizer, SoftTargetCrossEntropy(), mixup_fn, ema, updates)
        print("top1", validate(model, args), "ema", validate(ema.module, args))
        scheduler.step(epoch + 1)


if __name__ == "__main__":
    main()
