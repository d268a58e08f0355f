//! Calls that are given their samples in pieces, and maps that are computed in parts.

use super::where_it_died;

/// The lines that `in-pieces` puts in.
fn in_pieces(text: &str, at: &str) -> Result<Vec<String>, String> {
    let changed = where_it_died("in-pieces", text, at)?;
    Ok(changed.into_iter().filter(|line| line.starts_with('+')).collect())
}

#[test]
fn a_session_is_given_a_whole_array_in_pieces() {
    let text = "import numpy as np\nimport onnxruntime as ort\ns = ort.InferenceSession('m.onnx')\n\
                masks = s.run(['mask'], {'scan': scans, 'size': sizes})[0]\n";
    assert_eq!(
        in_pieces(text, "masks =").unwrap(),
        [
            "+rows = (len(scans) + 15) // 16",
            "+masks = [np.concatenate(parts) for parts in zip(*(s.run(['mask'], {'scan': scans[row:row + rows], \
             'size': sizes[row:row + rows]}) for row in range(0, len(scans), rows)))][0]",
        ]
    );
    // A scalar, or a part of an array, has no samples that could be cut.
    assert!(in_pieces(&text.replace("sizes", "0.5"), "masks =").is_err());
    assert!(in_pieces(&text.replace("': scans", "': scans[:, y:y + 8]"), "masks =").is_err());
}

#[test]
fn a_model_of_tensorflow_is_given_a_test_set_in_pieces() {
    let text = "import tensorflow as tf\nmodel = tf.keras.Sequential(layers)\n\
                def test(x, row):\n    logits = model(x, training=False)\n    return logits\n\
                def step(x):\n    with tf.GradientTape() as tape:\n        loss = model(x)\n    return loss\n\
                value = step(x)\nfeatures = tf.constant(found)\n\
                far = tf.norm(features[:, None] - features[None], axis=-1)\n";
    assert_eq!(
        in_pieces(text, "logits = model").unwrap(),
        [
            "+    rows = (len(x) + 15) // 16",
            "+    logits = tf.concat([model(x[begin:begin + rows], training=False) \
             for begin in range(0, len(x), rows)], axis=0)",
        ]
    );
    assert_eq!(
        in_pieces(text, "far =").unwrap(),
        [
            "+rows = (len(features) + 15) // 16",
            "+far = tf.concat([tf.norm(features[begin:begin + rows, None] - features[None], axis=-1) \
             for begin in range(0, len(features), rows)], axis=0)",
        ]
    );
    for training in ["loss = model", "value = step"] {
        assert!(in_pieces(text, training).is_err(), "{training}");
    }
}

#[test]
fn a_function_of_jax_is_given_a_test_set_in_pieces() {
    let text = "import jax\nimport jax.numpy as jnp\n\
                @jax.jit\ndef evaluate(state, x, y):\n    return (state.apply_fn(x).argmax(-1) == y).mean()\n\
                def embed(params, x):\n    return x @ params\n\
                fast = jax.jit(embed)\n\
                @jax.jit\ndef step(params, x):\n    return params - jax.grad(loss)(params, x)\n\
                params = step(params, x)\n\
                accuracy = evaluate(state, x, y)\nfeatures = fast(params, x)\n";
    assert_eq!(
        in_pieces(text, "accuracy =").unwrap(),
        [
            "+rows = (len(x) + 15) // 16",
            "+accuracy = sum(evaluate(state, x[row:row + rows], y[row:row + rows]) * len(x[row:row + rows]) \
             for row in range(0, len(x), rows)) / len(x)",
        ]
    );
    assert_eq!(
        in_pieces(text, "features =").unwrap(),
        [
            "+rows = (len(x) + 15) // 16",
            "+features = jnp.concatenate([fast(params, x[row:row + rows]) for row in range(0, len(x), rows)])",
        ]
    );
    assert!(in_pieces(text, "params = step").is_err());
}

