//! Remedies placed in programs of TensorFlow with Keras, JAX and ONNX Runtime.

mod pieces;
mod serving;

use std::path::Path;

use oomph_edit::{Amount, Facts, KeptAt, Placed, Program};

const SCRIPT: &str = "/p/train.py";

fn program(text: &str, arguments: &[&str]) -> Program {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    let read = |path: &Path| (path == Path::new(SCRIPT)).then(|| text.to_owned());
    Program::reading(Path::new(SCRIPT), Path::new("/p"), arguments, read).expect("the program is valid Python")
}

fn placed(program: &Program, remedy: &str, capability: u32) -> Result<Placed, String> {
    let facts = Facts { capability: (capability, 0), ..Facts::default() };
    program.apply(remedy, Amount { by: Some(4) }, &facts).map_err(|error| error.to_string())
}

/// The lines that a patch takes out and puts in, without its headers.
fn changed(program: &Program, remedy: &str) -> Vec<String> {
    let placed = placed(program, remedy, 8).unwrap_or_else(|error| panic!("{remedy}: {error}"));
    let patch = placed.program.patch_since(program, Path::new("/p"));
    let lines = patch.lines().filter(|line| line.starts_with(['+', '-']));
    lines.filter(|line| !line.starts_with("+++") && !line.starts_with("---")).map(str::to_owned).collect()
}

const KERAS: &str = "\
import argparse
import keras
import tensorflow as tf
parser.add_argument('--batch-size', type=int, default=64)
args = parser.parse_args()
model = keras.Sequential([keras.layers.Dense(8)])
model.compile('adam', 'mse')
train = tf.data.Dataset.from_tensor_slices(x).batch(args.batch_size).prefetch(2)
valid = tf.data.Dataset.from_tensor_slices(v).batch(512)
model.fit(train, validation_data=valid)
model.evaluate(valid)
";

#[test]
fn keras_takes_the_option_of_the_script_first() {
    let before = program(KERAS, &["--batch-size", "256"]);
    let after = placed(&before, "smaller-training-batch", 8).unwrap();
    assert_eq!(after.program.arguments(), ["--batch-size", "64"]);
    assert_eq!(after.smaller_batch, Some((256, 64)));
    assert!(after.program.changed_since(&before).is_empty());
}

#[test]
fn keras_accumulates_in_the_optimizer() {
    let before = program(KERAS, &[]);
    let after = placed(&before, "micro-batch", 8).unwrap();
    assert_eq!(after.program.arguments(), ["--batch-size", "16"]);
    let text = after.program.text(Path::new(SCRIPT)).unwrap();
    assert!(text.contains("model.compile(keras.optimizers.Adam(gradient_accumulation_steps=4), 'mse')"), "{text}");
    let made = "import tensorflow as tf\nB = 32\nm.compile(optimizer=tf.keras.optimizers.SGD(0.1))\n\
                m.fit(x, y, batch_size=B)\n";
    assert_eq!(
        changed(&program(made, &[]), "micro-batch"),
        [
            "-B = 32",
            "-m.compile(optimizer=tf.keras.optimizers.SGD(0.1))",
            "+B = 8",
            "+m.compile(optimizer=tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=4))",
        ]
    );
}

#[test]
fn keras_has_a_batch_that_nobody_wrote() {
    let text = "import keras\nm.compile('adam', 'mse')\nm.fit(x, y, epochs=2)\n";
    assert_eq!(
        changed(&program(text, &[]), "smaller-training-batch"),
        ["-m.fit(x, y, epochs=2)", "+m.fit(x, y, epochs=2, batch_size=8)"]
    );
}

#[test]
fn an_evaluation_of_keras_has_a_batch_of_its_own() {
    assert_eq!(
        changed(&program(KERAS, &[]), "eval-batch"),
        [
            "-valid = tf.data.Dataset.from_tensor_slices(v).batch(512)",
            "+valid = tf.data.Dataset.from_tensor_slices(v).batch(64)"
        ]
    );
}

