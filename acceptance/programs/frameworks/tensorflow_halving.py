"""Finds the largest batch that a training step takes, then trains with it."""
import gc

import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)

model = tf.keras.applications.MobileNetV2(weights=None, classes=10, input_shape=(224, 224, 3))
optimizer = tf.keras.optimizers.Adam()
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy()


def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


batch = 512
while batch >= 1:
    x = tf.random.uniform((batch, 224, 224, 3))
    y = tf.random.uniform((batch,), maxval=10, dtype=tf.int32)
    try:
        step(x, y)
        break
    except tf.errors.ResourceExhaustedError:
        print("OOM with batch", batch)
        batch //= 2
        # What the failed step computed is freed by a collection; without one a card of 4 GiB was full before the step with 16.
        gc.collect()

print("training with batch", batch)
for i in range(4):
    print(i, float(step(x, y)))
