//! Which two processors server and client are tied to.
//!
//! The two hardware threads of one core share what it has, and would slow each other down;
//! processors under one last-level cache hand lines to each other without going through memory or
//! another socket. So: two cores, near each other where the kernel says which are (sysfs,
//! Documentation/admin-guide/cputopology.rst).

/// Server's and client's; `None` with one processor only.
pub fn pair() -> Option<(usize, usize)> {
    let allowed = rnic_sys::child::allowed_cpus();
    let first = allowed.first()?;
    let list = |file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{first}/{file}");
        numbers(&std::fs::read_to_string(path).unwrap_or_default())
    };
    choose(
        &allowed,
        &list("topology/thread_siblings_list"),
        &list("cache/index3/shared_cpu_list"),
    )
}

/// The first processor with another one, from the threads of its core and the processors at its
/// last-level cache.
fn choose(allowed: &[usize], threads: &[usize], near: &[usize]) -> Option<(usize, usize)> {
    let (&first, others) = allowed.split_first()?;
    let mut cores = others.iter().filter(|cpu| !threads.contains(cpu));
    let best = cores.clone().find(|cpu| near.contains(cpu));
    let second = best.or(cores.next()).or(others.first());
    second.map(|&second| (first, second))
}

/// What a list of the kernel names: `0-3,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_are_not_a_pair() {
        let near: Vec<usize> = (0..16).collect();
        assert_eq!(choose(&[0, 1, 2, 3], &[0, 1], &near), Some((0, 2)));
        // Unless there is nothing else.
        assert_eq!(choose(&[0, 1], &[0, 1], &near), Some((0, 1)));
        assert_eq!(choose(&[0], &[0, 1], &near), None);
    }

    #[test]
    fn the_nearer_core_is_taken() {
        let near = numbers("0,4-7\n");
        assert_eq!(choose(&[0, 1, 4, 8], &[0, 8], &near), Some((0, 4)));
        assert_eq!(choose(&[0, 1, 8], &[0, 8], &near), Some((0, 1)));
    }

    #[test]
    fn any_two_are_taken_where_the_kernel_says_nothing() {
        assert_eq!(choose(&[3, 5, 7], &numbers(""), &numbers("")), Some((3, 5)));
    }
}