#[test]
fn policies_of_keras_come_after_its_imports() {
    let line = |policy: &str| format!("+keras.mixed_precision.set_global_policy(\"{policy}\")");
    assert_eq!(changed(&program(KERAS, &[]), "autocast"), [line("mixed_bfloat16")]);
    let older = placed(&program(KERAS, &[]), "autocast", 7).unwrap();
    let text = older.program.text(Path::new(SCRIPT)).unwrap();
    assert!(text.contains("tensorflow as tf\nkeras.mixed_precision.set_global_policy(\"mixed_float16\")\n"), "{text}");
    let by_hand = "import tensorflow as tf\nwith tf.GradientTape() as tape:\n    pass\n";
    assert!(placed(&program(by_hand, &[]), "autocast", 7).is_err(), "nobody scales the loss");
}

const FLAX: &str = "\
import jax
import flax.linen as nn
import optax
class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask, train=True):
        return x
class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(4):
            x = Block(8)(x, None, True)
        return x
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
batch_size = 32
@jax.jit
def step(state, batch):
    return jax.value_and_grad(loss)(state, batch)
for batch in batches(batch_size):
    state, loss = step(state, batch)
";

#[test]
fn jax_accumulates_with_optax() {
    assert_eq!(
        changed(&program(FLAX, &[]), "micro-batch"),
        [
            "-tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))",
            "-batch_size = 32",
            "+tx = optax.MultiSteps(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)), every_k_schedule=4)",
            "+batch_size = 8",
        ]
    );
}

#[test]
fn blocks_of_flax_are_recomputed_with_what_python_decides_on() {
    assert_eq!(
        changed(&program(FLAX, &[]), "gradient-checkpointing"),
        [
            "-            x = Block(8)(x, None, True)",
            "+            x = nn.remat(Block, static_argnums=(3,))(8)(x, None, True)"
        ]
    );
}

#[test]
fn blocks_of_nnx_are_recomputed_by_a_decorator() {
    let text = |call: &str| {
        format!(
            "from flax import nnx\nclass Block(nnx.Module):\n    def __init__(self, rngs):\n        \
             self.up = nnx.Linear(8, 8, rngs=rngs)\n    def __call__(self, {call}):\n        return self.up(x)\n\
             class Net(nnx.Module):\n    def __init__(self, rngs):\n        \
             self.blocks = nnx.List([Block(rngs) for _ in range(8)])\n    def __call__(self, x):\n        \
             for block in self.blocks:\n            x = block(x)\n        return x\n"
        )
    };
    assert_eq!(changed(&program(&text("x"), &[]), "gradient-checkpointing"), ["+    @nnx.remat"]);
    assert!(
        placed(&program(&text("x, train=True"), &[]), "gradient-checkpointing", 8).is_err(),
        "Python decides on it"
    );
}

#[test]
fn what_a_step_gives_back_is_donated() {
    assert_eq!(
        changed(&program(FLAX, &[]), "donate-buffers"),
        ["+from functools import partial", "-@jax.jit", "+@partial(jax.jit, donate_argnums=(0,))"]
    );
    let named = "import jax\nstep = jax.jit(train)\nfor x in data:\n    params, opt, loss = step(params, opt, x)\n";
    assert_eq!(
        changed(&program(named, &[]), "donate-buffers"),
        ["-step = jax.jit(train)", "+step = jax.jit(train, donate_argnums=(0, 1))"]
    );
    let kept = "import jax\nstep = jax.jit(train)\nnew = step(params)\n";
    assert!(placed(&program(kept, &[]), "donate-buffers", 8).is_err(), "the old values may be read");
}

#[test]
fn the_body_of_a_scan_is_recomputed() {
    let text = "import jax\ndef run(x, w):\n    x, _ = jax.lax.scan(layer, x, w)\n    return x\n";
    assert_eq!(
        changed(&program(text, &[]), "gradient-checkpointing"),
        ["-    x, _ = jax.lax.scan(layer, x, w)", "+    x, _ = jax.lax.scan(jax.checkpoint(layer), x, w)"]
    );
}

#[test]
fn blocks_that_are_recomputed_keep_what_is_fixed_where_it_is_compiled() {
    let text = "import functools\nimport jax\ndef block(w, x, heads):\n    return x.reshape(4, heads, -1)\n\
                def forward(params, x, heads):\n    for w in params:\n        x = block(w, x, heads)\n    return x\n\
                @functools.partial(jax.jit, static_argnames=('heads',))\ndef step(params, x, heads):\n\
                \x20   return jax.grad(forward)(params, x, heads)\n";
    let wanted = "+        x = jax.checkpoint(block, static_argnums=(2,))(w, x, heads)";
    assert_eq!(changed(&program(text, &[]), "gradient-checkpointing").last().unwrap(), wanted);
    let traced = text.replace("static_argnames=('heads',)", "donate_argnums=0");
    let wanted = "+        x = jax.checkpoint(block)(w, x, heads)";
    assert_eq!(changed(&program(&traced, &[]), "gradient-checkpointing").last().unwrap(), wanted);
}

