//! What this backend promises beside what every store does.

use super::servers::RedisServer;
use super::*;
use crate::store::conformance;

mod alone {
    use super::*;

    conformance::suite!(async {
        let server = RedisServer::start().await;
        (std::sync::Arc::new(open(&server.url()).await), server)
    });
}

async fn open(url: &str) -> RedisStore {
    RedisStore::open(&url.parse().unwrap()).await.unwrap()
}
