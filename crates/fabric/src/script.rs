//! x
use crate::Scenario;
/// x
pub fn print(_: &Scenario) -> String {
    String::new()
}
/// x
pub fn parse(_: &str) -> Result<Scenario, String> {
    Err(String::new())
}
