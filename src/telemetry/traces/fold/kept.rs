//! How spans and moments of a run are kept, within the room that there is.

use super::{MOST_CONTENT, SpanFold};
use crate::telemetry::traces::content::Content;
use crate::telemetry::traces::span::{Moment, Span, Value};

impl SpanFold {
    /// Ends a span now, if it is open.
    pub(super) fn end(&mut self, which: impl FnOnce(&mut Self) -> &mut Option<Span>) {
        if let Some(mut span) = which(self).take() {
            span.end_ms = self.now_ms;
            self.push(span);
        }
    }

    /// Keeps spans that have ended.
    pub(super) fn push_all(&mut self, spans: impl IntoIterator<Item = Span>) {
        for span in spans {
            self.push(span);
        }
    }

    /// Keeps a span that has ended, unless there is no room for it.
    pub(super) fn push(&mut self, mut span: Span) {
        if !span.is_told {
            self.left_out += 1;
            return;
        }
        if self.content + span.content() > MOST_CONTENT {
            self.is_content_left_out = true;
            self.subject.content = Content::Off;
        }
        if self.is_content_left_out {
            span.leave_content_out();
        }
        self.content += span.content();
        self.done.push(span);
    }

    /// Notes something that happened in the run.
    pub(super) fn note<const N: usize>(&mut self, name: &'static str, attributes: [(&'static str, Value); N]) {
        self.root.add(Moment::new(name, self.now_ms, attributes));
    }
}
