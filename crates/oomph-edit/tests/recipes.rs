//! Remedies placed in small programs as people write them: the lines that change, and the places where none is certain.

use std::path::Path;

use oomph_edit::{Amount, CannotPlace, Facts, KeptAt, ModelFacts, Placed, Program, Way};

const SCRIPT: &str = "/p/train.py";

fn program(text: &str, arguments: &[&str]) -> Program {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    let read = |path: &Path| (path == Path::new(SCRIPT)).then(|| text.to_owned());
    Program::reading(Path::new(SCRIPT), Path::new("/p"), arguments, read).expect("the program is valid Python")
}

fn plain() -> Facts {
    let model = ModelFacts { class: "Net".into(), library: "plain".into(), blocks: vec!["blocks".into()] };
    Facts { models: vec![model], batch_size: Some(32), capability: (8, 6), ..Facts::default() }
}

fn trainer() -> Facts {
    Facts { trainer: Some("Trainer".into()), batch_size: Some(8), accumulation: Some(2), ..plain() }
}

fn placed(program: &Program, remedy: &str, facts: &Facts) -> Result<Placed, CannotPlace> {
    program.apply(remedy, Amount { by: Some(2) }, facts)
}

/// The lines that a patch takes out and puts in, without its headers.
fn changed(program: &Program, remedy: &str, facts: &Facts) -> Vec<String> {
    let placed = placed(program, remedy, facts).unwrap_or_else(|error| panic!("{remedy}: {error}"));
    let patch = placed.program.patch_since(program, Path::new("/p"));
    let lines = patch.lines().filter(|line| line.starts_with(['+', '-']));
    lines.filter(|line| !line.starts_with("+++") && !line.starts_with("---")).map(str::to_owned).collect()
}

const LOOP: &str = "\
import torch
from torch.utils.data import DataLoader
from net import Net

BATCH = 32
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
model = Net().cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for x, y in loader:
    opt.zero_grad()
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    opt.step()  # update
";

#[test]
fn a_plain_loop_accumulates() {
    assert_eq!(
        changed(&program(LOOP, &[]), "micro-batch", &plain()),
        [
            "-BATCH = 32",
            "+BATCH = 16",
            "-for x, y in loader:",
            "-    opt.zero_grad()",
            "+for step, (x, y) in enumerate(loader):",
            "+    if step % 2 == 0:",
            "+        opt.zero_grad()",
            "-    loss.backward()",
            "-    opt.step()  # update",
            "+    (loss / 2).backward()",
            "+    if (step + 1) % 2 == 0 or step + 1 == len(loader):",
            "+        opt.step()  # update",
        ]
    );
}

#[test]
fn a_batch_that_shrinks_is_told() {
    let placed = placed(&program(LOOP, &[]), "smaller-training-batch", &plain()).unwrap();
    assert_eq!(placed.smaller_batch, Some((32, 16)));
}

#[test]
fn a_plain_program_gets_checkpointing_autocast_and_8_bits() {
    let program = program(LOOP, &[]);
    let checkpointing = changed(&program, "gradient-checkpointing", &plain());
    assert!(checkpointing.contains(&"+for block in model.blocks:".to_owned()), "{checkpointing:?}");
    assert_eq!(
        changed(&program, "autocast", &plain()),
        [
            "-    loss = criterion(model(x.cuda()), y.cuda())",
            "+    with torch.autocast(\"cuda\", dtype=torch.bfloat16):",
            "+        loss = criterion(model(x.cuda()), y.cuda())",
        ]
    );
    assert_eq!(
        changed(&program, "adam-8bit", &plain()),
        [
            "+import bitsandbytes as bnb",
            "-opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)",
            "+opt = bnb.optim.AdamW8bit(model.parameters(), lr=1e-4)",
        ]
    );
}

#[test]
fn each_forward_pass_of_a_gan_gets_its_own_autocast() {
    let text = "import torch\nfrom torch import nn\ngenerator = nn.Sequential(nn.Linear(8, 8)).cuda()\n\
                critic = nn.Sequential(nn.Linear(8, 1)).cuda()\n\
                opt_d = torch.optim.Adam(critic.parameters())\nopt_g = torch.optim.Adam(generator.parameters())\n\
                for real in loader:\n    opt_d.zero_grad()\n    fake = generator(noise)\n    \
                loss_d = loss(critic(real), critic(fake.detach()))\n    loss_d.backward()\n    opt_d.step()\n    \
                opt_g.zero_grad()\n    loss_g = -critic(fake).mean()\n    loss_g.backward()\n    opt_g.step()\n";
    let lines = changed(&program(text, &[]), "autocast", &plain());
    let head = "+    with torch.autocast(\"cuda\", dtype=torch.bfloat16):";
    assert_eq!(
        lines,
        [
            "-    fake = generator(noise)",
            "-    loss_d = loss(critic(real), critic(fake.detach()))",
            head,
            "+        fake = generator(noise)",
            "+        loss_d = loss(critic(real), critic(fake.detach()))",
            "-    loss_g = -critic(fake).mean()",
            head,
            "+        loss_g = -critic(fake).mean()",
        ]
    );
}

