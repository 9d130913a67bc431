//! `HAProxy` with the configuration that the documents recommend, in front of replicas.

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::redis::free_port;
use super::within;

/// A running balancer. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Balancer {
    port: u16,
    _child: Child,
}

impl Balancer {
    /// Starts one in front of three replicas at these addresses, and waits until it finds one of them ready.
    pub(crate) async fn start(replicas: [&str; 3]) -> Self {
        let port = free_port();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/haproxy.cfg");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file).env("LOOPGATE_BIND", format!("127.0.0.1:{port}"));
        for (number, replica) in (1..).zip(replicas) {
            command.env(format!("LOOPGATE_{number}"), replica);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().expect("haproxy is there: scripts/test installs it");
        let balancer = Self { port, _child: child };
        let http = reqwest::Client::builder().no_proxy().build().expect("the defaults are valid");
        within("the balancer to be ready", async {
            let ready = format!("{}/readyz", balancer.url());
            while !http.get(&ready).send().await.is_ok_and(|answer| answer.status() == 200) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        balancer
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
