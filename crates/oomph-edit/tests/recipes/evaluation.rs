//! Evaluations: without a graph, with smaller batches, with less of their results.

use super::*;

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
    // A function with a loop of its own and no graph is not an evaluation with one, and the epochs are not one either.
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
fn the_logits_are_reduced_where_the_metrics_only_take_the_largest() {
    let text = "def metrics(p):\n    return {'a': (np.argmax(p.predictions, axis=-1) == p.label_ids).mean()}\n\
                t = Trainer(model=m, args=a, compute_metrics=metrics)\n";
    let lines = changed(&program(text, &[]), "logits-preprocessing", &trainer());
    assert!(lines.contains(&"+    return {'a': (p.predictions == p.label_ids).mean()}".to_owned()), "{lines:?}");
    assert!(lines[3].contains("preprocess_logits_for_metrics="), "{lines:?}");
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
fn a_class_of_the_program_s_own_is_not_lightning_s_trainer() {
    for remedy in ["autocast", "pure-bf16"] {
        let placed = placed(&program(OWN_TRAINER, &[]), remedy, &plain());
        let patch = placed.map(|placed| placed.program.patch_since(&program(OWN_TRAINER, &[]), Path::new("/p")));
        assert!(!patch.unwrap_or_default().contains("precision="), "{remedy}");
    }
}

#[test]
fn results_that_a_module_of_lightning_s_keeps_go_to_host_memory() {
    let text = "import lightning as L\n\nclass Segmenter(L.LightningModule):\n    def __init__(self):\n        \
                super().__init__()\n        self.val_logits = []\n\n    def validation_step(self, batch, batch_idx):\n        \
                x, y = batch\n        logits = self.net(x)[\"out\"]\n        self.val_logits.append(logits)\n        \
                self.log(\"val_loss\", loss(logits, y))\n\ntrainer = L.Trainer(max_epochs=1)\n\
                trainer.fit(Segmenter(), train, val)\n";
    let kept = KeptAt { file: SCRIPT.into(), line: 11, kind: "results".into(), name: "model.val_logits".into() };
    let facts = Facts { kept: vec![kept], ..plain() };
    assert_eq!(
        changed(&program(text, &[]), "eval-accumulation", &facts),
        ["-        self.val_logits.append(logits)", "+        self.val_logits.append(logits.cpu())"]
    );
}

#[test]
fn the_loader_that_a_trainer_evaluates_on_gets_the_smaller_batch() {
    let head = "import lightning as L\ntrainer = L.Trainer(max_epochs=1)\n";
    let facts = Facts { batch_size: Some(16), ..plain() };
    for (text, before, after) in [
        (
            "trainer.fit(net, DataLoader(a, batch_size=16, shuffle=True))\ntrainer.test(net, DataLoader(b, batch_size=64))\n",
            "trainer.test(net, DataLoader(b, batch_size=64))",
            "trainer.test(net, DataLoader(b, batch_size=16))",
        ),
        (
            "trainer.fit(net, DataLoader(a, batch_size=16), DataLoader(b, batch_size=64))\n",
            "trainer.fit(net, DataLoader(a, batch_size=16), DataLoader(b, batch_size=64))",
            "trainer.fit(net, DataLoader(a, batch_size=16), DataLoader(b, batch_size=16))",
        ),
        (
            "class D(L.LightningDataModule):\n    def train_dataloader(self):\n        return DataLoader(a, batch_size=16)\n    \
             def val_dataloader(self):\n        return DataLoader(b, batch_size=64)\n",
            "        return DataLoader(b, batch_size=64)",
            "        return DataLoader(b, batch_size=16)",
        ),
    ] {
        let program = program(&format!("{head}{text}"), &[]);
        assert_eq!(changed(&program, "eval-batch", &facts), [format!("-{before}"), format!("+{after}")], "{text}");
    }
}

#[test]
fn an_option_for_the_evaluations_batch_gets_the_one_of_training() {
    let text = "import argparse\nimport torch\np = argparse.ArgumentParser()\n\
                p.add_argument('--val-batch-size', type=int, default=256)\na = p.parse_args()\n\
                for x in DataLoader(d, 16):\n    model(x).sum().backward()\nfor x in DataLoader(v, a.val_batch_size):\n    model(x)\n";
    let option = |arguments: &[&str], batch_size| {
        let facts = Facts { batch_size: Some(batch_size), ..plain() };
        let placed = placed(&program(text, arguments), "eval-batch", &facts).expect("it has an option");
        placed.program.arguments().to_vec()
    };
    assert_eq!(option(&[], 16), ["--val-batch-size", "16"]);
    assert_eq!(option(&["--val-batch-size", "64"], 64), ["--val-batch-size", "8"]);
}

#[test]
fn a_trainer_that_evaluates_more_than_it_trains_on_gets_the_batch_of_training() {
    let text = "from transformers import Trainer, TrainingArguments\n\
                a = TrainingArguments('out', per_device_train_batch_size=8, per_device_eval_batch_size=64)\nt = Trainer(model=m, args=a)\n";
    let with = |batch_size| changed(&program(text, &[]), "eval-batch", &Facts { batch_size, ..trainer() });
    assert!(with(Some(8))[1].ends_with("per_device_eval_batch_size=8)"), "{:?}", with(Some(8)));
    assert!(with(None)[1].ends_with("per_device_eval_batch_size=1)"), "{:?}", with(None));
}
