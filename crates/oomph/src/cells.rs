//! Names the cells of notebooks in an answer: a kernel has a temporary file for each, whose name says nothing.

use std::path::Path;

use oomph_report::DryRunReport;

use crate::observation::Observation;

/// Puts `train.ipynb [2]` in the place of each such file that the answer names.
pub fn tell(report: &mut DryRunReport, run: &Observation, directory: &Path) {
    let names: Vec<(&str, String)> = run
        .hooks
        .reports
        .iter()
        .flat_map(|hook| &hook.cells)
        .map(|cell| {
            let notebook = cell.notebook.as_deref().map_or("the notebook", |path| {
                Path::new(path).strip_prefix(directory).ok().and_then(Path::to_str).unwrap_or(path)
            });
            (cell.file.as_str(), format!("{notebook} [{}]", cell.cell))
        })
        .collect();
    if names.is_empty() {
        return;
    }
    let named = |text: &mut String| {
        for (file, name) in &names {
            if text.contains(file) {
                *text = text.replace(file, name);
            }
        }
    };
    for one in &mut report.loops {
        named(&mut one.file);
        if let Some(growth) = &mut one.growth {
            growth.site.iter_mut().for_each(|site| named(&mut site.file));
            growth.holders.iter_mut().for_each(|holder| named(&mut holder.file));
        }
    }
    let owners = report.devices.iter_mut().filter_map(|device| device.whose.as_mut());
    owners.flat_map(|whose| &mut whose.by_line).for_each(|line| named(&mut line.name));
    report.warnings.iter_mut().for_each(named);
    report.unreached.iter_mut().for_each(|one| named(&mut one.why));
}
