"""Detect on a stream of frames and keep the results (with the frames' masks) until the end."""
import numpy as np
from ultralytics import YOLO


def frames(n):
    for i in range(n):
        yield np.full((480, 640, 3), i % 255, dtype=np.uint8)


model = YOLO("yolov8s-seg.yaml")
kept = 0
for frame in frames(12):
    result = model.predict(frame, imgsz=640, device=0, verbose=False)[0]
    kept += len(result)
print("objects", kept)
