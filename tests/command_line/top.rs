//! `loopgate top`, against real servers with live runs.

use std::io::Read;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::OpenptFlags;
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::process::{Child, Command};

use super::text;
use crate::support::redis::free_port;
use crate::support::server::loopgate;
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream, within};

const CHAT: &str = "/v1/chat/completions";

fn ask(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "What?"}], "agent": {"background": true}})
}

/// What `loopgate top` says where its output is no terminal: its exit code, its table and its complaints.
async fn top(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let directory = tempdir().expect("a directory can be made");
    let mut command = loopgate(directory.path());
    command.arg("top").args(arguments).env_remove("COLUMNS").envs(variables.iter().copied());
    let ran = within("a table", command.kill_on_drop(true).output()).await.expect("it can be started");
    (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
}

/// The cells of the row that begins with this.
fn row(table: &str, begin: &str) -> Vec<String> {
    let row = table.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}: {table}"));
    row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
}

/// Two replicas over one store, and an address at which there is none.
#[tokio::test]
async fn replicas_and_their_live_runs_are_shown_in_one_plain_table() {
    let (redis, gate) = (crate::support::redis::durable().await, Gate::new());
    let tools = ToolServer::start([Reply::plain("no").gate(&gate)]).await;
    let upstream =
        Upstream::start([Reply::error(401, "denied", "no"), Reply::calls("look", &json!({"note": "x"}))]).await;
    upstream.otherwise(Reply::says("Done."));
    let config = format!("{}{}[agents.default]\ntools = [\"look\"]\n", upstream.config(), tools.config("look", "read"));
    let start = || TestServer::builder(&config).store(&redis.url()).start();
    let (one, other) = (start().await, start().await);
    let failed = one.post(CHAT, &json!({"model": "test", "messages": [{"role": "user", "content": "What?"}]})).await;
    assert_eq!(failed.status, 502);
    let run = one.post(CHAT, &ask("test")).await.ok()["id"].as_str().expect("it has an id").to_owned();
    tools.called(1).await;

    let gone = format!("http://127.0.0.1:{}", free_port());
    let servers = ["--server", one.url(), "--server", other.url(), "--server", &gone];
    let (code, shown, err) = top(&[&servers[..], &["--once"]].concat(), &[]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{shown}");
    assert!(shown.contains("2 of 3 replicas answer · 1 live run · 0.0 tokens/s"), "{shown}");
    // Live, queued, streams, tokens in and out, cost, runs, failed, and failures of upstreams, tools and requests.
    let idle = ["0", "0", "0", "0.0", "0.0", "0.0000", "0", "0", "0", "0", "0"];
    let busy = ["1", "0", "0", "0.0", "0.0", "0.0000", "1", "1", "1", "0", "1"];
    assert_eq!(row(&shown, one.url())[1..], busy, "{shown}");
    assert_eq!(row(&shown, other.url())[1..], idle, "{shown}");
    assert_eq!(row(&shown, "all")[1..], busy, "{shown}");
    assert!(shown.contains(&format!("{gone} does not answer: ")), "{shown}");
    let cells = row(&shown, &run);
    assert_eq!(cells[2..], ["1", "15", "calls look", "0", "test"], "{shown}");
    assert!(!shown.contains('\x1b'), "a pipe gets no codes of terminals: {shown:?}");
    let (_, narrow, _) = top(&servers, &[("COLUMNS", "60")]).await;
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    gate.open();
}

#[tokio::test]
async fn rates_are_of_what_is_done_meanwhile() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Done."));
    let price = "[models.test]\nprice = { input = 100.0, output = 1000.0 }\n";
    let server = TestServer::start(&format!("{}{price}", upstream.config())).await;
    let request = json!({"model": "test", "messages": [{"role": "user", "content": "What?"}]});
    let busy = async {
        loop {
            server.post(CHAT, &request).await.ok();
        }
    };
    let named = [("LOOPGATE_URL", server.url())];
    let ran = tokio::select! {
        never = busy => never,
        ran = top(&[], &named) => ran,
    };
    let cells = row(&ran.1, server.url());
    let [input, output, cost] = [4, 5, 6].map(|cell| cells[cell].parse::<f64>().expect("it is a number"));
    // Each answer has ten tokens in and five out.
    assert!(input > 0.0 && (input / output - 2.0).abs() < 0.1, "{ran:?}");
    // In cents: a thousandth for each token in and a hundredth for each out, in an hour.
    assert!((cost / ((input * 0.0001 + output * 0.001) * 3_600.0) - 1.0).abs() < 0.05, "{ran:?}");
}

