//! Rendered messages: golden bytes, escaping by place, locales, what a bundle refuses, and that no error tells a row.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking, its helpers too")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil::digest::{
    Bundle, BundleError, BundleSettings, Message, ReceiptFacts, RenderError, UnsubscribePattern, shipped,
};
use counterfoil::identity::keyring::Keyring;
use counterfoil::identity::{CustomerId, DigestType, ReceiptKey};
use counterfoil::snapshot::Row;
use serde_json::{Value, json};
use tempfile::TempDir;

const CANARY: &str = "Canary7Xq";

fn shipped_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/weekly_activity/v1")
}

fn settings() -> BundleSettings {
    BundleSettings {
        from: "Example Bank <digest@example.test>".parse().expect("a mailbox"),
        unsubscribe: UnsubscribePattern::parse("https://example.test/u/{customer}/{token}").expect("a pattern"),
    }
}

fn weekly_activity() -> Bundle {
    Bundle::load(&shipped_directory(), &settings()).expect("the bundle that ships")
}

/// A bundle of these files, over the smallest one there can be.
fn directory_of(files: &[(&str, &[u8])]) -> TempDir {
    let directory = TempDir::new().expect("a directory");
    let smallest: [(&str, &[u8]); 3] = [("subject.txt", b"S"), ("body.txt", b"T"), ("body.html", b"<p>H</p>")];
    for (path, bytes) in smallest.iter().chain(files) {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, bytes).expect("a file");
    }
    directory
}

fn bundle_of(files: &[(&str, &str)]) -> Bundle {
    try_bundle_of(files).expect("a bundle")
}

fn try_bundle_of(files: &[(&str, &str)]) -> Result<Bundle, BundleError> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    Bundle::load(directory_of(&files).path(), &settings())
}

/// What is wrong with a bundle of these files, without the directory's name.
fn refusal(files: &[(&str, &str)]) -> String {
    let error = try_bundle_of(files).expect_err("a refusal").to_string();
    let start = error.find("/subject").or(error.find("/body")).or(error.find("/schema")).or(error.find("/strings"));
    error[start.or(error.rfind("/locales")).map_or(0, |at| at + 1)..].to_owned()
}

fn row(data: Value) -> Row {
    Row {
        customer_id: CustomerId::new("customer_8421").expect("an id"),
        email: "ada@example.test".parse().expect("an address"),
        name: Some("Ada Example".to_owned()),
        locale: Some("en-GB".to_owned()),
        time_zone: None,
        destination: None,
        unsubscribe_url: None,
        data,
    }
}

fn ordinary() -> Row {
    row(json!({
        "period_start": "2026-08-03", "period_end": "2026-08-09", "currency": "GBP",
        "opening_balance": "1204.50", "closing_balance": "3105.18",
        "transactions": [
            {"date": "2026-08-03", "description": "Corner grocery", "amount": "-24.12"},
            {"date": "2026-08-03", "description": "Coffee", "amount": "-3.2"},
            {"date": "2026-08-05", "description": "Salary", "amount": "2450"},
            {"date": "2026-08-07", "description": "Rent", "amount": "-522.00"},
        ],
    }))
}

fn empty_week() -> Row {
    Row {
        name: None,
        locale: Some("de-DE".to_owned()),
        ..row(json!({
            "period_start": "2026-07-27", "period_end": "2026-08-02", "currency": "EUR",
            "opening_balance": "-12.5", "closing_balance": "-12.5", "transactions": [],
        }))
    }
}

fn awkward() -> Row {
    Row {
        customer_id: CustomerId::new("auth0|5f/ü").expect("an id"),
        name: Some("مثال \"Q\" <b>, 👩\u{200d}👧 \u{202e}x".to_owned()),
        locale: Some("ar-BH".to_owned()),
        ..row(json!({
            "period_start": "2026-12-28", "period_end": "2027-01-03", "currency": "BHD",
            "opening_balance": "0.005", "closing_balance": "-25.001",
            "transactions": [
                {"date": "2026-12-28", "description": "<script>alert(1)</script>", "amount": "-25.006"},
                {"date": "2026-12-28", "description": "", "amount": "0"},
                {"date": "2026-12-29", "description": "ACME \u{202e}gnp.exe", "amount": "1.5"},
                {"date": "2027-01-01", "description": "寿司 🍣 持ち帰り\tCafé & Bar", "amount": "-1"},
                {"date": "2027-01-01", "description": format!("{} end", "A".repeat(300)), "amount": "-0.5"},
                {"date": "2027-01-02", "description": "{{ 7 * 7 }} {% raw %}", "amount": "1234567.891"},
            ],
        }))
    }
}

