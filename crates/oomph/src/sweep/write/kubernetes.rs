//! An indexed Job of Kubernetes.

use serde_json::json;

use super::Job;
use crate::shell_words::quoted;

/// The manifest: a Job whose pods see the file's folder through a claim, at the path that it has here. JSON strings are
/// YAML too, so that names with any letters are quoted well.
pub fn manifest(job: &Job, (image, claim): (&str, &str)) -> String {
    let Job { name, folder, file, matrix, per_task, cells, .. } = job;
    let tasks = job.tasks();
    let parallel = job.parallel.unwrap_or(tasks.min(10));
    let script = format!(
        "first=$((JOB_COMPLETION_INDEX * {per_task})); last=$((first + {per_task} - 1)); \
         exec oomph sweep --matrix {matrix} --cell \"$first-$last\" {}",
        quoted(file)
    );
    let text = |text: &str| json!(text).to_string();
    let (folder, image, claim, script) = (text(folder), text(image), text(claim), text(&script));
    format!(
        "# {cells} dry runs of oomph, {per_task} a pod; no GPU is needed.\n\
         # The claim's volume holds the folder of the file and is mounted at the path that the folder has here.\n\
         apiVersion: batch/v1\n\
         kind: Job\n\
         metadata:\n  name: {name}\n  labels:\n    app.kubernetes.io/name: oomph-sweep\n\
         spec:\n  completionMode: Indexed\n  completions: {tasks}\n  parallelism: {parallel}\n  backoffLimitPerIndex: 2\n  \
           maxFailedIndexes: {tasks}\n  template:\n    metadata:\n      labels:\n        app.kubernetes.io/name: oomph-sweep\n    \
           spec:\n      restartPolicy: Never\n      containers:\n        - name: cells\n          image: {image}\n          \
           command: [\"/bin/sh\", \"-c\", {script}]\n          workingDir: {folder}\n          env:\n            \
           - name: OOMPH_CACHE_DIR\n              value: /tmp/oomph\n          resources:\n            requests:\n              \
           cpu: \"1\"\n              memory: 4Gi\n            limits:\n              memory: 8Gi\n          volumeMounts:\n            \
           - name: work\n              mountPath: {folder}\n      volumes:\n        - name: work\n          \
           persistentVolumeClaim:\n            claimName: {claim}\n"
    )
}