#[test]
fn a_step_that_changes_the_model_in_place_is_not_made_in_pieces() {
    let text = |change: &str| {
        format!(
            "import jax\nimport jax.numpy as jnp\nfrom flax import nnx\ndef loss_fn(model, batch):\n    \
             return jnp.mean(model(batch))\n@nnx.jit\ndef step(model, optimizer, batch):\n    \
             loss, grads = nnx.value_and_grad(loss_fn)(model, batch)\n{change}    return loss\n\
             loss = step(model, optimizer, batch)\n"
        )
    };
    assert!(in_pieces(&text("    optimizer.update(model, grads)\n"), "loss = step(").is_err());
    assert!(in_pieces(&text(""), "loss = step(").is_ok(), "without the update it is the mean of the pieces");
    let metrics =
        text("").replace("loss, grads = nnx.value_and_grad(loss_fn)(model, batch)", "loss = loss_fn(model, batch)");
    let metrics = metrics.replace("    return loss\n", "    optimizer.update(loss)\n    return loss\n");
    assert!(in_pieces(&metrics, "loss = step(").is_ok(), "metrics count each piece");
}

#[test]
fn a_batch_of_named_arrays_is_cut_in_each_of_them() {
    let text = "import jax\nimport jax.numpy as jnp\n\
                @jax.jit\ndef evaluate(params, batch, metrics):\n    return losses(params, batch['x'], batch['y']).mean()\n\
                def embed(params, batch, mask):\n    return (batch[\"x\"] @ params) * mask\n\
                loss = evaluate(params, batch, metrics)\nfeatures = embed(params, batch, mask)\n";
    assert_eq!(
        in_pieces(text, "loss =").unwrap(),
        [
            "+rows = (len(jax.tree.leaves(batch)[0]) + 15) // 16",
            "+loss = sum(evaluate(params, jax.tree.map(lambda part: part[row:row + rows], batch), metrics) * \
             min(rows, len(jax.tree.leaves(batch)[0]) - row) for row in range(0, len(jax.tree.leaves(batch)[0]), rows)) / \
             len(jax.tree.leaves(batch)[0])",
        ]
    );
    assert_eq!(
        in_pieces(text, "features =").unwrap(),
        [
            "+rows = (len(mask) + 15) // 16",
            "+features = jnp.concatenate([embed(params, jax.tree.map(lambda part: part[row:row + rows], batch), \
             mask[row:row + rows]) for row in range(0, len(mask), rows)])",
        ]
    );
}

#[test]
fn weights_of_any_name_are_not_cut_and_several_results_are_not_joined() {
    let text = "import jax\nimport jax.numpy as jnp\n\
                def loss_fn(lora, base, batch):\n    return (batch['x'] @ lora @ base).mean()\n\
                @jax.jit\ndef eval_step(lora, base, batch):\n    return loss_fn(lora, base, batch)\n\
                def posterior(params, x, grid):\n    return x.mean(), grid\n\
                def update(metrics, batch):\n    metrics.add(batch)\n\
                loss = eval_step(lora, base, batch)\nmean, cov = posterior(params, x, grid)\nupdate(metrics, batch)\n";
    let lines = in_pieces(text, "loss = eval").unwrap();
    assert!(
        lines[1].contains("eval_step(lora, base, jax.tree.map(lambda part: part[row:row + rows], batch))"),
        "{lines:?}"
    );
    assert!(in_pieces(text, "mean, cov =").is_err() && in_pieces(text, "update(metrics, batch)").is_err());
}

#[test]
fn a_model_that_an_object_keeps_is_given_a_set_in_pieces() {
    let text = "import tensorflow as tf\nclass Dice(tf.keras.callbacks.Callback):\n\
                \x20   def on_epoch_end(self, epoch, logs=None):\n        found = self.model(self.images, training=False)\n";
    assert_eq!(
        in_pieces(text, "found =").unwrap(),
        [
            "+        rows = (len(self.images) + 15) // 16",
            "+        found = tf.concat([self.model(self.images[row:row + rows], training=False) \
             for row in range(0, len(self.images), rows)], axis=0)",
        ]
    );
}

/// The lines that `mapped-in-parts` puts in.
fn in_parts(text: &str, at: &str) -> Result<Vec<String>, String> {
    let changed = where_it_died("mapped-in-parts", text, at)?;
    Ok(changed.into_iter().filter(|line| line.starts_with('+')).collect())
}

