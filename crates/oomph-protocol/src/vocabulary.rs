//! The words that documents use. A word means the same in each of them.

words! {
    /// A part of a program.
    Phase else Other {
        /// Before a recording began. Only the explanation of a recording says so: neither the hook nor a report of a run does.
        BeforeRecording = "before-recording",
        /// Loading or building the model.
        Load = "load",
        /// A forward pass.
        Forward = "forward",
        /// A backward pass.
        Backward = "backward",
        /// The optimizer's step.
        Optimizer = "optimizer",
        /// An evaluation: a forward pass without gradients.
        Eval = "eval",
        /// Generating tokens.
        Generate = "generate",
        /// Writing a checkpoint.
        Saving = "saving",
        /// A pipeline's prompt.
        TextEncoding = "text-encoding",
        /// A pipeline's loop over the steps of its scheduler.
        Denoising = "denoising",
        /// A pipeline's way from latents to images.
        Decoding = "decoding",
        /// Anything else, or not known.
        Other = "other",
    }
}

impl Phase {
    /// The phase as people read it, and as the list of phases in a report names it.
    #[must_use]
    pub const fn spelled_out(self) -> &'static str {
        match self {
            Self::BeforeRecording => "before the recording",
            Self::Eval => "evaluation",
            Self::Generate => "generation",
            Self::TextEncoding => "text encoding",
            other => other.name(),
        }
    }
}

/// For fields that hold a phase as people read it: `#[serde(with = "oomph_protocol::spelled_out")]`.
#[cfg(feature = "documents")]
pub mod spelled_out {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Phase;

    /// Writes `evaluation` where other documents have `eval`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(phase: &Phase, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(phase.spelled_out())
    }

    /// Reads what [`serialize`] wrote; another word is [`Phase::Other`].
    ///
    /// # Errors
    /// When it is not a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Phase, D::Error> {
        let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Phase::ALL.iter().copied().find(|known| known.spelled_out() == word).unwrap_or_default())
    }

    /// The words that [`serialize`] writes.
    #[cfg(feature = "schema")]
    pub fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let words: Vec<&str> = Phase::ALL.iter().map(|phase| phase.spelled_out()).collect();
        schemars::json_schema!({ "type": "string", "enum": words })
    }
}

words! {
    /// What a plan computes, in order. It is not [`Phase`]: a plan executes a model and no program, so that there is no saving or
    /// decoding in it, and its report calls the optimizer's step by two words.
    TapePhase {
        /// The model is put on the card.
        Load = "load",
        /// The forward pass, the loss included.
        Forward = "forward",
        /// The backward pass.
        Backward = "backward",
        /// The optimizer's step.
        Step = "optimizer step",
    }
}

words! {
    /// Who owns bytes of a card. What is taken outside of the allocator, or free, is an owner as well, so that the owners
    /// add up to the card.
    Owner {
        /// Weights.
        Parameters = "parameters",
        /// A module's tensors that are not trained. Distinguished from parameters only where the hook named them.
        Buffers = "buffers",
        /// Gradients of parameters.
        Gradients = "gradients",
        /// What an optimizer keeps between steps.
        OptimizerState = "optimizer-state",
        /// Results of the forward pass, saved for backward.
        Activations = "activations",
        /// Results that live for a moment.
        Temporaries = "temporaries",
        /// Batches.
        Inputs = "inputs",
        /// Keys and values of earlier tokens.
        KvCache = "kv-cache",
        /// Working memory of a library.
        Workspace = "workspace",
        /// Live blocks of private pools (CUDA graphs, `MemPool`) about which nothing more is known, and what is cached
        /// there.
        GraphPools = "graph-pools",
        /// Live blocks of which nothing is known.
        Unattributed = "unattributed",
        /// What blocks are larger than what was asked for.
        SlackInBlocks = "slack-in-blocks",
        /// Free, in segments that a live block keeps from being given back.
        CachedSplit = "cached-split",
        /// Free, in segments that are all free.
        CachedUnsplit = "cached-unsplit",
        /// Taken by the process outside of the allocator.
        Context = "context",
        /// Taken by other processes.
        OtherProcesses = "other-processes",
        /// Free on the card.
        Free = "free",
    }
}

words! {
    /// What the hook saw a tensor be, in `names.json`. It is not [`Owner`]: an observation is of one tensor, and what
    /// no tensor holds (caches, the context) is never observed. [`NamedOwner::owner`] converts one to the other.
    NamedOwner else Other {
        /// A parameter of a module.
        Parameter = "parameter",
        /// A buffer of a module.
        Buffer = "buffer",
        /// What an optimizer keeps.
        OptimizerState = "optimizer-state",
        /// A gradient of a parameter.
        Gradient = "gradient",
        /// Keys and values of earlier tokens.
        KvCache = "kv-cache",
        /// A batch.
        Input = "input",
        /// What autograd saved for backward.
        Activation = "activation",
        /// Working memory of a library.
        Workspace = "workspace",
        /// Something with a name and nothing else that is known.
        Other = "other",
    }
}

