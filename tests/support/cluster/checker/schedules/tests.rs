//! Shows that the checker of schedules believes those that fired as promised, and no lie about them.

use super::*;

/// Something that is not so.
type Lie = fn(&mut ScheduleEvidence);

/// Two schedules that fire each minute, of which one run each was asked for, too. One fired late, as its replica died.
fn honest() -> ScheduleEvidence {
    let (mut schedules, mut runs) = (BTreeMap::new(), BTreeMap::new());
    for schedule in ["a", "b"] {
        let mut begin = |due_ms: Option<u64>, at_ms| {
            let run = format!("{schedule}-{at_ms}");
            let status = "completed".to_owned();
            runs.insert(run.clone(), ScheduledRun { schedule: schedule.to_owned(), status });
            Fired { due_ms, at_ms, result: "started".to_owned(), run }
        };
        let firings = vec![begin(Some(180_000), 180_010), begin(None, 130_000), begin(Some(120_000), 133_000)];
        schedules.insert(schedule.to_owned(), firings);
    }
    ScheduleEvidence { every_ms: 60_000, from_ms: 70_000, until_ms: 200_000, schedules, runs, asked: 1 }
}

fn of<'a>(evidence: &'a mut ScheduleEvidence, schedule: &str) -> &'a mut Vec<Fired> {
    evidence.schedules.get_mut(schedule).expect("it is there")
}

#[test]
fn the_checker_of_schedules_believes_no_lie() {
    assert_eq!(check_schedules(&honest()), [""; 0]);
    let lies: [(&str, Lie); 14] = [
        ("a did not fire at 120000", |all| {
            let never = of(all, "a").remove(2);
            all.runs.remove(&never.run);
        }),
        ("a did not fire at 180000", |all| {
            let never = of(all, "a").remove(0);
            all.runs.remove(&never.run);
        }),
        // It ran twice, and one run of the two is noted, or both are.
        ("a began a-again, and does not say so", |all| {
            let again = all.runs["a-133000"].clone();
            all.runs.insert("a-again".to_owned(), again);
        }),
        ("a fired twice at 120000", |all| {
            let again = all.runs["a-133000"].clone();
            all.runs.insert("a-again".to_owned(), again);
            let again = Fired { run: "a-again".to_owned(), ..of(all, "a")[2].clone() };
            of(all, "a").push(again);
        }),
        ("a fired twice at 120000", |all| {
            let again = of(all, "a")[2].clone();
            of(all, "a").push(again);
        }),
        ("is the run of a at Some(120000), and of a at Some(180000)", |all| {
            let run = of(all, "a")[0].run.clone();
            of(all, "a")[2].run = run;
        }),
        ("a says that it began a-133000, which is None", |all| drop(all.runs.remove("a-133000"))),
        ("b says that it began", |all| {
            all.runs.values_mut().for_each(|run| run.schedule = "a".to_owned());
        }),
        ("a was skipped at Some(120000)", |all| of(all, "a")[2].result = "skipped".to_owned()),
        ("a was refused at Some(120000)", |all| of(all, "a")[2].result = "refused".to_owned()),
        ("a fired for 120500 at 133000", |all| of(all, "a")[2].due_ms = Some(120_500)),
        ("a fired for 120000 at 119999", |all| of(all, "a")[2].at_ms = 119_999),
        ("1 runs of a were asked for, and it has begun 0", |all| drop(of(all, "a").remove(1))),
        ("a-133000 is in_progress", |all| {
            all.runs.get_mut("a-133000").expect("it is there").status = "in_progress".to_owned();
        }),
    ];
    for (words, lie) in lies {
        let mut evidence = honest();
        lie(&mut evidence);
        let wrong = check_schedules(&evidence);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "it believes that {words}, and says {wrong:#?}");
    }
}
