//! What one more of something costs where there are few, and where there are ten times as many: it should cost the same.

use http::Method;
use tokio::time::sleep;

use crate::client::{Ask, drive, open_streams, send};
use crate::failure::Failure;
use crate::machine::{CpuTime, resident};
use crate::options::Options;
use crate::process::Process;
use crate::report::{self, Growth};
use crate::scenarios::{AFTERMATH, OPENED_AT_ONCE, SETTLE, bytes, micros, possible_streams};
use crate::script;
use crate::servers::{Servers, Subject};

/// How many requests there are in one block.
const BLOCK: u32 = 300;
/// How many connections ask at a time.
const CONNECTIONS: u32 = 8;
/// How many requests have ended before it is looked at what they left, for the first time.
const ENDED: u32 = 2_000;

/// How many messages a session has, of which a summary stands for most.
const SESSION: (u32, u32) = (100, 10_000);
/// How many are said in it.
const SAID: u32 = 20;

/// Measures all of them.
pub(crate) async fn run(options: &Options, open_files: u64) -> Result<(), Failure> {
    let mut rows = vec![
        alike("a token of a burst", options, (script::BURST100, 100), (script::BURST1000, 1000)).await?,
        alike("a step of a loop", options, (script::TOOLS3, 3), (script::TOOLS30, 31)).await?,
    ];
    rows.extend(streams(possible_streams(options.streams, open_files)).await?);
    rows.extend(left("a loop that ended", script::TOOLS3, false).await?);
    rows.extend(left("a session with one exchange", script::PLAIN, true).await?);
    report::growth(&rows);
    Ok(())
}

/// CPU of the parts of two requests, which have different numbers of them.
async fn alike(what: &str, options: &Options, few: (&str, u32), many: (&str, u32)) -> Result<Growth, Failure> {
    let servers = Servers::start(&[Subject::LoopgateChat], !options.unpinned).await?;
    let process = servers.process(Subject::LoopgateChat).ok_or("it did not start")?;
    let (mut at_few, mut at_many) = (Vec::new(), Vec::new());
    for round in 0..=options.rounds {
        for ((model, parts), figures) in [(few, &mut at_few), (many, &mut at_many)] {
            let per_part = spent(process, model, (BLOCK * few.1 / parts).max(CONNECTIONS)).await? / f64::from(parts);
            if round > 0 {
                figures.push(per_part);
            }
        }
    }
    Ok(Growth { what: what.into(), unit: "CPU µs", few: few.1, at_few, many: many.1, at_many })
}

/// CPU of a message in sessions of different lengths, of which models are shown as much. The replica has read none of them before.
pub(crate) async fn sessions(options: &Options) -> Result<(), Failure> {
    let servers = Servers::start(&[Subject::LoopgateChat], !options.unpinned).await?;
    let process = servers.process(Subject::LoopgateChat).ok_or("it did not start")?;
    let [mut at_few, mut at_many] = [Vec::new(), Vec::new()];
    for round in 0..=options.rounds {
        for (count, figures) in [(SESSION.0, &mut at_few), (SESSION.1, &mut at_many)] {
            let session = format!("grown-{round}-{count}");
            send(process.address, Method::POST, "/v1/sessions/import", snapshot(&session, count)).await?;
            sleep(AFTERMATH).await;
            let before = CpuTime::of(process.id())?;
            let ask = Ask::new(Subject::LoopgateChat, process.address, script::PLAIN).in_session(&session);
            drive(&ask, 1, SAID).await?;
            sleep(AFTERMATH).await;
            if round > 0 {
                figures.push(micros(CpuTime::of(process.id())?.since(&before)) / f64::from(SAID));
            }
            // What is stored is bounded.
            send(process.address, Method::DELETE, &format!("/v1/sessions/{session}"), String::new()).await?;
        }
    }
    let what = "a message in a session of so many".to_owned();
    report::growth(&[Growth { what, unit: "CPU µs", few: SESSION.0, at_few, many: SESSION.1, at_many }]);
    Ok(())
}

