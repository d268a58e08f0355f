"""TensorFlow: an encoder with attention over sentences; the longest sentences come in the last epoch."""
import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--units", type=int, default=256)
parser.add_argument("--vocab", type=int, default=16000)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batches", type=int, default=6)
args = parser.parse_args()


class Translator(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = tf.keras.layers.Embedding(args.vocab, args.units)
        self.encoder = tf.keras.layers.Dense(args.units, activation="tanh")
        self.attend = tf.keras.layers.Attention()
        self.out = tf.keras.layers.Dense(args.vocab)

    def call(self, source):
        x = self.embed(source)
        states = self.encoder(x)
        return self.out(self.attend([x, states]))


model = Translator()
optimizer = tf.keras.optimizers.Adam()
losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function(reduce_retracing=True)
def train_step(tokens):
    with tf.GradientTape() as tape:
        loss = losses(tokens, model(tokens, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch, length in zip(range(args.epochs), (32, 64, 256)):
    for _ in range(args.batches):
        tokens = tf.random.uniform((args.batch_size, length), maxval=args.vocab, dtype=tf.int32)
        loss = train_step(tokens)
    print(f"epoch {epoch}: length {length}, loss {float(loss):.3f}", flush=True)
