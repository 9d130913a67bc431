//! What the primaries of a deployment tell an operator who asks.

use super::*;

async fn asked(url: &str) -> Result<Vec<Checkup>, String> {
    checkup(&url.parse().unwrap()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkup_asks_every_primary_however_it_is_found() {
    let watched = Watched::start().await;
    let told = asked(&watched.url()).await.unwrap();
    let [primary] = &told[..] else { panic!("{told:?}") };
    assert_eq!(primary.host, format!("127.0.0.1:{}", watched.primary.port()));
    assert!(primary.replicas == 1 && primary.version.contains('.'), "{primary:?}");
    assert!(primary.clock_difference_ms.abs() < 1_000, "{primary:?}");
    let settings = [&primary.appendonly, &primary.maxmemory_policy].map(Option::as_deref);
    assert_eq!(settings, [Some("no"), Some("noeviction")]);
    let cluster = Cluster::start(false).await;
    let mut hosts: Vec<_> = asked(&cluster.url()).await.unwrap().into_iter().map(|told| told.host).collect();
    hosts.dedup();
    assert_eq!(hosts.len(), 3, "{hosts:?}");
}

/// With no more rights than the manual asks for there is less to tell, and no password is told where the login fails.
#[tokio::test]
async fn a_checkup_needs_no_more_rights_than_the_store() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let needed = ["ACL", "SETUSER", "eve", "on", ">s3cret3", "~lg:*", "&lg:*", "+@all", "-@dangerous", "+role"];
    server.cli(&[&["-a", "s3cret"], &needed[..]].concat()).await;
    let with = |login: &str| server.url().replace("127.0.0.1", &format!("{login}@127.0.0.1"));
    let told = asked(&with("eve:s3cret3")).await.unwrap();
    assert_eq!((&told[0].maxmemory_policy, &told[0].appendonly, told[0].replicas), (&None, &None, 0));
    let refused = asked(&with("eve:s3cretwrong")).await.unwrap_err();
    assert!(refused.contains("WRONGPASS") && !refused.contains("s3cret"), "{refused}");
    let replica = RedisServer::start().await.replica().await;
    assert!(asked(&replica.url()).await.is_err());
}
