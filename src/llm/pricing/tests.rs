//! Tests of where prices come from, and of the built-in list.

use super::*;
use crate::config::{Capability, PriceFile};

fn list(text: &str) -> PriceFile {
    PriceFile::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A list of one provider, whose prices hold at these hosts.
fn list_of(hosts: &str, models: &str) -> PriceFile {
    list(&format!("provider = \"P\"\nsource = \"https://p.example\"\nread = 2026-01-02\nhosts = {hosts}\n{models}"))
}

/// What is known of a model of whose size its upstream says nothing.
fn priced<'a>(models: &'a Models, terms: &Terms, names: [&str; 3]) -> Priced<'a> {
    super::priced(models, terms, names, Sizes::default())
}

const MODEL: &str = "[models.\"m\"]\nprice = { input = 1, output = 2 }\ncontext_window = 100\nmax_output_tokens = 10\n";

fn at(host: &str) -> Terms {
    Terms { host: host.into(), ..Terms::default() }
}

#[test]
fn a_model_is_found_under_all_its_names() {
    for (name, usd) in [
        ("gpt-5", (1.25, 0.125, 10.0)),
        ("openai/gpt-4o", (2.5, 1.25, 10.0)),
        ("gpt-4o-2024-08-06", (2.5, 1.25, 10.0)),
        ("openai/gpt-4o-2024-05-13", (5.0, 5.0, 15.0)),
        ("openrouter/openai/gpt-5-mini-2025-08-07", (0.25, 0.025, 2.0)),
        ("claude-sonnet-4-20250514", (3.0, 0.3, 15.0)),
        ("anthropic/claude-opus-4-20250514", (15.0, 1.5, 75.0)),
        ("claude-3-5-haiku-20241022", (0.8, 0.08, 4.0)),
        ("deepseek/deepseek-chat", (0.14, 0.14, 0.28)),
    ] {
        let (input, cached, output) = usd;
        let written = if name.contains("claude") { 1.25 * input } else { input };
        let price = Price::from_usd(input, cached, output).with_cache_write(Micros::from_usd(written));
        assert_eq!(known(name).map(|facts| facts.price), Some(price), "{name}");
    }
}

#[test]
fn nothing_else_is_taken_for_a_known_model() {
    for name in ["", "/", "gpt", "gpt-5-", "gpt-5-2025", "gpt-5-turbo", "gpt-5/", "-20250514", "gpt-5é2025051", "ä"] {
        assert_eq!(known(name), None, "{name}");
    }
    assert_eq!(fallback().price, Price::from_usd(3.0, 3.0, 15.0));
}

#[test]
fn every_list_is_read_and_its_numbers_are_plausible() {
    let mut names = 0;
    for file in built_in() {
        assert!(file.source.starts_with("https://") && !file.provider.is_empty(), "{}", file.provider);
        for name in file.names() {
            let ListedModel { price, context_window, max_output_tokens, takes, .. } = file.model(name).unwrap();
            assert!(0 < price.cached_input && price.cached_input <= price.input, "{name}");
            assert!(price.at_most().input <= price.output, "{name}");
            assert!(max_output_tokens <= context_window && takes.contains(&Capability::Tools), "{name}");
            let long = price.long_context.unwrap_or_default();
            assert!(
                price.long_context.is_none() || (long.input > price.input && long.above < *context_window),
                "{name}"
            );
            names += 1;
        }
    }
    assert!(names > 100, "{names}");
}

#[test]
fn where_many_sell_a_model_a_price_is_certain_only_where_it_was_read() {
    let models = Models { files: vec![list_of("[\"p.example\"]", MODEL)], ..Models::default() };
    let priced = |host: &str| priced(&models, &at(host), ["up/m", "m", "m"]);
    let (here, elsewhere) = (priced("p.example"), priced("q.example"));
    assert_eq!((here.source.origin(), elsewhere.source.origin()), (PriceOrigin::Known, PriceOrigin::Guessed));
    assert_eq!(here.facts, elsewhere.facts, "it is the best guess that there is");
    let private = Terms { undeclared: Undeclared::AssumedFree, ..at("10.0.0.1") };
    let near = self::priced(&models, &private, ["up/m", "m", "m"]);
    assert_eq!((near.facts.price, near.source), (Price::default(), PriceSource::AssumedFree));
    assert_eq!(near.facts.context_window, 100, "its window is that of the model");
}

