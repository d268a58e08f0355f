"""A classifier in Keras: tf.data, fit with a validation, and an evaluation at the end on larger batches."""

import argparse

import keras
import numpy as np
import tensorflow as tf
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--test-batch-size", type=int, default=32)
parser.add_argument("--size", type=int, default=96)
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

inputs = keras.Input((args.size, args.size, 3))
x = layers.Rescaling(1 / 255)(inputs)
for filters in (64, 128):
    y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    x = layers.MaxPooling2D()(layers.Concatenate()([x, y]))
model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])

count = max(20 * args.batch_size, args.test_batch_size)
images, labels = np.zeros((count, args.size, args.size, 3), np.uint8), np.zeros(count, np.int64)
data = tf.data.Dataset.from_tensor_slices((images, labels))
train = data.shuffle(count).batch(args.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
model.fit(train, validation_data=data.batch(args.batch_size), epochs=args.epochs, verbose=2)
print("test", model.evaluate(data.batch(args.test_batch_size), verbose=0), flush=True)
