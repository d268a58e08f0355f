"""YOLO from its YAML file on a folder of invented pictures: train with validation after each epoch."""
import argparse
import pathlib

import numpy as np
from PIL import Image
from ultralytics import YOLO

ap = argparse.ArgumentParser()
ap.add_argument("--imgsz", type=int, default=320)
ap.add_argument("--batch", type=int, default=8)
ap.add_argument("--epochs", type=int, default=1)
opt = ap.parse_args()

root = pathlib.Path("shapes").resolve()
rng = np.random.default_rng(0)
for part, n in (("train", 32), ("val", 16)):
    (root / "images" / part).mkdir(parents=True, exist_ok=True)
    (root / "labels" / part).mkdir(parents=True, exist_ok=True)
    for i in range(n):
        Image.fromarray(rng.integers(0, 255, (160, 160, 3), dtype=np.uint8)).save(root / "images" / part / f"{i}.jpg")
        (root / "labels" / part / f"{i}.txt").write_text("".join(
            f"{rng.integers(0, 3)} {rng.uniform(.3, .7):.3f} {rng.uniform(.3, .7):.3f} .2 .2\n" for _ in range(3)))
(root / "data.yaml").write_text(f"path: {root}\ntrain: images/train\nval: images/val\nnames: [a, b, c]\n")

model = YOLO("yolov8n.yaml")
model.train(data=str(root / "data.yaml"), epochs=opt.epochs, imgsz=opt.imgsz, batch=opt.batch, workers=0, device=0, amp=False,
            plots=False, project="runs", name="shapes", exist_ok=True)
