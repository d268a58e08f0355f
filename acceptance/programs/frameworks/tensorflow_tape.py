"""TensorFlow: a loop of its own with GradientTape, and an evaluation on all of the test set."""
import argparse
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--test_size", type=int, default=20000)
FLAGS = parser.parse_args()

model = tf.keras.Sequential([
    tf.keras.Input((32, 32, 3)),
    tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10),
])
optimizer = tf.keras.optimizers.SGD(0.01)
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_object(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


def main():
    for step in range(FLAGS.steps):
        images = tf.random.uniform((FLAGS.batch_size, 32, 32, 3))
        labels = tf.random.uniform((FLAGS.batch_size,), maxval=10, dtype=tf.int32)
        loss = train_step(images, labels)
        print("step", step, flush=True)
    test_images = tf.random.uniform((FLAGS.test_size, 32, 32, 3))
    test_labels = tf.random.uniform((FLAGS.test_size,), maxval=10, dtype=tf.int32)
    logits = model(test_images, training=False)
    print("test loss", loss_object(test_labels, logits).numpy())


main()
