"""Keras 3 on PyTorch: a functional model with a custom layer, trained and used for predictions."""
import os

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy as np


@keras.saving.register_keras_serializable()
class Mixer(keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(units, activation="gelu")
        self.norm = keras.layers.LayerNormalization()

    def call(self, x):
        return x + self.norm(self.dense(x))


def build(length=128, width=256, vocab=8000):
    ids = keras.Input((length,), dtype="int32")
    h = keras.layers.Embedding(vocab, width)(ids)
    for _ in range(6):
        h = Mixer(width)(h)
    out = keras.layers.Dense(2, activation="softmax")(keras.layers.GlobalMaxPooling1D()(h))
    return keras.Model(ids, out)


if __name__ == "__main__":
    model = build()
    model.compile(keras.optimizers.AdamW(1e-3), "sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    model.fit(rng.integers(0, 8000, (640, 128)), rng.integers(0, 2, (640,)), batch_size=64, epochs=2, verbose=2)
    model.save("mixer.keras")
    print(model.predict(rng.integers(0, 8000, (256, 128)), batch_size=64, verbose=0).shape)
