//! ISO 4217: which currency codes exist or existed, and how many decimals each has.

/// Codes without decimals, historical ones included.
const NONE: &str = "ADP BEF BIF BYB BYR CLP DJF ESP GNF GRD ISK ITL JPY KMF KRW LUF MGF PTE PYG RWF TPE TRL UGX UYI \
                    VND VUV XAF XOF XPF";
/// Codes with three decimals.
const THREE: &str = "BHD IQD JOD KWD LYD OMR TND";
/// Codes with four decimals.
const FOUR: &str = "CLF UYW";
/// Codes in use with two decimals.
const TWO: &str = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF \
                   CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD \
                   GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL \
                   MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR \
                   PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP \
                   TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG";
/// Codes out of use with two decimals.
const TWO_HISTORICAL: &str = "AFA ALK ANG AOK AON AOR ARA ARP ARY ATS AYM AZM BAD BEC BEL BGJ BGK BGL BGN BOP BRB \
                              BRC BRE BRN BRR BUK CHC CSD CSJ CSK CUC CYP DDM DEM ECS ECV EEK ESA ESB FIM FRF GEK \
                              GHC GHP GNE GNS GQE GWE GWP HRD HRK IEP ILP ILR ISJ LAJ LSM LTL LTT LUC LUL LVL LVR \
                              MLF MRO MTL MTP MVQ MXP MZE MZM NIC NLG PEH PEI PES PLZ RHD ROK ROL RUR SDD SDP SIT \
                              SKK SLL SRG STD SUR TJR TMM UAK UGS UGW USS UYN UYP VEB VEF VNC XEU YDD YUD YUM YUN \
                              ZAL ZMK ZRN ZRZ ZWC ZWD ZWL ZWN ZWR";

/// The codes by their decimals.
const BY_DECIMALS: [(&str, u8); 5] = [(TWO, 2), (NONE, 0), (THREE, 3), (FOUR, 4), (TWO_HISTORICAL, 2)];

/// How many decimals a currency has; `None` for what is no code of a currency. Precious metals, testing codes and
/// units of account without decimals (XAU, XTS, XDR, …) are none.
pub(super) fn decimals(code: &str) -> Option<u8> {
    let has_form = code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase());
    let listed = |list: &str| list.as_bytes().chunks(4).any(|entry| entry.starts_with(code.as_bytes()));
    BY_DECIMALS.iter().find(|(list, _)| has_form && listed(list)).map(|(_, decimals)| *decimals)
}

#[cfg(test)]
mod tests {
    use super::{BY_DECIMALS, decimals};

    #[test]
    fn every_list_is_codes_of_three_letters_with_one_space_between() {
        let mut all: Vec<&str> = BY_DECIMALS.iter().flat_map(|(list, _)| list.split(' ')).collect();
        assert!(all.iter().all(|code| code.len() == 3 && decimals(code).is_some()));
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "a code stands in two lists");
        assert!(count > 270);
    }

    #[test]
    fn decimals_follow_iso_4217() {
        for (code, expected) in [("EUR", 2), ("JPY", 0), ("BHD", 3), ("CLF", 4), ("DEM", 2), ("NLG", 2), ("ITL", 0)] {
            assert_eq!(decimals(code), Some(expected), "{code}");
        }
    }

    #[test]
    fn what_is_no_currency_has_no_decimals() {
        for code in ["", "eur", "EU", "EURO", "ZZZ", "XXX", "XAU", "UR ", " EU", "€€€", "R A"] {
            assert_eq!(decimals(code), None, "{code:?}");
        }
    }
}
