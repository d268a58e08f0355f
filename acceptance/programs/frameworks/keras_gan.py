"""Keras: a generator and a discriminator, trained in turn; pictures are drawn after each epoch."""
import argparse

import keras
import tensorflow as tf
from keras import layers


def generator(latent):
    return keras.Sequential([keras.Input((latent,)), layers.Dense(8 * 8 * 128), layers.Reshape((8, 8, 128)),
                             layers.Conv2DTranspose(128, 4, strides=2, padding="same", activation="relu"),
                             layers.Conv2DTranspose(64, 4, strides=2, padding="same", activation="relu"),
                             layers.Conv2D(3, 5, padding="same", activation="tanh")])


def discriminator():
    return keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(64, 4, strides=2, padding="same"),
                             layers.LeakyReLU(), layers.Conv2D(128, 4, strides=2, padding="same"),
                             layers.LeakyReLU(), layers.GlobalMaxPooling2D(), layers.Dense(1)])


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--latent", type=int, default=128)
args = parser.parse_args()

g, d = generator(args.latent), discriminator()
g_optimizer, d_optimizer = keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-4)
bce = keras.losses.BinaryCrossentropy(from_logits=True)


@tf.function
def train_step(real):
    noise = tf.random.normal((args.batch_size, args.latent))
    with tf.GradientTape() as d_tape, tf.GradientTape() as g_tape:
        fake = g(noise, training=True)
        real_logits, fake_logits = d(real, training=True), d(fake, training=True)
        d_loss = bce(tf.ones_like(real_logits), real_logits) + bce(tf.zeros_like(fake_logits), fake_logits)
        g_loss = bce(tf.ones_like(fake_logits), fake_logits)
    d_optimizer.apply_gradients(zip(d_tape.gradient(d_loss, d.trainable_weights), d.trainable_weights))
    g_optimizer.apply_gradients(zip(g_tape.gradient(g_loss, g.trainable_weights), g.trainable_weights))
    return d_loss, g_loss


for epoch in range(args.epochs):
    for _ in range(args.steps):
        d_loss, g_loss = train_step(tf.random.uniform((args.batch_size, 32, 32, 3), -1, 1))
    pictures = g(tf.random.normal((64, args.latent)), training=False)
    print(f"epoch {epoch} d {float(d_loss):.3f} g {float(g_loss):.3f} drawn {pictures.shape}", flush=True)
