//! The ids of responses and their items, which lead back to the run.

use crate::types::{CallId, RunId};

/// How many digits of a run's id its items share.
const SHARED: usize = 28;

/// The digits that a run shares with all that is named after it.
fn digits(run: &RunId) -> &str {
    &run.suffix()[..SHARED]
}

/// The id of a run's response of this number.
pub fn response(run: &RunId, leg: u32) -> String {
    format!("resp_{}{leg:04x}", digits(run))
}

/// The id of the message, in Anthropic's dialect, that a run's leg of this number is.
pub fn message(run: &RunId, leg: u32) -> String {
    format!("msg_{}{leg:04x}", digits(run))
}

/// The run and the number of the response of this id; `None` if it is not of our making.
pub fn read_response(id: &str) -> Option<(RunId, u32)> {
    let (run, rest) = read(id.strip_prefix("resp_")?)?;
    let leg = u32::from_str_radix(rest, 16).ok().filter(|_| rest.len() >= 4)?;
    (response(&run, leg) == id).then_some((run, leg))
}

/// The id of an item with text: `prefix` says of which kind; `block` counts those of its step.
pub fn said(prefix: &str, run: &RunId, step: u32, block: u32) -> String {
    format!("{prefix}_{}{step:04x}{block:02x}", digits(run))
}

/// The id of an item of a request.
pub fn given(run: &RunId, leg: u32, index: usize) -> String {
    format!("msg_{}i{leg:04x}{index:04x}", digits(run))
}

/// Whether an id is that of an item of a request.
pub fn is_given(id: &str) -> bool {
    id.strip_prefix("msg_").and_then(|rest| rest.as_bytes().get(SHARED)) == Some(&b'i')
}

/// The id of the item of a call.
pub fn of_call(prefix: &str, call: &CallId) -> String {
    let id = call.as_str();
    [prefix, "_", id.strip_prefix("call_").unwrap_or(id)].concat()
}

/// The call that an item of this id is about.
pub fn read_call(prefix: &str, id: &str) -> Option<CallId> {
    let digits = id.strip_prefix(prefix)?.strip_prefix('_')?;
    let call = CallId::foreign(&["call_", digits].concat());
    call.run().is_some().then_some(call)
}

/// The run that an item of this id is of.
pub fn run_of_item(id: &str) -> Option<RunId> {
    let (_, digits) = id.split_once('_')?;
    read(digits).map(|(run, _)| run)
}

/// A run, by the digits that it shares, and what follows them.
fn read(digits: &str) -> Option<(RunId, &str)> {
    let shared = digits.get(..SHARED)?;
    let run = RunId::parse(&["run_", shared, "0000"].concat())?;
    Some((run, &digits[SHARED..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_leads_back_to_its_run() {
        let run = RunId::mint();
        for leg in [0, 1, 0x1_2345] {
            assert_eq!(read_response(&response(&run, leg)), Some((run.clone(), leg)));
        }
        assert_eq!(response(&run, 0)[5..], *run.suffix(), "the first response shares the run's digits");
        let call = run.call(3);
        assert_eq!(read_call("mcpr", &of_call("mcpr", &call)), Some(call.clone()));
        assert_eq!(read_call("mcpr", &of_call("fc", &call)), None);
        for id in [of_call("fc", &call), said("rs", &run, 2, 300), given(&run, 1, 7)] {
            assert_eq!(run_of_item(&id), Some(run.clone()), "{id}");
            assert!(id.len() <= 64, "{id}");
        }
        assert!(is_given(&given(&run, 1, 7)) && !is_given(&said("msg", &run, 2, 300)));
    }

    #[test]
    fn what_is_not_of_our_making_is_no_id() {
        let run = RunId::mint();
        let good = response(&run, 0);
        for id in
            ["", "resp_", "resp_123", "resp_ü", &good.to_uppercase(), &format!("{good}x"), &good[..good.len() - 1]]
        {
            assert_eq!(read_response(id), None, "{id}");
        }
        for id in ["msg_1", "fc_ü", "nothing"] {
            assert_eq!(run_of_item(id), None, "{id}");
        }
        assert_eq!(read_call("mcpr", "mcpr_1"), None);
    }
}
