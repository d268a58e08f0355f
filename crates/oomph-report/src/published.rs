//! The JSON Schemas of the reports, as they are committed under `schemas/reports/`.

use oomph_protocol::published::schema_of;
use schemars::JsonSchema;
use serde_json::Value;

use crate::review::{Baseline, BaselineSchema, Review, ReviewSchema};
use crate::{
    AttachReport, AttachSchema, Brief, BriefSchema, CacheReport, CacheSchema, CalibrateReport, CalibrateSchema,
    CheckReport, CheckSchema, DiffReport, DiffSchema, DoctorReport, DoctorSchema, DryRunReport, DryRunSchema,
    ExplainReport, ExplainSchema, FixReport, FixSchema, GpusReport, GpusSchema, PlanReport, PlanSchema, SweepReport,
    SweepSchema, TuneReport, TuneSchema, WatchReport, WatchSchema,
};

/// Name and schema of each report. A reader must ignore fields that it does not know, and so do the schemas.
#[must_use]
pub fn reports() -> Vec<(&'static str, Value)> {
    fn of<T: JsonSchema>(name: &'static str) -> (&'static str, Value) {
        (name, schema_of::<T>(name))
    }
    vec![
        of::<AttachReport>(AttachSchema::NAME),
        of::<Baseline>(BaselineSchema::NAME),
        of::<Brief>(BriefSchema::NAME),
        of::<CacheReport>(CacheSchema::NAME),
        of::<CalibrateReport>(CalibrateSchema::NAME),
        of::<CheckReport>(CheckSchema::NAME),
        of::<DiffReport>(DiffSchema::NAME),
        of::<DoctorReport>(DoctorSchema::NAME),
        of::<DryRunReport>(DryRunSchema::NAME),
        of::<ExplainReport>(ExplainSchema::NAME),
        of::<FixReport>(FixSchema::NAME),
        of::<GpusReport<'_>>(GpusSchema::NAME),
        of::<PlanReport>(PlanSchema::NAME),
        of::<Review>(ReviewSchema::NAME),
        of::<SweepReport>(SweepSchema::NAME),
        of::<TuneReport>(TuneSchema::NAME),
        of::<WatchReport>(WatchSchema::NAME),
    ]
}