#[test]
fn a_price_that_was_not_confirmed_is_a_guess() {
    let models = Models { files: vec![list_of("[]", &format!("{MODEL}unconfirmed = true\n"))], ..Models::default() };
    let found = priced(&models, &at("p.example"), ["up/m", "m", "m"]);
    assert_eq!((found.source, found.facts.price), (PriceSource::Guessed, Price::from_usd(1.0, 1.0, 2.0)));
    assert_eq!(
        priced(&Models::default(), &at("api.deepseek.com"), ["d/deepseek-chat", "deepseek-chat", "deepseek-chat"])
            .source,
        PriceSource::Guessed
    );
}

#[test]
fn what_is_nearer_to_the_operator_goes_first() {
    let own = list_of("[]", &MODEL.replace("\"m\"", "\"gpt-5\""));
    let mut models = Models { files: vec![own], ..Models::default() };
    let input = |models: &Models| priced(models, &at(""), ["up/gpt-5", "gpt-5", "gpt-5"]).facts.price.input;
    assert_eq!(input(&models), 1_000_000);
    let declared = crate::config::ModelConfig { price: Some(Price::from_usd(7.0, 7.0, 7.0)), ..Default::default() };
    models.declared.insert("up/gpt-5".to_owned(), declared);
    assert_eq!(input(&models), 7_000_000);
    assert_eq!(input(&Models::default()), 1_250_000);
}

#[test]
fn what_an_upstream_says_of_the_size_of_a_model_goes_before_lists_and_after_declarations() {
    let mut models = Models { files: vec![list_of("[]", MODEL)], ..Models::default() };
    let known = |models: &Models, model: &str, sizes: Sizes| {
        let Priced { facts, is_assumed, .. } = super::priced(models, &at(""), [model, model, model], sizes);
        (facts.context_window, facts.max_output_tokens, is_assumed)
    };
    let told = Sizes { context_window: Some(50), max_output_tokens: Some(5) };
    let window = Sizes { context_window: Some(50), max_output_tokens: None };
    assert_eq!(known(&models, "m", Sizes::default()), (100, 10, false));
    assert_eq!(known(&models, "m", told), (50, 5, false));
    assert_eq!(known(&models, "m", window), (50, 10, false));
    assert_eq!(known(&models, "new", told), (50, 5, false));
    assert_eq!(known(&models, "new", window), (50, MORE_THAN_ANY, true));
    let declared = crate::config::ModelConfig { context_window: Some(70), ..Default::default() };
    models.declared.insert("m".to_owned(), declared);
    assert_eq!(known(&models, "m", told), (70, 5, false));
}

#[test]
fn a_file_with_a_mistake_is_refused_with_its_line() {
    let refused = |models: &str| {
        PriceFile::parse(&format!("provider = \"P\"\nsource = \"s\"\nread = 2026-01-02\n{models}"))
            .unwrap_err()
            .to_string()
    };
    assert!(refused("[models.m]\nprice = { input = -1, output = 2 }").starts_with("line 5: a price is from 0"));
    assert!(refused("read = 2026-02-30\n").starts_with("line 4"));
    for (wrong, said) in [
        (MODEL.replace("100", "0"), "a number of tokens is at least 1"),
        (format!("{MODEL}takes = [\"smells\"]"), "smells"),
        (format!("{MODEL}tiers = {{ priority = 0 }}"), "a multiple is from"),
        (format!("{MODEL}also = [\"m\"]"), "the model m is listed twice"),
        (format!("{MODEL}colour = 1"), "colour"),
    ] {
        let refused = refused(&wrong);
        assert!(refused.contains(said), "{refused}");
    }
}