fn receipt() -> ReceiptFacts {
    ReceiptFacts {
        key: ReceiptKey::from_bytes([0xA5; 32]),
        first_claimed_at: "2026-08-10T06:00:01.5Z".parse().expect("an instant"),
    }
}

fn keyring() -> Keyring {
    let text = "[stable]\nsecret = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n[[key]]\nid = \"k\"\n\
                from_week = \"2020-W01\"\nsecret = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n";
    Keyring::parse(&text.to_owned().into()).expect("a keyring")
}

fn try_render(bundle: &Bundle, row: &Row) -> Result<Message, RenderError> {
    let digest_type = DigestType::new("weekly_activity").expect("a type");
    bundle.render(row, &receipt(), &digest_type, keyring().stable())
}

fn render(bundle: &Bundle, row: &Row) -> Message {
    bundle.check(row).expect("a good row");
    try_render(bundle, row).expect("a message")
}

/// The HTML part of a bundle that shows one expression in some place.
fn html_of(template: &str, data: Value) -> String {
    render(&bundle_of(&[("body.html", template)]), &row(data)).html
}

fn mime_text(message: &Message) -> String {
    String::from_utf8(message.to_mime()).expect("ASCII")
}

/// Header lines unfolded.
fn header<'a>(mime: &'a str, name: &str) -> Vec<String> {
    let head: &'a str = mime.split("\r\n\r\n").next().expect("headers");
    let unfolded = head.replace("\r\n ", " ").replace("\r\n\t", " ");
    let start = format!("{name}: ");
    unfolded.split("\r\n").filter_map(|line| line.strip_prefix(&start).map(|value| value.trim().to_owned())).collect()
}

#[test]
fn golden_messages_stay_what_they_are() {
    let bundle = weekly_activity();
    for (name, row) in [("ordinary", ordinary()), ("awkward", awkward()), ("empty", empty_week())] {
        let message = render(&bundle, &row);
        insta::assert_snapshot!(format!("{name}_text"), format!("{}\n\n{}", message.subject, message.text));
        insta::assert_snapshot!(format!("{name}_html"), message.html);
        insta::assert_snapshot!(format!("{name}_mime"), mime_text(&message).replace("\r\n", "\n"));
    }
}

#[test]
fn the_bundle_inside_the_program_is_the_one_in_the_directory() {
    let mut found = Vec::new();
    let mut directories = vec![shipped_directory()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let inner = path.strip_prefix(shipped_directory()).expect("inside").to_str().expect("UTF-8").to_owned();
                found.push((inner, std::fs::read_to_string(path).expect("a text")));
            }
        }
    }
    found.sort();
    let inside = shipped::WEEKLY_ACTIVITY_V1.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(
        found.iter().map(|(path, _)| path).collect::<Vec<_>>(),
        inside.iter().map(|(path, _)| path).collect::<Vec<_>>()
    );
    assert!(found == inside);
}

#[test]
fn a_thousand_renders_have_one_hash() {
    let row = awkward();
    let first = render(&weekly_activity(), &row).to_mime();
    let bundle = Arc::new(weekly_activity());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (bundle, row, first) = (Arc::clone(&bundle), &row, &first);
            scope.spawn(move || {
                let key = keyring();
                let digest_type = DigestType::new("weekly_activity").expect("a type");
                for _ in 0..250 {
                    let message = bundle.render(row, &receipt(), &digest_type, key.stable()).expect("a message");
                    assert!(message.to_mime() == *first && message.to_mime() == *first);
                }
            });
        }
    });
}

