"""Keras: a text classifier with attention, from a tf.data pipeline."""
import argparse
import os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
import keras
import tensorflow as tf


def build(args):
    tokens = keras.Input((args.maxlen,), dtype="int32")
    x = keras.layers.Embedding(20000, args.embed_dim)(tokens)
    for _ in range(args.layers):
        y = keras.layers.MultiHeadAttention(args.heads, args.embed_dim // args.heads)(x, x)
        x = keras.layers.LayerNormalization()(x + y)
        y = keras.layers.Dense(4 * args.embed_dim, activation="gelu")(x)
        y = keras.layers.Dense(args.embed_dim)(y)
        x = keras.layers.LayerNormalization()(x + y)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(2, activation="softmax")(x))


def dataset(args, batches):
    tokens = tf.random.uniform((batches * args.batch_size, args.maxlen), maxval=20000, dtype=tf.int32)
    labels = tf.random.uniform((batches * args.batch_size,), maxval=2, dtype=tf.int32)
    return tf.data.Dataset.from_tensor_slices((tokens, labels)).shuffle(64).batch(args.batch_size).prefetch(1)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", dest="batch_size", type=int, default=64)
    ap.add_argument("--maxlen", type=int, default=512)
    ap.add_argument("--embed-dim", type=int, default=256)
    ap.add_argument("--heads", type=int, default=8)
    ap.add_argument("--layers", type=int, default=2)
    args = ap.parse_args()
    model = build(args)
    model.compile(optimizer=keras.optimizers.AdamW(1e-4), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(dataset(args, 8), epochs=1, validation_data=dataset(args, 2), verbose=2)
    print("done", flush=True)
