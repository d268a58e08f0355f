//! Serves the figures as OpenMetrics on this machine.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_report::{WatchReport, WatchedFramework};

/// A client that says nothing for so long is left.
const TIMEOUT: Duration = Duration::from_secs(1);

/// No request for figures is longer.
const REQUEST: usize = 8192;

/// Serves what it was shown last.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    text: Arc<Mutex<String>>,
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn start(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
        let address = listener.local_addr().unwrap_or(address);
        let text = Arc::new(Mutex::new(String::from("# EOF\n")));
        let served = Arc::clone(&text);
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || {
                for client in listener.incoming().flatten() {
                    let text = served.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    // A client that goes away is its own affair.
                    let _ = answer(client, &text);
                }
            })
            .context("cannot start a thread for --metrics")?;
        Ok(Self { address, text })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes over new figures.
    pub fn show(&self, report: &WatchReport) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = metrics(report);
    }
}

fn answer(mut client: TcpStream, text: &str) -> io::Result<()> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_write_timeout(Some(TIMEOUT))?;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST {
        match client.read(&mut part)? {
            0 => break,
            read => request.extend_from_slice(&part[..read]),
        }
    }
    let is_asked = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, kind, body) = if is_asked {
        ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
    } else {
        ("404 Not Found", "text/plain; charset=utf-8", "the figures are at /metrics\n")
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// A metric: its name, what it is, and its values by labels.
type Family = (&'static str, &'static str, Vec<(String, f64)>);

/// The figures of a look.
fn metrics(report: &WatchReport) -> String {
    let mut families: Vec<Family> = [
        ("oomph_gpu_memory_total_bytes", "Memory of the card."),
        ("oomph_gpu_memory_used_bytes", "Memory of the card in use."),
        ("oomph_gpu_memory_free_bytes", "Memory of the card that is free."),
        ("oomph_process_memory_bytes", "Memory of the card that the process holds, by the driver."),
        ("oomph_process_outside_framework_bytes", "What the process holds outside its framework."),
        ("oomph_process_allocated_bytes", "Live tensors of the process."),
        ("oomph_process_reserved_bytes", "What the allocator of the process took from the card."),
        ("oomph_process_allocated_peak_bytes", "Peak of the live tensors."),
        ("oomph_process_reserved_peak_bytes", "Peak of what the allocator took."),
        ("oomph_process_step", "Optimizer steps of the training."),
        ("oomph_process_full_at_step", "The step at which the card will be full, if a forecast is possible."),
    ]
    .map(|(name, help)| (name, help, Vec::new()))
    .to_vec();
    let mut add = |name: &str, labels: &str, value: Option<f64>| {
        if let (Some(family), Some(value)) = (families.iter_mut().find(|family| family.0 == name), value) {
            family.2.push((labels.to_owned(), value));
        }
    };
    for card in &report.cards {
        let labels = format!(
            "gpu=\"{}\",name=\"{}\",uuid=\"{}\"",
            card.place,
            escaped(&card.name),
            escaped(card.uuid.as_deref().unwrap_or_default())
        );
        add("oomph_gpu_memory_total_bytes", &labels, card.total_bytes.map(number));
        add("oomph_gpu_memory_used_bytes", &labels, card.used_bytes.map(number));
        add("oomph_gpu_memory_free_bytes", &labels, card.free_bytes.map(number));
        for process in &card.processes {
            let rank = process.rank.map_or_else(String::new, |rank| rank.to_string());
            let labels = format!("gpu=\"{}\",pid=\"{}\",rank=\"{rank}\"", card.place, process.pid);
            add("oomph_process_memory_bytes", &labels, process.driver_bytes.map(number));
            add("oomph_process_outside_framework_bytes", &labels, process.outside_bytes.map(number));
            let Some(framework) = &process.framework else { continue };
            let of = |figure: fn(&WatchedFramework) -> u64| Some(number(figure(framework)));
            add("oomph_process_allocated_bytes", &labels, of(|one| one.allocated_bytes));
            add("oomph_process_reserved_bytes", &labels, of(|one| one.reserved_bytes));
            add("oomph_process_allocated_peak_bytes", &labels, of(|one| one.allocated_peak_bytes));
            add("oomph_process_reserved_peak_bytes", &labels, framework.reserved_peak_bytes.map(number));
            add("oomph_process_step", &labels, of(|one| one.step));
            let full = framework.outlook.and_then(|outlook| outlook.full_at_step);
            add("oomph_process_full_at_step", &labels, full.map(number));
        }
    }
    let mut text = String::new();
    for (name, help, values) in families {
        let unit = if name.ends_with("_bytes") { format!("# UNIT {name} bytes\n") } else { String::new() };
        let _ = write!(text, "# TYPE {name} gauge\n{unit}# HELP {name} {help}\n");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    text.push_str("# TYPE oomph_driver_seconds counter\n# UNIT oomph_driver_seconds seconds\n");
    text.push_str("# HELP oomph_driver_seconds Time that oomph spent inside the driver.\n");
    let _ = writeln!(text, "oomph_driver_seconds_total {}", report.driver.seconds);
    text.push_str("# EOF\n");
    text
}

#[expect(clippy::cast_precision_loss, reason = "OpenMetrics' numbers are floating-point")]
fn number(value: u64) -> f64 {
    value as f64
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use oomph_report::{WatchCost, WatchSchema, WatchedGpu};

    use super::*;

    fn report() -> WatchReport {
        let card = WatchedGpu { name: "a \"card\"".into(), free_bytes: Some(5 << 30), ..WatchedGpu::default() };
        WatchReport { schema: WatchSchema, time: 0.0, cards: vec![card], driver: WatchCost::default() }
    }

    #[test]
    fn figures_are_served_on_loopback_only() {
        let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        server.show(&report());
        let ask = |request: &str| {
            let mut client = TcpStream::connect(server.address()).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
        let line = "oomph_gpu_memory_free_bytes{gpu=\"0\",name=\"a \\\"card\\\"\",uuid=\"\"} 5368709120\n";
        assert!(answer.contains(line), "{answer}");
        assert!(!answer.contains("oomph_gpu_memory_used_bytes{"), "what is not known is left out: {answer}");
        assert!(ask("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    }
}
