use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::handles::open::lock_open;

/// A handle of process `of`, while process `now` looks at it.
struct Handle {
    of: u32,
    now: Rc<Cell<u32>>,
    ended: Rc<Cell<Vec<u32>>>,
}

impl OfProcess for Handle {
    fn is_here(&self) -> bool {
        self.of == self.now.get()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut ended = self.ended.take();
        ended.push(self.of);
        self.ended.set(ended);
    }
}

#[test]
fn each_generation_has_its_own_and_ends_no_others() {
    let (now, ended) = (Rc::new(Cell::new(1)), Rc::new(Cell::new(Vec::new())));
    let handle = |of| Handle {
        of,
        now: now.clone(),
        ended: ended.clone(),
    };
    let mut object = PerProcess::new(handle(1));
    assert_eq!(object.here().map(|h| h.of), Some(1));
    assert!(object.is_own_here());
    // Nothing was added.
    object.end_here();
    for child in [2, 3] {
        now.set(child);
        assert!(object.here().is_none() && !object.is_own_here());
        assert_eq!(object.nearest().of, child - 1);
        object.end_here();
        object.add(&lock_open(), handle(child));
        assert_eq!(object.here().map(|h| h.of), Some(child));
    }
    assert!(ended.take().is_empty());
    object.end_here();
    assert_eq!(ended.take(), [3]);
    object.end_here();
    assert!(object.here().is_none() && ended.take().is_empty());
    // It may be had again.
    object.add(&lock_open(), handle(3));
    assert_eq!(object.here().map(|h| h.of), Some(3));
}
