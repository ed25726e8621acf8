//! The bundle that ships with the program, so that a new directory can be set up without a network or a package.

/// `weekly_activity`, version `v1`: path inside the bundle and content of every file.
pub const WEEKLY_ACTIVITY_V1: [(&str, &str); 7] = [
    ("body.html", include_str!("../../templates/weekly_activity/v1/body.html")),
    ("body.txt", include_str!("../../templates/weekly_activity/v1/body.txt")),
    ("locales/ar/strings.json", include_str!("../../templates/weekly_activity/v1/locales/ar/strings.json")),
    ("locales/de/strings.json", include_str!("../../templates/weekly_activity/v1/locales/de/strings.json")),
    ("schema.json", include_str!("../../templates/weekly_activity/v1/schema.json")),
    ("strings.json", include_str!("../../templates/weekly_activity/v1/strings.json")),
    ("subject.txt", include_str!("../../templates/weekly_activity/v1/subject.txt")),
];
