//! What a run got of its tools beside results.

use super::asked::Questions;
use super::children::Children;
use super::handed::Handoffs;
use crate::types::ToolOutcome;
use crate::types::conversation::Part;
use crate::types::run::ToolSearch;
use crate::types::tool::FoundTool;

/// What few runs have of their calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Rare {
    /// What its calls asked the user.
    pub(super) questions: Questions,
    /// The runs that its calls have begun.
    pub(super) children: Option<Children>,
    /// Its handoffs.
    pub(super) handoffs: Option<Handoffs>,
}

/// What a run got of its tools beside results.
#[derive(Debug, Clone, Default)]
pub(super) struct FromTools {
    /// How many bytes of pictures, sound and files the results hold.
    pub(super) media: u32,
    /// The tools that it found, the latest last.
    pub(super) found: Vec<FoundTool>,
    /// How many of the latest were found in this step: the model was told that it can call all of them.
    fresh: u32,
    /// What few runs have. Boxed, as a live run has room for it.
    pub(super) rare: Option<Box<Rare>>,
}

impl FromTools {
    /// Counts what came of a call. Returns how many bytes of text more the next request has, about, than without it.
    pub(super) fn add(&mut self, outcome: &ToolOutcome, search: Option<ToolSearch>) -> usize {
        let media: usize = outcome.parts.iter().filter(|part| part.is_media()).map(Part::bytes).sum();
        self.media = self.media.saturating_add(u32::try_from(media).unwrap_or(u32::MAX));
        let Some(search) = search else { return 0 };
        let mut weight = 0;
        for found in &outcome.found {
            // One that is found again is among the latest: the model was just told that it can call it.
            let known = self.found.iter().position(|known| known.name == found.name);
            if known.is_none_or(|place| place < self.found.len() - self.fresh as usize) {
                self.fresh += 1;
            }
            match known {
                Some(place) => drop(self.found.remove(place)),
                None => weight += found.weight as usize,
            }
            self.found.push(found.clone());
        }
        let above = self.found.len().saturating_sub(search.most as usize);
        self.found.drain(..above);
        self.fresh = self.fresh.min(u32::try_from(self.found.len()).unwrap_or(u32::MAX));
        weight
    }

    /// What few runs have, made if it is not there.
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// A step begins, in which the model is offered what was found before.
    pub(super) fn begin_step(&mut self) {
        self.fresh = 0;
        if let Some(handoffs) = self.rare.as_mut().and_then(|rare| rare.handoffs.as_mut()) {
            handoffs.is_unnamed = false;
        }
    }

    /// How many more tools can be found in this step, so that all of them can be offered in the next.
    pub(super) fn room(&self, search: ToolSearch) -> usize {
        search.most.saturating_sub(self.fresh) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_again_is_among_the_latest() {
        let mut tools = FromTools::default();
        let mut find = |names: &[&str]| {
            let found = names.iter().map(|name| FoundTool { name: (*name).into(), weight: 1 }).collect();
            tools.add(&ToolOutcome { found, ..ToolOutcome::default() }, Some(ToolSearch { first: 0, most: 3 }));
            tools.found.iter().map(|found| found.name.to_string()).collect::<String>()
        };
        assert_eq!(find(&["a", "b", "c"]), "abc");
        assert_eq!(find(&["a"]), "bca");
        assert_eq!(find(&["d"]), "cad", "what the model was told last can be called");
    }

    #[test]
    fn what_searches_of_one_step_find_has_room_in_the_next() {
        let (search, mut tools) = (ToolSearch { first: 0, most: 3 }, FromTools::default());
        let find = |tools: &mut FromTools, names: &[&str]| {
            let found = names.iter().map(|name| FoundTool { name: (*name).into(), weight: 1 }).collect();
            tools.add(&ToolOutcome { found, ..ToolOutcome::default() }, Some(search));
            tools.room(search)
        };
        assert_eq!(find(&mut tools, &["a", "b"]), 1);
        assert_eq!(find(&mut tools, &["b"]), 1, "it was found before in this step");
        assert_eq!(find(&mut tools, &["c"]), 0);
        tools.begin_step();
        assert_eq!((tools.room(search), find(&mut tools, &["a"])), (3, 2));
    }
}
