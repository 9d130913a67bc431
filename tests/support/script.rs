//! What a scripted server of models replies, and what was wrong with the requests that it got.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::http::Request;
use super::reply::Reply;

/// The replies that are left, and the complaints so far.
#[derive(Debug, Default)]
pub(super) struct Script {
    replies: VecDeque<Reply>,
    otherwise: Option<Reply>,
    complaints: Vec<String>,
}

impl Script {
    /// Whether a request is a POST to this path. Any other is complained of.
    pub(super) fn is_post_to(&mut self, path: &str, request: &Request) -> bool {
        let is_right = request.method == "POST" && request.target == path;
        if !is_right {
            self.complain(format!("{} {} is none of its paths", request.method, request.target));
        }
        is_right
    }

    pub(super) fn complain(&mut self, of: String) {
        self.complaints.push(of);
    }

    /// The reply to a request that breaks these rules; `None` if the script has ended.
    pub(super) fn reply(&mut self, body: &Value, faults: Vec<String>) -> Option<Reply> {
        self.complaints.extend(faults.into_iter().map(|fault| format!("{fault}, in {body}")));
        let reply = self.replies.pop_front().or_else(|| self.otherwise.clone());
        if reply.is_none() {
            self.complain(format!("no reply is left for {body}"));
        }
        reply
    }

    /// Adds a reply.
    pub(super) fn then(&mut self, reply: Reply) {
        self.replies.push_back(reply);
    }

    /// What is replied whenever the script has come to its end.
    pub(super) fn otherwise(&mut self, reply: Reply) {
        self.otherwise = Some(reply);
    }
}

/// A script that a server plays. When it is dropped it fails the test if a request broke a rule or came unexpected.
#[derive(Debug)]
pub(super) struct Judge(Arc<Mutex<Script>>);

impl Judge {
    /// Of a script with these replies, in this order.
    pub(super) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = replies.into_iter().collect();
        Self(Arc::new(Mutex::new(Script { replies, ..Script::default() })))
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.0)
    }

    /// Plays the script by these rules.
    pub(super) fn play(&self, decide: fn(&mut Script, &Request) -> Reply) -> impl Fn(&Request) -> Reply + use<> {
        let script = self.0.clone();
        move |request| decide(&mut lock(&script), request)
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let complaints = std::mem::take(&mut self.script().complaints);
        if !std::thread::panicking() {
            assert!(complaints.is_empty(), "the upstream got bad requests:\n{}", complaints.join("\n"));
        }
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}
