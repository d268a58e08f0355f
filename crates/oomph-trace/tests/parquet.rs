//! Parquet files can be opened by a reader of the format.

mod sample;

use oomph_trace::write::parquet;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

#[test]
fn parquet_holds_every_event() {
    let mut bytes = Vec::new();
    parquet(&sample::trace(), &mut bytes).expect("writing to memory");
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("a Parquet file");
    let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0].get_string(0).expect("device"), "cuda:2");
    assert_eq!(rows[1].get_ulong(1).expect("event"), 1);
    assert_eq!(rows[0].get_long(2).expect("time_us"), 1_000_000);
    assert_eq!(rows[2].get_string(3).expect("action"), "oom");
    assert_eq!(rows[0].get_ulong(4).expect("address"), u64::MAX - 5);
    assert_eq!(rows[2].get_ulong(5).expect("size"), 1 << 30);
    assert_eq!(rows[0].get_string(7).expect("pool"), "0.1");
    assert!(rows[1].get_string(7).is_err());
    assert_eq!(rows[0].get_list(9).expect("stack").elements().len(), 2);
    assert!(rows[0].to_string().contains("forward \"x\" (a.py:2)"), "{}", rows[0]);
}
