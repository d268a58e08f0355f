//! The client of a hub over HTTP.

use std::env;
use std::time::Duration;

use ureq::Agent;

use crate::hub::{Answer, Network, NetworkError};

/// A request may take this long, connecting included.
const TIMEOUT: Duration = Duration::from_secs(15);
/// A server that does not accept within this time is taken for absent.
const CONNECT: Duration = Duration::from_secs(4);

/// A client that asks for ranges, with the token of `HF_TOKEN` where it is set.
#[derive(Debug)]
pub struct Http {
    agent: Agent,
    token: Option<String>,
}

impl Default for Http {
    fn default() -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .timeout_connect(Some(CONNECT))
            .http_status_as_error(false)
            .build();
        let token = env::var("HF_TOKEN").ok().filter(|token| !token.trim().is_empty());
        Self { agent: config.into(), token }
    }
}

impl Network for Http {
    fn get(&self, url: &str, start: u64, length: u64) -> Result<Answer, NetworkError> {
        let last = start.saturating_add(length.max(1)) - 1;
        let mut request = self.agent.get(url).header("Range", format!("bytes={start}-{last}"));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {}", token.trim()));
        }
        let mut response = request.call().map_err(|error| NetworkError::Unreachable(error.to_string()))?;
        let status = response.status().as_u16();
        if !matches!(status, 200 | 206) {
            return Err(NetworkError::Status { status });
        }
        let range = response.headers().get("content-range").and_then(|value| value.to_str().ok());
        // `bytes 0-99/1234`
        let total = range.and_then(|range| range.rsplit('/').next()?.parse().ok());
        if status == 200 && start > 0 {
            return Err(NetworkError::Unreadable(format!("{url} whole, where a part was asked for")));
        }
        let body = response.body_mut();
        let whole = body.content_length();
        if status == 200 && whole.is_none_or(|whole| whole > length) {
            return Err(NetworkError::Unreadable(format!("{url} whole, where a part was asked for")));
        }
        let read = body.with_config().limit(length.saturating_add(1)).read_to_vec();
        let bytes = read.map_err(|error| NetworkError::Unreachable(error.to_string()))?;
        let total = total.or(whole).unwrap_or_else(|| start.saturating_add(bytes.len() as u64));
        Ok(Answer { bytes, total })
    }
}