#[test]
fn the_receipt_alone_gives_message_id_date_and_boundaries() {
    let message = render(&weekly_activity(), &ordinary());
    let mime = mime_text(&message);
    assert_eq!(message.message_id, format!("<{}@example.test>", "a5".repeat(16)));
    assert_eq!(header(&mime, "Message-ID"), [message.message_id.as_str()]);
    assert_eq!(header(&mime, "Date"), ["Mon, 10 Aug 2026 06:00:01 +0000"]);
    assert!(mime.contains(&format!("boundary=\"=_a{}\"", "a5".repeat(12))));
    let other = ReceiptFacts { key: ReceiptKey::from_bytes([0xA6; 32]), ..receipt() };
    let digest_type = DigestType::new("weekly_activity").expect("a type");
    let again = weekly_activity().render(&ordinary(), &other, &digest_type, keyring().stable()).expect("a message");
    assert_ne!(again.message_id, message.message_id);
    assert_eq!(again.html, message.html);
}

#[test]
fn every_message_can_be_ended_with_one_click() {
    let bundle = weekly_activity();
    let message = render(&bundle, &awkward());
    let token = keyring()
        .stable()
        .unsubscribe_token(&awkward().customer_id, &DigestType::new("weekly_activity").expect("a type"));
    let url = format!("https://example.test/u/auth0%7C5f%2F%C3%BC/{token}");
    let mime = mime_text(&message);
    assert_eq!(header(&mime, "List-Unsubscribe"), [format!("<{url}>")]);
    assert_eq!(header(&mime, "List-Unsubscribe-Post"), ["List-Unsubscribe=One-Click"]);
    assert!(message.html.contains(&format!("href=\"{url}\"")) && message.text.contains(&url));
    let own = Row { unsubscribe_url: Some("https://other.test/x?a=1&b=2".to_owned()), ..ordinary() };
    let message = render(&bundle, &own);
    assert_eq!(header(&mime_text(&message), "List-Unsubscribe"), ["<https://other.test/x?a=1&b=2>"]);
    assert!(message.html.contains("href=\"https://other.test/x?a=1&amp;b=2\""));
}

#[test]
fn lines_end_in_crlf_and_fit_every_relay() {
    let long_name = Row { name: Some("Ü".repeat(200)), ..ordinary() };
    let long_url = Row { unsubscribe_url: Some(format!("https://e.test/{}", "u".repeat(970))), ..ordinary() };
    let mut long_word = ordinary();
    long_word.data["transactions"][0]["description"] = json!("W".repeat(1000));
    for row in [ordinary(), awkward(), empty_week(), long_name, long_url, long_word] {
        let mime = render(&weekly_activity(), &row).to_mime();
        assert!(mime.is_ascii() && mime.ends_with(b"\r\n"));
        for line in mime.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            assert!(line.ends_with(b"\r") && !line[..line.len() - 1].contains(&b'\r'), "a bare line end");
            assert!(line.len() <= 999, "{} bytes", line.len());
        }
    }
}

#[test]
fn ordinary_lines_have_at_most_78_bytes() {
    let named = Row { name: Some("Ünïcode Nämé of middling length".to_owned()), ..ordinary() };
    for row in [ordinary(), awkward(), empty_week(), named] {
        let mime = mime_text(&render(&weekly_activity(), &row));
        let long = mime.split("\r\n").find(|line| line.len() > 78 && !line.starts_with(" <https://"));
        assert_eq!(long, None);
    }
}

#[test]
fn what_a_row_says_stays_text_wherever_it_stands() {
    let attack = "<img src=x onerror=alert(1)> \" onmouseover='x' [x](http://evil.test) &amp; {{ 7 * 7 }} javascript:x";
    let shown = html_of("<p title=\"{{ data.a }}\" class='{{ data.a }}'>{{ data.a }}</p>", json!({"a": attack}));
    let escaped = "&lt;img src=x onerror=alert(1)&gt; &quot; onmouseover=&#39;x&#39; [x](http://evil.test) &amp;amp; \
                   {{ 7 * 7 }} javascript:x";
    assert_eq!(shown, format!("<p title=\"{escaped}\" class='{escaped}'>{escaped}</p>"));
}

#[test]
fn plain_text_is_not_escaped() {
    let bundle = bundle_of(&[("body.txt", "{{ data.a }}"), ("subject.txt", "{{ data.a }}")]);
    let message = render(&bundle, &row(json!({"a": "Tom & <Jerry> \"x\""})));
    assert_eq!((message.text.as_str(), message.subject.as_str()), ("Tom & <Jerry> \"x\"", "Tom & <Jerry> \"x\""));
}

