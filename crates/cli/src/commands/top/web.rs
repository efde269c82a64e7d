//! The same as a page on loopback: `/` is the page, `/frame.json` what it shows, `/metrics` the
//! counters for Prometheus.

use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rnic::monitor;
use tiny_http::{Header, Method, Request, Response, Server};

use super::frame::Frame;
use super::{Looker, program, prometheus};
use crate::platform::failure::{Failure, Result};

const PAGE: &str = include_str!("page.html");

/// After so many intervals that nobody has asked for, nobody is looked at any more.
const IDLE: u32 = 5;

/// What was seen last, and how long ago somebody asked for it.
#[derive(Default)]
struct Shared {
    frame: Frame,
    unasked: u32,
}

/// Serves until the process is ended.
pub fn serve(address: SocketAddr, interval: Duration, looker: Looker) -> Result<()> {
    let server = Server::http(address).map_err(|e| {
        Failure::new(format!("cannot listen at {address}"))
            .cause(e.to_string())
            .next("choose another port: rnic top --web PORT")
    })?;
    let Some(address) = server.server_addr().to_ip() else {
        return Err(Failure::new("the listening socket has no address"));
    };
    crate::say!("http://{address}/          the page\nhttp://{address}/metrics   for Prometheus");
    let shared = Arc::new(Mutex::new(Shared::default()));
    let seen = Arc::clone(&shared);
    std::thread::spawn(move || look_on(interval, looker, &seen));
    for request in server.incoming_requests() {
        // Who has gone meanwhile gets no answer.
        let _ = answer(request, address, &shared);
    }
    Ok(())
}

fn look_on(interval: Duration, mut looker: Looker, shared: &Mutex<Shared>) {
    loop {
        std::thread::sleep(interval);
        let idle = {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.unasked = shared.unasked.saturating_add(1);
            shared.unasked > IDLE
        };
        if !idle {
            let frame = looker.look();
            shared.lock().unwrap_or_else(PoisonError::into_inner).frame = frame;
        }
    }
}

type Answer = Response<Cursor<Vec<u8>>>;

fn with(body: String, kind: &str) -> Answer {
    let header = |name: &str, value: &str| Header::from_bytes(name, value).ok();
    let mut response = Response::from_string(body);
    let headers = [
        header("Content-Type", kind),
        header("Cache-Control", "no-store"),
        header("X-Content-Type-Options", "nosniff"),
    ];
    for header in headers.into_iter().flatten() {
        response.add_header(header);
    }
    response
}

/// A page of another site may have a browser come here by a name of its own (DNS rebinding): only
/// these names are answered.
fn is_for_us(host: Option<&str>, port: u16) -> bool {
    let names = ["127.0.0.1", "localhost"];
    host.is_some_and(|host| names.iter().any(|name| host == format!("{name}:{port}")))
}

fn answer(request: Request, address: SocketAddr, shared: &Mutex<Shared>) -> std::io::Result<()> {
    let mut headers = request.headers().iter();
    let host = headers.find(|header| header.field.equiv("Host"));
    let host = host.map(|header| header.value.as_str());
    if !is_for_us(host, address.port()) {
        let words = "This is for this host alone.\n".to_owned();
        return request.respond(with(words, "text/plain").with_status_code(403));
    }
    if !matches!(request.method(), Method::Get | Method::Head) {
        let words = "GET only.\n".to_owned();
        return request.respond(with(words, "text/plain").with_status_code(405));
    }
    let path = request.url().split('?').next().unwrap_or_default();
    let response = match path {
        "/" => with(PAGE.to_owned(), "text/html; charset=utf-8"),
        "/frame.json" => {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.unasked = 0;
            match serde_json::to_string(&shared.frame) {
                Ok(json) => with(json, "application/json"),
                Err(e) => with(format!("{e}\n"), "text/plain").with_status_code(500),
            }
        }
        "/metrics" => with(
            prometheus::text(&monitor::look(), &program),
            "text/plain; version=0.0.4; charset=utf-8",
        ),
        _ => with("Nothing is here.\n".to_owned(), "text/plain").with_status_code(404),
    };
    request.respond(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_refused() {
        for host in ["127.0.0.1:9118", "localhost:9118"] {
            assert!(is_for_us(Some(host), 9118), "{host}");
        }
        for host in [
            None,
            Some("evil.example:9118"),
            Some("localhost"),
            Some("localhost:80"),
        ] {
            assert!(!is_for_us(host, 9118), "{host:?}");
        }
    }
}
