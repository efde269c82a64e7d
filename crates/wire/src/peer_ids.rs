//! Which IPv4 identifications a receiver believes that its UDP socket did not tell.
//!
//! The ICRC covers the identification of the IP header. Who does not see it can only solve for it
//! ([`IcrcContext::check_any_df`]), and each identification that he would believe is one more value
//! of the ICRC that passes: a random corruption is delivered with a probability of 2^-32 times
//! their number. So he believes as few as honest senders allow.
//!
//! # What senders do
//! * **They start over**: rnic, and whoever sends from an unconnected socket with DF, sends 0 in a
//!   datagram of its own and 0, 1, 2, ... in a GSO batch.
//! * **They count** on from packet to packet: Linux's Soft-RoCE by one counter for each pair of
//!   addresses, which also jumps ahead by chance when it was idle; others by one counter for each
//!   flow.
//! * Some send always the same one, or random ones; some send without DF.
//!
//! # What is believed
//! Each flow remembers what it did last, and each source address what its flows do, which is what a
//! new flow is expected to do.
//!
//! | sender | always believed | how many | also, while there is [`Leeway`] |
//! | --- | --- | --- | --- |
//! | starts over | 0, 1, and from one behind the flow's last to three ahead of it | 7, 4 after a 0 | below 128 |
//! | counts | from two behind the last of the flow or of the source to eight ahead, and one more for each millisecond since, up to 1000 | 11, 22 with both, and those | any |
//! | not known | 0 to 3 | 4 | any with DF |
//!
//! A packet with any other identification is refused, and is a doubt. In a batch, three ahead of
//! one that was refused are believed, too (so n is 10 at most). Else the sender may have changed
//! its habit, or was idle for longer: then the next packet of the flow is believed if it lies ahead
//! of the doubtful one, by no more than 64 and one for each millisecond since, and so is the fourth
//! in a row whatever it has, which is sooner than a queue pair gives up. A packet whose ICRC does
//! not hold at all ends such a doubt, and so does one that is believed. To be delivered that way,
//! corruptions have to pass 16 bits twice in a row, and 10 more if they are near to each other;
//! right behind an honest packet that was refused, 26 bits. DF is a habit, too: without it counts
//! as another identification.
//!
//! # Leeway
//! Without corruption there is nothing to be careful about: a sender that was idle, or lost a whole
//! batch, should not lose another packet. But a corrupted packet that fails its check shows that
//! there is corruption, and it was exposed to all that would have been believed. That is what is
//! counted: each failure is charged with the identifications that were believed beyond the ones in
//! the table, and when the account is empty only those are. Good packets fill it slowly, and so
//! does time: one minute is enough for one packet that may have any, so that a burst of garbage is
//! forgotten.
//!
//! # What 32 bits promise
//! Of C randomly corrupted packets among G good ones, the expected number that is delivered is at
//! most
//!
//! 2^-32 x (n x C + G / 64) + 2^-16 x M + 2^-10
//!
//! in M minutes, with the n of the table, and 2^-32 x C alone where the identification is seen, as
//! over AF_XDP, or there is none, as over IPv6. The last term is the whole of the initial leeway,
//! and the two before it are what fills it. For 10^8 corrupted packets of a sender that starts over
//! and sends single datagrams that is 0.1. What a CRC finds with certainty (each burst of up to 32
//! bits, each change of one bit, and of two or three bits in a packet of usual length) is certain
//! only with n = 1; else it is certain for single bits, and for the rest as likely as for random
//! corruption.
//!
//! A fault that changes packet after packet in the same way is one random corruption, not many:
//! CRCs are linear, so all of them pass or none. One whose packets all look as if the sender had
//! changed its habit is believed in the end, which has a probability of 2^-16 for each such fault.
//!
//! None of this is a defence against a sender who means harm: everybody can compute an ICRC.

use crate::{IcrcContext, IcrcError, IcrcOk};

/// How far ahead of the last identification the next may be where batches start over: so many
/// packets but one may be lost in a row within a batch.
const BATCH_AHEAD: u16 = 3;
/// How far behind: of neighbours that changed places.
const BATCH_BEHIND: u16 = 1;
/// The same where identifications count on.
const COUNT_AHEAD: u16 = 8;
const COUNT_BEHIND: u16 = 2;
/// No GSO batch is longer, so senders that start over stay below.
const LONGEST_BATCH: u16 = 128;
/// So many zeros without an identification of [`LONGEST_BATCH`] or more in between: the sender
/// starts over.
const ZEROS: u8 = 2;
/// Linux's counter jumps by up to one for each millisecond in which it was idle; after so long the
/// sender is not followed any more.
const IDLE_MS: u32 = 1000;
/// A packet confirms a doubtful one that it follows by so much, and as much more as the counter may
/// have jumped
const SOON: u16 = 64;
/// in so long: connection requests are repeated after 6 s.
const REPEATED_MS: u32 = 8000;
/// So many doubtful packets in a row are believed in any case.
const DOUBTS: u8 = 4;

