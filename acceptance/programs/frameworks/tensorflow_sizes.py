"""Results whose sizes TensorFlow computes or counts: each has the shape that it has on a real card, or the program fails."""

import tensorflow as tf

pictures = tf.random.uniform((8, 16, 4))
half = tf.constant([True] * 4 + [False] * 4)


def halved():
    return tf.range(tf.shape(pictures)[0] // 2), (4,)


def reshaped():
    return tf.reshape(pictures, [tf.shape(pictures)[0] * 2, -1]), (16, 32)


def resized():
    return tf.image.resize(pictures[None], [tf.shape(pictures)[0] * 2, 32]), (1, 16, 32, 4)


def of_a_root():
    side = tf.cast(tf.sqrt(tf.cast(tf.shape(pictures)[1], tf.float32)), tf.int32)
    return tf.reshape(pictures, [8, side, side, 4]), (8, 4, 4, 4)


def rounded_up():
    return tf.zeros([tf.cast(tf.math.ceil(tf.cast(tf.shape(pictures)[1], tf.float32) / 3.0), tf.int32)]), (6,)


def spaced():
    return tf.linspace(tf.math.log(1.0), tf.math.log(1000.0), tf.constant(5) + 5), (10,)


def repeated():
    return tf.repeat(pictures, [1, 2, 1, 1, 1, 1, 1, 1], axis=0), (9, 16, 4)


def masked():
    return tf.boolean_mask(pictures, half), (4, 16, 4)


def selected():
    return tf.where(tf.not_equal(tf.constant([3, -100, 5, -100]), -100)), (2, 1)


def different():
    return tf.unique(tf.constant([7, 7, 9]))[0], (2,)


def parted():
    return tf.dynamic_partition(pictures, [0, 1] * 4, 2)[1], (4, 16, 4)


for made in (halved, reshaped, resized, of_a_root, rounded_up, spaced, repeated, masked, selected, different, parted):
    for run in (made, tf.function(made)):
        result, shape = run()
        assert tuple(result.shape) == tuple(int(size) for size in shape), (made.__name__, run is made, result.shape)


@tf.function
def loss(logits, labels):
    """Only the labels other than -100 count, as in a masked language model."""
    counted = tf.not_equal(labels, -100)
    return tf.boolean_mask(logits, counted), tf.boolean_mask(labels, counted)


labels = tf.data.Dataset.from_tensor_slices(tf.constant([[1, -100, 2, -100]] * 64)).batch(64)
for batch in labels:
    logits, chosen = loss(tf.random.normal((64, 4, 1000)), batch)
    assert tuple(logits.shape) == (128, 1000) and tuple(chosen.shape) == (128,), logits.shape


@tf.function(input_signature=[tf.TensorSpec([None, 1000])])
def confident(logits):
    """What is computed selects all, the most that there can be."""
    return tf.boolean_mask(logits, logits > 0)


assert confident(logits).shape == (128000,), confident(logits).shape
assert tf.boolean_mask(logits, logits > 0).shape == (128000,)
assert tf.unique(tf.argmax(tf.reshape(logits, [128, 1000]), -1))[0].shape == (128,)

# The second model's variables are made where the first one's numbers lie.
for _ in range(2):
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu") for _ in range(4)])
    model.compile("adam", "mse", jit_compile=True)
    model.fit(tf.random.normal((64, 64)), tf.random.normal((64, 64)), verbose=0)
