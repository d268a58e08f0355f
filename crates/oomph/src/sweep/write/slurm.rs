//! A job array of Slurm.

use anyhow::Result;

use super::Job;
use crate::failure::hinted;
use crate::shell_words::quoted;

/// The script for `sbatch`. Its tasks write what they say to `logs` below `folder`.
///
/// # Errors
/// When the folder's name cannot be used in a directive.
pub fn script(job: &Job, folder: &str) -> Result<String> {
    // Slurm knows no way to write these in a directive, and replaces what follows a percent sign.
    if folder.contains(['"', '%', '\\']) {
        return Err(hinted(format!("--write: Slurm cannot write to {folder}"), "name a folder without \", % and \\"));
    }
    let last = job.tasks() - 1;
    let at_a_time = job.parallel.map(|count| format!("%{count}")).unwrap_or_default();
    let Job { name, oomph, folder: home, file, matrix, per_task, cells, .. } = job;
    let (oomph, home, file) = (quoted(oomph), quoted(home), quoted(file));
    Ok(format!(
        "#!/bin/sh\n\
         # {cells} dry runs of oomph, {per_task} a task; no GPU is needed.\n\
         #SBATCH --job-name={name}\n\
         #SBATCH --array=0-{last}{at_a_time}\n\
         #SBATCH --cpus-per-task=1\n\
         #SBATCH --output=\"{folder}/task-%a.log\"\n\
         \n\
         # A task that is run again skips the cells that it has answered.\n\
         cd {home} || exit 2\n\
         first=$((SLURM_ARRAY_TASK_ID * {per_task}))\n\
         last=$((first + {per_task} - 1))\n\
         exec \"${{OOMPH:-{oomph}}}\" sweep --matrix {matrix} --cell \"$first-$last\" {file}\n"
    ))
}