/// What senders do with the identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unknown,
    StartsOver,
    Counts,
}

/// What a flow, or a source, was seen to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Habit {
    /// At least one packet was believed.
    known: bool,
    last: u16,
    /// When it came.
    at_ms: u32,
    zeros: u8,
    counts: bool,
    without_df: bool,
}

impl Habit {
    #[inline]
    fn kind(&self) -> Kind {
        if self.zeros >= ZEROS {
            Kind::StartsOver
        } else if self.counts {
            Kind::Counts
        } else {
            Kind::Unknown
        }
    }

    #[inline]
    fn learn(&mut self, ok: IcrcOk, now_ms: u32) {
        self.known = true;
        self.at_ms = now_ms;
        self.last = ok.ip_id;
        self.without_df = !ok.df;
        if ok.ip_id == 0 {
            self.zeros = (self.zeros + 1).min(ZEROS);
        } else if ok.ip_id >= LONGEST_BATCH {
            self.zeros = 0;
            self.counts = true;
        }
    }

    /// Ahead of the last one or a little behind it, on the circle of identifications.
    #[inline]
    fn counts_on_to(&self, id: u16, now_ms: u32) -> bool {
        let ahead = COUNT_AHEAD + since(self.at_ms, now_ms, IDLE_MS);
        id.wrapping_sub(self.last).wrapping_add(COUNT_BEHIND) <= ahead + COUNT_BEHIND
    }

    /// The same within a batch, which does not go round.
    #[inline]
    fn goes_on_to(&self, id: u16) -> bool {
        let last = self.last.min(LONGEST_BATCH);
        (last.saturating_sub(BATCH_BEHIND)..=last + BATCH_AHEAD).contains(&id)
    }
}

/// Milliseconds since then, `most` at most; of a clock that wraps around.
#[inline]
fn since(then_ms: u32, now_ms: u32, most: u32) -> u16 {
    now_ms.wrapping_sub(then_ms).min(most) as u16
}

/// What is known of the IP headers of one source address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerIds(Habit);

impl PeerIds {
    /// A packet of it was believed.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.0.known
    }
}

/// What is known of the IP headers of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowIds {
    habit: Habit,
    /// The last identification repeated the one before; then the next is expected to, too.
    repeats: bool,
    /// Packets in doubt in a row since one was believed, and what the last of them had.
    doubts: u8,
    doubtful: u16,
    doubtful_df: bool,
    doubted_ms: u32,
}

/// How many identifications may still be believed beyond the few that are always, until corruption
/// is too likely.
///
/// One account for all sources, so that forged addresses have none of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leeway {
    /// In 64ths: what a good packet adds.
    account: u32,
    /// When time was last added.
    at_ms: u32,
}

impl Leeway {
    const UNIT: u32 = 64;
    /// What one millisecond adds: in a minute, all identifications that there are.
    const PER_MS: u32 = (1 << 16) * Leeway::UNIT / 60_000 + 1;
    /// 64 packets of which nothing was known: 2^22 identifications, 2^-10 of all that an ICRC can
    /// tell apart.
    const WHOLE: u32 = (64 << 16) * Leeway::UNIT;

    /// None: as after much corruption until now.
    pub fn none(now_ms: u32) -> Leeway {
        Leeway {
            account: 0,
            at_ms: now_ms,
        }
    }

    /// So many may be believed now.
    fn allows(&mut self, identifications: u32, now_ms: u32) -> bool {
        let passed = now_ms.wrapping_sub(self.at_ms);
        self.at_ms = now_ms;
        let grown = passed.saturating_mul(Leeway::PER_MS);
        self.account = self.account.saturating_add(grown).min(Leeway::WHOLE);
        self.account >= identifications * Leeway::UNIT
    }

    fn charge(&mut self, identifications: u32, now_ms: u32) {
        if self.allows(identifications, now_ms) {
            self.account -= identifications * Leeway::UNIT;
        }
    }

    #[inline]
    fn add(&mut self) {
        self.account = (self.account + 1).min(Leeway::WHOLE);
    }
}

impl Default for Leeway {
    fn default() -> Leeway {
        Leeway {
            account: Leeway::WHOLE,
            at_ms: 0,
        }
    }
}

