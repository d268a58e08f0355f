//! Keeps programs and libraries that a run built and then ran. Which line a call came from is looked up in them after
//! the run, when its private files are gone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use oomph_launch::RunFolder;
use oomph_launch::activity::{Activity, CodePlace, Refusal};
use tempfile::TempDir;

/// Copies what a run built, as far as its calls came from there, and has the calls name the copies. They last as long as
/// the folder that is given.
pub fn keep(folder: &RunFolder, activities: &mut [Activity], refusals: &mut [Refusal]) -> Option<Arc<TempDir>> {
    let mut kept: Option<TempDir> = None;
    let sites = activities.iter_mut().flat_map(|activity| {
        let allocations = activity.allocations.sites.iter_mut().chain(&mut activity.pooled.sites);
        let copies = activity.transfers.sites.iter_mut().map(|site| &mut site.frames);
        allocations.map(|site| &mut site.frames).chain(copies)
    });
    for frame in sites.chain(refusals.iter_mut().map(|refusal| &mut refusal.frames)).flatten() {
        copied(folder, frame, &mut kept);
    }
    kept.map(Arc::new)
}

fn copied(folder: &RunFolder, frame: &mut CodePlace, kept: &mut Option<TempDir>) {
    let module = Path::new(&frame.module);
    let Some(built) = folder.place_of_written(module) else { return };
    if kept.is_none() {
        *kept = tempfile::tempdir().ok();
    }
    let Some(copies) = kept else { return };
    let target = copies.path().join(module.strip_prefix("/").unwrap_or(module));
    let made = target.is_file()
        || target.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok()) && fs::copy(built, &target).is_ok();
    if let (true, Some(path)) = (made, target.to_str()) {
        frame.module = path.to_owned();
    }
}
