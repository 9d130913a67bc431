//! Servers that die, hang, start slowly or say what they should not.

use super::*;

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_it_lost_and_is_started_again() {
    let (_servers, server) = tried(&process(&[])).await;
    for _ in 0..2 {
        let outcome = call(&server, "test__die", json!({})).await;
        assert_eq!(outcome.ending, CallEnding::Lost, "{outcome:?}");
        says(&outcome, "The MCP server `test` was called: the connection to it ended before it answered.");
        until("the restart", || server.trouble().is_none()).await;
        works(&server).await;
    }
}

#[tokio::test]
async fn a_server_that_lives_and_answers_nothing_is_started_again() {
    let config = McpServerConfig { start_timeout: Duration::from_secs(2), ..process(&[]) };
    let (_servers, server) = tried(&config).await;
    let pid = call(&server, "test__pid", json!({})).await;
    let outcome = call_in(&server, "test__freeze", json!({}), context(Duration::from_millis(500))).await;
    assert_eq!(outcome.ending, CallEnding::Lost, "{outcome:?}");
    says(&outcome, "did not answer within 500 ms");
    let process = format!("/proc/{}", pid.text());
    until("the end of the process that hangs", || !std::path::Path::new(&process).exists()).await;
    works(&server).await;
    assert_ne!(call(&server, "test__pid", json!({})).await.text(), pid.text());
}

#[tokio::test]
async fn a_server_that_hangs_while_it_is_not_called_is_started_again_once_its_list_is_old() {
    let (refresh, start_timeout) = (Duration::from_millis(500), Duration::from_secs(2));
    let (_servers, server) = tried(&McpServerConfig { start_timeout, refresh, ..process(&[]) }).await;
    let pid = call(&server, "test__pid", json!({})).await.text().into_owned();
    let number = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::STOP).unwrap();
    until("the end of the process that hangs", || !std::path::Path::new(&format!("/proc/{pid}")).exists()).await;
    works(&server).await;
}

#[tokio::test]
async fn waits_for_a_turn_and_for_a_server_share_the_time_of_the_call() {
    // Each of the two waits would be within the time of the call, and both are not.
    let (servers, server) = tried(&McpServerConfig { max_concurrent_calls: 1, ..process(&["--delay", "2"]) }).await;
    let pending = tool(&server, "test__echo");
    let dying = call(&server, "test__slow", json!({"seconds": 0.6, "dies": true}));
    let arguments = serde_json::value::to_raw_value(&json!({"text": "x"})).unwrap();
    let waiting = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        crate::tools::invoke(pending, arguments, context(Duration::from_secs(1))).await
    };
    let (_, waiting) = tokio::join!(dying, waiting);
    assert_eq!(waiting.ending, CallEnding::Answered, "nothing was sent, so nothing is lost: {waiting:?}");
    says(&waiting, "is still starting. Nothing was sent.");
    servers.close().await;
}

#[tokio::test]
async fn a_stream_that_the_server_ends_at_once_is_not_opened_without_end() {
    for how in ["retry", "break"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let listening = Listening::start(&["--journal", &path, "--stream", how]).await;
        let (_servers, server) = tried(&listening.config("/mcp")).await;
        let opened = || journal(&file).iter().filter(|message| message["opened"].is_string()).count();
        until("the third stream", || opened() >= 3).await;
        // By then a server that is asked at once has been asked hundreds of times.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(opened() <= 6, "{how}: {} streams", opened());
        works(&server).await;
    }
}

#[tokio::test]
async fn what_a_server_started_in_a_group_of_its_own_ends_with_it() {
    let (servers, server) = tried(&process(&[])).await;
    let started = call(&server, "test__child", json!({"detached": true})).await.text().into_owned();
    let state = || std::fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
    // Once it leads a session of its own its number is the sixth member.
    until("its session", || state().split(' ').nth(5) == Some(started.as_str())).await;
    servers.close().await;
    until("its end", || state().is_empty() || state().contains(") Z ")).await;
}

#[tokio::test]
async fn a_server_that_asks_much_and_reads_no_answers_is_started_again() {
    for cancels in [false, true] {
        let (_servers, server) = tried(&process(&[])).await;
        let outcome = call(&server, "test__flood", json!({"cancels": cancels})).await;
        assert_eq!(outcome.ending, CallEnding::Lost, "{cancels}: {outcome:?}");
        works(&server).await;
    }
}