#[test]
fn a_schedule_that_counts_batches_counts_the_steps_that_are_left() {
    let text = LOOP
        .replace(
            "for x, y in loader:",
            "total = 3 * len(loader)\nsched = OneCycleLR(opt, epochs=3, steps_per_epoch=len(loader))\n\
                 other = get_cosine_schedule_with_warmup(opt, int(0.1 * total), num_training_steps=total)\n\
                 for x, y in tqdm(loader):",
        )
        .replace("# update\n", "# update\n    sched.step()\n    print(len(loader))\n");
    let lines = changed(&program(&text, &[]), "micro-batch", &plain());
    for line in [
        "+sched = OneCycleLR(opt, epochs=3, steps_per_epoch=(len(loader) + 1) // 2)",
        "+other = get_cosine_schedule_with_warmup(opt, int(0.1 * (3 * ((len(loader) + 1) // 2))), \
         num_training_steps=3 * ((len(loader) + 1) // 2))",
        "+    if (step + 1) % 2 == 0 or step + 1 == len(loader):",
        "+        sched.step()",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} is not in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("print")), "{lines:#?}");
}

/// A program whose training and validation are methods that call another one for each batch.
const OWN_TRAINER: &str = "\
import torch
class Trainer:
    def __init__(self, model, max_epochs=10):
        self.model = model
    def _step(self, batch):
        return self.model(batch).sum()
    def train_epoch(self):
        self.model.train()
        for batch in self.train_loader:
            loss = self._step(batch)
            loss.backward()
            self.optimizer.step()
    def check(self):
        self.model.eval()
        for batch in self.val_loader:
            self.losses.append(self._step(batch))
        self.model.train()
    def fit(self):
        for epoch in range(self.epochs):
            self.train_epoch()
            self.check()
trainer = Trainer(net, max_epochs=3)
trainer.fit()
";

#[test]
fn functions_of_the_program_are_followed_to_what_trains_and_what_evaluates() {
    assert_eq!(
        changed(&program(OWN_TRAINER, &[]), "no-grad", &plain()),
        [
            "-        for batch in self.val_loader:",
            "-            self.losses.append(self._step(batch))",
            "+        with torch.no_grad():",
            "+            for batch in self.val_loader:",
            "+                self.losses.append(self._step(batch))",
        ]
    );
    // What loops by itself and has no graph is no evaluation with one, and the epochs are not one either.
    let text = "import torch\n@torch.inference_mode()\ndef evaluate(model, loader):\n    for x in loader:\n        model(x)\n\
                def train_one_epoch(model, opt, loader):\n    for x in loader:\n        model(x).sum().backward()\n        opt.step()\n\
                for epoch in range(3):\n    train_one_epoch(model, opt, loader)\n    evaluate(model, loader)\n    \
                model.train()\n";
    assert!(placed(&program(text, &[]), "no-grad", &plain()).is_err());
    // Neither is a loop whose model runs without a graph inside.
    let text = "import torch\nfor x in loader:\n    x = x.cuda()\n    with torch.no_grad():\n        y = model(x)\n    \
                print(y)\nmodel.train()\n";
    assert!(placed(&program(text, &[]), "no-grad", &plain()).is_err());
}

#[test]
fn a_class_of_the_program_s_own_is_not_lightning_s_trainer() {
    for remedy in ["autocast", "pure-bf16"] {
        let placed = placed(&program(OWN_TRAINER, &[]), remedy, &plain());
        let patch = placed.map(|placed| placed.program.patch_since(&program(OWN_TRAINER, &[]), Path::new("/p")));
        assert!(!patch.unwrap_or_default().contains("precision="), "{remedy}");
    }
}

#[test]
fn models_in_a_list_are_evaluated_without_a_graph() {
    let text = "import torch\nmodels = []\nfor name in names:\n    net = build(name)\n    net.eval()\n    \
                models.append(net)\nfor x in loader:\n    y = torch.stack([m(x) for m in models]).mean(0)\n";
    assert_eq!(
        changed(&program(text, &[]), "no-grad", &plain()),
        [
            "-for x in loader:",
            "-    y = torch.stack([m(x) for m in models]).mean(0)",
            "+with torch.no_grad():",
            "+    for x in loader:",
            "+        y = torch.stack([m(x) for m in models]).mean(0)",
        ]
    );
}

