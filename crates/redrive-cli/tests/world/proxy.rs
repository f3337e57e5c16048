//! A real proxy in front of a processor: nginx or Caddy, each with its own configuration and directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{free_port, http, wait_for};

/// The upstream in the recipes of `deploy/proxy`.
const UPSTREAM: &str = "127.0.0.1:7333";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Caddy,
}

/// A running proxy. Stopped on drop.
pub struct Proxy {
    pub port: u16,
    child: Child,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Nginx, Self::Caddy];

    /// Its path, if it is installed.
    pub fn find(self) -> Option<PathBuf> {
        let name = match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
    }

    /// The recipe of `deploy/proxy`, for plain HTTP on this port.
    pub fn recipe(self, port: u16) -> String {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/proxy");
        match self {
            Self::Nginx => {
                let text = std::fs::read_to_string(dir.join("nginx.conf")).unwrap();
                let lines = text.lines().filter(|line| !line.trim_start().starts_with("ssl_"));
                lines.collect::<Vec<_>>().join("\n").replace("443 ssl", &format!("127.0.0.1:{port}"))
            }
            Self::Caddy => {
                let text = std::fs::read_to_string(dir.join("Caddyfile")).unwrap();
                text.replace("\nredrive.example.com {", &format!("\nhttp://:{port} {{\n\tbind 127.0.0.1"))
            }
        }
    }

    /// The minimal proxy configuration, with defaults for everything else.
    pub fn defaults(self, port: u16) -> String {
        match self {
            Self::Nginx => {
                format!(
                    "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{UPSTREAM}; }} }}"
                )
            }
            Self::Caddy => format!("http://:{port} {{\n\tbind 127.0.0.1\n\treverse_proxy {UPSTREAM}\n}}"),
        }
    }
}

impl Proxy {
    /// Starts it in `dir`, in front of a processor on `upstream`, with the configuration that `config` creates for its
    /// own port.
    pub fn start(kind: Kind, dir: &Path, upstream: u16, config: impl Fn(u16) -> String) -> Self {
        let port = free_port();
        let config = config(port).replace(UPSTREAM, &format!("127.0.0.1:{upstream}"));
        let program = kind.find().unwrap();
        let log = std::fs::File::create(dir.join("proxy.log")).unwrap();
        let mut command = Command::new(program);
        match kind {
            Kind::Nginx => {
                let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|name| format!("{name}_temp_path {};\n", dir.join(name).display()))
                    .concat();
                let whole = format!(
                    "daemon off; user root; pid {0}/nginx.pid; error_log {0}/nginx-error.log;\nevents {{}}\n\
                     http {{ access_log off;\n{temp}{config}\n}}\n",
                    dir.display()
                );
                std::fs::write(dir.join("nginx.conf"), whole).unwrap();
                command.arg("-p").arg(dir).arg("-c").arg(dir.join("nginx.conf"));
                command.arg("-e").arg(dir.join("nginx-error.log"));
            }
            Kind::Caddy => {
                let whole = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{config}\n");
                std::fs::write(dir.join("Caddyfile"), whole).unwrap();
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(dir.join("Caddyfile"));
                command.env("HOME", dir).env("XDG_DATA_HOME", dir).env("XDG_CONFIG_HOME", dir);
            }
        }
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut proxy = Self { port, child };
        wait_for("the proxy to answer", || {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", std::fs::read_to_string(dir.join("proxy.log")).unwrap());
            http::try_send("GET", &proxy.url("/livez"), &[], "").is_some_and(|answer| answer.status == 200)
        });
        proxy
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx's worker processes end with it only on SIGTERM.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}
