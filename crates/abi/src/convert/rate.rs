//! Conversions between `enum ibv_rate`, multiples of 2.5 Gbit/s and Mbit/s (IBTA vol. 1, 9.11;
//! `ibv_rate_to_mbps(3)`).

use core::ffi::{c_int, c_uint};

use crate::export::symbols::export;

struct Rate {
    /// `enum ibv_rate`.
    code: c_uint,
    /// Multiple of 2.5 Gbit/s; -1 where libibverbs has none.
    mult: c_int,
    mbps: c_int,
}

const fn rate(code: c_uint, mult: c_int, mbps: c_int) -> Rate {
    Rate { code, mult, mbps }
}

const RATES: [Rate; 24] = [
    rate(2, 1, 2_500),
    rate(5, 2, 5_000),
    rate(3, 4, 10_000),
    rate(6, 8, 20_000),
    rate(4, 12, 30_000),
    rate(7, 16, 40_000),
    rate(8, 24, 60_000),
    rate(9, 32, 80_000),
    rate(10, 48, 120_000),
    rate(11, -1, 14_062),
    rate(12, -1, 56_250),
    rate(13, -1, 112_500),
    rate(14, -1, 168_750),
    rate(15, -1, 25_781),
    rate(16, -1, 103_125),
    rate(17, -1, 206_250),
    rate(18, -1, 309_375),
    rate(19, 11, 28_125),
    rate(20, 20, 53_125),
    rate(21, 160, 425_000),
    rate(22, 240, 637_500),
    rate(23, 320, 850_000),
    rate(24, 480, 1_275_000),
    rate(25, 640, 1_700_000),
];

/// `IBV_RATE_MAX`: what unknown rates become.
const RATE_MAX: c_uint = 0;

extern "C" fn rate_to_mult(code: c_uint) -> c_int {
    RATES.iter().find(|r| r.code == code).map_or(-1, |r| r.mult)
}

extern "C" fn rate_to_mbps(code: c_uint) -> c_int {
    RATES.iter().find(|r| r.code == code).map_or(-1, |r| r.mbps)
}

extern "C" fn mult_to_rate(mult: c_int) -> c_uint {
    RATES
        .iter()
        .find(|r| r.mult == mult && mult > 0)
        .map_or(RATE_MAX, |r| r.code)
}

extern "C" fn mbps_to_rate(mbps: c_int) -> c_uint {
    RATES
        .iter()
        .find(|r| r.mbps == mbps)
        .map_or(RATE_MAX, |r| r.code)
}

export! {
    ibv_rate_to_mult @@ "IBVERBS_1.0" => rate_to_mult;
    mult_to_ibv_rate @@ "IBVERBS_1.0" => mult_to_rate;
    ibv_rate_to_mbps @@ "IBVERBS_1.1" => rate_to_mbps;
    mbps_to_ibv_rate @@ "IBVERBS_1.1" => mbps_to_rate;
}
