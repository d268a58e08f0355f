"""A convolutional classifier, trained with Keras."""

import argparse

import keras
import numpy
import tensorflow as tf


def network(size, channels):
    layers = [keras.Input((size, size, 3))]
    for width in (channels, 2 * channels, 4 * channels):
        layers += [keras.layers.Conv2D(width, 3, padding="same"), keras.layers.BatchNormalization(),
                   keras.layers.ReLU(), keras.layers.MaxPooling2D()]
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--jit-compile", action="store_true")
    args = parser.parse_args()

    print("cards=" + ",".join(device.name for device in tf.config.list_physical_devices("GPU")))
    count = args.batch_size * args.batches
    images = numpy.zeros((args.batch_size, args.size, args.size, 3), numpy.float32)
    labels = numpy.zeros((args.batch_size,), numpy.int32)
    data = tf.data.Dataset.from_tensors((images, labels)).repeat(count // args.batch_size)

    model = network(args.size, args.channels)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(), loss=loss, jit_compile=args.jit_compile)
    model.fit(data, epochs=args.epochs, verbose=2)
    print(f"peak={tf.config.experimental.get_memory_info('GPU:0')['peak']}", flush=True)


if __name__ == "__main__":
    main()
