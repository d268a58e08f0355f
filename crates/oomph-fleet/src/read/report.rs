//! Reads the answers of dry runs.

use oomph_explain::snapshot::OwnerRow;
use oomph_gpu::Catalogue;
use oomph_report::{DeviceReport, DryRunReport, FollowedLoop, Growth, Oom};

use super::snapshot::{add_groups, in_reserved};
use super::{Context, Reason};
use crate::found::{Day, Found, figure, word};
use crate::schema::{Cause, Failure, Owner, Report, WhatIf};
use crate::stamp::{model_of, program_of};

/// Reads a report.
///
/// # Errors
/// When it is not of this version.
pub(super) fn read(context: &Context, text: &[u8], found: &mut Found) -> Result<(), Reason> {
    let report: DryRunReport =
        serde_json::from_slice(text).map_err(|error| format!("the report of the dry run cannot be read: {error}"))?;
    for device in &report.devices {
        add(context, &report, device, found);
    }
    Ok(())
}

fn add(context: &Context, report: &DryRunReport, device: &DeviceReport, found: &mut Found) {
    let id = context.part(device.index);
    let day = context.day();
    let need = device
        .smallest_capacity
        .as_ref()
        .map(|smallest| smallest.capacity_bytes)
        .or_else(|| device.need().map(|peak| peak.process_bytes));
    // The list has slices and laptops' cards in it as well, which are not sold by themselves.
    let smallest =
        report.smallest.iter().filter(|card| card.kind.is_card()).min_by_key(|card| (card.capacity_bytes, &card.gpu));
    let model = model_of(&report.command).or_else(|| device.oom.as_ref().and_then(|oom| oom.model.clone()));
    found.push(
        day,
        Report {
            id: id.clone(),
            file_id: Some(context.id.clone()),
            source: Some("dry-run".to_owned()),
            path: Some(context.item.path.clone()),
            written_at: Some(context.item.modified_us),
            verdict: word(&report.verdict),
            model: model.clone(),
            program: program_of(&report.command),
            gpu: Some(device.like.as_ref().unwrap_or(&device.gpu).clone()),
            device: Some(i64::from(device.index)),
            capacity_bytes: device.capacity_bytes.and_then(figure),
            process_bytes: figure(device.peak.process_bytes),
            reserved_bytes: device.peak.reserved_bytes.and_then(figure),
            allocated_bytes: device.peak.allocated_bytes.and_then(figure),
            context_bytes: figure(device.peak.context_bytes),
            needed_bytes: need.and_then(figure),
            smallest_gpu: smallest.map(|card| card.gpu.clone()),
            smallest_gpu_bytes: smallest.and_then(|card| figure(card.capacity_bytes)),
            steps: figure(report.steps),
            exit_status: Some(i64::from(report.exit_status)),
            seconds: Some(report.elapsed_seconds),
            torch: report.frameworks.get("torch").cloned(),
            settings: None,
        },
    );
    for (oom, survived) in
        device.oom.iter().map(|oom| (oom, false)).chain(device.caught_ooms.iter().map(|oom| (oom, true)))
    {
        add_failure(context, device, oom, survived, model.clone(), found);
    }
    if let Some(whose) = &device.whose {
        add_owners(id.as_deref(), &whose.at, &whose.owners, day, found);
        for (grouped_by, groups) in [
            ("line", &whose.by_line),
            ("module", &whose.by_module),
            ("dtype", &whose.by_dtype),
            ("phase", &whose.by_phase),
        ] {
            add_groups(id.as_deref(), grouped_by, groups, day, found);
        }
    }
    for followed in &report.loops {
        if let Some(growth) = followed.growth.as_ref().filter(|growth| growth.device == device.index) {
            add_leak(id.as_deref(), followed, growth, day, found);
        }
    }
    for card in &report.smallest {
        found.push(
            day,
            WhatIf {
                id: id.clone(),
                known_by: Some("run".to_owned()),
                gpu: Catalogue::builtin().get(&card.gpu).map(|gpu| gpu.id.clone()),
                capacity_bytes: figure(card.capacity_bytes),
                survives: Some(true),
                ..WhatIf::default()
            },
        );
    }
}

