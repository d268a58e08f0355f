//! Runs the statements of a file on a Ballista scheduler and prints the rows of the last as JSON lines.
use ballista::prelude::SessionContextExt as _;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::JsonArray;
use datafusion::prelude::SessionContext;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let context = SessionContext::remote(&arguments[1]).await?;
    let text = std::fs::read_to_string(&arguments[2])?;
    let mut last = None;
    for statement in text.split(";\n").map(str::trim).filter(|statement| !statement.is_empty()) {
        last = Some(context.sql(statement).await?.collect().await?);
    }
    let form = WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = form.build::<_, JsonArray>(std::io::stdout());
    for batch in last.unwrap_or_default() {
        writer.write(&batch)?;
    }
    writer.finish()?;
    Ok(())
}