#[test]
fn a_program_that_never_trains_needs_no_graph_anywhere() {
    let text = "import torch\nimport tools\n\nmodel = tools.build()\nprint(model(tools.rows()))\n";
    assert_eq!(changed(&program(text, &[]), "no-grad", &plain()), ["+torch.set_grad_enabled(False)"]);
    // The whole test set at once, behind the steps of an epoch.
    let text = "import torch\nnet = Net().cuda()\nopt = torch.optim.Adam(net.parameters())\nfor epoch in range(3):\n    \
                net.train()\n    for x, y in train_loader:\n        net(x.cuda()).sum().backward()\n        \
                opt.step()\n    net.eval()\n    out = net(X_test.cuda())\n    print(out.argmax(1))\n";
    let whole = program(text, &[]);
    assert_eq!(
        changed(&whole, "no-grad", &plain()),
        ["-    out = net(X_test.cuda())", "+    with torch.no_grad():", "+        out = net(X_test.cuda())"]
    );
    assert_eq!(
        changed(&whole, "eval-batch", &plain()),
        ["-    out = net(X_test.cuda())", "+    out = torch.cat([net(part.cuda()) for part in X_test.split(32)])"]
    );
    // A model in evaluation mode whose input is trained.
    let text =
        text.replace("    net.train()\n", "").replace("net = Net().cuda()\n", "net = Net().cuda()\nnet.eval()\n");
    let text = text.replace("    net.eval()\n    out = net(X_test.cuda())\n", "    out = 1\n");
    assert!(program(&text, &[]).apply("no-grad", Amount { by: None }, &plain()).is_err());
    let trains = format!("{text}model(tools.rows()).sum().backward()\n");
    assert!(program(&trains, &[]).apply("no-grad", Amount { by: None }, &plain()).is_err());
}

#[test]
fn a_contrastive_loss_is_cached_wherever_it_is_named() {
    let text = "from sentence_transformers.losses import MultipleNegativesRankingLoss\n\
                loss = MultipleNegativesRankingLoss(model)\n";
    assert_eq!(
        changed(&program(text, &[]), "cached-contrast", &plain()),
        [
            "-from sentence_transformers.losses import MultipleNegativesRankingLoss",
            "-loss = MultipleNegativesRankingLoss(model)",
            "+from sentence_transformers.losses import CachedMultipleNegativesRankingLoss",
            "+loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=16)",
        ]
    );
}

#[test]
fn a_model_that_is_trained_now_and_then_is_no_accumulation() {
    let text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch', type=int, default=64)\n\
                parser.add_argument('--n-critic', type=int, default=5)\nargs = parser.parse_args()\n\
                loader = DataLoader(data, batch_size=args.batch)\nfor i, real in enumerate(loader):\n    \
                d = critic(real).mean()\n    d.backward()\n    opt_d.step()\n    if i % args.n_critic == 0:\n        \
                g = -critic(generator(noise)).mean()\n        g.backward()\n        opt_g.step()\n";
    let program = program(text, &[]);
    let half = Amount { by: Some(2) };
    assert!(program.apply("micro-batch", half, &plain()).is_err());
    assert!(program.apply("smaller-training-batch", half, &plain()).is_ok());
}

#[test]
fn blocks_are_checkpointed_in_part() {
    let program = program(LOOP, &[]);
    let every = changed(&program, "checkpointing-every-n-layers", &plain());
    assert_eq!(
        every,
        [
            "+from functools import partial",
            "+from torch.utils.checkpoint import checkpoint",
            "+for block in model.blocks[::2]:",
            "+    block.forward = partial(checkpoint, block.forward, use_reentrant=False)",
        ]
    );
    let selective = changed(&program, "selective-checkpointing", &plain()).join("\n");
    assert!(selective.contains("context_fn=partial(create_selective_checkpoint_contexts, kept))"), "{selective}");
}

const WORDS: &str = "\
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

