//! `loopgate models`: the models of the configured upstreams, what they cost and take, and whether they are there.
//!
//! It asks upstreams for their lists of models, so it spends no tokens, and asks no server of ours.

mod entry;

use std::io::{IsTerminal, stdout};

use clap::Args;
use futures_util::future::join_all;
use serde_json::{Value, json};

use self::entry::{COLUMNS, Entry};
use super::doctor::finding::{Finding, Level};
use super::doctor::upstreams::list;
use super::local_server::with_ollama;
use super::process::{Failure, complain, env, output_width, runtime, say, takes_colours};
use super::table::lines;
use super::text::{clean, clean_json, count};
use crate::config::{Options, Settings, Upstream};
use crate::llm::offered::{OfferedModel, Sizes};
use crate::llm::pricing::{Terms, built_in};
use crate::server::prices::terms;

/// List models: which are there, what they cost and take, and who says so.
#[derive(Debug, Args)]
pub(super) struct Models {
    /// List what is known of models, whether an upstream has them or not, and ask none
    #[arg(long)]
    known: bool,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    options: Options,
}

/// What an upstream says of its models.
struct Asked<'a> {
    upstream: &'a Upstream,
    /// They, or why it does not list them.
    listed: Result<Vec<OfferedModel>, Finding>,
}

pub(super) fn run(models: &Models) -> Result<(), Failure> {
    let settings = Settings::load(&models.options, &env).map_err(Failure::config)?;
    if models.known {
        return print(models, &[], &known(&settings));
    }
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let settings = with_ollama(&models.options, settings).await;
        let asked = join_all(settings.upstreams.iter().map(ask)).await;
        let entries: Vec<_> = asked.iter().flat_map(|asked| entries(&settings, asked)).collect();
        print(models, &asked, &entries)
    });
    // A name server that does not answer keeps a thread busy, which is not waited for.
    runtime.shutdown_background();
    done
}

async fn ask(upstream: &Upstream) -> Asked<'_> {
    let listed = match upstream.kind.http() {
        None => Ok(vec!["demo".into()]),
        Some(http) => list(upstream, http).await,
    };
    Asked { upstream, listed }
}

/// The models of an upstream: those that requests can name, and those that agents do.
fn entries<'a>(settings: &'a Settings, asked: &Asked<'a>) -> Vec<Entry<'a>> {
    let Asked { upstream, listed } = asked;
    let listed = listed.as_deref().ok();
    let declared = upstream.kind.http().and_then(|http| http.models.as_deref());
    let mut names: Vec<&str> = match (declared, listed) {
        (Some(declared), _) => declared.iter().map(String::as_str).collect(),
        (None, listed) => listed.unwrap_or_default().iter().map(|model| model.name.as_str()).collect(),
    };
    let of_agents = settings.agents.values().filter_map(|agent| agent.model.as_deref());
    let of_agents = of_agents.filter_map(|model| model.strip_prefix(&*upstream.name)?.strip_prefix('/'));
    names.extend(of_agents);
    names.sort_unstable();
    names.dedup();
    let terms = terms(upstream);
    let entry = |name: &str| {
        let found = listed.map(|listed| listed.iter().find(|known| known.name == name));
        // Of models that are declared a server does not ask how much they take.
        let sizes = found.flatten().filter(|_| declared.is_none()).map(|found| found.sizes).unwrap_or_default();
        let is_there = found.map(|found| found.is_some());
        Entry::new(settings, Some(&upstream.name), name, (&terms, sizes), is_there)
    };
    names.into_iter().map(entry).collect()
}

/// The models of all lists, and those that are declared.
fn known(settings: &Settings) -> Vec<Entry<'_>> {
    let declared = settings.models.declared.keys().map(|name| (name.as_str(), ""));
    let listed = settings.models.files.iter().chain(built_in()).flat_map(|file| {
        let host = file.hosts.first().map_or("", String::as_str);
        file.names().map(move |name| (name, host))
    });
    let of = |(name, host): (&'_ str, &str)| {
        let terms = Terms { host: host.into(), ..Terms::default() };
        Entry::new(settings, None, name, (&terms, Sizes::default()), None)
    };
    let mut entries: Vec<_> = declared.chain(listed).map(of).collect();
    entries.dedup_by(|one, other| one.is_same(other));
    entries
}

fn print(models: &Models, asked: &[Asked<'_>], entries: &[Entry<'_>]) -> Result<(), Failure> {
    let has_failed = asked.iter().any(|asked| !asked.is_reachable());
    if models.json {
        let upstreams: Vec<_> = asked.iter().map(Asked::json).collect();
        let entries: Vec<_> = entries.iter().map(Entry::json).collect();
        let all = json!({"ok": !has_failed, "upstreams": upstreams, "models": entries});
        say(clean_json(&serde_json::to_string_pretty(&all).map_err(Failure::new)?));
    } else {
        print_table(entries);
        for Asked { upstream, listed } in asked {
            let Err(Finding { message, advice, .. }) = listed else { continue };
            complain(format_args!("upstreams.{}: {}", upstream.name, clean(message)));
            if let Some(advice) = advice {
                complain(format_args!("    → {}", clean(advice)));
            }
        }
    }
    if has_failed { Err(Failure::code(1)) } else { Ok(()) }
}

impl Asked<'_> {
    /// Whether it answers and accepts the key, even if it does not list its models.
    fn is_reachable(&self) -> bool {
        self.listed.as_ref().err().is_none_or(|finding| finding.level != Level::Fail)
    }

    fn json(&self) -> Value {
        let finding = self.listed.as_ref().err();
        json!({
            "name": self.upstream.name,
            "reachable": self.is_reachable(),
            "lists_models": finding.is_none(),
            "error": finding.map(|finding| &finding.message),
            "advice": finding.and_then(|finding| finding.advice.as_ref()),
        })
    }
}

fn print_table(entries: &[Entry<'_>]) {
    if entries.is_empty() {
        return complain("No upstream says which models it has. Name them with `models` of the upstream.");
    }
    let colours = takes_colours(stdout().is_terminal());
    let rows: Vec<_> = entries.iter().map(Entry::row).collect();
    let marks = std::iter::once(false).chain(entries.iter().map(|entry| !entry.has_price()));
    for (line, is_marked) in lines(&COLUMNS, &rows, output_width()).iter().zip(marks) {
        if is_marked && colours {
            say(format_args!("\x1b[33m{line}\x1b[0m"));
        } else {
            say(line);
        }
    }
    let open = entries.iter().filter(|entry| !entry.has_price()).count();
    if open > 0 {
        complain(format_args!(
            "{} without a known price (guess), which a cost budget refuses: declare [models.\"NAME\".price], or `free = true` of \
             the upstream.",
            count(open, "model")
        ));
    }
}