impl NamedOwner {
    /// The owner of the block; `None` where only a name is known.
    #[must_use]
    pub const fn owner(self) -> Option<Owner> {
        Some(match self {
            Self::Parameter => Owner::Parameters,
            Self::Buffer => Owner::Buffers,
            Self::OptimizerState => Owner::OptimizerState,
            Self::Gradient => Owner::Gradients,
            Self::KvCache => Owner::KvCache,
            Self::Input => Owner::Inputs,
            Self::Activation => Owner::Activations,
            Self::Workspace => Owner::Workspace,
            Self::Other => return None,
        })
    }
}

words! {
    /// The answer in one word.
    Verdict {
        /// The program ran, and the cards held it.
        Fits = "fits",
        /// The program ran to its end, but caught an out-of-memory error on its way and did something else instead.
        Recovered = "recovered",
        /// The program died because a card could not hold what it asked for.
        Oom = "oom",
        /// It depends on sizes that were not computed: their smallest and largest values give different answers. Or a part
        /// of the program was left out that may take more than all that ran, or the program waited for something that never
        /// came.
        Unsure = "unsure",
        /// The program failed for another reason.
        Failed = "failed",
        /// No process of the program created a CUDA context.
        NoGpuUse = "no-gpu-use",
    }
}

words! {
    /// Why a run ended. The hook says `peak-stable`, `steps` or `budget`; the launcher knows the rest.
    Stopped {
        /// The peak of reserved memory had not moved for some optimizer steps.
        PeakStable = "peak-stable",
        /// The number of steps that was asked for was reached.
        Steps = "steps",
        /// The program ended on its own.
        Exit = "exit",
        /// The time that was allowed ran out.
        Timeout = "timeout",
        /// An out-of-memory error ended the program.
        Oom = "oom",
        /// The user interrupted it (Ctrl-C), as one does with a server.
        Interrupted = "interrupted",
        /// It is a server that had started and waited for requests.
        Listening = "listening",
        /// It waited for something that never came, and nothing was computed meanwhile.
        Waiting = "waiting",
        /// Its peak had settled, its loops could not be shortened, and the time for that was up.
        Budget = "budget",
    }
}

words! {
    /// Whether a remedy took effect in a process.
    RemedyState else Unused {
        /// It did.
        Applied = "applied",
        /// The program itself does so.
        Already = "already",
        /// It cannot be applied to this program, or had no effect.
        Refused = "refused",
        /// What it changes never appeared, or the hook says something newer.
        Unused = "unused",
    }
}

words! {
    /// What a loop of the program does.
    LoopKind else Other {
        /// It makes optimizer steps.
        Training = "training",
        /// It holds loops that do.
        Epochs = "epochs",
        /// It runs the model without gradients in a program that trains.
        Evaluation = "evaluation",
        /// Anything else.
        Other = "other",
    }
}

words! {
    /// Where in a guarded program its memory was read: only what is held at equal moments can be compared.
    Moment else Other {
        /// The allocator's first use.
        Start = "start",
        /// The end of an optimizer step.
        StepEnd = "step-end",
        /// The allocator was refused memory.
        Refusal = "refusal",
        /// Anywhere else.
        Other = "other",
    }
}

words! {
    /// How the limit of a framework's pool follows the size of the device.
    LimitScales else Fixed {
        /// A part of the device, like three quarters.
        Share = "share",
        /// All of it but so many bytes.
        Reserve = "reserve",
        /// So many bytes on any device, or the hook says something newer.
        Fixed = "fixed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        for phase in Phase::ALL {
            assert_eq!(Phase::named(phase.name()), Some(*phase));
        }
        assert_eq!(serde_json::to_string(&Owner::KvCache).unwrap(), r#""kv-cache""#);
        assert_eq!(serde_json::from_str::<Phase>(r#""later""#).unwrap(), Phase::Other);
        assert!(serde_json::from_str::<Verdict>(r#""later""#).is_err());
    }

    #[test]
    fn a_phase_is_spelled_out_in_one_way() {
        let all: std::collections::BTreeSet<_> = Phase::ALL.iter().map(|phase| phase.spelled_out()).collect();
        assert_eq!(all.len(), Phase::ALL.len());
    }
}