#[tokio::test]
async fn secrets_that_a_server_quotes_are_told_nobody() {
    let listening = Listening::start(&["--token", "sk-of-the-server", "--quoted", "sk-of-the-server"]).await;
    let mut over_http = listening.config("/mcp");
    let McpTransport::Http(endpoint) = &mut over_http.transport else { panic!("it listens") };
    let (whole, secret) = (Secret::new("Bearer sk-of-the-server"), Some(Secret::new("sk-of-the-server")));
    endpoint.headers.push((http::header::AUTHORIZATION, SentValue { whole, secret }));
    for config in [process(&[]), over_http] {
        let (_servers, server) = tried(&config).await;
        let answer = call(&server, "test__quote", json!({})).await;
        assert_eq!(answer.text(), "with ***");
        assert_eq!(answer.structured.unwrap().get(), r#"{"key":["***"]}"#);
        let refusal = call(&server, "test__quote", json!({"fails": true})).await;
        says(&refusal, "error -32000: the key *** is not valid");
    }
}

#[tokio::test]
async fn a_server_that_is_killed_over_http_leaves_its_call_lost_and_is_found_again() {
    for options in [&[][..], &["--modern"], &["--unknown-session", "400"], &["--plain"]] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let mut listening = Listening::start(&[options, &["--journal", &path]].concat()).await;
        let (_servers, server) = tried(&listening.config("/mcp")).await;
        let calling = call(&server, "test__hang", json!({}));
        let killing = async {
            let has_call = || journal(&file).iter().any(|message| message["params"]["name"] == "hang");
            until("the call to arrive", has_call).await;
            listening.kill().await;
        };
        let (outcome, ()) = tokio::join!(calling, killing);
        assert_eq!(outcome.ending, CallEnding::Lost, "{options:?}: {outcome:?}");
        let unreached = call(&server, "test__echo", json!({"text": "x"})).await;
        assert_eq!(unreached.ending, CallEnding::Answered, "nothing was sent: {unreached:?}");
        says(&unreached, "it cannot be reached");
        listening.restart().await;
        if options.contains(&"400") {
            // The protocol does not define this answer, so the call is not made again.
            let refused = call(&server, "test__echo", json!({"text": "x"})).await;
            says(&refused, "it does not know the session any more");
        }
        works(&server).await;
    }
}

#[tokio::test]
async fn a_session_that_the_server_has_ended_is_begun_again_without_a_lost_call() {
    for status in ["404", "400"] {
        let listening = Listening::start(&["--unknown-session", status]).await;
        let (_servers, server) = tried(&listening.config("/mcp")).await;
        call(&server, "test__end_session", json!({})).await;
        if status == "400" {
            // The protocol does not define it, so what may not be repeated is not.
            let refused = call(&server, "test__echo", json!({"text": "x"})).await;
            assert_eq!(refused.ending, CallEnding::Answered);
            says(&refused, "it does not know the session any more");
        }
        works(&server).await;
        let counted = call(&server, "test__count", json!({})).await;
        assert_eq!(counted.text(), "3", "no call was made twice");
    }
}

#[tokio::test]
async fn a_server_that_starts_slowly_holds_up_nothing_but_its_calls() {
    let (_servers, server) = started(&process(&["--delay", "1"]));
    assert!(server.tools().is_none() && server.is_awaited());
    timeout(SOON, server.first_try()).await.unwrap();
    assert!(!server.is_awaited());
    works(&server).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_left_alone_and_its_trouble_told() {
    let quick = |options: &[&str]| McpServerConfig { start_timeout: Duration::from_millis(1_500), ..process(options) };
    let nowhere = crate::tools::mcp::testing::config("test");
    let McpTransport::Stdio(mut command) = process(&[]).transport else { panic!("it is a process") };
    command.program = "no-such-program".into();
    let missing = McpServerConfig { transport: McpTransport::Stdio(command), ..process(&[]) };
    for (config, why) in [
        (quick(&["--die-at-start"]), "it ended the connection before it was ready"),
        (quick(&["--hang"]), "it did not list its tools within 1500 ms"),
        (missing, "`no-such-program` cannot be started: No such file or directory"),
        (nowhere, "it cannot be reached"),
    ] {
        let (_servers, server) = tried(&config).await;
        let trouble = server.trouble().unwrap_or_default();
        assert!(trouble.contains(why), "{why}: {trouble}");
        assert!(server.tools().is_none());
    }
}

#[tokio::test]
async fn lines_that_are_no_messages_are_passed_over() {
    let (_servers, server) = tried(&process(&["--garbage"])).await;
    works(&server).await;
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_its_call_alone() {
    let listening = Listening::start(&[]).await;
    let plain = Listening::start(&["--plain"]).await;
    for config in [process(&[]), listening.config("/mcp"), plain.config("/mcp")] {
        let (_servers, server) = tried(&McpServerConfig { max_response: 100_000, ..config }).await;
        let outcome = call(&server, "test__huge", json!({"bytes": 3_000_000})).await;
        assert_eq!(outcome.ending, CallEnding::Lost, "the tool has run");
        works(&server).await;
    }
}
