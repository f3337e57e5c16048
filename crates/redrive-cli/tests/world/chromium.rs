//! A headless Chromium, controlled over the DevTools protocol: a JSON object and a zero byte each way, through two
//! named pipes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wait_for;

pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    number: u64,
    session: Option<String>,
}

/// The path of Chromium, if it is installed.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    let found =
        |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
    names.iter().find_map(|name| found(name))
}

impl Browser {
    /// Opens a page. Chromium keeps its profile in `dir`.
    pub fn open(program: &Path, dir: &Path, url: &str) -> Self {
        let made = Command::new("mkfifo").args(["to", "from"]).current_dir(dir).status();
        assert!(made.unwrap().success());
        // Chromium reads from descriptor 3 and writes to 4; the shell attaches the pipes and then executes Chromium.
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<to 4>from"])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=profile"])
            .args(["--remote-debugging-pipe", "about:blank"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(dir.join("to")).unwrap();
        let from = BufReader::new(File::open(dir.join("from")).unwrap());
        let mut browser = Self { child, to, from, number: 0, session: None };
        let target = browser.call("Target.createTarget", &json!({ "url": url }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        // Nothing can be evaluated before the page is loaded.
        let loaded =
            json!({ "expression": "document.readyState === 'complete' && location.href !== 'about:blank'" });
        wait_for("the page to be loaded", || {
            browser
                .try_call("Runtime.evaluate", &loaded)
                .is_ok_and(|answer| answer["result"]["value"] == true)
        });
        browser
    }

    /// The value of an expression in the page; promises are awaited. If the document is being replaced, the next one is
    /// asked.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let wanted = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let begun = Instant::now();
        let answer = loop {
            match self.try_call("Runtime.evaluate", &wanted) {
                Ok(answer) => break answer,
                Err(error) => {
                    let is_replaced = error["message"].as_str().is_some_and(|why| why.contains("navigated"));
                    assert!(is_replaced && begun.elapsed() < super::PATIENCE, "{expression}: {error}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        };
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The text of the element that a selector finds; empty if there is none.
    pub fn text(&mut self, selector: &str) -> String {
        let selector = json!(selector);
        let value = self.evaluate(&format!("document.querySelector({selector})?.textContent ?? ''"));
        // A document that is being replaced has no value.
        value.as_str().unwrap_or_default().to_owned()
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "Chromium has gone");
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            // Anything without our number is an event.
            if answer["id"] == self.number {
                return answer
                    .get("error")
                    .map_or_else(|| Ok(answer["result"].clone()), |error| Err(error.clone()));
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helper processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
