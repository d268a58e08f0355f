//! Tasks of Ray.

use serde_json::json;

use super::Job;

/// The program: it connects to the cluster of `RAY_ADDRESS`, or starts one on this machine.
pub fn script(job: &Job) -> String {
    let Job { name, oomph, folder, file, matrix, per_task, cells, .. } = job;
    // A string of JSON is one of Python.
    let text = |text: &str| json!(text).to_string();
    let (oomph, folder, file) = (text(oomph), text(folder), text(file));
    let parallel = job.parallel.map_or_else(|| "None".to_owned(), |count| count.to_string());
    format!(
        r#"""{q}{cells} dry runs of oomph as tasks of Ray, {per_task} a task ({name}); no GPU is needed.

All nodes must see the folder of the sweep at the same path. A task that is run again skips the cells that it has
answered. Needs `pip install ray`.
{q}""
import os
import subprocess
import sys

import ray

OOMPH = os.environ.get("OOMPH", {oomph})
FOLDER = {folder}
FILE = {file}
MATRIX = "{matrix}"
CELLS = {cells}
PER_TASK = {per_task}
AT_A_TIME = {parallel}


@ray.remote(num_cpus=1, max_retries=3)
def run(first):
    """Run the cells from `first` on; give the status and the end of what was said."""
    last = min(first + PER_TASK, CELLS) - 1
    command = [OOMPH, "sweep", "--matrix", MATRIX, "--cell", "%d-%d" % (first, last), FILE]
    done = subprocess.run(command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return first, last, done.returncode, done.stdout[-2000:]


def main():
    ray.init(log_to_driver=False)
    left = list(range(0, CELLS, PER_TASK))
    running, failed, done = [], 0, 0
    while left or running:
        while left and (AT_A_TIME is None or len(running) < AT_A_TIME):
            running.append(run.remote(left.pop(0)))
        ready, running = ray.wait(running, num_returns=1)
        for first, last, status, said in ray.get(ready):
            done += last - first + 1
            if status:
                failed += 1
                print("cells %d-%d ended with status %d:\n%s" % (first, last, status, said), file=sys.stderr)
        print("%d of %d cells" % (done, CELLS), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
"#,
        q = "\""
    )
}
