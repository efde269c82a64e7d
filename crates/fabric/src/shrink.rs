//! x
use crate::Scenario;
/// x
pub fn shrink(s: &Scenario) -> Scenario {
    s.clone()
}