#[test]
fn a_link_that_is_not_https_is_refused() {
    let bundle = bundle_of(&[("body.html", "<a href=\"{{ data.link | url }}\">x</a>")]);
    let good = render(&bundle, &row(json!({"link": "https://example.test/?a=1&b=2"})));
    assert_eq!(good.html, "<a href=\"https://example.test/?a=1&amp;b=2\">x</a>");
    for link in ["javascript:alert(1)", " JaVaScRiPt:alert(1)", "data:text/html,x", "http://example.test", "//x", ""] {
        let error = try_render(&bundle, &row(json!({"link": link}))).expect_err("a refusal");
        assert_eq!(error.to_string(), "template body.html:1: a link is not an https URL", "{link}");
    }
    let url = html_of("<a href=\"https://example.test/?q={{ data.q | query }}\">x</a>", json!({"q": "a&b=\"c d\"/é"}));
    assert_eq!(url, "<a href=\"https://example.test/?q=a%26b%3D%22c%20d%22%2F%C3%A9\">x</a>");
}

#[test]
fn direction_overrides_reach_no_part_of_a_message() {
    let row = Row {
        name: Some("Ev\u{202e}e".to_owned()),
        ..row(json!({"a": "x\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}y"}))
    };
    let bundle = bundle_of(&[
        ("subject.txt", "{{ data.a }}{{ name }}"),
        ("body.txt", "{{ data.a }}{{ name }}"),
        ("body.html", "{{ data.a }}{{ name }}"),
    ]);
    let message = render(&bundle, &row);
    assert_eq!([&message.subject, &message.text, &message.html], ["xyEve", "xyEve", "xyEve"]);
    assert_eq!(message.to.name.as_deref(), Some("Eve"));
}

#[test]
fn nothing_of_a_row_adds_a_header() {
    let bundle = bundle_of(&[("subject.txt", "About {{ data.a }}")]);
    for breaking in ["x\r\nBcc: b@evil.test", "x\nBcc: b@evil.test", "x\rBcc: y", "x\0y", "x\u{2028}y", "x\ty"] {
        let fault = bundle.check(&row(json!({"a": breaking}))).expect_err("a fault");
        assert_eq!((fault.field.as_str(), fault.reason.as_str()), ("subject", "would have more than one line"));
        let named = Row { name: Some(breaking.to_owned()), ..row(json!({"a": "x"})) };
        assert_eq!(bundle.check(&named).expect_err("a fault").field, "name");
        assert!(try_render(&bundle, &named).is_err());
        let linked =
            Row { unsubscribe_url: Some(format!("https://example.test/{breaking}")), ..row(json!({"a": "x"})) };
        assert_eq!(bundle.check(&linked).expect_err("a fault").field, "unsubscribe_url");
    }
    let tricky =
        Row { name: Some("=?utf-8?q?x=0D=0ABcc=3A?= \"a\\\" <b@evil.test>,".to_owned()), ..row(json!({"a": "=?x?="})) };
    let mime = mime_text(&render(&bundle, &tricky));
    assert_eq!(header(&mime, "To").len(), 1);
    assert!(header(&mime, "Bcc").is_empty());
}

#[test]
fn names_and_subjects_in_any_script_are_encoded() {
    let bundle = bundle_of(&[("subject.txt", "{{ data.a }}")]);
    let message = render(&bundle, &Row { name: Some("Zoë 山田".to_owned()), ..row(json!({"a": "Grüße 🎉"})) });
    let mime = mime_text(&message);
    assert_eq!(header(&mime, "To"), ["=?utf-8?b?Wm/DqyDlsbHnlLA=?= <ada@example.test>"]);
    assert!(header(&mime, "Subject")[0].starts_with("=?utf-8?b?"));
    assert_eq!(header(&mime, "From"), ["\"Example Bank\" <digest@example.test>"]);
    assert_eq!(message.envelope_to().to_string(), "ada@example.test");
    assert_eq!(message.envelope_from().to_string(), "digest@example.test");
}

