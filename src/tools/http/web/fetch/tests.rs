use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use super::markdown::{self, Page};
use super::*;

#[test]
fn a_long_text_comes_in_parts_that_make_it_whole() {
    let text = "é line of text\n".repeat(8_000);
    let (mut whole, mut start) = (String::new(), 0);
    loop {
        let told = part(&text, start);
        assert!(told.len() < PART + 200);
        let (piece, note) = told.rsplit_once("\n\n[This is ").expect("it says how far it is");
        whole += piece;
        let Some((_, next)) = note.rsplit_once("\"start\": ") else { break };
        start = next.trim_end_matches(".]").parse().unwrap();
    }
    assert_eq!(whole, text);
    assert_eq!(part("short", 0), "short");
    assert_eq!(part("short", 900), "[The page ends at 5.]");
    assert_eq!(part("", 0), "[The page has no text.]");
}

fn page(html: &str) -> Page {
    markdown::read(html, &Url::parse("https://example.com/docs/page.html").unwrap())
}

#[test]
fn a_page_is_read_as_markdown() {
    let html = r##"<!doctype html><html><head><title> A  page </title><style>p { color: red }</style></head><body>
        <header><a href="/">Home</a></header><nav><ul><li><a href="/x">X</a></ul></nav>
        <main><h1>Heading &amp; more</h1>
        <p>Some <b>bold</b>
           words, a <a href="other.html?a=1&amp;b=2">link</a>, <a href="#here">here</a>.<br>Next line.
        <ul><li>one<li><p>two</p><ol><li>first</li><li>second</li></ol></li></ul>
        <pre><code>fn main() {
    let x = 1 &lt; 2;
}</code></pre>
        <table><tr><th>Name</th><th>Age</th></tr><tr><td>Ann</td><td>33</td></tr></table>
        <blockquote><p>Quoted.</p></blockquote><img alt="A cat" src="cat.png"><script>alert("<p>no</p>")</script>
        <p hidden>Not seen</p><svg><text>no</text></svg>
        </main><footer>Imprint</footer></body></html>"##;
    let page = page(html);
    assert_eq!(page.title, "A page");
    insta::assert_snapshot!(page.text, @"
    # Heading & more

    Some bold words, a [link](https://example.com/docs/other.html?a=1&b=2), here.
    Next line.

    - one
    - two

      1. first
      2. second

    ```
    fn main() {
        let x = 1 < 2;
    }
    ```

    Name | Age
    Ann | 33

    > Quoted.

    [image: A cat]
    ");
}

#[test]
fn a_page_without_much_content_is_read_with_what_stands_around_it() {
    assert_eq!(
        page("<nav>All that there is to be read, here</nav><p>x</p>").text,
        "All that there is to be read, here\n\nx"
    );
    assert_eq!(page("<p>a</p><nav>b").text, "a\n\nb");
    assert_eq!(page("").text, "");
    let text = format!("<nav>menu</nav><p>{}</p>", "word ".repeat(100));
    assert!(!page(&text).text.contains("menu"));
}

#[test]
fn only_links_that_lead_to_pages_are_shown() {
    let html = r#"<a href="javascript:alert(1)">a</a> <a href="data:text/html,x">b</a> <a href="//other.org/">c</a>
        <a href="mailto:a@b.c">d</a> <a href="/e"> </a> <a>f</a> <a href="http://[">g</a> <a href="https://h.org/">https://h.org/</a>"#;
    let text = page(html).text;
    assert_eq!(text, "a b [c](https://other.org/) [d](mailto:a@b.c) f g https://h.org/");
}

/// Broken off at any byte, nested without end, or full of attributes: a page is read in its time, and the stack holds.
#[test]
fn a_page_that_is_made_for_it_exhausts_nothing() {
    let whole = "<main><h1>t</h1><ul><li><a href='/x'>y</a><pre> z </pre></main><table><tr><td>&amp;&#x41;";
    for end in 0..whole.len() {
        page(&whole[..end]);
    }
    let attributes = (0..150_000).map(|n| format!("a{n:x}")).collect::<Vec<_>>().join(" ");
    let long = "/x".repeat(400);
    for html in [
        "<div>".repeat(200_000),
        "<ul><li>".repeat(100_000),
        "<b><i>".repeat(150_000),
        format!("<p {attributes}>text"),
        format!("<base href='https://example.com/{long}/'>{}", "<a href=x>y</a>".repeat(60_000)),
        "</main>".repeat(100_000),
        "<a href=/x>".repeat(100_000),
        "&".repeat(1_000_000),
        "<!--".repeat(200_000),
        "<".repeat(1_000_000),
    ] {
        let begun = Instant::now();
        let page = page(&html);
        assert!(begun.elapsed() < Duration::from_secs(10), "{}: {:?}", &html[..20], begun.elapsed());
        assert!(page.text.len() < 5 << 20);
    }
}

/// What is marked as the content holds nothing, again and again.
#[test]
fn content_that_is_empty_repeats_nothing() {
    for pair in ["<main></main>", "<article></article>", "<main> <b></b></main>"] {
        let text = page(&(pair.repeat(3) + "<p>The only sentence.</p>")).text;
        assert_eq!(text, "The only sentence.", "{pair}");
        // 20 GB, were the rest taken for the content of each.
        let text = page(&(pair.repeat(20_000) + "<p>" + &"word ".repeat(200_000))).text;
        assert_eq!(text.len(), "word ".len() * 200_000 - 1, "{pair}");
    }
    let begin = "Before. <main>First.</main> <main></main> Between. <main>Last, ";
    assert_eq!(page(&format!("{begin}not closed.")).text, "First.\n\nLast, not closed.");
}
