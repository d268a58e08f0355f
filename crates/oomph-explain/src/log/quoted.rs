//! Whether words about a memory error are an error, or only quoted: in a script, a setting, a comment or a text.

use std::sync::LazyLock;

use regex::Regex;

struct Marks {
    service: Regex,
    code: Regex,
    error: Regex,
    prose: Regex,
}

static MARKS: LazyLock<Option<Marks>> = LazyLock::new(|| {
    Some(Marks {
        service: Regex::new(r"^[\w.-]+\s+\|\s").ok()?,
        // A search for the words, a comparison with them, a branch on them, a handler for them.
        code: Regex::new(
            r#"(?x)\bgrep\b | \\\| | \\\. | \|\s*"?(?:OOM|Killed|CUDA|torch|out\b) | \b(?:el)?if\b.{0,120}(?:\bin\b|==|contains|includes|match)
             | \bin\s+(?:str|repr)\( | \.(?:contains|includes|search|match|lower|test|find|startswith)\( | \bre\.\w+\(
             | \bexcept\b.{0,80}: | \bcatch\s*\( | ^\s*(?:raise|assert|import|from|def|class|return|case|echo|print|logger)\b.{0,20}["'(]
             | \b(?:pattern|regex|keyword|needle|marker)s?\b.{0,12}[:=\[] | awk\s | sed\s+-
             | ^\s*\|.*`.*\| | ^\s*[A-Za-z_]\w*\s*=\s*[\[({]\s*["'] | ^\s*r?["'][^"']*["'],?\s*$
             | ^\s*[-*+]\s+(?:[A-Z]?[a-z]+\s)?(?i:add|catch|fix|handle|improve|remove|support|update)(?:s|es|ed|ing)?\b
             | \bto\s(?:catch|handle)\s[A-Za-z.\s]{0,20}Error\b | <placeholder> | \{\{ | cuda:N\b | Tried\sto\sallocate\s(?:X|N|\.\.\.) | raises?\(
            "#,
        )
        .ok()?,
        // The forms that errors have when they are printed.
        error: Regex::new(
            r#"(?x)(?:^|[\s\[(`'"])(?:[A-Za-z_][\w.]*(?:Error|Exception)|ERROR|Error|error|RuntimeError|FATAL|fatal|panicked|failed|FAILED|terminate|Exception)\b\s*[:(\]]
             | \d{2}:\d{2}:\d{2} | ^\s*E\s{2,} | Check\ failed | what\(\):
             | \b(?i:cuda|hip|opencl|vulkan)\s(?:runtime\s|driver\s|api\s)?(?i:error|failure)\s(?:at|in)\s\S+[:(]\d+"#,
        )
        .ok()?,
        prose: Regex::new(
            r"(?xi)\b(?:if\syou|you\s(?:can|may|might|will|get|see|run)|to\savoid|in\scase\sof|prevents?|avoids?|reduce|troubleshoot|may\scause|might|could\s(?:also|be|cause|happen|help|lead|result|try)|would|should|fix(?:es|ed)?|resolv(?:es|ed)|out\sof\smemory\s(?:issues?|problems?)|when\s(?:the|you|it)|tends?\sto|causes|such\sas|e\.g\.|i\.e\.|instead\sof|otherwise|so\sthat|leads?\sto|errors|risk|handle|handles|safe|against|how\s(?:much|many|can|do|to)|do\sI\s(?:need|have)|without\srunning|supposed\sto|note\sthat|(?:usually|typically|often)\s(?:happens?|means?|indicates?|occurs?)|most\slikely|likely\sthat|you(?:'re|\sare)\s(?:running\s)?out\sof|your\s(?:gpu|device|card|system)\s(?:is|has|ran|runs)|exceptions?\s(?:was|were|is|are)|(?:says?|tells\sme)\sthat|(?:fails?|crash(?:es)?|dies|exits)\swith\san?|until\s(?:it|CUDA|the)|any(?:one|body)\sknows?|any\s(?:suggestions?|ideas?))\b
             | \b[a-z]{2,}\s`[^`]{1,80}`\s[a-z]{2,}\b",
        )
        .ok()?,
    })
});

static SETTING: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*[A-Za-z_][\w.-]*\s?[:=]\s*[^#:]{1,60}?\s\#\s.*(?i:memory|oom)").ok());

/// How much the words look quoted, 0 to 1, given that no figure follows them.
///
/// `line` is the line with the words, `around` a few lines about it, `prone` whether these words are often part of
/// texts.
pub(crate) fn likeness(line: &str, around: &str, prone: bool) -> f64 {
    let Some(marks) = MARKS.as_ref() else { return 0.0 };
    let line = uncommented(line);
    // Docker Compose puts `service-1  | ` before each line, which is not a pipe.
    let line = marks.service.find(line).map_or(line, |service| &line[service.end()..]);
    if marks.code.is_match(line) {
        return 0.95;
    }
    let trimmed = line.trim_start();
    // A setting with a comment behind it: the words are the comment's.
    if !marks.error.is_match(line) && SETTING.as_ref().is_some_and(|setting| setting.is_match(line)) {
        return 0.9;
    }
    let commented = trimmed.starts_with('#') || trimmed.starts_with("//") || trimmed.starts_with("<!--");
    let error = marks.error.is_match(line);
    let prose = marks.prose.is_match(line) || marks.prose.is_match(around) || narrates(line);
    match (error, commented, prose) {
        (true, false, _) => 0.1,
        (true, true, false) => 0.3,
        (true, true, true) => 0.6,
        (false, true, true) => 0.9,
        (false, true, false) => 0.55,
        // A text about code puts names and messages in backticks, and more than one of them.
        (false, false, true) if line.matches('`').count() >= 4 => 0.9,
        (false, false, true) => {
            if prone {
                0.8
            } else {
                0.45
            }
        }
        (false, false, false) => {
            if prone {
                0.35
            } else {
                0.15
            }
        }
    }
}

/// Without the `# ` that some programs put before all that they print: a comment has no name with a level behind it.
pub(crate) fn uncommented(line: &str) -> &str {
    static PRINTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^\s*#+\s+([A-Za-z][\w.-]*:\s+(?:ERROR|FATAL|CRITICAL|WARNING)\b.*)$").ok());
    let printed = PRINTED.as_ref().filter(|_| line.trim_start().starts_with('#'));
    printed.and_then(|printed| printed.captures(line)?.get(1)).map_or(line, |rest| rest.as_str())
}

/// The words that begin the error in a line.
static PHRASE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\bout[\s_-]of[\s_-]|OutOf|OUT_OF|\boom\b|not\s(?:have\s)?enough|n't\shave\senough|insufficient|al+oc\w*\b.{0,20}fail|ALLOC_FAILED|(?:fail\w*|unable|cannot|could\snot)\s(?:to\s)?al+oc").ok()
});

fn narrates(line: &str) -> bool {
    let phrase = PHRASE.as_ref().and_then(|phrase| phrase.find(line));
    phrase.is_some_and(|phrase| is_prose(&line[..phrase.start()]))
}

/// Whether the words before an error are those of a person who describes it. Programs put names, places and codes
/// there; people put sentences, which are known by their small words.
pub(crate) fn is_prose(before: &str) -> bool {
    /// More than a printed message has.
    const ENOUGH: usize = 4;
    const LONGEST: usize = 300;
    static WORDS: LazyLock<Option<[Regex; 2]>> = LazyLock::new(|| {
        let small = r"(?i)\b(?:the|an?|of|in|at|on|to|is|are|was|were|be|been|and|or|it|its|that|this|with|when|while|for|from|then|do|does|did|has|have|had|even|all|as|by|after|before|you|your|because|but|so|still|again)\b";
        let telling = r"\bI\b|\bI'(?:m|ve|ll|d)\b|(?i:\b(?:we|my|our|he|they|why|how|however|therefore|thus|although|though|yesterday|today|always|never|sometimes|often|both|which|who|got|gets?|getting|seems?|suggests?|results?\sin|causes?|sounds?)\b)";
        Some([Regex::new(small).ok()?, Regex::new(telling).ok()?])
    });
    let Some([small, telling]) = WORDS.as_ref() else { return false };
    let before = &before[super::text::floor_boundary(before, before.len().saturating_sub(LONGEST))..];
    // What a person writes in an earlier sentence belongs to it; what precedes a colon is a program's own.
    let sentence = before.rfind(": ").map_or(before, |at| &before[at + 1..]);
    let (telling, small) = (telling.find_iter(sentence).count(), small.find_iter(sentence).count());
    small >= 2 * ENOUGH || telling > 0 && small + 2 * telling >= ENOUGH
}

/// Whether a message is quoted by documentation: the text before or after it explains an error to others, and nobody
/// describes a run.
pub(crate) fn documents(before: &str, from: &str) -> bool {
    struct Signs {
        explains: Regex,
        reports: Regex,
    }
    static SIGNS: LazyLock<Option<Signs>> = LazyLock::new(|| {
        Some(Signs {
            explains: Regex::new(
                r"(?xi)\bif\s+(?:you|your)\s+(?:\w+\s+){0,3}(?:see|get|encounter|receive|run\s+into|hit|face|experience)\b
                 | \byou\s+(?:may|might|will|can)\s+(?:\w+\s+){0,2}(?:see|get|encounter|receive|run\s+into)\b
                 | \b(?:error|errors|message|messages)\s+(?:like|such\s+as|similar\s+to|of\s+the\s+form|looks?\s+like)\b | \b(?:the\s+following|a\s+typical|a\s+common|this\s+common)\s+(?:\w+\s+){0,2}(?:error|message)
                 | (?m:^\s*\#{1,6}\s+.*\b(?:troubleshoot\w*|faq|common\s+(?:errors|issues|problems)|known\s+issues|out[\s-]of[\s-]memory|oom|changelog|release\s+notes)\b)
                 | \b(?:this|the)\s+(?:error|message)\s+(?:[`'\x22][^`'\x22\n]{1,200}[`'\x22]\s+)?(?:means|indicates|says|occurs|is\s+(?:raised|thrown|caused|shown))\b | \b(?:solution|workaround|fix|remedy|cause)s?\s*:\s | \bQ\s*[:.]\s | \btry\s+(?:one\s+of|the\s+following|these)\b
                 | [`'\x22][^`'\x22\n]{0,40}out\sof\smemory[^`'\x22\n]{0,60}[`'\x22],?\s+(?:then\s+)?(?:lower|reduce|decrease|try|use|set|increase|enable|turn|add|pass)\b
                 | \bsee\s+the\s+[\w\s-]{1,30}?\b(?:page|section|guide|docs|documentation|faq)\b
                 | \bfrequently\s+asked | \bin\s+this\s+case\b | \bplease\s+(?:lower|reduce|decrease)\s+the\b | (?m:^\s*(?:[-*+]|\d+\.)\s+(?:reduce|decrease|lower|use|enable|set|try|increase)\b)",
            )
            .ok()?,
            reports: Regex::new(
                r#"(?x)\b(?:I|I'm|I've|my|My|we|our)\b | Traceback\ \(most\ recent | \bFile\ "[^"]+",\ line\ \d | \d{2}:\d{2}:\d{2} | \[\d{4}-\d{2} | ^\s*\d+%\| | \bstep\b.*\bloss\b"#,
            )
            .ok()?,
        })
    });
    let Some(signs) = SIGNS.as_ref() else { return false };
    let count = |text: &str| signs.explains.find_iter(text).take(3).count();
    !signs.reports.is_match(before) && !signs.reports.is_match(from) && count(before) + count(from) >= 2
}

#[cfg(test)]
mod tests {
    #[test]
    fn documentation_that_quotes_an_error_is_known_by_what_it_explains() {
        let quoted = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)";
        assert!(documents("## Troubleshooting\n\nIf you see an error like this:\n\n", quoted));
        assert!(documents("If you get the following error", &format!("{quoted} Solution: reduce the batch size")));
        let check = "`Check failed: error == cudaSuccess (2 vs. 0) out of memory`";
        assert!(documents("", &format!("Note that this error {check} indicates a full card. In this case use less.")));
        assert!(documents("If you get ", "`CUDA out of memory`, use a smaller batch."));
        assert!(!documents("", "`CUDA out of memory` since yesterday, and I use a batch of one"));
        assert!(!documents("step 12 loss 0.3\n", quoted));
        assert!(!documents("### Describe the bug\nI get the following error. If you get it too:\n", quoted));
    }

    use super::*;

    #[test]
    fn a_person_is_known_by_the_small_words_before_the_error() {
        for line in [
            "In both cases I got a CUDA out of memory error at the third image.",
            "The server stopped again yesterday with CUDA out of memory after two days",
            "Long streams with many reconnects therefore fail with CUDA out of memory",
            "It works in the first round but at the end of the third round it runs out of memory",
            "At first it works, and then it gets slower until the GPU is out of memory",
        ] {
            assert!(narrates(line), "{line}");
        }
        for printed in [
            "MINER: Can't find a nonce with device #1, Device does not have enough free memory to hold the table",
            "Unable to load the model because your GPU is out of memory",
            "We got this error: CUDA out of memory",
            "# SOLVER: ERROR: Failed to allocate device memory (field.cu:605 in allocate())",
            "Got an OOM, unloading all loaded models.",
            "An error occurred in the pool of the card that serves the model: out of memory",
        ] {
            assert!(!narrates(printed), "{printed}");
        }
    }

    #[test]
    fn scripts_and_texts_are_quotations() {
        for line in [
            r#"if grep -q -E "CUDA out of memory|torch\.cuda\.OutOfMemoryError" "${log}"; then"#,
            "except torch.cuda.OutOfMemoryError:",
            r#"    if "out of memory" in str(error):"#,
            "# use a smaller batch if you get CUDA out of memory",
            "Reduce the batch size to avoid CUDA out of memory errors.",
            "pattern: \"CUDA out of memory\"",
            "| `unable to allocate CUDA0 buffer` | something else is on the GPU |",
            "MARKERS = (\"cudaMalloc failed\", \"CUDA out of memory\")",
            "You might need to adjust parameters to avoid CUDA out of memory errors.",
            "- update the worker to catch RuntimeError: CUDA error: out of memory",
            "* Handle torch.OutOfMemoryError: CUDA out of memory in the server",
            "retry: twice   # after CUDA out of memory",
            "Please note that `CUDA out of memory` is what the card says",
            "It's most likely that your device is out of memory, try half the batch",
            "How many layers fit without running out of memory: CUDA out of memory is what I fear",
        ] {
            assert!(likeness(line, line, true) > 0.6, "{line}");
        }
    }

    #[test]
    fn errors_are_not() {
        for line in [
            "RuntimeError: CUDA error: out of memory",
            "torch.OutOfMemoryError: CUDA out of memory.",
            "2024-10-22 06:31:49 ERROR worker: CUDA out of memory",
            "CUDA Error: out of memory: File exists",
            "# RuntimeError: cuda runtime error (2) : out of memory at THCTensorCopy.cu:205",
            "trainer-1  | CUDA driver error: out of memory",
            "CUDA error at mvs/volume.h:12 - out of memory",
            "loss=0.2 # RuntimeError: CUDA error: out of memory",
        ] {
            assert!(likeness(line, line, true) < 0.5, "{line}");
        }
    }
}
