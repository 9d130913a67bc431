//! A table that fits its width. Pure.

use super::text::clip;

/// A column's title, and the fewest characters that its cells may be cut to; without them they are never cut.
pub(super) type Column = (&'static str, Option<usize>);

/// Between two columns.
const GAP: usize = 2;

/// The lines of a table, its titles first. If it is wider than `width`, the widest columns that may be cut are cut; a line
/// that still does not fit is longer.
pub(super) fn lines(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let rows: Vec<&Vec<String>> = std::iter::once(&titles).chain(rows).collect();
    let widest = |index: usize| rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns.len()).map(widest).collect();
    if let Some(width) = width {
        while widths.iter().sum::<usize>() + GAP * columns.len().saturating_sub(1) > width {
            let may_shrink = |index: &usize| columns[*index].1.is_some_and(|least| widths[*index] > least);
            let Some(index) = (0..columns.len()).filter(may_shrink).max_by_key(|index| widths[*index]) else { break };
            widths[index] -= 1;
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", clip(cell, *width)));
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
    };
    rows.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_cut_is_cut_and_only_where_it_must_be() {
        let columns = [("ID", None), ("MODEL", Some(5)), ("WHY", Some(3))];
        let rows = [vec!["run_1".to_owned(), "a-long-model".to_owned(), "cancelled".to_owned()]];
        let lines = |width| lines(&columns, &rows, width);
        assert_eq!(lines(None), ["ID     MODEL         WHY", "run_1  a-long-model  cancelled"]);
        assert_eq!(lines(Some(30)), lines(None));
        assert_eq!(lines(Some(27)), ["ID     MODEL      WHY", "run_1  a-long-m…  cancelled"]);
        assert_eq!(lines(Some(1)), ["ID     MODEL  WHY", "run_1  a-lo…  ca…"]);
    }
}
