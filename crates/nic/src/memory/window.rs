//! Memory windows in the table (IBTA 10.6.7): allocated, bound, invalidated.

use rnic_transport::{BindFault, BindWindow, Pd, RemoteFault};

use super::copies::Backing;
use super::table::{Bound, Entry, Role};
use super::{Access, MemoryTable, key};

impl MemoryTable {
    /// Enters a window that is bound to nothing and gives its key; `None` if the table is full.
    pub(crate) fn insert_window(&mut self, pd: Pd, type_2: bool) -> Option<u32> {
        self.enter(|key| Entry {
            key,
            pd,
            iova: 0,
            len: 0,
            base: 0,
            access: Access(0),
            backing: Backing::Pinned,
            role: Role::Window {
                type_2,
                bound: None,
            },
        })
    }

    /// Removes a window, bound or not; `key` may be any that it had.
    pub(crate) fn remove_window(&mut self, key: u32) {
        let index = key::index(key);
        self.unbind(index);
        self.take(index);
    }

    /// Executes a bind of queue pair `qpn` (IBTA 10.6.7.2.2, 11.4.1.1): afterwards the window opens what it says, under
    /// the new key. Nothing changes if it is refused.
    pub(crate) fn bind(&mut self, pd: Pd, qpn: u32, bind: &BindWindow) -> Result<(), BindFault> {
        let index = key::index(bind.rkey);
        let type_2 = match self.at_index(index) {
            Some(Entry {
                pd: own,
                role: Role::Window { type_2, bound },
                ..
            }) => {
                if *own != pd {
                    return Err(BindFault::OtherPd);
                }
                if *type_2 && bound.is_some() {
                    return Err(BindFault::AlreadyBound);
                }
                *type_2
            }
            _ => return Err(BindFault::UnknownWindow),
        };
        if bind.length == 0 {
            self.unbind(index);
            self.rename(index, bind.rkey);
            return Ok(());
        }
        let (region, base, backing) = self.bindable(pd, bind)?;
        self.unbind(index);
        let qpn = type_2.then_some(qpn);
        if let Some(Entry {
            role: Role::Region { windows },
            ..
        }) = self.at_index(region)
        {
            *windows += 1;
        }
        if let Some(qpn) = qpn {
            self.by_qpn.insert((qpn, index));
        }
        if let Some(window) = self.at_index(index) {
            *window = Entry {
                key: bind.rkey,
                pd,
                iova: if bind.zero_based { 0 } else { bind.addr },
                len: bind.length,
                base,
                access: access_of(bind),
                backing,
                role: Role::Window {
                    type_2,
                    bound: Some(Bound { region, qpn }),
                },
            };
        }
        Ok(())
    }

    /// The memory that a bind asks for: index of the region, where it is, how it is reached.
    fn bindable(&self, pd: Pd, bind: &BindWindow) -> Result<(u32, usize, Backing), BindFault> {
        let region = self.get(bind.lkey).ok_or(BindFault::UnknownRegion)?;
        if !matches!(region.role, Role::Region { .. })
            || matches!(region.backing, Backing::Null | Backing::Foreign)
        {
            return Err(BindFault::UnknownRegion);
        }
        if region.pd != pd {
            return Err(BindFault::OtherPd);
        }
        if !region.access.contains(Access::MW_BIND) {
            return Err(BindFault::NoBindRight);
        }
        if (bind.write || bind.atomic) && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(BindFault::NoLocalWrite);
        }
        let place = MemoryTable::place(region, bind.addr, bind.length)
            .map_err(|_| BindFault::OutOfRange)?;
        Ok((key::index(bind.lkey), place.at, place.backing))
    }

    fn rename(&mut self, index: u32, key: u32) {
        if let Some(window) = self.at_index(index) {
            window.key = key;
        }
    }

    /// Closes a window.
    pub(super) fn unbind(&mut self, index: u32) {
        let Some(window) = self.at_index(index) else {
            return;
        };
        let Role::Window { bound, .. } = &mut window.role else {
            return;
        };
        let Some(Bound { region, qpn }) = bound.take() else {
            return;
        };
        window.len = 0;
        window.access = Access(0);
        if let Some(qpn) = qpn {
            self.by_qpn.remove(&(qpn, index));
        }
        if let Some(Entry {
            role: Role::Region { windows },
            ..
        }) = self.at_index(region)
        {
            *windows -= 1;
        }
    }

    /// Closes a type-2 window of queue pair `qpn`, on behalf of a local work request (IBTA 10.6.7.2.6).
    pub(crate) fn invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), BindFault> {
        let window = self.get(rkey).ok_or(BindFault::UnknownWindow)?;
        match window.role {
            // A region of `ibv_reg_mr` lives until it is deregistered.
            Role::Region { .. } => Err(BindFault::NotInvalidatable),
            Role::Window { type_2: false, .. } => Err(BindFault::NotInvalidatable),
            Role::Window { bound: None, .. } => Err(BindFault::UnknownWindow),
            Role::Window {
                bound: Some(bound), ..
            } => {
                if window.pd != pd {
                    return Err(BindFault::OtherPd);
                }
                if bound.qpn != Some(qpn) {
                    return Err(BindFault::OtherQp);
                }
                self.unbind(key::index(rkey));
                Ok(())
            }
        }
    }

    /// The same on behalf of a peer's SEND with invalidate.
    pub(crate) fn invalidate_by_peer(
        &mut self,
        pd: Pd,
        qpn: u32,
        rkey: u32,
    ) -> Result<(), RemoteFault> {
        self.invalidate(pd, qpn, rkey).map_err(|fault| match fault {
            BindFault::OtherPd => RemoteFault::OtherPd,
            BindFault::UnknownWindow => RemoteFault::UnknownKey,
            _ => RemoteFault::NoRight,
        })
    }

    /// Closes all type-2 windows of a queue pair that is destroyed or reset: they were bound to it.
    pub(crate) fn invalidate_all_of(&mut self, qpn: u32) {
        while let Some(&(_, index)) = self.by_qpn.range((qpn, 0)..=(qpn, u32::MAX)).next() {
            self.unbind(index);
        }
    }
}

fn access_of(bind: &BindWindow) -> Access {
    let right = |given, right: Access| if given { right } else { Access(0) };
    right(bind.read, Access::REMOTE_READ)
        | right(bind.write, Access::REMOTE_WRITE)
        | right(bind.atomic, Access::REMOTE_ATOMIC)
}
