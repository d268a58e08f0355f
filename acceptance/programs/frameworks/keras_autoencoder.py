"""Keras: an autoencoder of images with a validation set and a summary at the end."""
import argparse
import numpy as np
import keras
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--size", type=int, default=96)
parser.add_argument("--filters", type=int, default=64)
args = parser.parse_args()

inputs = keras.Input((args.size, args.size, 3))
x = inputs
for scale in (1, 2, 4):
    x = layers.Conv2D(args.filters * scale, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D()(x)
for scale in (4, 2, 1):
    x = layers.Conv2DTranspose(args.filters * scale, 3, strides=2, padding="same", activation="relu")(x)
outputs = layers.Conv2D(3, 3, padding="same", activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.compile(optimizer="adam", loss="mse")

train = np.random.rand(512, args.size, args.size, 3).astype("float32")
valid = np.random.rand(128, args.size, args.size, 3).astype("float32")
model.fit(train, train, batch_size=args.batch_size, epochs=args.epochs, validation_data=(valid, valid), verbose=2)
print("test loss", model.evaluate(valid, valid, batch_size=args.batch_size, verbose=0))
