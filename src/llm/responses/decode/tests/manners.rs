//! Servers that speak the dialect in their own ways: with other numbers, other names and another order of events.

use super::*;

/// How a server numbers items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    From(u64),
    AllAlike,
    None,
}

/// How a server names items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// As the API does.
    Ids,
    /// Calls by their `call_id`, other items by their `id`.
    CallIds,
    /// Each item by another id in each event.
    Anew,
    /// Each item by another id at the end.
    AnewAtTheEnd,
    None,
}

/// When a server tells items as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wholes {
    InPlace,
    AllAtTheEnd,
    InTheLastEventAlone,
}

fn rename(names: Names, number: usize, item: &mut Value) {
    let item = item.as_object_mut().unwrap();
    let is_last = number == usize::MAX;
    match names {
        Names::CallIds if item["type"] == "function_call" => drop(item.remove("id")),
        Names::Anew => drop(item.insert("id".to_owned(), json!(format!("{}{number}", item["id"])))),
        Names::AnewAtTheEnd if is_last => {
            for name in ["id", "call_id"].into_iter().filter(|name| item.contains_key(*name)).collect::<Vec<_>>() {
                item[name] = json!(format!("{} again", item[name]));
            }
        }
        Names::Ids | Names::CallIds | Names::AnewAtTheEnd => {}
        Names::None => {
            item.remove("id");
            item.remove("call_id");
        }
    }
}

/// The name by which a delta means this item.
fn meant(names: Names, number: usize, item: &Value) -> Value {
    match names {
        Names::Ids | Names::AnewAtTheEnd => item["id"].clone(),
        Names::CallIds => item.get("call_id").unwrap_or(&item["id"]).clone(),
        Names::Anew => json!(format!("{}{number}", item["id"])),
        Names::None => Value::Null,
    }
}

/// The same events as a server of these manners would send them.
fn told(events: &[Value], (numbers, names, wholes, repeats): (Numbers, Names, Wholes, bool)) -> Vec<Value> {
    let (mut told, mut held, mut begun) = (Vec::new(), Vec::new(), Vec::new());
    for (number, mut event) in events.iter().cloned().enumerate() {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        if kind == "response.output_item.added" {
            begun.push(event["item"].clone());
        }
        if let Some(index) = event["output_index"].as_u64() {
            if event["delta"].is_string() {
                event["item_id"] = meant(names, number, &begun[usize::try_from(index).unwrap()]);
            }
            match numbers {
                Numbers::From(first) => event["output_index"] = json!(index + first),
                Numbers::AllAlike => event["output_index"] = json!(0),
                Numbers::None => drop(event.as_object_mut().unwrap().remove("output_index")),
            }
        }
        if event["item"].is_object() {
            rename(names, number, &mut event["item"]);
        }
        match event["response"]["output"].as_array_mut() {
            Some(output) if repeats => output.iter_mut().for_each(|item| rename(names, usize::MAX, item)),
            Some(output) => output.clear(),
            None => {}
        }
        match wholes {
            Wholes::InPlace => told.push(event),
            _ if kind != "response.output_item.done" => told.push(event),
            Wholes::AllAtTheEnd => held.push(event),
            Wholes::InTheLastEventAlone => {}
        }
    }
    let end = told.len() - 1;
    told.splice(end..end, held);
    told
}

/// The turn without the ids that reasoning goes back with.
fn without_ids(mut turn: ModelTurn) -> ModelTurn {
    for part in &mut turn.parts {
        if let ModelPart::Part(Part { kind: PartKind::Thinking(Thinking { seal: Some(seal), .. }), .. }) = part {
            seal.id = None;
        }
    }
    turn
}

/// A call that is not told of twice is not made twice, and text is not said twice.
#[test]
fn whatever_a_server_calls_its_items_each_is_read_once() {
    let mut tried = 0;
    for (events, parts, end) in [plain(), tools(), refused(), twins()] {
        let is_twins = parts.iter().filter(|part| matches!(part, ModelPart::Call(_))).count() == 3;
        let expected = without_ids(ModelTurn { parts, usage: Some(usage()), end });
        for numbers in [Numbers::From(0), Numbers::From(1), Numbers::AllAlike, Numbers::None] {
            for names in [Names::Ids, Names::CallIds, Names::Anew, Names::AnewAtTheEnd, Names::None] {
                for wholes in [Wholes::InPlace, Wholes::AllAtTheEnd, Wholes::InTheLastEventAlone] {
                    for repeats in [true, false] {
                        // What is told nowhere as a whole cannot be read.
                        if wholes == Wholes::InTheLastEventAlone && !repeats {
                            continue;
                        }
                        let has_numbers = matches!(numbers, Numbers::From(_));
                        // Calls of one function without number and name are one like the other.
                        if is_twins && !has_numbers && wholes != Wholes::InPlace {
                            continue;
                        }
                        let manners = (numbers, names, wholes, repeats);
                        let (deltas, turn) = decode([stream(&told(&events, manners)).as_bytes()]);
                        assert_eq!(turn.map(without_ids).as_ref(), Ok(&expected), "{manners:?}");
                        let text =
                            |delta: &Delta| if let Delta::Text(text) = delta { Some(text.clone()) } else { None };
                        let said: String = deltas.iter().filter_map(text).collect();
                        assert_eq!(said, expected.text(), "{manners:?}");
                        tried += 1;
                    }
                }
            }
        }
    }
    assert_eq!(tried, 370);
}

/// Two calls of one function with the same arguments, which are both to be made, and a short one of another.
fn twins() -> (Vec<Value>, Vec<ModelPart>, TurnEnd) {
    let twin = |number: u64, arguments: &str| {
        let mut twin = call("f", arguments);
        (twin["id"], twin["call_id"]) = (json!(format!("fc_{number}")), json!(format!("call_{number}")));
        twin
    };
    let whole = "{\"a\":1}";
    let events = [
        vec![added(0, twin(0, "")), arguments(0, "{\"a\":"), arguments(0, "1}"), done(0, twin(0, whole))],
        vec![added(1, twin(1, "")), arguments(1, "{\"a\""), arguments(1, ":1}"), done(1, twin(1, whole))],
        vec![added(2, call("g", "")), done(2, call("g", "{}"))],
        vec![completed(&[twin(0, whole), twin(1, whole), call("g", "{}")])],
    ];
    (events.concat(), vec![called("f", whole), called("f", whole), called("g", "{}")], TurnEnd::ToolCalls)
}

/// A server that tells of an item again before it is whole has not begun another one.
#[test]
fn an_item_that_begins_twice_is_one() {
    let begun = added(0, call("f", ""));
    let events = [begun.clone(), arguments(0, "{\"a\":"), begun, arguments(0, "1}"), completed(&[])];
    assert_eq!(turn(&events).unwrap().parts, [called("f", "{\"a\":1}")]);
}