/// A session of so many messages, of some 200 tokens each, of which the last ten are shown.
fn snapshot(id: &str, count: u32) -> String {
    let said = |place: u32| {
        let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
        format!(r#"{{"role":"{role}","content":"{place} {}"}}"#, "word ".repeat(160))
    };
    let messages: Vec<String> = (0..count).map(said).collect();
    let usage = r#"{"prompt_tokens":0,"completion_tokens":0,"cached_tokens":0,"reasoning_tokens":0,"estimated":false}"#;
    let summary =
        format!(r#"{{"covers":{},"kept":[0],"version":1,"method":"llm","text":"Much was said."}}"#, count - 10);
    format!(
        r#"{{"object":"session.export","version":1,"session":{{"id":"{id}","created_ms":1,"updated_ms":1,"metadata":{{}},"usage":{usage},"cost_usd":0,"runs":0,"summary":{summary}}},"messages":[{}]}}"#,
        messages.join(",")
    )
}

/// CPU µs of a request.
async fn spent(process: &Process, model: &str, requests: u32) -> Result<f64, Failure> {
    let before = CpuTime::of(process.id())?;
    drive(&Ask::new(Subject::LoopgateChat, process.address, model), CONNECTIONS, requests).await?;
    sleep(AFTERMATH).await;
    Ok(micros(CpuTime::of(process.id())?.since(&before)) / f64::from(requests))
}

/// Memory of an open stream, and CPU of a short answer beside live runs.
async fn streams(most: u32) -> Result<[Growth; 2], Failure> {
    let servers = Servers::start(&[Subject::LoopgateChat], false).await?;
    let process = servers.process(Subject::LoopgateChat).ok_or("it did not start")?;
    let ask = Ask::new(Subject::LoopgateChat, process.address, script::STALL);
    spent(process, script::PLAIN, BLOCK).await?;
    let (few, mut opened) = (most / 10, Vec::new());
    let (mut memory, mut cpu) = (Vec::new(), Vec::new());
    for more in [few, most - few] {
        let before = resident(process.id())?;
        opened.push(open_streams(&ask, more, OPENED_AT_ONCE).await?);
        sleep(SETTLE).await;
        memory.push((bytes(resident(process.id())?) - bytes(before)) / f64::from(more) / 1024.0);
        cpu.push(spent(process, script::PLAIN, BLOCK).await?);
    }
    let row = |what: &str, unit, figures: &[f64]| {
        let (at_few, at_many) = (figures[..1].to_vec(), figures[1..].to_vec());
        Growth { what: what.into(), unit, few, at_few, many: most, at_many }
    };
    Ok([row("an open stream", "RSS KiB", &memory), row("a short answer beside live runs", "CPU µs", &cpu)])
}

/// What requests leave that have ended, and CPU of a short answer after them.
async fn left(what: &str, model: &str, sessions: bool) -> Result<[Growth; 2], Failure> {
    let servers = Servers::start(&[Subject::LoopgateChat], false).await?;
    let process = servers.process(Subject::LoopgateChat).ok_or("it did not start")?;
    spent(process, script::TOOLS3, BLOCK).await?;
    let mut ask = Ask::new(Subject::LoopgateChat, process.address, model);
    if sessions {
        ask = ask.in_new_sessions();
    }
    let (mut memory, mut cpu) = (Vec::new(), Vec::new());
    for more in [ENDED, 9 * ENDED] {
        sleep(SETTLE).await;
        let before = resident(process.id())?;
        drive(&ask, CONNECTIONS, more).await?;
        sleep(SETTLE).await;
        memory.push((bytes(resident(process.id())?) - bytes(before)) / f64::from(more) / 1024.0);
        cpu.push(spent(process, script::PLAIN, BLOCK).await?);
    }
    let row = |what: String, unit, figures: &[f64]| {
        let (at_few, at_many) = (figures[..1].to_vec(), figures[1..].to_vec());
        Growth { what, unit, few: ENDED, at_few, many: 10 * ENDED, at_many }
    };
    Ok([row(what.into(), "RSS KiB", &memory), row(format!("a short answer after {what}"), "CPU µs", &cpu)])
}

/// CPU of the same load on one worker and on two.
pub(crate) async fn workers(rounds: u32) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let servers = [1, 2].map(|workers| Servers::start_with(&[Subject::LoopgateChat], false, Some(workers)));
    let [one, two] = servers;
    let servers = [one.await?, two.await?];
    for (what, model) in [("a short answer", script::PLAIN), ("a loop with the calculator", script::TOOLS3)] {
        let mut figures = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for (servers, figures) in servers.iter().zip(&mut figures) {
                let process = servers.process(Subject::LoopgateChat).ok_or("it did not start")?;
                let spent = spent(process, model, BLOCK).await?;
                if round > 0 {
                    figures.push(spent);
                }
            }
        }
        let [at_few, at_many] = figures;
        rows.push(Growth { what: what.into(), unit: "CPU µs", few: 1, at_few, many: 2, at_many });
    }
    report::workers(&rows);
    Ok(())
}