#[test]
fn a_variable_that_does_not_exist_is_an_error_and_never_empty() {
    let bundle = bundle_of(&[("body.html", "<p>\n{{ data.missing }}</p>")]);
    let error = try_render(&bundle, &row(json!({}))).expect_err("an error").to_string();
    assert!(error.starts_with("template body.html:2: a variable does not exist"), "{error}");
    assert_eq!(
        refusal(&[("body.txt", "a\n{{ curency }}")]),
        "body.txt:2: there is no variable `curency`; known here are data, locale, name, sender, text, digest_type, \
         unsubscribe_url; what the row says is under `data`"
    );
    assert!(refusal(&[("subject.txt", "{{ unsubscribe_url }}")]).contains("no variable `unsubscribe_url`"));
    for template in ["{{ name }}", "{{ data.list }}", "{{ data }}"] {
        let unnamed = Row { name: None, ..row(json!({"list": [1]})) };
        let error = try_render(&bundle_of(&[("body.txt", template)]), &unnamed).expect_err("an error").to_string();
        assert_eq!(error, "template body.txt:1: a value has no text: it is null, a list or an object");
    }
}

#[test]
fn a_bundle_is_refused_by_file_and_line() {
    assert!(refusal(&[("body.html", "<p>\n\n{{ data.a")]).starts_with("body.html:3: is no valid template"));
    assert!(
        refusal(&[("body.html", "<p>\n{{ data.a | safe }}")]).starts_with("body.html:2: there is no filter `safe`")
    );
    assert!(refusal(&[("body.html", "<p>\n<a href={{ data.a }}>")]).starts_with("body.html:2: a value may stand in"));
    assert!(refusal(&[("body.txt", "{% include 'x' %}")]).starts_with("body.txt:1: `include` is not available"));
    assert!(refusal(&[("schema.json", "{\n\"a\": }")]).starts_with("schema.json:2: is not JSON"));
    assert!(refusal(&[("schema.json", "{\"type\": 7}")]).starts_with("schema.json: is no usable JSON Schema"));
    assert!(
        refusal(&[("schema.json", "{\"$ref\": \"https://example.test/x.json\"}")]).contains("no usable JSON Schema")
    );
    assert!(refusal(&[("schema.json", "{\"x-money\": 7}")]).starts_with("schema.json: `x-money` must be a list of"));
    assert!(refusal(&[("strings.json", "{\"a\": 1}")]).starts_with("strings.json:1: is not a JSON object"));
    assert!(refusal(&[("locales/de/strings.json", "{\"new\": \"x\"}")]).contains("`new` is not in the bundle's own"));
    assert!(refusal(&[("locales/DE/body.txt", "x")]).contains("write the language tag as de"));
    assert!(refusal(&[("locales/deutsch!/body.txt", "x")]).contains("is no language tag"));
}

#[test]
fn a_bundle_holds_its_own_plain_files_only() {
    for stranger in
        ["README.md", "body.html~", ".DS_Store", "images/a.svg", "images/a b.png", "locales/de/schema.json", "x/y"]
    {
        let error = Bundle::load(directory_of(&[(stranger, b"x")]).path(), &settings()).expect_err("a refusal");
        assert!(error.to_string().contains("is no part of a bundle"), "{error}");
    }
    let directory = directory_of(&[]);
    std::fs::remove_file(directory.path().join("body.txt")).expect("removed");
    let error = Bundle::load(directory.path(), &settings()).expect_err("a refusal").to_string();
    assert!(error.ends_with("body.txt: is missing; every bundle needs it"), "{error}");
    std::fs::write(directory.path().join("body.txt"), vec![b'x'; 600 * 1024]).expect("written");
    assert!(Bundle::load(directory.path(), &settings()).expect_err("a refusal").to_string().contains("is larger than"));
    std::fs::write(directory.path().join("body.txt"), b"a\n\xff").expect("written");
    let error = Bundle::load(directory.path(), &settings()).expect_err("a refusal").to_string();
    assert!(error.ends_with("body.txt:2: is not UTF-8; save the file as UTF-8"), "{error}");
    assert!(Bundle::load(&directory.path().join("none"), &settings()).is_err());
    assert!(Bundle::load(&directory.path().join("body.txt"), &settings()).is_err());
}

#[cfg(unix)]
#[test]
fn a_link_in_a_bundle_is_refused() {
    let directory = directory_of(&[]);
    std::fs::remove_file(directory.path().join("body.txt")).expect("removed");
    std::os::unix::fs::symlink(directory.path().join("subject.txt"), directory.path().join("body.txt"))
        .expect("a link");
    let error = Bundle::load(directory.path(), &settings()).expect_err("a refusal").to_string();
    assert!(error.contains("is a link or a special file"), "{error}");
}

