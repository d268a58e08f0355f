//! Remedies placed in programs that only use a model: models loaded by name, and pipelines of diffusers.

use std::path::Path;

use oomph_edit::{Amount, Facts, Program};

const SCRIPT: &str = "/p/run.py";

/// The program after a remedy, or why it cannot be placed.
fn after(text: &str, remedy: &str) -> Result<String, String> {
    let read = |path: &Path| (path == Path::new(SCRIPT)).then(|| text.to_owned());
    let program = Program::reading(Path::new(SCRIPT), Path::new("/p"), Vec::new(), read).expect("it is valid Python");
    let facts = Facts { capability: (8, 6), ..Facts::default() };
    let placed = program.apply(remedy, Amount::default(), &facts).map_err(|error| error.to_string())?;
    Ok(placed.program.text(Path::new(SCRIPT)).expect("the file is there").to_owned())
}

const NF4: &str =
    "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_compute_dtype=torch.bfloat16)";

#[test]
fn weights_in_four_bits_are_not_moved_by_the_program() {
    let before = "import torch\nfrom transformers import AutoModelForCausalLM\n\
                  model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16).to(\"cuda\").eval()\n";
    let expected = format!(
        "import torch\nfrom transformers import AutoModelForCausalLM\nfrom transformers import BitsAndBytesConfig\n\
         model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16, quantization_config={NF4}).eval()\n"
    );
    assert_eq!(after(before, "weights-nf4").unwrap(), expected);
    let before = "import torch\nfrom transformers import AutoModelForCausalLM\n\
                  model = AutoModelForCausalLM.from_pretrained(name)\nmodel = model.half()\nmodel.to(device)\n\
                  model.eval().to(x)\n";
    let eight = after(before, "weights-int8").unwrap();
    let expected = "import torch\nfrom transformers import AutoModelForCausalLM\n\
                    from transformers import BitsAndBytesConfig\n\
                    model = AutoModelForCausalLM.from_pretrained(name, \
                    quantization_config=BitsAndBytesConfig(load_in_8bit=True))\nmodel.eval().to(x)\n";
    assert_eq!(eight, expected);
    assert!(after(&eight, "weights-nf4").unwrap_err().contains("already"));
}

#[test]
fn layers_that_do_not_fit_wait_in_host_memory() {
    let before =
        "from transformers import AutoModel\nmodel = AutoModel.from_pretrained(name)\nif cuda:\n    model.cuda()\n";
    let expected = "from transformers import AutoModel\nmodel = AutoModel.from_pretrained(name, device_map=\"auto\")\n\
                    if cuda:\n    pass\n";
    assert_eq!(after(before, "device-map").unwrap(), expected);
    let before = "from transformers import AutoModel\nmodel = AutoModel.from_pretrained(name, device_map=\"cuda\")\n";
    assert!(after(before, "device-map").unwrap().contains("(name, device_map=\"auto\")"));
}

const SDXL: &str = "\
import torch
from diffusers import StableDiffusionXLPipeline
pipe = StableDiffusionXLPipeline.from_pretrained(name, torch_dtype=torch.float16).to(\"cuda\")
images = pipe(\"a cat\", num_images_per_prompt=args.images, height=1024).images
";

#[test]
fn feed_forward_layers_in_pieces_are_an_argument_of_the_model() {
    let before = "from transformers import AutoModel\nmodel = AutoModel.from_pretrained(name).cuda()\n";
    let expected = "from transformers import AutoModel\n\
                    model = AutoModel.from_pretrained(name, chunk_size_feed_forward=64).cuda()\n";
    assert_eq!(after(before, "chunked-feed-forward").unwrap(), expected);
    assert!(after(expected, "chunked-feed-forward").unwrap_err().contains("already"));
    assert!(after(SDXL, "chunked-feed-forward").unwrap_err().contains("argument of models"));
    let decoder = before.replace("AutoModel", "AutoModelForCausalLM");
    assert!(after(&decoder, "chunked-feed-forward").unwrap_err().contains("generate text"));
}

#[test]
fn groups_of_layers_of_sdxl_leave_its_vae_on_the_card() {
    let text = after(SDXL, "group-offload").unwrap();
    let line = "pipe.enable_group_offload(onload_device=torch.device(\"cuda\"), offload_type=\"leaf_level\", \
                use_stream=True, exclude_modules=[\"vae\"])\n";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains(".to("), "{text}");
    let flux = "from diffusers import FluxPipeline\npipe = FluxPipeline.from_pretrained(name)\npipe.to(\"cuda\")\n";
    let text = after(flux, "group-offload").unwrap();
    assert!(text.starts_with("from diffusers import FluxPipeline\nimport torch\n"), "{text}");
    assert!(text.ends_with("use_stream=True)\n") && !text.contains("pipe.to"), "{text}");
    let typed = "import torch\nfrom diffusers import FluxPipeline\npipe = FluxPipeline.from_pretrained(name)\n\
                 pipe.to(\"cuda\", torch.bfloat16)\n";
    let text = after(typed, "model-cpu-offload").unwrap();
    assert!(text.ends_with("pipe.to(torch.bfloat16)\npipe.enable_model_cpu_offload()\n"), "{text}");
}

#[test]
fn a_pipeline_in_four_bits_computes_in_the_type_that_it_has() {
    let text = after(SDXL, "weights-nf4").unwrap();
    assert!(text.contains("\"bnb_4bit_compute_dtype\": torch.float16}, components_to_quantize=[\"unet\"])"), "{text}");
    assert!(text.contains("from diffusers.quantizers import PipelineQuantizationConfig\n"), "{text}");
    let unknown = SDXL.replace("StableDiffusionXLPipeline", "SomePipeline");
    assert!(after(&unknown, "weights-nf4").unwrap_err().contains("which parts"));
}

#[test]
fn images_are_made_one_after_the_other() {
    let last =
        |text: &str| after(text, "one-image-at-a-time").map(|text| text.lines().last().unwrap_or_default().to_owned());
    assert_eq!(
        last(SDXL).unwrap(),
        "images = [image for _ in range(args.images) for image in pipe(\"a cat\", num_images_per_prompt=1, height=1024).images]"
    );
    let head = "from diffusers import FluxPipeline\npipe = FluxPipeline.from_pretrained(name)\n";
    assert_eq!(
        last(&format!("{head}x = pipe([p] * 4, generator=g).images[0]\n")).unwrap(),
        "x = [image for one_prompt in [p] * 4 for image in pipe(one_prompt, generator=g).images][0]"
    );
    assert_eq!(
        last(&format!("{head}names = [\"a\", \"b\"]\nx = pipe(prompt=names).images\n")).unwrap(),
        "x = [image for one_prompt in names for image in pipe(prompt=one_prompt).images]"
    );
    // A generator that is made in the call would give the same image each time.
    let seeded = "x = pipe(p, num_images_per_prompt=4, generator=torch.Generator().manual_seed(0)).images\n";
    assert!(last(&format!("{head}{seeded}")).unwrap_err().contains("generator"));
}
