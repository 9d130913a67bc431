//! What errors of other parts call a value, as it is called in this dialect.

/// The path of a value in a request for a response.
pub fn renamed(param: &str) -> String {
    // Items and messages are not one for one, so of those only the list is named.
    if param == "messages" || param.starts_with("messages[") {
        return "input".to_owned();
    }
    match param {
        "agent.limits.max_tool_calls" => "max_tool_calls".to_owned(),
        other => other.replacen(".function.", ".", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_called_what_the_request_calls_it() {
        for (given, expected) in [
            ("messages[3].content[0]", "input"),
            ("tools[1].function.name", "tools[1].name"),
            ("agent.limits.max_tool_calls", "max_tool_calls"),
            ("temperature", "temperature"),
        ] {
            assert_eq!(renamed(given), expected);
        }
    }
}