#[test]
fn the_content_hash_covers_every_file_and_setting() {
    let load = |files: &[(&str, &[u8])], settings: &BundleSettings| {
        Bundle::load(directory_of(files).path(), settings).expect("a bundle").content_hash()
    };
    let original = load(&[], &settings());
    assert_eq!(load(&[], &settings()), original);
    let from = BundleSettings { from: "Other <digest@example.test>".parse().expect("a mailbox"), ..settings() };
    let pattern = UnsubscribePattern::parse("https://example.test/x/{customer}/{token}").expect("a pattern");
    let unsubscribe = BundleSettings { unsubscribe: pattern, ..settings() };
    let hashes = [
        original,
        load(&[("subject.txt", b"S\n")], &settings()),
        load(&[("schema.json", b"{}")], &settings()),
        load(&[("strings.json", b"{}")], &settings()),
        load(&[("locales/de/body.txt", b"T")], &settings()),
        load(&[("images/a.png", b"\x89PNG\r\n\x1a\n")], &settings()),
        load(&[], &from),
        load(&[], &unsubscribe),
    ];
    for (index, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..index].contains(hash), "hash {index} is not its own");
    }
}

#[test]
fn a_row_reads_the_nearest_language() {
    let bundle = bundle_of(&[
        ("strings.json", "{\"language\": \"en\", \"hello\": \"Hello\", \"bye\": \"Bye\"}"),
        ("locales/de/strings.json", "{\"hello\": \"Hallo\", \"bye\": \"Tschüss\"}"),
        ("locales/de-CH/strings.json", "{\"hello\": \"Grüezi\"}"),
        ("locales/he/subject.txt", "שלום"),
        ("body.txt", "{{ text.hello }} {{ text.bye }} {{ locale.language }} {{ locale.direction }} {{ locale.tag }}"),
    ]);
    let text = |locale: Option<&str>| {
        let message = render(&bundle, &Row { locale: locale.map(str::to_owned), ..row(json!({})) });
        format!("{} / {}", message.text, message.subject)
    };
    assert_eq!(text(Some("de-CH")), "Grüezi Tschüss de-CH ltr de-CH / S");
    assert_eq!(text(Some("de-AT")), "Hallo Tschüss de ltr de-AT / S");
    assert_eq!(text(Some("fr-CH")), "Hello Bye en ltr fr-CH / S");
    assert_eq!(text(Some("he-IL")), "Hello Bye he rtl he-IL / שלום");
    assert_eq!(text(None), "Hello Bye en ltr en / S");
    assert_eq!(text(Some("no locale at all")), "Hello Bye en ltr en / S");
}

#[test]
fn money_and_dates_are_shown_in_the_rows_locale_and_never_rounded() {
    let bundle = weekly_activity();
    for (locale, currency, amount, shown) in [
        ("en-US", "EUR", "915311.55", "+€915,311.55"),
        ("en-GB", "JPY", "-1500", "-JP¥1,500"),
        ("de-DE", "DEM", "300", "+300,00\u{a0}DM"),
        ("fr-FR", "BHD", "0.005", "+0,005\u{a0}BHD"),
        ("pl-PL", "PLN", "-1234.5", "-1234,50\u{a0}zł"),
        ("en-IN", "INR", "12345678.9", "+₹1,23,45,678.90"),
    ] {
        let mut row = ordinary();
        row.locale = Some(locale.to_owned());
        row.data = json!({
            "period_start": "2026-08-03", "period_end": "2026-08-03", "currency": currency, "opening_balance": "0",
            "closing_balance": "0",
            "transactions": [{"date": "2026-08-03", "description": "x", "amount": amount}],
        });
        let message = render(&bundle, &row);
        assert!(message.html.contains(shown) && message.text.contains(shown), "{locale} {currency}: {}", message.text);
    }
}