#[test]
fn the_provider_of_onnx_runtime_gets_its_options_where_they_are() {
    let plain = "import onnxruntime as ort\ns = ort.InferenceSession(m, providers=['CUDAExecutionProvider'])\n";
    assert_eq!(
        changed(&program(plain, &[]), "arena-as-requested")[1],
        "+s = ort.InferenceSession(m, providers=[('CUDAExecutionProvider', {\"arena_extend_strategy\": \"kSameAsRequested\"})])"
    );
    let limited = "import onnxruntime\ns = onnxruntime.InferenceSession(m, providers=[(\"CUDAExecutionProvider\", \
                   {\"device_id\": 0, \"gpu_mem_limit\": 2 << 30})])\n";
    assert!(changed(&program(limited, &[]), "raise-limit")[1].contains("{\"device_id\": 0})"));
    let named = "import onnxruntime\noptions = {}\nif a.limit:\n    options['gpu_mem_limit'] = a.limit\n\
                 s = onnxruntime.InferenceSession(m, providers=[('CUDAExecutionProvider', options)])\n";
    assert_eq!(changed(&program(named, &[]), "raise-limit"), ["-    options['gpu_mem_limit'] = a.limit", "+    pass"]);
    assert_eq!(
        changed(&program(named, &[]), "smaller-workspaces"),
        ["-options = {}", "+options = {\"cudnn_conv_use_max_workspace\": \"0\"}"]
    );
    let computed = "import onnxruntime as ort\ndef load(path, options=None):\n    \
                    return ort.InferenceSession(path, providers=[('CUDAExecutionProvider', options)])\n";
    let wanted = "(path, providers=[('CUDAExecutionProvider', {**(options or {}), \"arena_extend_strategy\": \
                  \"kSameAsRequested\"})])";
    assert!(changed(&program(computed, &[]), "arena-as-requested")[1].ends_with(wanted));
    let apart = "import onnxruntime as ort\ns = ort.InferenceSession(m, providers=['CUDAExecutionProvider', \
                  'CPUExecutionProvider'], provider_options=[{'device_id': 0}, {}])\n";
    let wanted = "provider_options=[{'device_id': 0, \"arena_extend_strategy\": \"kSameAsRequested\"}, {}])";
    assert!(changed(&program(apart, &[]), "arena-as-requested")[1].ends_with(wanted));
}

#[test]
fn a_program_of_pytorch_keeps_its_own_recipes() {
    let text = "import torch\nimport jax\nx = torch.optim.SGD(p, 0.1)\n";
    assert!(placed(&program(text, &[]), "donate-buffers", 8).is_err());
}

/// What a run saw kept on the card at a line goes to host memory there.
fn collected(text: &str, line: usize) -> Vec<String> {
    let before = program(text, &[]);
    let kept = vec![KeptAt { file: SCRIPT.into(), line, kind: "results".into(), name: "kept".into() }];
    let after = before.apply("collect-on-host", Amount::default(), &Facts { kept, ..Facts::default() }).unwrap();
    let patch = after.program.patch_since(&before, Path::new("/p"));
    let lines = patch.lines().filter(|line| line.starts_with('+') && !line.starts_with("+++"));
    lines.map(str::to_owned).collect()
}

#[test]
fn what_a_loop_keeps_goes_to_host_memory_in_the_words_of_each_framework() {
    let jax =
        "import jax\nkept = []\nfor step in range(9):\n    params = train(params)\n    kept.append((step, params))\n";
    assert_eq!(collected(jax, 5), ["+    kept.append((jax.device_get(step), jax.device_get(params)))"]);
    let tensorflow = "import tensorflow as tf\nkept = {}\nfor i, x in enumerate(data):\n    kept[i] = model(x)\n";
    assert_eq!(collected(tensorflow, 4), ["+    kept[i] = model(x).numpy()"]);
    let one = "import onnxruntime as ort\nkept = []\nwhile True:\n    kept.append(binding.get_outputs()[0])\n";
    assert_eq!(collected(one, 4), ["+    kept.append(binding.get_outputs()[0].numpy())"]);
    let all = "import onnxruntime as ort\nkept = []\nwhile True:\n    kept.extend(binding.get_outputs())\n";
    assert_eq!(collected(all, 4), ["+    kept.extend(binding.copy_outputs_to_cpu())"]);
}

