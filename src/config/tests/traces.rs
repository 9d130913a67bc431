//! What `[traces]` and OpenTelemetry's variables say, and which of them goes first.

use insta::assert_snapshot;

use super::{load_with, mistakes};
use crate::config::{Options, OtlpProtocol, TracesConfig};

fn traces(text: &str, env: &[(&str, &str)]) -> TracesConfig {
    load_with(&format!("[traces]\n{text}"), &Options::default(), env).unwrap().traces
}

#[test]
fn variables_go_before_the_file_and_none_means_no_traces() {
    let url = |text: &str, env: &[_]| traces(text, env).url.map(|url| url.to_string());
    let (written, base) = ("endpoint = 'http://file:1/base/'", ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:2"));
    let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://whole:3/own");
    assert_eq!(url("", &[]), None);
    assert_eq!(url(written, &[]).unwrap(), "http://file:1/base/v1/traces");
    assert_eq!(url(written, &[base]).unwrap(), "http://base:2/v1/traces");
    assert_eq!(url(written, &[base, whole]).unwrap(), "http://whole:3/own");
    assert_eq!(url(written, &[base, ("OTEL_SDK_DISABLED", "TRUE")]), None);
    let text = format!("{written}\nprotocol = 'http/protobuf'");
    let grpc = traces(&text, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert_eq!((grpc.protocol, grpc.url.unwrap().as_str()), (OtlpProtocol::Grpc, "http://file:1/base/"));
    let both = [("MINE", "key=mine"), ("OTEL_EXPORTER_OTLP_HEADERS", "key=theirs")];
    for (env, value) in [(&both[..1], "mine"), (&both[..], "theirs")] {
        assert_eq!(traces("headers_env = 'MINE'", env).headers[0].1.expose(), value);
    }
    let resource = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=listed,zone=a%20b");
    for (env, service) in
        [(&[][..], "written"), (&[resource], "listed"), (&[resource, ("OTEL_SERVICE_NAME", "named")], "named")]
    {
        let resource = traces("service_name = 'written'", env).resource;
        assert_eq!(resource[0], ("service.name".to_owned(), service.to_owned()));
        assert_eq!(
            resource.iter().any(|(name, value)| (name.as_str(), value.as_str()) == ("zone", "a b")),
            !env.is_empty()
        );
    }
}

#[test]
fn mistakes_in_them_are_named() {
    assert_snapshot!(mistakes("[traces]\nendpoint = 'http://u:hush@a'\nratio = 1.5\ncontent = 'all'\nheaders_env = 'NONE'"), @r#"
    loopgate.toml:2: traces.endpoint: must hold neither credentials nor a query; give keys in headers_env
    loopgate.toml:3: traces.ratio: must be a number from 0 to 1
    loopgate.toml:4: traces.content: must be "off" or "previews" or "full"
    loopgate.toml:5: traces.headers_env: the environment variable NONE is unset or empty
    "#);
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_RESOURCE_ATTRIBUTES", "hush"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hush"),
    ];
    assert_snapshot!(load_with("", &Options::default(), &env).unwrap_err().to_string(), @"
    OTEL_EXPORTER_OTLP_PROTOCOL: must be `http/protobuf` or `grpc`
    OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL that begins with http:// or https://
    OTEL_EXPORTER_OTLP_HEADERS: must be a list such as `name=value,name=value`
    OTEL_RESOURCE_ATTRIBUTES: must be a list such as `name=value,name=value`
    ");
}

/// A host sets variables for all of its programs.
#[test]
fn variables_are_judged_where_traces_are_sent() {
    let wrong = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_RESOURCE_ATTRIBUTES", "hush"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "hush"),
    ];
    assert_eq!(traces("", &wrong).url, None);
    for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
        assert_eq!(traces("endpoint = 'http://file:1'", &[&wrong[..], &[off]].concat()).url, None);
    }
    let env = [&wrong[..], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:2")]].concat();
    let refused = load_with("", &Options::default(), &env).unwrap_err().to_string();
    for (variable, _) in wrong {
        assert!(refused.contains(variable), "{refused}");
    }
}

#[test]
fn what_variables_say_of_traces_goes_before_what_they_say_of_all() {
    let env = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "key=all"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "key=traces"),
    ];
    let read = traces("endpoint = 'http://file:1'", &env);
    assert_eq!((read.protocol, read.headers[0].1.expose()), (OtlpProtocol::Grpc, "traces"));
}
