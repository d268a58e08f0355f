//! The library as a program gets it: opened, not linked. Linking it would replace the test's own `dlopen`.
#![allow(dead_code, reason = "each user takes a part of it")]

// The module alone: the crate itself would be linked, with all that it replaces.
#[path = "../../src/source.rs"]
mod source;

use std::ffi::{CString, c_void};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use oomph_ledger::{DeviceDescription, LEDGER_FILE, Ledger, RUN_FOLDER_VARIABLE};

/// The library of this build's profile. Cargo builds no library of this kind for a test, and it holds no lock while
/// tests run, so it can be asked to; where all is fresh that takes a fraction of a second.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    // The test is `<target>/<profile>/deps/<name>-<hash>`.
    let folder = test.ancestors().nth(2).expect("a test lies in <profile>/deps");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = folder.parent().expect("a profile lies in a target folder");
    let mut cargo = source::cargo(target, profile, &["--quiet"]).expect("a checkout is built in place");
    let status = cargo.env("CARGO_TARGET_DIR", target).status().expect("cargo started this test, so it can be started");
    assert!(status.success(), "cargo build of the library failed");
    folder.join("liboomph_vgpu.so")
}

/// Opens the library on one card of this capacity, in bytes, with a context that costs nothing. Called once in a
/// process, before other threads are started.
pub fn open(run: &Path, capacity_bytes: u64) -> *mut c_void {
    open_card(
        run,
        &DeviceDescription {
            name: "test".into(),
            capacity_bytes,
            cc_major: 9,
            sm_count: 132,
            ..DeviceDescription::default()
        },
    )
}

/// Opens the library on this card. As for [`open`].
pub fn open_card(run: &Path, card: &DeviceDescription) -> *mut c_void {
    // The library takes a run folder from nobody but this user.
    std::fs::set_permissions(run, std::fs::Permissions::from_mode(0o700)).expect("the temporary folder's mode");
    let ledger = run.join(LEDGER_FILE);
    let _ = std::fs::remove_file(&ledger);
    Ledger::create(&ledger, std::slice::from_ref(card)).expect("a ledger in the temporary folder");
    // SAFETY: no other thread reads the environment yet.
    unsafe { std::env::set_var(RUN_FOLDER_VARIABLE, run) };
    let path = CString::new(library().into_os_string().into_encoded_bytes()).unwrap_or_default();
    // SAFETY: a terminated path of this workspace's own library.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{path:?} cannot be opened");
    library
}

/// A function of the library.
///
/// # Safety
/// `F` must be the type of the function that the library exports by this name.
pub unsafe fn function<F: Copy>(library: *mut c_void, name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the library is open, and the caller vouches for the type.
    unsafe {
        let address = libc::dlsym(library, name.as_ptr());
        assert!(!address.is_null(), "{name:?} is not exported");
        std::mem::transmute_copy(&address)
    }
}
