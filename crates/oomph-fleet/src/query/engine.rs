//! Runs DataFusion over a dataset: its tables, the usual questions as views, and the functions of oomph.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SQLOptions;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use tokio::runtime::Runtime;
use url::Url;

use super::functions;
use super::usual::USUAL;
use crate::collect::{is_url, store_of};
use crate::hint::hinted;
use crate::schema::{GPUS, TABLES, Table, VERSION};

/// A dataset that can be asked.
pub struct Engine {
    context: SessionContext,
    runtime: Arc<Runtime>,
}

/// The rows of an answer, which are computed while they are read.
pub struct Rows {
    stream: SendableRecordBatchStream,
    runtime: Arc<Runtime>,
}

impl Rows {
    /// The columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.stream.next()).map(|batch| batch.context("the query cannot be answered"))
    }
}

impl Engine {
    /// Opens a dataset: a folder, or a URL of an object store.
    ///
    /// # Errors
    /// When there is no dataset.
    pub fn open(dataset: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
        let mut config = SessionConfig::new().with_information_schema(true);
        config.options_mut().execution.parquet.pushdown_filters = true;
        let context = SessionContext::new_with_config(config);
        let base = if is_url(dataset) {
            let (store, bucket, prefix) = store_of(dataset)?;
            let bucket = Url::parse(&bucket).with_context(|| format!("{dataset} is not a URL"))?;
            context.register_object_store(&bucket, store);
            let mut base = format!("{bucket}{prefix}");
            base.truncate(base.trim_end_matches('/').len());
            Url::parse(&format!("{base}/"))
        } else {
            let folder = std::fs::canonicalize(dataset).with_context(|| format!("cannot read {dataset}"))?;
            if !is_dataset(&folder) {
                return Err(hinted(
                    format!("{dataset} is not a dataset"),
                    format!("make one: oomph-fleet collect SOURCE... --into {dataset}"),
                ));
            }
            Ok(Url::from_directory_path(&folder)
                .map_err(|()| anyhow::anyhow!("{} cannot be written as a URL", folder.display()))?)
        };
        let base = base.with_context(|| format!("{dataset} is not a URL"))?;
        for table in TABLES {
            register(&context, &base, table, true)?;
        }
        register(&context, &base, &GPUS, false)?;
        functions::register(&context);
        let engine = Self { context, runtime: Arc::new(runtime) };
        Ok(engine)
    }

    /// Answers a query. It reads and cannot change anything.
    ///
    /// # Errors
    /// When the query is not understood, or the dataset cannot be read.
    pub fn ask(&self, sql: &str) -> Result<Rows> {
        let stream = self.runtime.block_on(async {
            let reads = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
            for usual in USUAL {
                // Planning a view takes some milliseconds, so that only those that are named are planned.
                if sql.contains(usual.name) && !self.context.table_exist(usual.name)? {
                    let view = self.context.sql_with_options(usual.file, reads).await?.into_view();
                    self.context.register_table(usual.name, view)?;
                }
            }
            self.context.sql_with_options(sql, reads).await?.execute_stream().await
        });
        match stream {
            Ok(stream) => Ok(Rows { stream, runtime: Arc::clone(&self.runtime) }),
            Err(error) => Err(hinted(
                format!("the query cannot be answered: {}", error.strip_backtrace()),
                "`oomph-fleet query --schema` prints the tables and functions, `oomph-fleet query --list` the usual questions",
            )),
        }
    }
}

/// Whether a folder holds a dataset.
fn is_dataset(folder: &Path) -> bool {
    folder.join("_collected").is_dir() || TABLES.iter().chain([&GPUS]).any(|table| folder.join(table.name).is_dir())
}

fn register(context: &SessionContext, base: &Url, table: &'static Table, by_day: bool) -> Result<()> {
    let failed = || format!("cannot read the table {}", table.name);
    let place = base.join(&format!("{}/v={VERSION}/", table.name)).with_context(failed)?;
    let url = ListingTableUrl::parse(place.as_str()).with_context(failed)?;
    let day = if by_day { vec![("day".to_owned(), DataType::Date32)] } else { Vec::new() };
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
        .with_file_extension(".parquet")
        .with_table_partition_cols(day);
    let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(table.arrow());
    let listing = ListingTable::try_new(config).with_context(failed)?;
    context.register_table(table.name, Arc::new(listing)).with_context(failed)?;
    Ok(())
}