#[test]
fn sums_of_a_week_are_exact() {
    let mut row = ordinary();
    let cents: Vec<Value> = (0..1000)
        .map(|_| json!({"date": "2026-08-03", "description": "x", "amount": "0.1"}))
        .chain([json!({"date": "2026-08-03", "description": "x", "amount": "-0.30"})])
        .collect();
    row.data["transactions"] = Value::Array(cents);
    let text = render(&weekly_activity(), &row).text;
    let line = |label: &str| text.lines().find(|line| line.starts_with(label)).expect("a line").to_owned();
    assert!(line("Money in").ends_with(" +£100.00") && line("Money out").ends_with(" -£0.30"), "{text}");
    assert!(line("Change this week").ends_with(" +£1,900.68"));
}

#[test]
fn text_parts_keep_to_72_columns() {
    for row in [ordinary(), empty_week()] {
        let text = render(&weekly_activity(), &row).text;
        let long = text.lines().find(|line| line.chars().count() > 72 && !line.starts_with("https://"));
        assert_eq!(long, None, "{text}");
    }
}

#[test]
fn images_travel_with_the_message() {
    let png = b"\x89PNG\r\n\x1a\n and more";
    let html: &[u8] = b"<img src=\"{{ cid('logo.png') }}\" alt=\"\">";
    let directory = directory_of(&[("images/logo.png", png), ("body.html", html)]);
    let bundle = Bundle::load(directory.path(), &settings()).expect("a bundle");
    let message = render(&bundle, &row(json!({})));
    let id = &message.images[0].content_id;
    assert!(id.starts_with("logo.png.") && id.ends_with("@example.test"));
    assert_eq!(message.html, format!("<img src=\"cid:{id}\" alt=\"\">"));
    let mime = mime_text(&message);
    for part in [
        "Content-Type: multipart/alternative; boundary=\"=_aa5",
        "Content-Type: multipart/related; boundary=\"=_ra5",
        "Content-Type: image/png",
        "Content-Disposition: inline; filename=",
        &format!("Content-ID: <{id}>"),
    ] {
        assert_eq!(mime.matches(part).count(), 1, "{part}");
    }
    assert!(!mime_text(&render(&weekly_activity(), &ordinary())).contains("multipart/related"));
    let missing = directory_of(&[("images/logo.png", png), ("body.html", b"<img src=\"{{ cid('x.png') }}\">")]);
    let bundle = Bundle::load(missing.path(), &settings()).expect("a bundle");
    let error = try_render(&bundle, &row(json!({}))).expect_err("an error").to_string();
    assert_eq!(error, "template body.html:1: `cid` asks for an image that is not in images/; there are: logo.png");
    let fake = directory_of(&[("images/logo.png", b"<svg>")]);
    assert!(Bundle::load(fake.path(), &settings()).is_err());
}

/// Changes one member of an ordinary row and answers field and reason of the fault.
fn fault_with(change: impl FnOnce(&mut Row)) -> (String, String) {
    let mut row = ordinary();
    change(&mut row);
    let fault = weekly_activity().check(&row).expect_err("a fault");
    assert!(try_render(&weekly_activity(), &row).is_ok() || !fault.field.is_empty());
    (fault.field, fault.reason)
}

#[test]
fn faults_name_the_field_and_the_rule() {
    let field = |change: fn(&mut Value)| fault_with(|row| change(&mut row.data)).0;
    assert_eq!(field(|data| data["transactions"][3]["amount"] = json!(12.5)), "data.transactions[3].amount");
    assert_eq!(field(|data| data["transactions"][1]["amount"] = json!("1.005")), "data.transactions[1].amount");
    assert_eq!(field(|data| data["opening_balance"] = json!("1,5")), "data.opening_balance");
    assert_eq!(field(|data| data["currency"] = json!("XXX")), "data.currency");
    assert_eq!(field(|data| data["period_start"] = json!("2026-02-30")), "data.period_start");
    assert_eq!(field(|data| data["period_end"] = json!("2026-08-02")), "data.period_end");
    assert_eq!(field(|data| data["transactions"][0]["date"] = json!("2026-13-01")), "data.transactions[0].date");
    assert_eq!(field(|data| data["extra"] = json!(1)), "data.extra");
    assert_eq!(field(|data| data["transactions"][0]["not a name!"] = json!(1)), "data.transactions[0].(not shown)");
    assert_eq!(field(|data| drop(data.as_object_mut().expect("an object").remove("currency"))), "data.currency");
    assert_eq!(fault_with(|row| row.data = json!([])).0, "data");
    let (_, reason) = fault_with(|row| row.data["transactions"][1]["amount"] = json!("1.005"));
    assert_eq!(reason, "has more decimals than its currency, which has 2");
    let (_, reason) = fault_with(|row| row.data["period_end"] = json!("2026-08-02"));
    assert_eq!(reason, "is before data.period_start");
}