/// Growth that ends, of a buffer that has a capacity, is not a leak.
fn add_leak(id: Option<&str>, followed: &FollowedLoop, growth: &Growth, day: Day, found: &mut Found) {
    if growth.ends_in_iteration.is_some() {
        return;
    }
    let holders: Vec<(&str, u64)> = growth.holders.iter().map(|holder| (holder.file.as_str(), holder.line)).collect();
    let allocates = growth.site.as_ref().map(|site| (site.file.as_str(), site.line));
    let held_at = holders.iter().copied().find(|(_, line)| *line > 0).or(allocates);
    let names: Vec<&str> = growth.holders.iter().map(|holder| holder.name.as_str()).collect();
    let held = if names.is_empty() { String::new() } else { format!("; {} holds it", names.join(", ")) };
    found.push(
        day,
        Cause {
            id: id.map(str::to_owned),
            source: Some("dry-run".to_owned()),
            place: Some(1),
            cause: Some("leak".to_owned()),
            background: Some(false),
            bytes: growth.bytes_per_iteration.checked_mul(followed.iterations).and_then(figure),
            each_bytes: figure(growth.bytes_per_iteration),
            because: Some(format!(
                "memory grows with every iteration of the loop at {}:{}{held}",
                followed.file, followed.line
            )),
            site_file: held_at.map(|(file, _)| file.to_owned()),
            site_line: held_at.and_then(|(_, line)| figure(line)),
            ..Cause::default()
        },
    );
}

fn add_owners(id: Option<&str>, moment: &str, owners: &[OwnerRow], day: Day, found: &mut Found) {
    for row in owners {
        found.push(
            day,
            Owner {
                id: id.map(str::to_owned),
                source: Some("dry-run".to_owned()),
                moment: Some(moment.to_owned()),
                owner: word(&row.owner),
                bytes: figure(row.bytes),
                blocks: figure(row.blocks),
                confidence: Some(row.confidence),
                known_by: word(&row.source),
                in_reserved: Some(in_reserved(row.owner)),
            },
        );
    }
}

fn add_failure(
    context: &Context,
    device: &DeviceReport,
    oom: &Oom,
    survived: bool,
    model: Option<String>,
    found: &mut Found,
) {
    let place = if survived { found.count::<Failure>() + 1000 } else { device.index as usize };
    found.push(
        context.day(),
        Failure {
            id: context.part(place),
            file_id: Some(context.id.clone()),
            source: Some("dry-run".to_owned()),
            path: Some(context.item.path.clone()),
            happened_at: Some(context.item.modified_us),
            time_is_recorded: Some(false),
            is_gpu_oom: Some(true),
            certainty: Some(1.0),
            model,
            gpu: Some(device.like.as_ref().unwrap_or(&device.gpu).clone()),
            device: Some(i64::from(device.index)),
            site_file: oom.site.as_ref().map(|site| site.file.clone()),
            site_line: oom.site.as_ref().and_then(|site| figure(site.line)),
            site_function: oom.site.as_ref().map(|site| site.function.clone()),
            site_code: oom.site.as_ref().and_then(|site| site.text.clone()),
            operation: word(&oom.phase),
            requested_bytes: figure(oom.requested_bytes).filter(|bytes| *bytes > 0),
            capacity_bytes: device.capacity_bytes.and_then(figure),
            free_bytes: oom.free_bytes.and_then(figure),
            allocated_bytes: oom.allocated_bytes.and_then(figure),
            reserved_bytes: oom.reserved_bytes.and_then(figure),
            needed_bytes: oom.would_need_bytes.and_then(figure),
            survived: Some(survived),
            times: Some(1),
            message: Some(oom.message.clone()),
            ..Failure::default()
        },
    );
}