impl FlowIds {
    /// A packet of it was believed.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.habit.known
    }

    /// Checks a received packet, BTH up to and including the ICRC, of this flow of a source.
    /// `now_ms`: milliseconds of a clock that may wrap around.
    ///
    /// # Errors
    /// See [`IcrcError`].
    #[inline]
    pub fn check(
        &mut self,
        source: &mut PeerIds,
        leeway: &mut Leeway,
        context: &IcrcContext,
        bytes_with_icrc: &[u8],
        now_ms: u32,
    ) -> Result<IcrcOk, IcrcError> {
        match context.check_any_df(bytes_with_icrc, self.expected(source)) {
            Ok(ok) if !context.is_ipv4() || self.is_usual(ok, source, now_ms) => {
                self.believe(ok, source, leeway, now_ms);
                Ok(ok)
            }
            Ok(ok) => self.judge(ok, source, leeway, now_ms),
            Err(error) => {
                if error == IcrcError::Mismatch && context.is_ipv4() {
                    self.failed(source, leeway, now_ms);
                }
                Err(error)
            }
        }
    }

    /// The same where the IP header is seen: identification and DF are what they are.
    ///
    /// # Errors
    /// See [`IcrcError`].
    #[inline]
    pub fn check_seen(
        &mut self,
        source: &mut PeerIds,
        leeway: &mut Leeway,
        context: &IcrcContext,
        bytes_with_icrc: &[u8],
        seen: IcrcOk,
        now_ms: u32,
    ) -> Result<IcrcOk, IcrcError> {
        context.check_exactly(bytes_with_icrc, seen)?;
        self.believe(seen, source, leeway, now_ms);
        Ok(seen)
    }

    /// The ID that the next packet probably has: a right guess makes the check faster.
    #[inline]
    pub fn expected(&self, source: &PeerIds) -> u16 {
        if self.habit.known {
            self.habit.last.wrapping_add(u16::from(!self.repeats))
        } else if source.0.counts {
            source.0.last.wrapping_add(1)
        } else {
            0
        }
    }

    /// What the flow is expected to do.
    #[inline]
    fn habit<'a>(&'a self, source: &'a PeerIds) -> &'a Habit {
        if self.habit.known {
            &self.habit
        } else {
            &source.0
        }
    }

    /// Believed always.
    #[inline]
    fn is_usual(&self, ok: IcrcOk, source: &PeerIds, now_ms: u32) -> bool {
        let habit = self.habit(source);
        if ok.df == habit.without_df {
            return false;
        }
        let id = ok.ip_id;
        match habit.kind() {
            Kind::Counts => {
                habit.counts_on_to(id, now_ms)
                    || source.0.counts && source.0.counts_on_to(id, now_ms)
            }
            // A new flow begins with a batch.
            _ if !self.habit.known => id <= BATCH_AHEAD,
            // The first packet of the next batch may be lost.
            _ => id <= 1 || habit.goes_on_to(id),
        }
    }

    /// How many are believed while there is leeway.
    fn at_most(&self, source: &PeerIds) -> u32 {
        match self.habit(source).kind() {
            Kind::StartsOver => LONGEST_BATCH.into(),
            Kind::Counts | Kind::Unknown => 1 << 16,
        }
    }

    /// The ICRC holds with an unusual identification.
    #[cold]
    fn judge(
        &mut self,
        ok: IcrcOk,
        source: &mut PeerIds,
        leeway: &mut Leeway,
        now_ms: u32,
    ) -> Result<IcrcOk, IcrcError> {
        let habit = *self.habit(source);
        let at_most = self.at_most(source);
        let is_possible = ok.df != habit.without_df && u32::from(ok.ip_id) < at_most;
        if is_possible && leeway.allows(at_most, now_ms) {
            self.believe(ok, source, leeway, now_ms);
            return Ok(ok);
        }
        let in_batch = |id, df| {
            habit.kind() == Kind::StartsOver && id < LONGEST_BATCH && df != habit.without_df
        };
        let is_in_batch = in_batch(ok.ip_id, ok.df);
        let again = self.doubts > 0
            && ok.df == self.doubtful_df
            && is_in_batch == in_batch(self.doubtful, self.doubtful_df);
        let ahead = ok.ip_id.wrapping_sub(self.doubtful).wrapping_sub(1);
        let soon = SOON + since(self.doubted_ms, now_ms, REPEATED_MS);
        self.doubts = if again && !is_in_batch {
            self.doubts + 1
        } else {
            1
        };
        (self.doubtful, self.doubtful_df) = (ok.ip_id, ok.df);
        self.doubted_ms = now_ms;
        let is_confirmed = match self.doubts {
            1 => again && ahead < BATCH_AHEAD,
            doubts => ahead < soon || doubts >= DOUBTS,
        };
        if !is_confirmed {
            return Err(IcrcError::Unlikely);
        }
        if !is_possible {
            // It is another sender, or has become one.
            self.habit = Habit::default();
            source.0 = Habit::default();
            self.habit.known = true;
        }
        self.believe(ok, source, leeway, now_ms);
        Ok(ok)
    }

    #[inline]
    fn believe(&mut self, ok: IcrcOk, source: &mut PeerIds, leeway: &mut Leeway, now_ms: u32) {
        if !self.habit.known {
            self.habit = source.0;
        }
        self.repeats = self.habit.last == ok.ip_id;
        self.habit.learn(ok, now_ms);
        source.0.learn(ok, now_ms);
        self.doubts = 0;
        leeway.add();
    }

    /// The ICRC holds with no identification.
    #[cold]
    fn failed(&mut self, source: &PeerIds, leeway: &mut Leeway, now_ms: u32) {
        if self.doubtful >= LONGEST_BATCH || self.habit(source).kind() != Kind::StartsOver {
            self.doubts = 0;
        }
        leeway.charge(self.at_most(source), now_ms);
    }
}

#[cfg(test)]
mod tests;
