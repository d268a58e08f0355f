"""Keras 3 on PyTorch: compile, fit with validation data, evaluate, predict."""
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from keras import layers

x_train = np.random.rand(512, 32, 32, 3).astype("float32")
y_train = np.random.randint(0, 10, (512,))
x_test = np.random.rand(2048, 32, 32, 3).astype("float32")
y_test = np.random.randint(0, 10, (2048,))

model = keras.Sequential([
    keras.Input((32, 32, 3)),
    layers.Conv2D(64, 3, padding="same", activation="relu"),
    layers.Conv2D(64, 3, padding="same", activation="relu"),
    layers.MaxPooling2D(),
    layers.Conv2D(128, 3, padding="same", activation="relu"),
    layers.GlobalAveragePooling2D(),
    layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=64, epochs=2, validation_split=0.1, verbose=2)
print(model.evaluate(x_test, y_test, batch_size=2048, verbose=0))
