//! Makes the release files: the Python wheel, a tarball, a Debian package, and their checksums.
//!
//! The program is built once, by maturin, with zig as the linker: zig links against the glibc of a chosen version, so that
//! the build machine's own does not matter. What it then needs is read from the file and compared with the promise.
//! Everything else is made of that one program: completions and pages of the manual by the program itself.

mod debian;
mod glibc;
mod licences;
mod packages;
mod sbom;
mod tree;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The tools from PyPI, at versions that are known to work together.
const MATURIN: &str = "maturin==1.16.0";
const ZIG: &str = "ziglang==0.17.1";

/// The largest wheel that is handed out, in bytes.
const WHEEL_BYTES: u64 = 25_000_000;

/// A platform that is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// Linux on x86-64.
    #[value(name = "x86_64-linux")]
    X86,
    /// Linux on 64-bit ARM.
    #[value(name = "aarch64-linux")]
    Arm,
}

impl Platform {
    /// The name of the target in Rust.
    fn target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-gnu",
            Self::Arm => "aarch64-unknown-linux-gnu",
        }
    }

    /// The name in files.
    fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-linux",
            Self::Arm => "aarch64-linux",
        }
    }

    /// The name in Debian.
    fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// Whether programs of the platform run on this machine.
    fn is_here(self) -> bool {
        match self {
            Self::X86 => cfg!(all(target_os = "linux", target_arch = "x86_64")),
            Self::Arm => cfg!(all(target_os = "linux", target_arch = "aarch64")),
        }
    }
}

/// Makes everything in the folder `out` and says how large each file is and how long it took.
///
/// # Errors
/// When a tool is missing or fails, when the program needs a newer glibc than promised, or when the wheel is too large.
pub fn run(platform: Platform, out: Option<&Path>) -> Result<()> {
    let out = out.map_or_else(|| root().join("target/packages"), Path::to_owned);
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let started = Instant::now();
    let wheel = wheel(platform, &out)?;
    println!("built the program and the wheel in {:.0} s", started.elapsed().as_secs_f64());

    let program = target_folder().join(platform.target()).join("dist/oomph");
    let needed = glibc::check(&[&program, &virtual_gpu(platform)?])?;
    println!("the program and the virtual GPU need glibc {needed}; {} is promised", glibc::PROMISED);

    let packages = packages::linked_into_oomph(platform.target())?;
    let version = packages.iter().find(|package| package.name == "oomph").map(|package| package.version.clone());
    let version = version.context("cargo metadata lists no package oomph")?;
    let tree = tree::stage(platform, &program, &packages, &version)?;
    let tarball = tarball(&tree, &out, &format!("oomph-{version}-{}", platform.name()))?;
    let deb = debian::package(&tree, &out, &version, platform.debian())?;

    let made = [wheel, tarball, deb];
    let mut sums = String::new();
    for path in &made {
        let bytes = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        println!("{:>6.1} MB  {}", bytes as f64 / 1e6, path.display());
        sums += &checksum(path)?;
    }
    let path = out.join(format!("SHA256SUMS-{}", platform.name()));
    fs::write(&path, sums).with_context(|| format!("cannot write {}", path.display()))?;
    println!("           {}", path.display());
    let size = made[0].metadata()?.len();
    if size > WHEEL_BYTES {
        bail!("the wheel has {size} bytes, more than the {WHEEL_BYTES} that it may have");
    }
    Ok(())
}

/// Builds the program and the wheel around it.
fn wheel(platform: Platform, out: &Path) -> Result<PathBuf> {
    let wheels = target_folder().join("wheels").join(platform.name());
    let _ = fs::remove_dir_all(&wheels);
    let policy = format!("manylinux_{}", glibc::PROMISED.to_string().replace('.', "_"));
    let mut uv = Command::new("uv");
    uv.args([
        "tool",
        "run",
        "--from",
        MATURIN,
        "--with",
        ZIG,
        "maturin",
        "build",
        "--profile",
        "dist",
        "--locked",
        "--zig",
    ])
    .args(["--target", platform.target(), "--compatibility", &policy])
    .arg("--out")
    .arg(&wheels);
    call(&mut uv, "install uv (https://docs.astral.sh/uv)")?;
    let made = fs::read_dir(&wheels).with_context(|| format!("cannot read {}", wheels.display()))?;
    let made = made.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "whl"));
    let made = made.context("maturin made no wheel")?;
    let wheel = out.join(made.file_name().context("a wheel has a name")?);
    fs::copy(&made, &wheel).with_context(|| format!("cannot write {}", wheel.display()))?;
    Ok(wheel)
}

/// The virtual GPU as the build script of the program built it last. In the program it is packed and cannot be read.
fn virtual_gpu(platform: Platform) -> Result<PathBuf> {
    let scripts = target_folder().join(platform.target()).join("dist/build");
    let built = Path::new("out/vgpu").join(platform.target()).join("release/liboomph_vgpu.so");
    let folders = fs::read_dir(&scripts).with_context(|| format!("cannot read {}", scripts.display()))?;
    let libraries = folders.flatten().map(|folder| folder.path().join(&built));
    let dated = libraries.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    let (_, newest) = dated.max().with_context(|| format!("{} holds no virtual GPU", scripts.display()))?;
    Ok(newest)
}

/// Packs a tree below the folder `name`, so that the same tree gives the same bytes.
fn tarball(tree: &Path, out: &Path, name: &str) -> Result<PathBuf> {
    let path = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--transform=s,^\\.,{name},"))
        .args(["--use-compress-program=gzip -9n", "--create", "--file"])
        .arg(&path)
        .arg("--directory")
        .arg(tree)
        .arg(".");
    call(&mut tar, "install GNU tar and gzip")?;
    Ok(path)
}

/// The line of a file for `sha256sum --check`.
fn checksum(path: &Path) -> Result<String> {
    let read = || format!("cannot read {}", path.display());
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path).with_context(read)?, &mut hash).with_context(read)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digest}  {name}\n"))
}

/// Runs a tool in the repository; `missing` says what to do where it is not there.
fn call(command: &mut Command, missing: &str) -> Result<()> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let status = command.current_dir(root()).status();
    let status = status.with_context(|| format!("{tool} cannot be started; {missing}"))?;
    if !status.success() {
        bail!("{tool} failed ({status}); see above");
    }
    Ok(())
}

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
