//! Redis: its version, its persistence, its clock, its replicas.

use super::attempt::{AREA, try_out};
use super::finding::Finding;
use crate::config::{RedisUrl, Settings};
use crate::store::redis::{Checkup, checkup};

/// Leases end by the clocks of the servers, which must agree to a second.
const CLOCKS_AGREE_MS: u64 = 1_000;

/// The deployment that this URL names.
pub(super) async fn check(settings: &Settings, url: &RedisUrl) -> Vec<Finding> {
    let servers = match checkup(url).await {
        Ok(servers) => servers,
        Err(error) => {
            let advice = "Check `store.url`, its password, `?ca=FILE` if its certificate is of an authority of yours, and that Redis runs and can be reached from here.";
            return vec![Finding::fail(AREA, error).advice(advice)];
        }
    };
    let mut findings: Vec<_> = servers.iter().flat_map(judge).collect();
    findings.extend(judge_clocks(&servers));
    findings.push(match try_out(settings).await {
        Ok(finding) => finding,
        Err(error) => Finding::fail(AREA, error)
            .advice("docs/storage.md says what Loopgate needs of Redis: version, settings, access rights."),
    });
    findings
}

/// What one primary tells. Pure.
fn judge(server: &Checkup) -> Vec<Finding> {
    let Checkup { host, version, appendonly, maxmemory_policy, replicas, .. } = server;
    let mut findings = vec![Finding::ok(AREA, format!("{host} runs version {version}"))];
    match maxmemory_policy.as_deref() {
        Some("noeviction") => {}
        Some(policy) => findings.push(
            Finding::fail(AREA, format!("{host} evicts keys when its memory is full: maxmemory-policy is {policy}"))
                .advice("Set maxmemory-policy to noeviction: eviction would delete runs."),
        ),
        None => findings.push(
            Finding::warn(AREA, format!("{host} does not tell its maxmemory-policy and appendonly"))
                .advice("Allow Loopgate `+config|get`, and see that the policy is noeviction and appendonly is yes."),
        ),
    }
    if appendonly.as_deref() == Some("no") {
        let lost = if *replicas == 0 { "a restart of it loses runs" } else { "it must not restart before a failover" };
        findings.push(
            Finding::warn(AREA, format!("{host} does not log changes to disk (appendonly no): {lost}"))
                .advice("Set appendonly to yes."),
        );
    }
    findings.push(if *replicas == 0 {
        Finding::warn(AREA, format!("{host} has no replica: if its machine is lost, so are its runs"))
            .advice("Give it a replica, with Sentinels or as a cluster, where that matters.")
    } else {
        Finding::ok(AREA, format!("{host} has {replicas} replicas"))
    });
    findings
}

/// Whether the clocks agree: those of the servers with each other, and with this machine's. Pure.
fn judge_clocks(servers: &[Checkup]) -> Vec<Finding> {
    let differences = servers.iter().map(|server| server.clock_difference_ms);
    let (Some(least), Some(most)) = (differences.clone().min(), differences.max()) else { return Vec::new() };
    if most.abs_diff(least) > CLOCKS_AGREE_MS {
        let message = format!("the clocks of the Redis servers differ by {} ms", most.abs_diff(least));
        let advice = "Let all of them follow a time server: leases end by these clocks.";
        return vec![Finding::fail("clock", message).advice(advice)];
    }
    let worst = if most.unsigned_abs() > least.unsigned_abs() { most } else { least };
    if worst.unsigned_abs() > CLOCKS_AGREE_MS {
        let message = format!("this machine's clock and that of Redis differ by {} ms", worst.unsigned_abs());
        let advice = "Let both follow a time server: budgets and waits go by Redis' clock, but events and the log show this machine's time.";
        return vec![Finding::warn("clock", message).advice(advice)];
    }
    vec![Finding::ok("clock", format!("agrees with Redis to {} ms", worst.unsigned_abs()))]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn server(clock_difference_ms: i64) -> Checkup {
        Checkup {
            host: "h:1".to_owned(),
            version: "7.2.0".to_owned(),
            replicas: 1,
            clock_difference_ms,
            appendonly: Some("yes".to_owned()),
            maxmemory_policy: Some("noeviction".to_owned()),
        }
    }

    fn levels(findings: &[Finding]) -> Vec<Level> {
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn clocks_are_compared() {
        assert_eq!(levels(&judge_clocks(&[server(900), server(-50)])), [Level::Ok]);
        assert_eq!(levels(&judge_clocks(&[server(-1_500), server(-1_400)])), [Level::Warn]);
        assert_eq!(levels(&judge_clocks(&[server(900), server(-900)])), [Level::Fail]);
        assert_eq!(judge_clocks(&[]), []);
    }

    #[test]
    fn settings_that_lose_runs_are_named() {
        assert_eq!(levels(&judge(&server(0))), [Level::Ok, Level::Ok]);
        let text = |server: Checkup| format!("{:?}", judge(&server));
        let evicts = text(Checkup { maxmemory_policy: Some("allkeys-lru".to_owned()), ..server(0) });
        assert!(evicts.contains("allkeys-lru") && evicts.contains("Fail"), "{evicts}");
        let silent = text(Checkup { maxmemory_policy: None, appendonly: None, ..server(0) });
        assert!(silent.contains("does not tell") && silent.contains("Warn"), "{silent}");
        let alone = text(Checkup { appendonly: Some("no".to_owned()), replicas: 0, ..server(0) });
        assert!(alone.contains("a restart of it loses runs") && alone.contains("has no replica"), "{alone}");
    }
}
