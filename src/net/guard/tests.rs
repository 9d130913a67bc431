use super::corpus::{ANSWERS, INSIDE, REFUSED};
use super::testing::Script;
use super::*;
use crate::net::proxies::Proxy;

fn hosts(patterns: &[&str]) -> Hosts {
    patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()
}

fn strict() -> Guard {
    Guard::new(Policy::default())
}

#[test]
fn urls_that_lead_inside_are_refused_in_every_spelling() {
    let guard = strict();
    for url in INSIDE.map(|url| url.replace("PORT", "80")) {
        let refusal = guard.parse(&url).unwrap_err();
        // A percent sign or a stray backslash may make it no URL at all.
        assert!(matches!(refusal, Refusal::Private(_) | Refusal::Malformed), "{url}: {refusal:?}");
    }
    for url in REFUSED.map(|url| url.replace("PORT", "80")) {
        guard.parse(&url).unwrap_err();
    }
    assert_eq!(guard.parse(&format!("http://{}test/", "a.".repeat(200))), Err(Refusal::TooLong));
    assert_eq!(guard.parse(&format!("http://a.test/{}", "x".repeat(MAX_URL))), Err(Refusal::TooLong));
}

#[test]
fn public_urls_pass_as_the_parser_writes_them() {
    let guard = strict();
    for (url, written) in [
        ("https://example.com", "https://example.com/"),
        ("http://Example.COM:80/a b?c=d#e", "http://example.com/a%20b?c=d#e"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://example.com./", "https://example.com./"),
        ("http://93.184.216.34:443/", "http://93.184.216.34:443/"),
        ("http://[2606:2800:220:1::1]/", "http://[2606:2800:220:1::1]/"),
        ("http://[64:ff9b::8.8.8.8]/", "http://[64:ff9b::808:808]/"),
    ] {
        assert_eq!(guard.parse(url).map(String::from).as_deref(), Ok(written), "{url}");
    }
}

#[test]
fn a_url_is_refused_for_what_is_wrong_with_it() {
    for (url, refusal) in [
        ("ftp://example.com/", Refusal::Scheme),
        ("https://user:pass@example.com/", Refusal::Userinfo),
        ("https://@example.com:8443/", Refusal::Port(8443)),
        ("http://example..com/", Refusal::Host("example..com".into())),
        ("http://./", Refusal::Host(".".into())),
        ("http://10.0.0.1/", Refusal::Private("10.0.0.1".into())),
        ("http://localhost/", Refusal::Private("localhost".into())),
        ("example.com", Refusal::Malformed),
    ] {
        assert_eq!(strict().parse(url), Err(refusal), "{url}");
    }
}

#[test]
fn lists_of_hosts_and_addresses_narrow_and_widen() {
    let policy = Policy {
        ports: vec![443, 8443],
        allowed_hosts: Some(hosts(&["example.com", "*.example.org"])),
        denied_hosts: hosts(&["secret.example.org"]),
        private_hosts: hosts(&["wiki.internal"]),
        private_addresses: vec!["10.1.0.0/16".parse().unwrap()],
        ..Policy::default()
    };
    let guard = Guard::new(policy);
    for allowed in [
        "https://example.com/",
        "https://a.example.org:8443/",
        "https://wiki.internal/",
        "https://10.1.2.3/",
        "https://[::ffff:10.1.2.3]/",
    ] {
        assert!(guard.parse(allowed).is_ok(), "{allowed}");
    }
    for refused in [
        "http://example.com/",
        "https://a.example.com/",
        "https://secret.example.org/",
        "https://secret.example.org./",
        "https://other.internal/",
        "https://10.2.0.1/",
        "https://93.184.216.34/",
    ] {
        assert!(guard.parse(refused).is_err(), "{refused}");
    }
}

#[tokio::test]
async fn every_answer_of_a_name_server_must_be_allowed() {
    for answers in ANSWERS {
        let script = Script::default().answering("a.test", &[answers]);
        let refusal = Guard::scripted(Policy::default(), &script).resolve("a.test").await.unwrap_err();
        let expected =
            if answers.is_empty() { Refusal::Unresolved("a.test".into()) } else { Refusal::Private("a.test".into()) };
        assert_eq!(refusal, expected, "{answers:?}");
        assert!(answers.iter().all(|answer| !refusal.to_string().contains(answer)), "{refusal}");
    }
    let script = Script::default().answering("a.test", &[&["93.184.216.34", "2606:2800:220:1::1"]]);
    let guard = Guard::scripted(Policy::default(), &script);
    assert_eq!(guard.resolve("a.test").await.unwrap().len(), 2);
    assert_eq!(guard.resolve("other.test").await, Err(Refusal::Unresolved("other.test".into())));
    assert_eq!(guard.resolve("127.1").await, Err(Refusal::Private("127.1".into())));
    assert_eq!(guard.resolve("[::1]").await, Err(Refusal::Private("[::1]".into())));
}

#[tokio::test]
async fn what_the_operator_says_of_addresses_holds_for_answers() {
    let policy = Policy {
        private_hosts: hosts(&["wiki.test"]),
        private_addresses: vec!["10.1.0.0/16".parse().unwrap()],
        denied_addresses: vec!["93.184.216.0/24".parse().unwrap(), "10.1.9.9/32".parse().unwrap()],
        ..Policy::default()
    };
    for (name, answer, is_allowed) in [
        ("a.test", "10.1.2.3", true),
        ("a.test", "10.2.2.3", false),
        ("a.test", "10.1.9.9", false),
        ("a.test", "93.184.216.34", false),
        ("a.test", "::ffff:93.184.216.34", false),
        ("a.test", "64:ff9b::5db8:d822", false),
        ("a.test", "2002:5db8:d822::1", false),
        ("a.test", "8.8.8.8", true),
        ("wiki.test", "192.168.7.7", true),
        ("wiki.test", "127.0.0.1", true),
        ("wiki.test", "fd00::7", true),
        ("wiki.test", "93.184.216.34", false),
        ("wiki.test", "169.254.169.254", false),
        ("wiki.test", "::ffff:169.254.169.254", false),
        ("wiki.test", "fd00:ec2::254", false),
        ("wiki.test", "168.63.129.16", false),
        ("wiki.test", "0.0.0.0", false),
        ("wiki.test", "fe80::1", false),
    ] {
        let script = Script::default().answering(name, &[&[answer]]);
        let resolved = Guard::scripted(policy.clone(), &script).resolve(name).await;
        assert_eq!(resolved.is_ok(), is_allowed, "{name} {answer}");
    }
}

/// The endpoints of clouds, and one network around each of them.
const METADATA: [(&str, &str); 7] = [
    ("169.254.169.254", "169.254.0.0/16"),
    ("100.100.100.200", "100.64.0.0/10"),
    ("192.0.0.192", "192.0.0.0/24"),
    ("168.63.129.16", "168.63.129.0/24"),
    ("fd00:ec2::254", "fd00::/8"),
    ("fd20:ce::254", "fd20::/16"),
    ("::ffff:169.254.169.254", "0.0.0.0/0"),
];

#[tokio::test]
async fn what_clouds_tell_machines_is_reached_only_if_the_operator_says_so() {
    for (address, network) in METADATA {
        let script = Script::default().answering("wiki.test", &[&[address]]);
        let policy = Policy {
            private_hosts: hosts(&["wiki.test", "*.internal"]),
            private_addresses: vec![network.parse().unwrap()],
            ..Policy::default()
        };
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let reached = async |policy: &Policy| {
            let guard = Guard::scripted(policy.clone(), &script);
            (guard.parse(&format!("http://{host}/")).is_ok(), guard.resolve("wiki.test").await.is_ok())
        };
        assert_eq!(reached(&policy).await, (false, false), "{address}");
        let by_name = Policy { allow_metadata: true, private_addresses: Vec::new(), ..policy.clone() };
        assert_eq!(reached(&by_name).await, (false, false), "{address}: a name alone does not mean it");
        assert_eq!(reached(&Policy { allow_metadata: true, ..policy }).await, (true, true), "{address}");
    }
    let proxy = Proxy::new(&"http://proxy.test:3128".parse().unwrap(), None);
    let policy =
        Policy { proxy, proxy_resolves: true, private_hosts: hosts(&["*.internal", "metadata"]), ..Policy::default() };
    for name in ["metadata.google.internal", "metadata.google.internal.", "metadata"] {
        assert!(
            matches!(Guard::new(policy.clone()).parse(&format!("http://{name}/")), Err(Refusal::Private(_))),
            "{name}"
        );
    }
}

#[test]
fn where_a_proxy_resolves_names_they_must_look_public() {
    let proxy = Proxy::new(&"http://proxy.test:3128".parse().unwrap(), None);
    let policy = Policy { proxy, proxy_resolves: true, private_hosts: hosts(&["wiki"]), ..Policy::default() };
    let guard = Guard::new(policy);
    for inside in ["http://intranet/", "http://db.internal/", "http://printer.local./", "http://x.home.arpa/"] {
        assert!(matches!(guard.parse(inside), Err(Refusal::Private(_))), "{inside}");
    }
    for allowed in ["http://example.com/", "http://notlocal.test/", "http://wiki/"] {
        assert!(guard.parse(allowed).is_ok(), "{allowed}");
    }
}
