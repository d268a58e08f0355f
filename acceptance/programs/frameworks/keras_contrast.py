"""Keras: a Siamese encoder with a train_step of its own; after the training every pair of the gallery is compared."""
import argparse

import keras
import numpy as np
import tensorflow as tf
from keras import layers


class Contrast(keras.Model):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, images, training=False):
        return self.encoder(images, training=training)

    def train_step(self, images):
        with tf.GradientTape() as tape:
            first = tf.math.l2_normalize(self(images, training=True), -1)
            second = tf.math.l2_normalize(self(tf.image.flip_left_right(images), training=True), -1)
            scores = tf.matmul(first, second, transpose_b=True) / 0.1
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(
                tf.range(tf.shape(scores)[0]), scores, from_logits=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--train-images", type=int, default=1024)
    parser.add_argument("--gallery", type=int, default=4000)
    args = parser.parse_args()
    encoder = keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"),
                                layers.Conv2D(64, 3, strides=2, activation="relu"),
                                layers.GlobalAveragePooling2D(), layers.Dense(64)])
    model = Contrast(encoder)
    model.compile(optimizer="adam")
    images = np.random.rand(args.train_images, 32, 32, 3).astype("float32")
    model.fit(images, batch_size=args.batch_size, epochs=args.epochs, verbose=2)

    gallery = np.random.rand(args.gallery, 32, 32, 3).astype("float32")
    features = tf.constant(model.predict(gallery, batch_size=args.batch_size, verbose=0))
    distances = tf.norm(features[:, None] - features[None], axis=-1)
    print("nearest", tf.argsort(distances, axis=1)[:, 1].numpy()[:5])


if __name__ == "__main__":
    main()