#[test]
fn subjects_are_one_line_not_empty_and_bounded() {
    for (subject, reason) in [
        (" \n ", "is empty"),
        ("a\nb", "would have more than one line"),
        ("{% for x in range(300) %}x{% endfor %}", "would be longer than 200 characters"),
    ] {
        let fault = bundle_of(&[("subject.txt", subject)]).check(&row(json!({}))).expect_err("a fault");
        assert_eq!((fault.field.as_str(), fault.reason.as_str()), ("subject", reason));
    }
}

#[test]
fn no_error_tells_what_a_row_says() {
    let bad = [
        json!(CANARY),
        json!({CANARY: CANARY}),
        json!([CANARY]),
        json!(format!("{CANARY}\u{202e}\n")),
        json!(null),
        json!(7.25),
    ];
    let mut faults = Vec::new();
    for value in &bad {
        for member in ["period_start", "period_end", "currency", "opening_balance", "transactions", "x"] {
            let mut row = ordinary();
            row.data[member] = value.clone();
            faults.extend(weekly_activity().check(&row).err().map(|fault| format!("{fault:?}")));
            faults.extend(try_render(&weekly_activity(), &row).err().map(|error| format!("{error} {error:?}")));
            let mut row = ordinary();
            row.data["transactions"][0] = value.clone();
            faults.extend(weekly_activity().check(&row).err().map(|fault| format!("{fault:?}")));
            faults.extend(try_render(&weekly_activity(), &row).err().map(|error| format!("{error} {error:?}")));
        }
    }
    for template in [
        "{{ data.a | money('EUR') }}",
        "{{ data.a | date }}",
        "{{ data.a | number }}",
        "{{ data.a | fill(x='y') }}",
        "{{ data.a | money(data.a) }}",
        "{{ data[data.a] }}",
        "{{ data.a.b }}",
        "{{ data.a() }}",
        "{{ data.a + 1 }}",
        "{{ [data.a] | money_in('EUR') }}",
        "{{ cid(data.a) }}",
        "{{ data.a | date(data.a) }}",
        "{{ data.a | percent }}",
        "{{ data.a | map(data.a) }}",
        "{{ columns(data.a, data.a, width=data.a) }}",
    ] {
        let bundle = bundle_of(&[("body.txt", template)]);
        let error = try_render(&bundle, &row(json!({"a": format!("{{{CANARY}}}")}))).expect_err(template);
        faults.push(format!("{error} {error:?}"));
    }
    assert!(faults.len() > 60);
    for fault in faults {
        assert!(!fault.contains(CANARY) && !fault.contains("7.25") && !fault.contains("customer_8421"), "{fault}");
    }
}

#[test]
fn other_bundles_can_use_the_rules_for_money_dates_and_links() {
    let schema = r#"{"properties": {"link": {"type": "string", "format": "https-url"}},
        "x-money": [{"currency": "fx.code", "amounts": ["fx.lines[].sums[]"]}], "x-order": [["a", "b"]]}"#;
    let bundle = bundle_of(&[("schema.json", schema)]);
    let check = |data: Value| bundle.check(&row(data)).err().map(|fault| fault.field);
    assert_eq!(check(json!({})), None);
    assert_eq!(check(json!({"fx": {"code": "BHD", "lines": [{"sums": ["1.234", "-5"]}]}})), None);
    assert_eq!(
        check(json!({"fx": {"code": "JPY", "lines": [{"sums": ["1"]}, {"sums": ["2", "1.5"]}]}})).as_deref(),
        Some("data.fx.lines[1].sums[1]")
    );
    assert_eq!(check(json!({"fx": {"code": "no"}})).as_deref(), Some("data.fx.code"));
    assert_eq!(check(json!({"a": "2026-08-09", "b": "2026-08-09"})), None);
    assert_eq!(check(json!({"a": "2026-08-10", "b": "2026-08-09"})).as_deref(), Some("data.b"));
    assert_eq!(check(json!({"link": "javascript:x"})).as_deref(), Some("data.link"));
}
