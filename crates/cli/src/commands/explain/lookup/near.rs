//! What somebody may have meant who asked for something that is not known.

use super::words::{self, normal};
use crate::topics::catalogue::all;
use crate::topics::topic::Topic;
use crate::topics::words::{self as words_of_the_field, Word};

/// Longer questions are lines of a program, whose words are in many topics by chance.
const QUESTION: usize = 3;

/// Names near to what was typed, and topics whose text has all the words of a short question.
pub fn near(asked: &[String]) -> Vec<&'static Topic> {
    let text = normal(&asked.join(" "));
    let tokens = words::tokens(&text);
    let mut rated: Vec<(usize, &'static Topic)> = Vec::new();
    // A single word, or a word of a line that looks like a name.
    for word in tokens
        .iter()
        .filter(|word| tokens.len() == 1 || word.contains('_'))
    {
        let allowed = (word.len() + 2) / 4;
        for topic in all() {
            let name = topic.name.to_lowercase();
            let distance = distance(&name, word).min(distance(&words::short(topic), word));
            if distance <= allowed && !rated.iter().any(|(_, other)| std::ptr::eq(*other, topic)) {
                rated.push((distance, topic));
            }
        }
    }
    rated.sort_by_key(|(distance, _)| *distance);
    let mut topics: Vec<_> = rated.into_iter().map(|(_, topic)| topic).take(5).collect();
    let in_words = |word: &String| word.len() > 3 && word.chars().all(char::is_alphabetic);
    if topics.is_empty() && tokens.len() <= QUESTION && tokens.iter().all(in_words) {
        topics = all().filter(|topic| says(topic, &tokens)).take(8).collect();
    }
    topics
}

/// Words of the field that are spelled nearly as what was typed.
pub fn near_words(asked: &[String]) -> Vec<&'static Word> {
    let text = normal(&asked.join(" "));
    let allowed = (text.len() + 2) / 4;
    let rate = |word: &'static Word| {
        let spellings = word.spellings();
        let nearest = spellings.map(|spelling| distance(&spelling.to_lowercase(), &text));
        nearest.min().map(|distance| (distance, word))
    };
    let rated = words_of_the_field::all().iter().filter_map(rate);
    let mut rated: Vec<_> = rated.filter(|(n, _)| *n <= allowed).collect();
    rated.sort_by_key(|(distance, _)| *distance);
    rated.into_iter().map(|(_, word)| word).take(5).collect()
}

/// Whether the text of a topic has all of these words, as words or beginnings of words.
fn says(topic: &Topic, wanted: &[String]) -> bool {
    let text = [topic.meaning, topic.text, topic.name, topic.follows]
        .into_iter()
        .chain(topic.causes.iter().copied())
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    wanted
        .iter()
        .all(|wanted| words.iter().any(|word| word.starts_with(&**wanted)))
}

/// Levenshtein distance.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (above + 1)
                .min(row[j] + 1)
                .min(diagonal + usize::from(from != *to));
            diagonal = above;
        }
    }
    row[b.len()]
}
