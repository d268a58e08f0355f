//! Loops of the program's own: accumulation, autocast, checkpointing, optimizers, losses.

use super::*;

#[test]
fn a_plain_loop_accumulates() {
    let carried = LOOP.replace("loss = criterion(model(x.cuda()), y.cuda())", CARRIED);
    let lines = changed(&program(&carried, &[]), "micro-batch", &plain());
    for line in [
        "-BATCH = 32",
        "+BATCH = 16",
        "+for step, (x, y) in enumerate(loader):",
        "+    if step % 2 == 0:",
        "+        opt.zero_grad()",
        "+    (loss / 2).backward()",
        "+    if (step + 1) % 2 == 0 or step + 1 == len(loader):",
        "+        opt.step()  # update",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} is not in {lines:#?}");
    }
}

/// A state that one batch hands to the next keeps a batch from being cut.
const CARRIED: &str = "out, state = model(x.cuda(), state)\n    loss = criterion(out, y.cuda())";

#[test]
fn a_batch_is_cut_within_the_loop_and_what_surrounds_the_gradient_runs_once() {
    let lines = changed(&program(LOOP, &[]), "micro-batch", &plain());
    let from = lines.iter().position(|line| line.starts_with('-')).unwrap();
    assert_eq!(
        lines[from..],
        [
            "-    loss = criterion(model(x.cuda()), y.cuda())",
            "-    loss.backward()",
            "+    for (x, y), share in micro_batches((x, y), 2):",
            "+        loss = criterion(model(x.cuda()), y.cuda())",
            "+        loss = loss * share",
            "+        loss.backward()",
        ]
    );
    assert!(lines.contains(&"+def micro_batches(batch, count):".to_owned()), "{lines:#?}");
}

#[test]
fn what_is_used_after_the_backward_pass_is_that_of_the_whole_batch() {
    let text = LOOP
        .replace(
            "loss = criterion(model(x.cuda()), y.cuda())",
            "seen += 1\n    out = model(x.cuda())\n    part = f(out)\n    loss = criterion(out, y.cuda()) + part",
        )
        .replace(
            "# update\n",
            "# update\n    hits += (out.argmax(1) == y).sum()\n    print(loss.item(), part.item())\n",
        );
    let lines = changed(&program(&text, &[]), "micro-batch", &plain());
    let from = lines.iter().position(|line| line.starts_with('-')).unwrap();
    assert_eq!(
        lines[from..],
        [
            "-    out = model(x.cuda())",
            "-    part = f(out)",
            "-    loss = criterion(out, y.cuda()) + part",
            "-    loss.backward()",
            "+    whole_batch = y",
            "+    whole_loss = 0.0",
            "+    whole_out = []",
            "+    whole_part = 0.0",
            "+    for (x, y), share in micro_batches((x, y), 2):",
            "+        out = model(x.cuda())",
            "+        part = f(out)",
            "+        loss = criterion(out, y.cuda()) + part",
            "+        loss = loss * share",
            "+        loss.backward()",
            "+        whole_loss += loss.detach()",
            "+        whole_out.append(out.detach())",
            "+        whole_part += part.detach() * share",
            "+    y = whole_batch",
            "+    loss = whole_loss",
            "+    out = torch.cat(whole_out)",
            "+    part = whole_part",
        ]
    );
}

#[test]
fn a_part_may_have_the_share_of_its_labels_or_of_its_weights() {
    let text =
        LOOP.replace("for x, y", "criterion = nn.CrossEntropyLoss(weight=w)\nfor x, y").replace("y.cuda())", "y)");
    let placed = placed(&program(&text, &[]), "micro-batch", &plain()).unwrap();
    let text = placed.program.text(std::path::Path::new("/p/train.py")).unwrap();
    let shares = oomph_edit::reweighed(text);
    let weights = shares.first().unwrap();
    assert_eq!(weights.share, "the weights of its classes");
    assert!(
        weights.text.contains("micro_batches((x, y), 2, lambda part: criterion.weight[part[1]].sum()):"),
        "{}",
        weights.text
    );
    assert!(weights.text.contains("def micro_batches(batch, count, amount):"), "{}", weights.text);
    assert!(shares.iter().any(|share| share.share == "a loss that sums"), "{shares:#?}");
}

#[test]
fn what_counts_steps_counts_those_of_the_optimizer() {
    let text = "loader = DataLoader(d, batch_size=32)\nopt = torch.optim.SGD(m.parameters(), lr=1)\nglobal_step = 0\n\
                seen = 0\nfor x in loader:\n    loss, state = m(x, state)\n    loss.backward()\n    opt.step()\n    \
                opt.zero_grad()\n    seen += 1\n    global_step += 1\n    if global_step >= 100:\n        break\n    \
                if global_step % 10 == 0:\n        print(global_step, loss.item())\nprint(total / seen)\n";
    let edited = changed(&program(text, &[]), "micro-batch", &plain()).join("\n");
    assert!(
        edited.contains("+        global_step += 1\n+        if global_step >= 100:\n+            break"),
        "{edited}"
    );
    assert!(edited.contains("+            print(global_step, loss.item())"), "{edited}");
    assert!(!edited.contains("seen"), "the number of batches stays theirs: {edited}");
    // A sum over the batches is divided by it.
    let mean = text.replace("print(total / seen)", "print(total / global_step)");
    assert!(!changed(&program(&mean, &[]), "micro-batch", &plain()).join("\n").contains("global_step"));
}

