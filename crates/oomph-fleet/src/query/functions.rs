//! Adds functions for what is clumsy in SQL.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{Array, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use oomph_gpu::Catalogue;

/// The functions, as `oomph-fleet query --schema` prints them.
pub const FUNCTIONS: [(&str, &str); 3] = [
    ("gib(bytes)", "the bytes in GiB"),
    ("fits(gpu, bytes)", "whether a card of the catalogue has so many bytes; null for a card that is not in it"),
    ("stack_has(id, text)", "whether a stack, line or module in the table stacks that has this id holds the text"),
];

/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// Makes the functions known.
pub fn register(context: &SessionContext) {
    context.register_udf(create_udf(
        "gib",
        vec![DataType::Float64],
        DataType::Float64,
        Volatility::Immutable,
        Arc::new(gib),
    ));
    context.register_udf(create_udf(
        "fits",
        vec![DataType::Utf8, DataType::Int64],
        DataType::Boolean,
        Volatility::Immutable,
        Arc::new(fits),
    ));
    // A session of its own, without this function: the two would keep each other alive.
    let own = SessionContext::new_with_state(context.state());
    let stacks = Stacks { context: own, found: Mutex::default() };
    context.register_udf(create_udf(
        "stack_has",
        vec![DataType::Utf8, DataType::Utf8],
        DataType::Boolean,
        Volatility::Stable,
        Arc::new(move |values: &[ColumnarValue]| stacks.have(values)),
    ));
}

fn gib(values: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(values)?;
    let bytes = arrays[0].as_primitive::<Float64Type>();
    let gib: Float64Array = bytes.iter().map(|bytes| bytes.map(|bytes| bytes / GIB)).collect();
    Ok(ColumnarValue::Array(Arc::new(gib)))
}

fn fits(values: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(values)?;
    let (gpus, bytes) = (arrays[0].as_string::<i32>(), arrays[1].as_primitive::<Int64Type>());
    let mut known: HashMap<&str, Option<u64>> = HashMap::new();
    let fits = (0..gpus.len()).map(|row| {
        if gpus.is_null(row) || bytes.is_null(row) {
            return None;
        }
        let name = gpus.value(row);
        let find = || Catalogue::builtin().find(name).ok().map(|gpu| gpu.capacity_bytes);
        let capacity = (*known.entry(name).or_insert_with(find))?;
        Some(u64::try_from(bytes.value(row)).is_ok_and(|bytes| bytes <= capacity))
    });
    let fits: BooleanArray = fits.collect();
    Ok(ColumnarValue::Array(Arc::new(fits)))
}

/// The ids whose stacks hold a text, by text.
struct Stacks {
    context: SessionContext,
    found: Mutex<HashMap<String, Arc<HashSet<String>>>>,
}

impl Stacks {
    fn have(&self, values: &[ColumnarValue]) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(values)?;
        let (ids, texts) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
        let mut rows = Vec::with_capacity(ids.len());
        for row in 0..ids.len() {
            rows.push(if ids.is_null(row) || texts.is_null(row) {
                None
            } else {
                Some(self.with(texts.value(row))?.contains(ids.value(row)))
            });
        }
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(rows))))
    }

    /// The ids whose stacks hold a text. The table is read once for each text.
    fn with(&self, text: &str) -> Result<Arc<HashSet<String>>> {
        let poisoned = || DataFusionError::Execution("stack_has cannot go on after an error".to_owned());
        let mut found = self.found.lock().map_err(|_| poisoned())?;
        if let Some(ids) = found.get(text) {
            return Ok(Arc::clone(ids));
        }
        if found.len() >= 64 {
            let text = "stack_has takes one text for all rows, not another one for each";
            return Err(DataFusionError::Execution(text.to_owned()));
        }
        let sql = format!("SELECT DISTINCT id FROM stacks WHERE strpos(name, '{}') > 0", text.replace('\'', "''"));
        // The engine's own runtime has several threads, so that waiting on one of them does not hold up the others.
        let batches = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async { self.context.sql(&sql).await?.collect().await })
        })?;
        let mut ids = HashSet::new();
        for batch in &batches {
            let column = datafusion::arrow::compute::cast(batch.column(0), &DataType::Utf8)?;
            ids.extend(column.as_string::<i32>().iter().flatten().map(str::to_owned));
        }
        let ids = Arc::new(ids);
        found.insert(text.to_owned(), Arc::clone(&ids));
        Ok(ids)
    }
}