#[test]
fn a_model_of_onnx_is_converted_where_its_session_is_made() {
    let made = "import onnx\nimport onnxruntime\ns = onnxruntime.InferenceSession(net(args.size), providers=[])\n";
    let lines = changed(&program(made, &[]), "half-weights").join("\n");
    assert!(lines.contains("from onnxruntime.transformers.float16 import convert_float_to_float16"), "{lines}");
    let loads = "convert_float_to_float16(onnx.load_model_from_string(net(args.size)), keep_io_types=True)";
    assert!(lines.contains(&format!("InferenceSession({loads}.SerializeToString(), providers=[])")), "{lines}");
    let read = "import onnx\nimport onnxruntime as ort\ns = ort.InferenceSession('m.onnx')\n";
    let lines = changed(&program(read, &[]), "half-weights").join("\n");
    assert!(lines.contains("convert_float_to_float16(onnx.load('m.onnx'), keep_io_types=True)"), "{lines}");
    for (name, loaded) in [
        ("net(4).SerializeToString()", "onnx.load_model_from_string(m)"),
        ("open(path, 'rb').read()", "onnx.load_model_from_string(m)"),
        ("os.path.join(folder, 'm.onnx')", "onnx.load(m)"),
        ("'m.onnx'", "onnx.load(m)"),
        ("made()", "(onnx.load_model_from_string(m) if isinstance(m, bytes) else onnx.load(m))"),
        ("m", "(onnx.load_model_from_string(m) if isinstance(m, bytes) else onnx.load(m))"),
    ] {
        let text = format!("import onnx\nimport onnxruntime as ort\nm = {name}\ns = ort.InferenceSession(m)\n");
        let lines = changed(&program(&text, &[]), "half-weights").join("\n");
        assert!(lines.contains(&format!("convert_float_to_float16({loaded}, keep_io_types=True)")), "{name}: {lines}");
    }
    let kept = "import onnx\nimport onnxruntime as ort\nclass S:\n    def open(self):\n        return ort.InferenceSession(self.m)\n";
    let lines = changed(&program(kept, &[]), "half-weights").join("\n");
    assert!(lines.contains("isinstance(self.m, bytes) else onnx.load(self.m)"), "{lines}");
    let alone = "import onnxruntime as ort\ns = ort.InferenceSession('m.onnx')\n";
    let lines = changed(&program(alone, &[]), "half-weights");
    for line in ["+import onnx", "+from onnxruntime.transformers.float16 import convert_float_to_float16"] {
        assert!(lines.iter().any(|known| known == line), "{lines:?}");
    }
}

/// The lines that a remedy takes out of a program, and puts into it, that ran out at the line with this text.
fn where_it_died(remedy: &str, text: &str, at: &str) -> Result<Vec<String>, String> {
    let before = program(text, &[]);
    let line = text.lines().position(|line| line.contains(at)).expect("the line is there") + 1;
    let facts = Facts { capability: (8, 0), died_at: Some((SCRIPT.into(), line)), ..Facts::default() };
    let placed = before.apply(remedy, Amount { by: Some(16) }, &facts).map_err(|error| error.to_string())?;
    let patch = placed.program.patch_since(&before, Path::new("/p"));
    let lines = patch.lines().filter(|line| line.starts_with(['+', '-']));
    Ok(lines.filter(|line| !line.starts_with("+++") && !line.starts_with("---")).map(str::to_owned).collect())
}

#[test]
fn a_gradient_of_the_programs_own_keeps_its_arguments() {
    let text = "import jax\ngrad = jax.jit(jax.grad(loss))\nflat = flat - grad(flat)\n";
    let wanted = "+grad = jax.jit(jax.grad(jax.checkpoint(loss, \
                  policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)))";
    assert_eq!(changed(&program(text, &[]), "gradient-checkpointing").last().unwrap(), wanted);
}

