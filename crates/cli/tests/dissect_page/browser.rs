//! Chromium without a window, told through a pipe what to do (the Chrome DevTools Protocol): it
//! opens a page and runs a script in it, for whose end we wait.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// No answer takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether it can be started.
pub fn is_here() -> bool {
    let version = Command::new("chromium")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    calls: u64,
    /// The page that calls are about, once there is one.
    session: Option<String>,
    loaded: bool,
}

impl Browser {
    pub fn start(profile: &Path) -> Browser {
        // It reads from descriptor 3 and writes to 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null",
                "sh",
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--window-size=1300,900",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let to = child.stdin.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (sender, from) = mpsc::channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|len| len > 0) {
                message.pop();
                let parsed = serde_json::from_slice(&message).expect("JSON");
                message.clear();
                if sender.send(parsed).is_err() {
                    return;
                }
            }
        });
        Browser {
            child,
            to,
            from,
            calls: 0,
            session: None,
            loaded: false,
        }
    }

    /// Opens a page, and returns once its own script has run.
    pub fn open_on(&mut self, screen: Option<(u32, u32, bool)>, file: &Path) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", attach);
        self.session = session["sessionId"].as_str().map(str::to_owned);
        self.call("Page.enable", json!({}));
        if let Some((width, height, dark)) = screen {
            self.screen(width, height, dark);
        }
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({ "url": url }));
        while !self.loaded {
            self.receive();
        }
    }

    /// Pretends to be a screen of this size, of a computer that is set to light or dark.
    fn screen(&mut self, width: u32, height: u32, dark: bool) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// What the promise of this expression brings, a text.
    pub fn run(&mut self, script: &str) -> String {
        let evaluate = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", evaluate);
        let text = answer["result"]["value"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.send(method, params).expect("chromium listens");
        loop {
            let mut message = self.receive();
            if message["id"].as_u64() == Some(self.calls) {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    fn send(&mut self, method: &str, params: Value) -> std::io::Result<()> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.to.write_all(&bytes)
    }

    fn receive(&mut self) -> Value {
        let received = self.from.recv_timeout(PATIENCE);
        let message = received.expect("chromium answers");
        self.loaded |= message["method"] == "Page.loadEventFired";
        message
    }
}

impl Drop for Browser {
    /// Lets it end by itself: its other processes use the profile until then.
    fn drop(&mut self) {
        self.session = None;
        if self.send("Browser.close", json!({})).is_ok() {
            while self.from.recv_timeout(Duration::from_secs(30)).is_ok() {}
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