#[test]
fn a_loop_that_ends_by_its_counter_goes_over_as_many_samples() {
    let text = |condition: &str| {
        format!(
            "loader = DataLoader(d, batch_size=32)\nopt = torch.optim.SGD(m.parameters(), lr=1)\n\
             for i, x in enumerate(loader):\n    if {condition}:\n        break\n    loss, state = m(x, state)\n    \
             loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
        )
    };
    let of = |condition: &str| changed(&program(&text(condition), &[]), "micro-batch", &plain());
    assert!(of("i >= args.max_steps").contains(&"+    if i >= args.max_steps * 2:".to_owned()));
    assert!(of("i + 1 == limit + 1").contains(&"+    if i + 1 == (limit + 1) * 2:".to_owned()));
    let odd = program(&text("i == 7 and slow"), &[]);
    assert!(odd.apply("micro-batch", Amount { by: Some(2) }, &plain()).is_err());
}

#[test]
fn a_batch_that_shrinks_is_reported() {
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
        .replace("loss = criterion(model(x.cuda()), y.cuda())", CARRIED)
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
fn a_teacher_is_called_without_a_graph() {
    let text = "import torch\nopt = torch.optim.SGD(student.parameters())\nfor x, y in loader:\n    s = student(x)\n    \
                t = teacher(\n        x,\n    )\n    loss = kd(s, t, y)\n    loss.backward()\n    opt.step()\n";
    let program = program(text, &[]);
    let at = |line| Facts { untrained: vec![(SCRIPT.into(), line)], ..plain() };
    let expected = [
        "-    t = teacher(",
        "-        x,",
        "-    )",
        "+    with torch.no_grad():",
        "+        t = teacher(",
        "+            x,",
        "+        )",
    ];
    assert_eq!(changed(&program, "untrained-no-grad", &at(5)), expected);
    assert_eq!(changed(&program, "untrained-no-grad", &at(6)), expected);
    // The student's own call, and a line that calls neither.
    assert!(placed(&program, "untrained-no-grad", &at(4)).is_err());
    assert!(placed(&program, "untrained-no-grad", &plain()).is_err());
}

#[test]
fn embeddings_of_a_plain_loop_are_made_in_parts() {
    let text = |call: &str| {
        format!(
            "import torch\nfrom net import CLIP\n\n\ndef main():\n  model = CLIP().cuda()\n  \
             opt = torch.optim.AdamW(model.parameters())\n  for images, texts in loader:\n    {call}\n    \
             loss = contrast(a, b)\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
        )
    };
    let imported = [
        "+from torch.utils.checkpoint import checkpoint",
        "+",
        "+",
        "+def in_parts(encode, *inputs):",
        "+  # The backward pass computes one part after the other again, so that one graph is in memory at a time.",
        "+  parts = zip(*(batch.split(16) for batch in inputs))",
        "+  parts = [checkpoint(encode, *part, use_reentrant=False) for part in parts]",
    ];
    for (call, returned, instead) in [
        (
            "a, b, scale = model(images.cuda(), texts)",
            "tuple(torch.cat(same) if same[0].dim() else same[0] for same in zip(*parts))",
            "a, b, scale = in_parts(model, images.cuda(), texts)",
        ),
        ("a = normalize(model(images))", "", ""),
        ("a = model.encode_image(images)", "torch.cat(parts)", "a = in_parts(model.encode_image, images)"),
        ("a = model(images, mask=m)", "", ""),
        ("logits_per_image, b = model(images, texts)", "", ""),
    ] {
        let program = program(&text(call), &[]);
        if instead.is_empty() {
            assert!(placed(&program, "cached-contrast", &plain()).is_err(), "{call}");
            continue;
        }
        let mut expected: Vec<String> = imported.map(str::to_owned).to_vec();
        expected.extend([format!("+  return {returned}"), format!("-    {call}"), format!("+    {instead}")]);
        assert_eq!(changed(&program, "cached-contrast", &plain()), expected);
        let normalised = Facts { normalises_batches: true, ..plain() };
        assert!(placed(&program, "cached-contrast", &normalised).is_err());
    }
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
fn where_the_place_is_not_certain_nothing_is_edited() {
    let two = LOOP.replace("    loss.backward()\n", "    loss.backward()\n    other.backward()\n");
    assert!(placed(&program(&two, &[]), "micro-batch", &plain()).is_err());
    let nested = LOOP.replace("    opt.step()  # update\n", "    if ready:\n        opt.step()\n");
    assert!(placed(&program(&nested, &[]), "micro-batch", &plain()).is_err());
    assert!(placed(&program("x = 1\n", &[]), "autocast", &plain()).is_err());
    assert!(placed(&program("x = 1\n", &[]), "lora", &plain()).is_err());
}

#[test]
fn a_loop_that_counts_from_one_accumulates() {
    let text = "loader = DataLoader(d, batch_size=32)\nopt = torch.optim.SGD(m.parameters(), lr=1)\n\
                for step, x in enumerate(loader, start=1):\n    opt.zero_grad()\n    loss, state = m(x, state)\n    \
                loss.backward()\n    opt.step()\n";
    let changed = changed(&program(text, &[]), "micro-batch", &plain());
    assert!(changed.contains(&"+    if step % 2 == 1:".to_owned()), "{changed:?}");
    assert!(changed.contains(&"+    if step % 2 == 0 or step == len(loader):".to_owned()), "{changed:?}");
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