net = BertForSequenceClassification(BertConfig())
args = TrainingArguments(output_dir=\"out\")
trainer = Trainer(model=net, args=args, train_dataset=data)
trainer.train()
";

/// A Trainer's program whose model is one of transformers.
fn words() -> Facts {
    let model =
        ModelFacts { class: "BertForSequenceClassification".into(), library: "transformers".into(), blocks: vec![] };
    Facts { models: vec![model], ..trainer() }
}

#[test]
fn a_trainers_program_gets_adapters_offload_and_16_bits() {
    let program = program(WORDS, &[]);
    assert_eq!(
        changed(&program, "lora", &words()),
        [
            "+from peft import LoraConfig, get_peft_model",
            "+net = get_peft_model(net, LoraConfig(r=16, target_modules=\"all-linear\", task_type=\"SEQ_CLS\"))",
        ]
    );
    assert_eq!(
        changed(&program, "activation-offload", &words()),
        ["-trainer.train()", "+with torch.autograd.graph.save_on_cpu(pin_memory=True):", "+    trainer.train()"]
    );
    assert_eq!(changed(&program, "pure-bf16", &words()), ["+net.to(torch.bfloat16)"]);
    assert_eq!(
        changed(&program, "checkpointing-every-n-layers", &words()),
        [
            "-args = TrainingArguments(output_dir=\"out\")",
            "+args = TrainingArguments(output_dir=\"out\", activation_checkpointing=True, \
             activation_checkpointing_kwargs={\"every_n_layers\": 2})",
        ]
    );
}

#[test]
fn a_trainer_of_trl_is_given_the_adapter() {
    let text = "import torch\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n\
                model = AutoModelForCausalLM.from_pretrained(name)\nargs = SFTConfig(output_dir=\"o\")\n\
                trainer = SFTTrainer(model=model, args=args)\ntrainer.train()\n";
    let program = program(text, &[]);
    let model = ModelFacts { class: "LlamaForCausalLM".into(), library: "transformers".into(), blocks: vec![] };
    let facts = Facts { models: vec![model], trainer: Some("SFTTrainer".into()), ..trainer() };
    let lora = changed(&program, "lora", &facts).join("\n");
    assert!(
        lora.contains("peft_config=LoraConfig(r=16, target_modules=\"all-linear\", task_type=\"CAUSAL_LM\")"),
        "{lora}"
    );
    let qlora = changed(&program, "qlora", &facts).join("\n");
    assert!(qlora.contains("quantization_config=BitsAndBytesConfig(load_in_4bit=True"), "{qlora}");
    assert!(qlora.contains("peft_config="), "{qlora}");
}

#[test]
fn what_is_collected_goes_to_host_memory() {
    let text = "import torch\nkept = []\nbank = {}\nfor i, (x, y) in enumerate(loader):\n    out = model(x)\n    \
                out.mean().backward()\n    kept.append((out.detach(), y))\n    bank[i] = out.detach()\n";
    let program = program(text, &[]);
    let at = |line| KeptAt { file: SCRIPT.into(), line, kind: "results".into(), ..KeptAt::default() };
    let facts = Facts { kept: vec![at(7), at(8)], ..plain() };
    assert_eq!(
        changed(&program, "collect-on-host", &facts),
        [
            "-    kept.append((out.detach(), y))",
            "-    bank[i] = out.detach()",
            "+    kept.append((out.detach().cpu(), y.cpu()))",
            "+    bank[i] = out.detach().cpu()",
        ]
    );
}

#[test]
fn two_optimizers_keep_their_own_arguments() {
    let text = "import torch\nd = torch.optim.Adam(D.parameters(), lr=1, betas=(0.5, 0.9))\n\
                g = torch.optim.Adam(G.parameters(), lr=2, betas=(0.5, 0.9))\n";
    assert_eq!(
        changed(&program(text, &[]), "foreach-off", &plain()),
        [
            "-d = torch.optim.Adam(D.parameters(), lr=1, betas=(0.5, 0.9))",
            "-g = torch.optim.Adam(G.parameters(), lr=2, betas=(0.5, 0.9))",
            "+d = torch.optim.Adam(D.parameters(), lr=1, betas=(0.5, 0.9), foreach=False)",
            "+g = torch.optim.Adam(G.parameters(), lr=2, betas=(0.5, 0.9), foreach=False)",
        ]
    );
}

#[test]
fn the_programs_own_options_come_first() {
    let text = "import argparse, torch\np = argparse.ArgumentParser()\n\
                p.add_argument('--bs', type=int, default=16)\np.add_argument('--accum', type=int, default=1)\n\
                p.add_argument('--amp', action='store_true')\np.add_argument('--grad-checkpointing', action='store_true')\n\
                p.add_argument('--optim', choices=['adamw', 'adamw_8bit'], default='adamw')\na = p.parse_args()\n\
                loader = DataLoader(d, batch_size=a.bs)\nfor x in loader:\n    loss = m(x)\n    loss.backward()\n    opt.step()\n";
    let program = program(text, &["--bs=8"]);
    for (remedy, wanted) in [
        ("micro-batch", &["--bs=4", "--accum", "2"][..]),
        ("autocast", &["--bs=8", "--amp"]),
        ("gradient-checkpointing", &["--bs=8", "--grad-checkpointing"]),
        ("adam-8bit", &["--bs=8", "--optim", "adamw_8bit"]),
    ] {
        let placed = placed(&program, remedy, &plain()).unwrap();
        assert_eq!((placed.way, placed.program.arguments()), (Way::Option, &wanted.map_to_strings()[..]), "{remedy}");
        assert!(placed.program.changed_since(&program).is_empty(), "{remedy}");
    }
    // Who can accumulate need not shrink the effective batch.
    assert!(placed(&program, "smaller-training-batch", &plain()).is_err());
}

/// Words as a program has them.
trait Words {
    fn map_to_strings(&self) -> Vec<String>;
}

impl Words for &[&str] {
    fn map_to_strings(&self) -> Vec<String> {
        self.iter().map(|word| (*word).to_owned()).collect()
    }
}

#[test]
fn a_trainer_gets_arguments_and_the_option_that_gives_one_is_set() {
    let text = "p.add_argument('--batch', type=int, default=8)\nargs = p.parse_args()\n\
                targs = TrainingArguments(\n    output_dir='o',\n    per_device_train_batch_size=args.batch,\n)\n";
    let program = program(text, &[]);
    assert_eq!(changed(&program, "gradient-checkpointing", &trainer()), ["+    gradient_checkpointing=True,"]);
    assert_eq!(changed(&program, "adam-8bit", &trainer()), ["+    optim=\"adamw_bnb_8bit\","]);
    assert_eq!(changed(&program, "micro-batch", &trainer()), ["+    gradient_accumulation_steps=4,"]);
    let placed = placed(&program, "micro-batch", &trainer()).unwrap();
    assert_eq!(placed.program.arguments(), ["--batch", "4"]);
}

#[test]
fn every_place_that_keeps_a_graph_lets_go() {
    let text = "import torch\nmodel = Net()\nopt = torch.optim.SGD(model.parameters())\ntotal = 0.0\nlosses, outs = [], []\n\
                for x in data:\n    out = model(x)\n    loss = out.mean()\n    loss.backward()\n    opt.step()\n    \
                total += loss\n    losses.append(loss)\n    outs.append(out)\n    shown = loss.item()\n    good.append(out.detach())\n";
    assert_eq!(
        changed(&program(text, &[]), "detach-losses", &plain()),
        [
            "-    total += loss",
            "-    losses.append(loss)",
            "-    outs.append(out)",
            "+    total += loss.item()",
            "+    losses.append(loss.item())",
            "+    outs.append(out.detach().cpu())",
        ]
    );
}

#[test]
fn a_method_that_a_run_saw_keeping_lets_go() {
    let text = "import torch\nclass T:\n    def one(self, x):\n        out = self.model(x)\n        loss = out.mean()\n        \
                loss.backward()\n        self.seen['loss'].append(loss)\n        self.seen['out'].append(out)\n        return loss\n\n    \
                def fit(self):\n        self.model.train()\n        total = 0\n        for x in self.data:\n            \
                total += self.one(x)\n            self.opt.step()\n";
    let at = |line: usize, kind: &str| KeptAt { file: SCRIPT.into(), line, kind: kind.into(), ..KeptAt::default() };
    let facts = Facts { kept: vec![at(8, "graph-history"), at(15, "running-total")], ..plain() };
    assert_eq!(
        changed(&program(text, &[]), "detach-losses", &facts),
        [
            "-        self.seen['loss'].append(loss)",
            "-        self.seen['out'].append(out)",
            "+        self.seen['loss'].append(loss.item())",
            "+        self.seen['out'].append(out.detach().cpu())",
            "-            total += self.one(x)",
            "+            total += self.one(x).item()",
        ]
    );
}

#[test]
fn what_is_handed_to_a_meter_or_a_logger_lets_go() {
    let text = "import torch\nclass Meter:\n    def update(self, val, n=1):\n        self.val = val\n        self.sum += val * n\n\n\
                class Log:\n    def put(self, **values):\n        self.rows.append(values)\n\n\
                def fit(model, opt, data):\n    meter, log = Meter(), Log()\n    for x in data:\n        out = model(x)\n        \
                loss = out.mean()\n        loss.backward()\n        opt.step()\n        meter.update(loss, len(x))\n        \
                log.put(loss=loss, top=out.max(), seen=len(x))\n        y = torch.log(out)\n\nmodel.train()\n";
    let at = |line: usize, name: &str, kind: &str| KeptAt {
        file: SCRIPT.into(),
        line,
        kind: kind.into(),
        name: name.into(),
    };
    let kept = vec![at(5, "meter.sum", "running-total"), at(9, "log.rows", "graph-history")];
    assert_eq!(
        changed(&program(text, &[]), "detach-losses", &Facts { kept, ..plain() }),
        [
            "-        meter.update(loss, len(x))",
            "-        log.put(loss=loss, top=out.max(), seen=len(x))",
            "+        meter.update(loss.item(), len(x))",
            "+        log.put(loss=loss.item(), top=out.max().detach().cpu(), seen=len(x))",
        ]
    );
}

#[test]
fn what_is_kept_beside_a_graph_goes_to_host_memory_with_it() {
    let text = "import torch\nmodel.train()\nkept = {}\nfor step in range(9):\n    x = torch.randn(4, device='cuda')\n    \
                out = model(x)\n    good = (out > 0).sum()\n    kept[step] = {'out': out, 'good': good, 'x': x, 'step': step}\n    \
                out.mean().backward()\n";
    assert_eq!(
        changed(&program(text, &[]), "detach-losses", &plain()),
        [
            "-    kept[step] = {'out': out, 'good': good, 'x': x, 'step': step}",
            "+    kept[step] = {'out': out.detach().cpu(), 'good': good.cpu(), 'x': x.cpu(), 'step': step}",
        ]
    );
}

#[test]
fn a_module_that_nobody_trains_gives_graphs_too() {
    let text = "import torch\nfrom torch import nn\nbackbone = nn.Sequential(nn.Conv2d(3, 8, 3)).cuda()\nseen = {}\nfor i in range(9):\n    \
                feat = backbone(load(i))\n    seen.update({i: (feat, i)})\n    head(feat).mean().backward()\n";
    assert_eq!(
        changed(&program(text, &[]), "detach-losses", &plain()),
        ["-    seen.update({i: (feat, i)})", "+    seen.update({i: (feat.detach().cpu(), i)})"]
    );
}

#[test]
fn queues_averages_and_states_let_go_where_they_are_added_to() {
    let text = "import torch\nmodel.train()\nqueue = torch.zeros(9)\nmean = 0.0\nfor x in data:\n    k = model(x)\n    \
                loss = (k * queue.detach()).sum()\n    loss.backward()\n    queue = torch.cat([queue, k])[-9:]\n    \
                mean = 0.9 * mean + 0.1 * k.mean()\n";
    assert_eq!(
        changed(&program(text, &[]), "detach-losses", &plain()),
        [
            "-    queue = torch.cat([queue, k])[-9:]",
            "-    mean = 0.9 * mean + 0.1 * k.mean()",
            "+    queue = torch.cat([queue, k.detach()])[-9:]",
            "+    mean = 0.9 * mean + 0.1 * k.mean().item()",
        ]
    );
    let text = "import torch\nmodel = Net(nn.LSTM(2, 2))\nmodel.train()\nh = None\nfor x in data:\n    y, h = model(x, h)\n    \
                y.mean().backward(retain_graph=True)\n";
    let recurrent = program(text, &[]);
    assert!(recurrent.retains_a_state());
    assert_eq!(changed(&recurrent, "detach-losses", &plain()), ["+    h = tuple(state.detach() for state in h)"]);
    // A loss that is computed of the state needs its graph until the backward pass.
    let of_state = text.replace("    y.mean().backward(", "    (y + h[0]).mean().backward(") + "    show(y)\n";
    let patch = changed(&program(&of_state, &[]), "detach-losses", &plain());
    assert_eq!(patch, ["+    h = tuple(state.detach() for state in h)"]);
    let patched = placed(&program(&of_state, &[]), "detach-losses", &plain()).unwrap();
    let lines: Vec<&str> = patched.program.text(Path::new(SCRIPT)).unwrap().lines().collect();
    assert!(lines[lines.len() - 2].contains("state.detach()"), "{lines:?}");
    // One backward pass after the loop goes through all of its steps.
    let whole = text.replace("    y.mean().backward(retain_graph=True)", "    loss = loss + y.mean()\nloss.backward()");
    assert!(!program(&whole, &[]).retains_a_state());
    assert!(placed(&program(&whole, &[]), "detach-losses", &plain()).is_err());
}

#[test]
fn weights_that_are_kept_go_to_host_memory_by_name() {
    let text = "import copy\nsaved = []\nfor x in data:\n    saved.append(copy.deepcopy(model.state_dict()))\n";
    let kept = vec![KeptAt { file: SCRIPT.into(), line: 4, kind: "results".into(), name: "saved".into() }];
    assert_eq!(
        changed(&program(text, &[]), "collect-on-host", &Facts { kept, ..plain() }),
        [
            "-    saved.append(copy.deepcopy(model.state_dict()))",
            "+    saved.append({name: value.cpu() for name, value in model.state_dict().items()})",
        ]
    );
}

#[test]
fn what_a_backward_pass_goes_through_keeps_its_graph() {
    let text = "import torch\nmodel = Net()\nopt = torch.optim.SGD(model.parameters())\nfor batch in data:\n    losses = []\n    \
                total = 0\n    for x in batch:\n        loss = model(x).mean()\n        total += loss\n        \
                losses.append(loss)\n    torch.stack(losses).sum().backward()\n    opt.step()\n";
    let refused = placed(&program(text, &[]), "detach-losses", &plain());
    let lines = refused.map(|placed| placed.program.patch_since(&program(text, &[]), Path::new("/p")));
    assert!(!lines.is_ok_and(|patch| patch.contains("losses.append(loss.")), "the loss needs its graph");
}

#[test]
fn an_evaluation_loses_its_graph() {
    let text = "import torch\n\ndef evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        show(model(x))\n\n\
                def fit(model):\n    for x in train:\n        model(x).backward()\n    for x in val:\n        show(model(x))\n";
    assert_eq!(
        changed(&program(text, &[]), "no-grad", &plain()),
        [
            "+@torch.no_grad()",
            "-    for x in val:",
            "-        show(model(x))",
            "+    with torch.no_grad():",
            "+        for x in val:",
            "+            show(model(x))",
        ]
    );
    let text =
        "import torch\n@torch.no_grad()\ndef evaluate(model):\n    model.eval()\n    for x in v:\n        model(x)\n";
    assert!(placed(&program(text, &[]), "no-grad", &plain()).is_err());
}

#[test]
fn a_pipeline_is_offloaded_in_place_of_being_moved() {
    let text = "import torch\nfrom diffusers import AutoPipelineForText2Image\n\
                pipe = AutoPipelineForText2Image.from_pretrained('m', torch_dtype=torch.float16).to('cuda')\npipe('x')\n";
    let program = program(text, &[]);
    assert_eq!(changed(&program, "vae-slicing", &plain()), ["+pipe.vae.enable_slicing()"]);
    assert_eq!(
        changed(&program, "model-cpu-offload", &plain()),
        [
            "-pipe = AutoPipelineForText2Image.from_pretrained('m', torch_dtype=torch.float16).to('cuda')",
            "+pipe = AutoPipelineForText2Image.from_pretrained('m', torch_dtype=torch.float16)",
            "+pipe.enable_model_cpu_offload()",
        ]
    );
}

#[test]
fn the_logits_are_reduced_where_the_metrics_only_take_the_largest() {
    let text = "def metrics(p):\n    return {'a': (np.argmax(p.predictions, axis=-1) == p.label_ids).mean()}\n\
                t = Trainer(model=m, args=a, compute_metrics=metrics)\n";
    let lines = changed(&program(text, &[]), "logits-preprocessing", &trainer());
    assert!(lines.contains(&"+    return {'a': (p.predictions == p.label_ids).mean()}".to_owned()), "{lines:?}");
    assert!(lines[3].contains("preprocess_logits_for_metrics="), "{lines:?}");
}

#[test]
fn where_the_place_is_not_certain_nothing_is_edited() {
    let two = LOOP.replace("    loss.backward()\n", "    loss.backward()\n    other.backward()\n");
    assert!(placed(&program(&two, &[]), "micro-batch", &plain()).is_err());
    let nested = LOOP.replace("    opt.step()  # update\n", "    if ready:\n        opt.step()\n");
    assert!(placed(&program(&nested, &[]), "micro-batch", &plain()).is_err());
    assert!(placed(&program("x = 1\n", &[]), "autocast", &plain()).is_err());
    assert!(placed(&program("x = 1\n", &[]), "lora", &plain()).is_err());
}

#[test]
fn the_evaluations_own_loader_gets_a_smaller_batch() {
    let text = "import torch\nB = 16\ntrain_loader = DataLoader(a, batch_size=B, shuffle=True)\n\
                val_loader = DataLoader(b, batch_size=B)\ntest_loader = DataLoader(c, batch_size=128)\n\
                for x in train_loader:\n    model(x).sum().backward()\n    opt.step()\nwith torch.no_grad():\n    \
                for x in test_loader:\n        y = model(x)\n";
    let program = program(text, &[]);
    let at = |line| Facts { died_at: Some((SCRIPT.into(), line)), batch_size: Some(16), ..plain() };
    assert_eq!(
        changed(&program, "eval-batch", &at(11)),
        ["-test_loader = DataLoader(c, batch_size=128)", "+test_loader = DataLoader(c, batch_size=16)"]
    );
    // Where the line says nothing, all loaders of evaluations; the name that training reads too keeps its value.
    assert_eq!(
        changed(&program, "eval-batch", &at(1)),
        [
            "-val_loader = DataLoader(b, batch_size=B)",
            "-test_loader = DataLoader(c, batch_size=128)",
            "+val_loader = DataLoader(b, batch_size=2)",
            "+test_loader = DataLoader(c, batch_size=16)",
        ]
    );
}

#[test]
fn constants_at_the_top_are_settings() {
    let text = "batch_size = 12 # samples\ngradient_accumulation_steps = 5\nwhile True:\n    \
                for micro_step in range(gradient_accumulation_steps):\n        x = get_batch()\n        \
                (model(x) / gradient_accumulation_steps).backward()\n    opt.step()\n";
    assert_eq!(
        changed(&program(text, &[]), "micro-batch", &Facts { batch_size: None, ..plain() }),
        [
            "-batch_size = 12 # samples",
            "-gradient_accumulation_steps = 5",
            "+batch_size = 6 # samples",
            "+gradient_accumulation_steps = 10",
        ]
    );
}

#[test]
fn a_loop_that_counts_from_one_accumulates() {
    let text = "loader = DataLoader(d, batch_size=32)\nopt = torch.optim.SGD(m.parameters(), lr=1)\n\
                for step, x in enumerate(loader, start=1):\n    opt.zero_grad()\n    loss = m(x)\n    \
                loss.backward()\n    opt.step()\n";
    let changed = changed(&program(text, &[]), "micro-batch", &plain());
    assert!(changed.contains(&"+    if step % 2 == 1:".to_owned()), "{changed:?}");
    assert!(changed.contains(&"+    if step % 2 == 0 or step == len(loader):".to_owned()), "{changed:?}");
}

#[test]
fn adapters_come_before_the_optimizer() {
    let text = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n\
                model = RobertaForSequenceClassification(config)\n\
                optimizer = torch.optim.AdamW(params=model.parameters())\n\
                model, optimizer = accelerator.prepare(\n    model, optimizer)\nfor x in loader:\n    \
                accelerator.backward(model(x).loss)\n    optimizer.step()\n";
    let facts = Facts { trainer: None, ..words() };
    let placed = placed(&program(text, &[]), "lora", &facts).unwrap();
    let after = placed.program.text(Path::new(SCRIPT)).unwrap();
    let place = |part: &str| after.find(part).unwrap_or_else(|| panic!("no {part} in {after}"));
    assert!(place("get_peft_model(model") < place("torch.optim.AdamW"), "{after}");
}

#[test]
fn a_loop_that_accumulates_by_itself_counts_further() {
    let text = "loader = DataLoader(d, batch_size=4)\naccumulate, epochs = 4, 2\n\
                opt = torch.optim.SGD(m.parameters(), lr=1)\nfor i, x in enumerate(loader):\n    \
                loss = m(x) / accumulate\n    loss.backward()\n    if (i + 1) % accumulate == 0:\n        \
                opt.step()\n        opt.zero_grad()\n";
    assert_eq!(
        changed(&program(text, &[]), "micro-batch", &plain()),
        [
            "-loader = DataLoader(d, batch_size=4)",
            "-accumulate, epochs = 4, 2",
            "+loader = DataLoader(d, batch_size=2)",
            "+accumulate, epochs = 8, 2",
        ]
    );
}

#[test]
fn accelerate_is_told_to_accumulate() {
    let text = "accelerator = Accelerator(mixed_precision=\"fp16\")\nloader = DataLoader(d, batch_size=8)\n\
                for x in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(x).loss)\n        \
                optimizer.step()\n        optimizer.zero_grad()\n";
    assert_eq!(
        changed(&program(text, &[]), "micro-batch", &plain()),
        [
            "-accelerator = Accelerator(mixed_precision=\"fp16\")",
            "-loader = DataLoader(d, batch_size=8)",
            "+accelerator = Accelerator(mixed_precision=\"fp16\", gradient_accumulation_steps=2)",
            "+loader = DataLoader(d, batch_size=4)",
        ]
    );
    assert!(placed(&program(text, &[]), "smaller-training-batch", &plain()).is_err());
}
