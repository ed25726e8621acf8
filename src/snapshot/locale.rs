//! Which locales are real: BCP 47 in form, with a language, script and region that the Unicode CLDR knows. A locale
//! that merely looks like one would fall back to another language without a word.

use icu::locale::subtags::Region;
use icu::locale::{LanguageIdentifier, Locale, LocaleCanonicalizer, LocaleExpander, TransformResult};

/// Longer ones exist only in theory.
const MAX_BYTES: usize = 128;

/// The canonical form, where the text has the form of a locale. Aliases are resolved: `iw` is `he`, `en-UK` is `en-GB`.
pub(super) fn canonical(text: &str) -> Option<String> {
    parse(text).map(|locale| locale.to_string())
}

/// The canonical form of a locale that exists.
///
/// # Errors
/// Which part does not, in words that do not repeat the text.
pub(super) fn known(text: &str) -> Result<String, &'static str> {
    let locale = parse(text).ok_or("is not a BCP 47 locale; expected one such as de-CH")?;
    let expander = LocaleExpander::new_extended();
    let mut language = LanguageIdentifier::from(locale.id.language);
    if locale.id.language.is_unknown() || expander.maximize(&mut language) == TransformResult::Unmodified {
        return Err("names a language that is not known; expected a locale such as de-CH");
    }
    if let Some(script) = locale.id.script {
        let mut with_script = LanguageIdentifier { script: Some(script), ..LanguageIdentifier::UNKNOWN };
        expander.maximize(&mut with_script);
        if with_script.language.is_unknown() {
            return Err("names a script that is not known; expected a locale such as zh-Hant-TW");
        }
    }
    match locale.id.region {
        Some(region) if !is_region(region) => {
            Err("names a region that is not known; expected an ISO 3166 code, as in de-CH")
        }
        _ => Ok(locale.to_string()),
    }
}

fn parse(text: &str) -> Option<Locale> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut locale = Locale::try_from_str(text).ok()?;
    LocaleCanonicalizer::new_extended().canonicalize(&mut locale);
    Some(locale)
}

fn is_region(region: Region) -> bool {
    REGIONS.binary_search(&region.as_str()).is_ok()
}

/// ISO 3166-1, Kosovo, and the areas that CLDR has locales of (the world, Europe, Latin America). The data compiled
/// into `icu` does not tell an unknown region from one whose likely language is English.
const REGIONS: &[&str] = &[
    "001", "150", "419", "AD", "AE", "AF", "AG", "AI", "AL", "AM", "AO", "AQ", "AR", "AS", "AT", "AU", "AW", "AX",
    "AZ", "BA", "BB", "BD", "BE", "BF", "BG", "BH", "BI", "BJ", "BL", "BM", "BN", "BO", "BQ", "BR", "BS", "BT", "BV",
    "BW", "BY", "BZ", "CA", "CC", "CD", "CF", "CG", "CH", "CI", "CK", "CL", "CM", "CN", "CO", "CR", "CU", "CV", "CW",
    "CX", "CY", "CZ", "DE", "DJ", "DK", "DM", "DO", "DZ", "EC", "EE", "EG", "EH", "ER", "ES", "ET", "FI", "FJ", "FK",
    "FM", "FO", "FR", "GA", "GB", "GD", "GE", "GF", "GG", "GH", "GI", "GL", "GM", "GN", "GP", "GQ", "GR", "GS", "GT",
    "GU", "GW", "GY", "HK", "HM", "HN", "HR", "HT", "HU", "ID", "IE", "IL", "IM", "IN", "IO", "IQ", "IR", "IS", "IT",
    "JE", "JM", "JO", "JP", "KE", "KG", "KH", "KI", "KM", "KN", "KP", "KR", "KW", "KY", "KZ", "LA", "LB", "LC", "LI",
    "LK", "LR", "LS", "LT", "LU", "LV", "LY", "MA", "MC", "MD", "ME", "MF", "MG", "MH", "MK", "ML", "MM", "MN", "MO",
    "MP", "MQ", "MR", "MS", "MT", "MU", "MV", "MW", "MX", "MY", "MZ", "NA", "NC", "NE", "NF", "NG", "NI", "NL", "NO",
    "NP", "NR", "NU", "NZ", "OM", "PA", "PE", "PF", "PG", "PH", "PK", "PL", "PM", "PN", "PR", "PS", "PT", "PW", "PY",
    "QA", "RE", "RO", "RS", "RU", "RW", "SA", "SB", "SC", "SD", "SE", "SG", "SH", "SI", "SJ", "SK", "SL", "SM", "SN",
    "SO", "SR", "SS", "ST", "SV", "SX", "SY", "SZ", "TC", "TD", "TF", "TG", "TH", "TJ", "TK", "TL", "TM", "TN", "TO",
    "TR", "TT", "TV", "TW", "TZ", "UA", "UG", "UM", "US", "UY", "UZ", "VA", "VC", "VE", "VG", "VI", "VN", "VU", "WF",
    "WS", "XK", "YE", "YT", "ZA", "ZM", "ZW",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_that_exist_are_known_in_canonical_form() {
        for (text, expected) in [
            ("en", "en"),
            ("en-GB", "en-GB"),
            ("EN-gb", "en-GB"),
            ("en-UK", "en-GB"),
            ("iw-IL", "he-IL"),
            ("de-CH", "de-CH"),
            ("gsw-CH", "gsw-CH"),
            ("nb-NO", "nb-NO"),
            ("ar-BH", "ar-BH"),
            ("zh-Hant-TW", "zh-Hant-TW"),
            ("sr-Latn-RS", "sr-Latn-RS"),
            ("es-419", "es-419"),
            ("en-150", "en-150"),
            ("ca-valencia", "ca-valencia"),
            ("de-u-nu-latn", "de-u-nu-latn"),
        ] {
            assert_eq!(known(text).as_deref(), Ok(expected), "{text}");
            assert_eq!(canonical(text).as_deref(), Some(expected));
        }
    }

    #[test]
    fn locales_that_only_look_real_are_refused() {
        for (text, part) in [
            ("xx-XX", "language"),
            ("xx", "language"),
            ("und", "language"),
            ("mul", "language"),
            ("zz-DE", "language"),
            ("de-XX", "region"),
            ("en-ZZ", "region"),
            ("en-EU", "region"),
            ("de-999", "region"),
            ("zh-Abcd-TW", "script"),
            ("de-Zzzz", "script"),
            ("en_US", "BCP 47"),
            ("english", "BCP 47"),
            ("C", "BCP 47"),
            ("en-US.UTF-8", "BCP 47"),
            ("", "BCP 47"),
            ("de CH", "BCP 47"),
            ("de-CH\n", "BCP 47"),
        ] {
            let reason = known(text).unwrap_err();
            assert!(reason.contains(part), "{text}: {reason}");
        }
    }

    #[test]
    fn the_list_of_regions_is_sorted_for_its_search() {
        assert!(REGIONS.is_sorted());
    }
}
