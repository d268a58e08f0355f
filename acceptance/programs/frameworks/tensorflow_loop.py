"""A multilayer perceptron in TensorFlow, trained by a loop of its own."""

import argparse

import tensorflow as tf


class Perceptron(tf.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = [tf.Variable(tf.random.normal((width, width), stddev=0.02)) for _ in range(depth)]
        self.moments = [tf.Variable(tf.zeros_like(layer)) for layer in self.layers]

    def __call__(self, x):
        for layer in self.layers:
            x = tf.nn.relu(x @ layer)
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--memory-limit", type=int, help="MiB that TensorFlow may take")
    parser.add_argument("--mode", choices=["function", "eager", "xla"], default="function")
    args = parser.parse_args()

    if args.memory_limit:
        card = tf.config.list_physical_devices("GPU")[0]
        tf.config.set_logical_device_configuration(
            card, [tf.config.LogicalDeviceConfiguration(memory_limit=args.memory_limit)]
        )
    model = Perceptron(args.width, args.depth)

    def train_step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(inputs) ** 2)
        gradients = tape.gradient(loss, model.layers)
        for layer, moment, gradient in zip(model.layers, model.moments, gradients):
            moment.assign(0.9 * moment + gradient)
            layer.assign_sub(1e-3 * moment)
        return loss

    if args.mode != "eager":
        train_step = tf.function(train_step, jit_compile=args.mode == "xla")
    for step in range(args.steps):
        loss = train_step(tf.random.normal((args.batch_size, args.width)))
        print(f"step {step} loss {float(loss):.3f}")
    print(f"peak={tf.config.experimental.get_memory_info('GPU:0')['peak']}", flush=True)


if __name__ == "__main__":
    main()