#[test]
fn what_jax_maps_over_samples_is_computed_in_parts() {
    let text = "import jax\nimport jax.numpy as jnp\n\
                def one_loss(params, x, y):\n    return (x @ params - y) ** 2\n\
                @jax.jit\ndef step(params, x, y):\n\
                \x20   grads = jax.vmap(jax.grad(one_loss), in_axes=(None, 0, 0))(params, x, y)\n\
                \x20   return params - grads.mean(0)\n\
                params = step(params, x, y)\n\
                kernel = jax.vmap(lambda a: jax.vmap(lambda b: jnp.exp(-a @ b))(x))(x)\n\
                predict = jax.jit(jax.vmap(net, (None, 0)))\n\
                out = predict(weights, x)\n\
                h = jax.hessian(loss)(flat)\n\
                along = jax.vmap(net, in_axes=1)(x)\n";
    assert_eq!(
        in_parts(text, "params = step").unwrap(),
        [
            "+    grads = jax.lax.map(lambda one: jax.grad(one_loss)(params, one[0], one[1]), (x, y), \
             batch_size=(len(x) + 15) // 16)",
            "+kernel = jax.lax.map(jax.checkpoint(lambda a: jax.vmap(lambda b: jnp.exp(-a @ b))(x)), x, \
             batch_size=(len(x) + 15) // 16)",
            "+out = jax.lax.map(jax.checkpoint(lambda one: net(weights, one)), x, batch_size=(len(x) + 15) // 16)",
            "+h = jax.lax.map(lambda row: jax.jvp(jax.grad(loss), (flat,), (row,))[1], \
             jnp.eye(flat.size, dtype=flat.dtype), batch_size=(flat.size + 15) // 16)",
        ]
    );
    let at_the_line = in_parts(text, "h = jax").unwrap();
    assert!(at_the_line.len() == 1 && at_the_line[0].starts_with("+h = jax.lax.map("), "{at_the_line:?}");
    assert!(in_parts("import jax\ny = jax.vmap(f, in_axes=1)(x)\n", "y =").is_err());
}

const MEANS: &str = "\
import jax
import jax.numpy as jnp
import optax

@jax.jit
def apply_model(state, images, labels):
    def loss_fn(params):
        logits = state.apply_fn({'params': params}, images)
        loss = jnp.mean(optax.softmax_cross_entropy(logits=logits, labels=labels))
        return loss, logits
    grad_fn = jax.value_and_grad(loss_fn, has_aux=True)
    (loss, logits), grads = grad_fn(state.params)
    accuracy = jnp.mean(jnp.argmax(logits, -1) == labels)
    return grads, loss, accuracy

def compute_metrics(logits, labels):
    loss = optax.softmax_cross_entropy(logits, labels).mean()
    metrics = {'loss': loss, 'accuracy': jnp.mean(jnp.argmax(logits, -1) == labels)}
    return metrics

@jax.jit
def eval_step(params, images, labels):
    logits = net.apply(params, images)
    return compute_metrics(logits, labels)

@jax.jit
def keeps(state, images, labels):
    loss, grads = jax.value_and_grad(other)(state.params)
    return grads, loss

grads, loss, accuracy = apply_model(state, train['image'], train['label'])
_, test_loss, test_accuracy = apply_model(state, test['image'], test['label'])
metrics = eval_step(params, data.images, data.labels)
state, loss = apply_model(state, test['image'], test['label'])
found = keeps(state, x, y)
";

#[test]
fn means_of_a_test_set_are_the_weighted_means_of_its_pieces() {
    let pieces = |data: &str, call: &str| {
        format!(
            "jax.tree.map(lambda *parts: sum(parts), *(jax.tree.map(lambda part: part * len({data}[row:row + rows]) / \
             len({data}), {call}) for row in range(0, len({data}), rows)))"
        )
    };
    let of_test = "apply_model(state, test['image'][row:row + rows], test['label'][row:row + rows])";
    assert_eq!(
        in_pieces(MEANS, "_, test_loss").unwrap(),
        [
            "+rows = (len(test['image']) + 15) // 16".to_owned(),
            format!("+_, test_loss, test_accuracy = {}", pieces("test['image']", of_test)),
        ]
    );
    let metrics = "eval_step(params, data.images[row:row + rows], data.labels[row:row + rows])";
    let found = in_pieces(MEANS, "metrics = eval_step").unwrap();
    assert_eq!(found[1], format!("+metrics = {}", pieces("data.images", metrics)));
    // A state that is replaced, and gradients of a loss that is not seen, are left alone.
    for left in ["state, loss =", "found ="] {
        assert!(in_pieces(MEANS, left).is_err(), "{left}");
    }
    let aux = MEANS.replace("return grads, loss, accuracy", "return logits, loss");
    assert!(in_pieces(&aux, "_, test_loss").is_err(), "the logits are not a mean");
}
