//! Places that keep tensors or their graphs.

use super::*;

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
fn what_is_kept_next_to_a_graph_goes_to_host_memory_with_it() {
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
