//! The data that people edit as TOML becomes the JSON that the program reads.

fn main() {
    oomph_embed::toml("data");
}
