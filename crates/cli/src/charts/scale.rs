//! Axes: where a value is, and what is written beside it.

/// The range of an axis, in the direction in which values grow.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    least: f64,
    most: f64,
    log: bool,
}

impl Scale {
    /// From 0, with some room above the greatest of the values.
    pub fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let most = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most * 1.08 } else { 1.0 };
        Scale {
            least: 0.0,
            most,
            log: false,
        }
    }

    /// Around the values, which are above 0; `room`: the factor that is left at both ends.
    pub fn logarithmic(values: impl Iterator<Item = f64>, room: f64) -> Scale {
        let sound = values.filter(|v| v.is_finite() && *v > 0.0);
        let (least, most) = sound.fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        let (least, most) = if most > 0.0 {
            (least, most)
        } else {
            (1.0, 1.0)
        };
        // One value has a range too.
        let room = if least == most { room.max(2.0) } else { room };
        Scale {
            least: least / room,
            most: most * room,
            log: true,
        }
    }

    /// 0 at the least, 1 at the most.
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.log {
            true => {
                (value.max(f64::MIN_POSITIVE) / self.least).ln() / (self.most / self.least).ln()
            }
            false => (value - self.least) / (self.most - self.least),
        };
        place.clamp(-0.05, 1.05)
    }

    /// Round numbers within the range: some `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        match self.log {
            true => self.decades(wanted),
            false => self.steps(wanted),
        }
    }

    fn steps(&self, wanted: usize) -> Vec<f64> {
        let rough = (self.most - self.least) / wanted.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(power * 10.0);
        let count = (self.most / step).floor() as usize;
        (0..=count).map(|n| n as f64 * step).collect()
    }

    fn decades(&self, wanted: usize) -> Vec<f64> {
        let first = self.least.log10().floor() as i32;
        let last = self.most.log10().ceil() as i32;
        let within = |factors: &[f64]| -> Vec<f64> {
            let decades = (first..=last).map(|n| 10f64.powi(n));
            let all = decades.flat_map(|ten| factors.iter().map(move |factor| factor * ten));
            all.filter(|v| (self.least..=self.most).contains(v))
                .collect()
        };
        let sparse = within(&[1.0]);
        match sparse.len() < wanted.div_ceil(2) {
            true => within(&[1.0, 2.0, 5.0]),
            false => sparse,
        }
    }
}

/// A number of an axis: without zeros that mean nothing.
pub fn number(value: f64) -> String {
    let text = match value.abs() {
        0.0..0.01 => format!("{value:.4}"),
        0.01..1.0 => format!("{value:.3}"),
        1.0..100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let linear = Scale::linear([7.0, 3.0].into_iter());
        assert_eq!(linear.ticks(5), [0.0, 2.0, 4.0, 6.0]);
        assert!(linear.place(0.0) == 0.0 && (linear.place(7.56) - 1.0).abs() < 1e-9);
        let log = Scale::logarithmic([0.5, 2000.0].into_iter(), 1.0);
        assert_eq!(log.ticks(5), [1.0, 10.0, 100.0, 1000.0]);
        let narrow = Scale::logarithmic([4.0, 30.0].into_iter(), 1.0);
        assert_eq!(narrow.ticks(5), [5.0, 10.0, 20.0]);
    }

    /// A chart of one value, or of none, or of zeros, has axes.
    #[test]
    fn any_values_have_a_range() {
        for values in [&[][..], &[0.0], &[5.0], &[f64::NAN], &[f64::INFINITY]] {
            let values = || values.iter().copied();
            for scale in [Scale::linear(values()), Scale::logarithmic(values(), 1.2)] {
                assert!(scale.place(5.0).is_finite(), "{scale:?}");
                assert!(!scale.ticks(5).is_empty(), "{scale:?}");
            }
        }
    }

    #[test]
    fn numbers() {
        let shown = [0.0, 0.5, 0.002, 2.0, 2.5, 100.0, 1000.0].map(number);
        assert_eq!(shown, ["0", "0.5", "0.002", "2", "2.5", "100", "1000"]);
    }
}