#[test]
fn flax_computes_in_16_bits() {
    let text = "import jax.numpy as jnp\nfrom flax import linen as nn\n\
                class Net(nn.Module):\n    @nn.compact\n    def __call__(self, x):\n\
                \x20       x = nn.relu(nn.Dense(8)(x))\n        return nn.Dense(2, dtype=jnp.float32)(x)\n";
    let lines = changed(&program(text, &[]), "autocast");
    assert_eq!(
        lines,
        ["-        x = nn.relu(nn.Dense(8)(x))", "+        x = nn.relu(nn.Dense(8, dtype=jnp.bfloat16)(x))"]
    );
    let plain = "import jax\nimport jax.numpy as jnp\nx = jnp.ones(8)\n";
    assert!(placed(&program(plain, &[]), "autocast", 8).is_err());
}

#[test]
fn where_no_block_repeats_the_loss_keeps_its_products_alone() {
    let raw = program(
        "import jax\nimport jax.numpy as jnp\nfrom functools import partial\n\n@partial(jax.jit, static_argnums=2)\n\
         def step(model, tokens, heads):\n    value, grads = jax.value_and_grad(loss)(model, tokens, heads)\n    \
         return model, value\n",
        &[],
    );
    let wanted = "+    value, grads = jax.value_and_grad(jax.checkpoint(loss, \
                  policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable, static_argnums=(2,)))(model, tokens, heads)";
    assert_eq!(changed(&raw, "gradient-checkpointing").last().unwrap(), wanted);
    let named = program(
        "import jax\n\n@jax.jit\ndef step(state, x):\n    def loss_fn(params):\n        return f(params, x)\n    \
         grad_fn = jax.value_and_grad(loss_fn, has_aux=True)\n    (loss, aux), grads = grad_fn(state.params)\n    \
         return state.apply_gradients(grads=grads)\n",
        &[],
    );
    let wanted = "+    grad_fn = jax.value_and_grad(jax.checkpoint(loss_fn, \
                  policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable), has_aux=True)";
    assert_eq!(changed(&named, "gradient-checkpointing").last().unwrap(), wanted);
    let names = program(
        "import jax\n\n@jax.jit(static_argnames=('cfg',))\ndef step(p, x, cfg):\n    \
         return jax.grad(loss)(p, x, cfg)\n",
        &[],
    );
    let after = changed(&names, "gradient-checkpointing");
    assert!(after.last().unwrap().contains("static_argnums=(2,)))(p, x, cfg)"), "{after:?}");
}

#[test]
fn weights_of_jax_are_cast_where_they_are_made() {
    let cast = "jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if leaf.dtype == jnp.float32 else leaf, ";
    let raw = program(
        "import jax\nimport jax.numpy as jnp\n\ndef main():\n    params = init(jax.random.key(0), 8)\n    \
         for x in data:\n        params, loss = step(params, x)\n    grads = jax.grad(f)(params)\n",
        &[],
    );
    assert_eq!(changed(&raw, "pure-bf16"), [format!("+    params = {cast}params)")]);
    let flax = program(
        "import jax\nimport jax.numpy as jnp\nvariables = net.init(key, x)\n\
         state = TrainState.create(apply_fn=net.apply, params=net.init(key, x)['params'], tx=tx)\n\
         grads = jax.grad(loss)(state.params)\n",
        &[],
    );
    let after = changed(&flax, "pure-bf16");
    assert!(after.iter().any(|line| *line == format!("+variables = {cast}variables)")), "{after:?}");
    assert!(after.iter().any(|line| line.contains(&format!("params={cast}net.init(key, x)['params']), tx=tx)"))));
    let serves = program("import jax\nimport jax.numpy as jnp\nparams = init(key)\n", &[]);
    assert!(placed(&serves, "pure-bf16", 8).unwrap_err().contains("no gradients"));
}

#[test]
fn an_option_for_tiles_takes_the_side_that_is_wanted() {
    let text = "import argparse\nimport onnxruntime\np = argparse.ArgumentParser()\n\
                p.add_argument('-t', '--tile', type=int, default=0)\nargs = p.parse_args()\n";
    let whole = program(text, &["in.png"]);
    assert!(whole.takes_tiles());
    let after = placed(&whole, "own-tiles", 8).unwrap();
    assert_eq!(after.program.arguments(), ["in.png", "--tile", "512"]);
    let small = program(text, &["--tile", "400"]);
    assert!(placed(&small, "own-tiles", 8).unwrap_err().contains("as small already"));
    // PyTorch's upscalers have it, too.
    let torch = program(&text.replace("onnxruntime", "torch"), &["--tile", "0"]);
    assert_eq!(placed(&torch, "own-tiles", 8).unwrap().program.arguments(), ["--tile", "512"]);
    assert!(!program("import torch\n", &[]).takes_tiles());
}

