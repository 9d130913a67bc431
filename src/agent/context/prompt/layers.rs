//! Merges layers by name: what is said nearer to a run replaces what was said further up, or is added to it.

use crate::types::pattern::matches;
use crate::types::prompt::{Merge, PromptLayer, Section, SectionOwner};

/// Sections by name, while layers are put on them.
#[derive(Debug)]
pub struct Stack<'a> {
    sections: Vec<Section>,
    tags: &'a [String],
    replaceable: &'a [String],
}

impl<'a> Stack<'a> {
    /// Nothing but these sections, under layers with one of these tags. Of what the configuration says callers may replace what
    /// one of the patterns `replaceable` matches.
    #[must_use]
    pub fn on(sections: Vec<Section>, tags: &'a [String], replaceable: &'a [String]) -> Self {
        Self { sections, tags, replaceable }
    }

    /// Puts a layer of a caller on all that is there. Fails if that would change what is not for callers to change.
    pub fn put(&mut self, owner: SectionOwner, layer: &PromptLayer) -> Result<(), Closed> {
        let known = self.sections.iter().find(|section| section.name == layer.name);
        let is_callers = |section: &Section| matches!(section.owner, SectionOwner::Session | SectionOwner::Request);
        let is_closed = known.is_some_and(|section| !is_callers(section));
        if is_closed && self.is_part(layer) && !self.replaceable.iter().any(|pattern| matches(pattern, &layer.name)) {
            return Err(Closed);
        }
        self.declare(owner, layer);
        Ok(())
    }

    fn is_part(&self, layer: &PromptLayer) -> bool {
        layer.tags.iter().any(|tag| self.tags.contains(tag))
    }

    /// Puts a layer of the configuration on all that is there.
    pub fn declare(&mut self, owner: SectionOwner, layer: &PromptLayer) {
        if !self.is_part(layer) {
            return;
        }
        let PromptLayer { name, text, priority, tags, merge, lasts } = layer;
        let new = || Section {
            name: name.clone().into(),
            priority: *priority,
            tags: tags.clone(),
            owner,
            lasts: *lasts,
            text: text.clone(),
        };
        let Some(found) = self.sections.iter_mut().find(|section| section.name == *name) else {
            self.sections.push(new());
            return;
        };
        match merge {
            Merge::Replace => *found = new(),
            Merge::Add => {
                found.text.push_str("\n\n");
                found.text.push_str(text);
            }
        }
    }

    /// Puts a section in the place of one of its name.
    pub fn replace(&mut self, section: Section) {
        match self.sections.iter_mut().find(|known| known.name == section.name) {
            Some(found) => *found = section,
            None => self.sections.push(section),
        }
    }

    /// The sections.
    #[must_use]
    pub fn into_sections(self) -> Vec<Section> {
        self.sections
    }
}

/// Callers may not replace the section, nor add to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::prompt::{Lasts, PRIORITY_CONTEXT, PRIORITY_LAYER};

    fn layer(name: &str, text: &str, merge: Merge) -> PromptLayer {
        PromptLayer { merge, ..PromptLayer::new(name, text) }
    }

    #[test]
    fn nearer_layers_replace_or_add() {
        use SectionOwner::{Agent, Key, Request, Server, Session};
        let (tags, replaceable) = (["system".to_owned()], ["tone*".to_owned()]);
        let written = Section::of_run("safety", 20, Lasts::Stable, "written".into());
        let mut stack = Stack::on(vec![written], &tags, &replaceable);
        let elsewhere = PromptLayer { tags: vec!["legal".into()], ..PromptLayer::new("law", "left out") };
        for (owner, layer, result) in [
            (Server, layer("tone", "server", Merge::Replace), Ok(())),
            (Server, layer("house", "server", Merge::Replace), Ok(())),
            (Server, elsewhere, Ok(())),
            (Key, layer("house", "key", Merge::Add), Ok(())),
            (Agent, layer("safety", "agent", Merge::Add), Ok(())),
            (Session, layer("tone", "session", Merge::Replace), Ok(())),
            (Session, layer("house", "session", Merge::Add), Err(Closed)),
            (Request, layer("safety", "", Merge::Replace), Err(Closed)),
            (Session, layer("own", "session", Merge::Replace), Ok(())),
            (Request, PromptLayer { priority: PRIORITY_CONTEXT, ..layer("own", "request", Merge::Replace) }, Ok(())),
        ] {
            match owner {
                Session | Request => assert_eq!(stack.put(owner, &layer), result, "{layer:?}"),
                Server | Key | Agent | SectionOwner::Run => stack.declare(owner, &layer),
            }
        }
        let told: Vec<_> = stack.into_sections();
        let told: Vec<_> =
            told.iter().map(|section| (&*section.name, section.owner, section.priority, &*section.text)).collect();
        assert_eq!(
            told,
            [
                ("safety", SectionOwner::Run, 20, "written\n\nagent"),
                ("tone", Session, PRIORITY_LAYER, "session"),
                ("house", Server, PRIORITY_LAYER, "server\n\nkey"),
                ("own", Request, PRIORITY_CONTEXT, "request"),
            ]
        );
    }
}
