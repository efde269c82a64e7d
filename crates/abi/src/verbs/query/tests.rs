use super::*;

fn said(outcome: Result<u32>) -> String {
    match outcome {
        Ok(row) => row.to_string(),
        Err(refusal) => format!("{refusal:?}"),
    }
}

#[test]
fn an_index_beyond_a_table_is_refused() {
    let table = Table::new("GID");
    for (index, rows, words) in [
        (0, 5, "0"),
        (4, 5, "4"),
        (99, 5, "GID index 99: the table has 0 to 4; look"),
        (-1, 5, "GID index -1: the table has 0 to 4; look"),
        (7, 1, "GID index 7: the table has 0 alone; look"),
        (2, 0, "GID index 2: the table is empty; look"),
    ] {
        let said = said(table.row(index, rows, || "; look".into()));
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("Answer"), "{said}");
    }
}

/// librdmacm asks for P_Keys until there are no more; some programs ask for many GIDs, whatever the
/// table has.
#[test]
fn the_end_of_a_table_is_an_answer() {
    let table = Table::new("P_Key");
    for index in 0..3 {
        assert_eq!(said(table.row(index, 3, String::new)), index.to_string());
    }
    for index in 3..256 {
        let said = said(table.row(index, 3, String::new));
        assert!(said.contains("Answer"), "{said}");
        assert!(said.contains("the P_Key table has no more rows"), "{said}");
    }
    assert!(said(table.row(99, 3, String::new)).contains("Refused"));
}