/// The training of MNIST as people write it: the same compiled function trains and evaluates.
#[test]
fn what_tensorflow_traces_is_compiled_by_xla() {
    let text = "import tensorflow as tf\n\n@tf.function\ndef step(x):\n    return x\n\n\
                @tf.function(reduce_retracing=True)\ndef other(x):\n    return x\n\n\
                @tf.function(jit_compile=True)\ndef compiled(x):\n    return x\n\nfast = tf.function(third)\n";
    assert_eq!(
        changed(&program(text, &[]), "xla").into_iter().filter(|line| line.starts_with('+')).collect::<Vec<_>>(),
        [
            "+@tf.function(jit_compile=True)",
            "+@tf.function(reduce_retracing=True, jit_compile=True)",
            "+fast = tf.function(third, jit_compile=True)",
        ]
    );
    let compiled = program("import tensorflow as tf\n\n@tf.function(jit_compile=True)\ndef f(x):\n    return x\n", &[]);
    assert!(placed(&compiled, "xla", 8).is_err());
}

#[test]
fn the_lines_of_jax_that_ran_out_are_compiled_as_one() {
    let xla = |text: &str, at: &str| where_it_died("xla", text, at);
    let distances = "import jax\nimport jax.numpy as jnp\nn = 6000\nx = jax.random.normal(key, (n, 64))\n\
                     d = x[:, None, :64] - x[None, :n]\n# The nearest.\n\
                     order = jnp.argsort(jnp.linalg.norm(d, axis=-1), axis=1)\nprint(order)\n";
    assert_eq!(
        xla(distances, "d = ").unwrap(),
        [
            "-d = x[:, None, :64] - x[None, :n]",
            "-order = jnp.argsort(jnp.linalg.norm(d, axis=-1), axis=1)",
            "+order = jax.jit(lambda x: jnp.argsort(jnp.linalg.norm((x[:, None, :64] - x[None, :n]), axis=-1), axis=1))(x)",
        ]
    );
    // What is used again stays, and a function returns what it did.
    let twice = distances.replace("print(order)", "print(d.mean())");
    assert_eq!(
        xla(&twice, "d = ").unwrap(),
        ["-d = x[:, None, :64] - x[None, :n]", "+d = jax.jit(lambda x: x[:, None, :64] - x[None, :n])(x)"]
    );
    let function = "import jax\nimport jax.numpy as jnp\n\ndef near(x, y):\n    d = (x[:, None] - y[None]) ** 2\n    \
                    return jnp.argmin(d.sum(-1), 1)\n";
    assert_eq!(
        xla(function, "d = ").unwrap(),
        [
            "-    d = (x[:, None] - y[None]) ** 2",
            "-    return jnp.argmin(d.sum(-1), 1)",
            "+    return jax.jit(lambda x, y: jnp.argmin(((x[:, None] - y[None]) ** 2).sum(-1), 1))(x, y)",
        ]
    );
    // A compiled function gains nothing, and what the program's own functions do is not known.
    let compiled = function.replace("def near", "@jax.jit\ndef near");
    let calls = format!("{function}\nz = near(a, b)\n").replace("import jax\n", "import jax\na = b = jnp.ones(9)\n");
    assert!(xla(&compiled, "d = ").is_err() && xla(&calls, "z = ").is_err());
}

#[test]
fn what_was_moved_to_the_host_is_joined_there() {
    let tensorflow = "import tensorflow as tf\nkept = []\nfor x in data:\n    kept.append(model(x))\n\
                      joined = tf.concat(kept, axis=0)\nother = tf.concat([a, b], axis=0)\n";
    let wanted =
        ["+import numpy as np", "+    kept.append(model(x).numpy())", "+joined = np.concatenate(kept, axis=0)"];
    assert_eq!(collected(tensorflow, 4), wanted);
    let jax = "import jax\nimport jax.numpy as jnp\nimport numpy as onp\nkept = []\nfor x in data:\n    \
               kept.append(embed(params, x))\nall = jnp.concatenate(kept)\n";
    let wanted = ["+    kept.append(jax.device_get(embed(params, x)))", "+all = onp.concatenate(kept)"];
    assert_eq!(collected(jax, 6), wanted);
}