#[tokio::test]
async fn a_key_sees_what_its_scopes_let_it_see() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("One").gate(&gate).finish("stop").done()]).await;
    let config = format!(
        "{}[metrics]\nlisten = \"127.0.0.1:{}\"\n[keys.runs]\nkey_env = \"RUNS\"\n\
         [keys.metrics]\nkey_env = \"METRICS\"\nscopes = [\"metrics\"]\n",
        upstream.config(),
        free_port()
    );
    let metrics = config.split('"').find(|text| text.starts_with("127.0.0.1:") && !upstream.config().contains(text));
    let metrics = format!("http://{}", metrics.expect("it is configured"));
    let builder = TestServer::builder(&config).env("RUNS", "lg_runs").env("METRICS", "lg_metrics");
    let mut server = builder.start().await;
    server.use_key("lg_runs");
    let run = server.post(CHAT, &ask("test")).await.ok()["id"].as_str().expect("it has an id").to_owned();
    gate.reached().await;
    let shown = async |key: &str| top(&["--url", server.url(), "--server", &metrics], &[("LOOPGATE_KEY", key)]).await;

    let (code, table, _) = shown("lg_runs").await;
    assert!(code == Some(0) && table.contains(&run), "{table}");
    assert!(
        table.contains("the metrics of the replica cannot be read") && table.contains(&format!("{metrics} 403")),
        "{table}"
    );
    let (code, table, _) = shown("lg_metrics").await;
    assert_eq!((code, row(&table, &metrics)[1].as_str()), (Some(0), "1"), "{table}");
    assert!(table.contains("the runs cannot be listed: 403") && !table.contains(&run), "{table}");
    let (code, table, err) = shown("lg_wrong").await;
    assert_eq!((code, table.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("401"), "{err}");
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let (code, _, err) = top(&["--url", &nowhere], &[]).await;
    assert!(code == Some(8) && err.contains("does not answer"), "{err}");
    gate.open();
}

/// A terminal on which a command draws.
struct Terminal {
    window: std::fs::File,
    shown: String,
}

impl Terminal {
    /// A terminal, and this command on it, which ends with the test.
    fn start(mut command: Command) -> (Self, Child) {
        let window = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        rustix::pty::grantpt(&window).expect("it is ours");
        rustix::pty::unlockpt(&window).expect("it is ours");
        let name = rustix::pty::ptsname(&window, Vec::new()).expect("it has a name");
        let terminal = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens");
        let child = command.stdin(Stdio::null()).stdout(terminal).kill_on_drop(true).spawn().expect("it starts");
        (Self { window: window.into(), shown: String::new() }, child)
    }

    /// Reads what is drawn until it contains this, or the command has ended.
    async fn until(mut self, words: &str) -> Self {
        let words = words.to_owned();
        let drawing = tokio::task::spawn_blocking(move || {
            let mut piece = [0; 4096];
            while !self.shown.contains(&words) {
                let Ok(count @ 1..) = self.window.read(&mut piece) else { break };
                self.shown.push_str(&text(&piece[..count]));
            }
            self
        });
        within("a picture", drawing).await.expect("it is drawn")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_drawn_anew_each_second_and_is_given_back() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("One").gate(&gate).finish("stop").done()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let directory = tempdir().expect("a directory can be made");
    let mut command = loopgate(directory.path());
    command.args(["top", "--url", server.url()]).env("TERM", "xterm").env_remove("NO_COLOR");
    let (terminal, mut child) = Terminal::start(command);
    let terminal = terminal.until("no run is under way").await;
    assert!(terminal.shown.starts_with("\x1b[?1049h\x1b[?25l\x1b[H"), "{:?}", terminal.shown);
    let run = server.post(CHAT, &ask("test")).await.ok()["id"].as_str().expect("it has an id").to_owned();
    let terminal = terminal.until(&run).await;
    let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
    kill_process(id, Signal::INT).expect("it runs");
    let terminal = terminal.until("\x1b[?1049l").await;
    let status = within("its end", child.wait()).await.expect("it is ours");
    assert!(status.success() && terminal.shown.ends_with("\x1b[?25h\x1b[?1049l"), "{:?}", terminal.shown);
    gate.open();
}
