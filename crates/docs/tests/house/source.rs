//! The modules of a crate, and what each one names of the others.
//!
//! A module names another one by `use crate::…`, `use super::…` or such a path inside an
//! expression, a type or a macro. What only tests compile is left out, and so is what a module
//! re-exports of its own children.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, UseTree, Visibility};

/// Path of a module: names from the crate's root, which is the empty path.
pub type Name = Vec<String>;

/// One module of a crate.
#[derive(Debug, Default)]
pub struct Module {
    /// Its file, from `src`. Modules between braces have the file that they stand in.
    pub file: PathBuf,
    /// Paths from the crate's root that it names, with those of its imports.
    named: Vec<Name>,
    /// Items that it defines.
    items: BTreeSet<String>,
    /// Names that it imports, and the path of each.
    imports: BTreeMap<String, Name>,
    /// Modules of which it imports everything.
    globs: Vec<Name>,
    /// Its child modules.
    children: BTreeSet<String>,
}

/// A crate.
#[derive(Debug, Default)]
pub struct Crate {
    /// Its modules by path.
    pub modules: BTreeMap<Name, Module>,
    /// Macros that stand at the crate's root, and the module that defines each.
    macros: BTreeMap<String, Name>,
    /// The modules that each module names.
    names: BTreeMap<Name, BTreeSet<Name>>,
}

impl Crate {
    /// Reads the crate in a folder: `src/lib.rs`, or `src/main.rs` if it is a program alone.
    pub fn read(folder: &Path) -> Crate {
        let src = folder.join("src");
        let root = ["lib.rs", "main.rs"].map(|name| src.join(name));
        let root = root.iter().find(|path| path.is_file());
        let root = root.unwrap_or_else(|| panic!("no crate in {}", folder.display()));
        let mut all = Crate::default();
        all.read_file(&src, root, &src, Vec::new());
        let names = all
            .modules
            .keys()
            .map(|name| (name.clone(), all.find_named_by(name)));
        all.names = names.collect();
        all
    }

    fn read_file(&mut self, src: &Path, file: &Path, children: &Path, name: Name) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let short = file.strip_prefix(src).unwrap_or(file).to_owned();
        self.read_items(src, &short, children, name, &parsed.items);
    }

    /// `file` is that of the module from `src`; `folder` has the files of its children.
    fn read_items(&mut self, src: &Path, file: &Path, folder: &Path, name: Name, items: &[Item]) {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            let defined = defined(item);
            if let Item::Macro(item) = item
                && item.attrs.iter().any(|a| a.path().is_ident("macro_export"))
            {
                let words = defined.iter().cloned();
                self.macros.extend(words.map(|word| (word, name.clone())));
            }
            module.items.extend(defined);
            if let Item::Mod(child) = item {
                module.children.insert(child.ident.to_string());
            }
        }
        let mut reader = Reader {
            module,
            name: name.clone(),
            is_outside_functions: true,
        };
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            let Item::Mod(child) = item else {
                reader.visit_item(item);
                continue;
            };
            let word = child.ident.to_string();
            let inner = folder.join(&word);
            let child_name = [name.clone(), vec![word.clone()]].concat();
            match &child.content {
                Some((_, items)) => self.read_items(src, file, &inner, child_name, items),
                None => {
                    let at_path = child.attrs.iter().find_map(path_attribute);
                    let of_name = [inner.with_extension("rs"), inner.join("mod.rs")];
                    let beside = src.join(file.parent().unwrap_or(Path::new("")));
                    let own = at_path.map(|path| beside.join(path));
                    let child_file = own.or_else(|| of_name.into_iter().find(|p| p.is_file()));
                    let child_file = child_file.unwrap_or_else(|| panic!("no file of {word}"));
                    self.read_file(src, &child_file, &inner, child_name);
                }
            }
        }
        self.modules.insert(name, reader.module);
    }

    /// Returns the modules that a module names, each once and never itself.
    pub fn named_by(&self, name: &Name) -> &BTreeSet<Name> {
        &self.names[name]
    }

    fn find_named_by(&self, name: &Name) -> BTreeSet<Name> {
        let named = self.modules[name].named.iter();
        named
            .filter_map(|path| self.home(path, 0))
            .filter(|home| home != name)
            .collect()
    }

    /// Returns the module that defines what a path from the root names; None for other crates.
    fn home(&self, path: &[String], depth: usize) -> Option<Name> {
        if depth > 16 {
            return None;
        }
        let mut at = Name::new();
        for (index, word) in path.iter().enumerate() {
            let module = self.modules.get(&at)?;
            let rest = &path[index + 1..];
            if module.children.contains(word) {
                at.push(word.clone());
            } else if module.items.contains(word) {
                return Some(at);
            } else if at.is_empty() && self.macros.contains_key(word) {
                return self.macros.get(word).cloned();
            } else if let Some(target) = module.imports.get(word) {
                return self.home(&[target, rest].concat(), depth + 1);
            } else {
                let mut globs = module.globs.iter();
                let found = globs.find_map(|glob| {
                    let glob = self.home(glob, depth + 1)?;
                    let from = self.modules.get(&glob)?;
                    let has = from.items.contains(word)
                        || from.children.contains(word)
                        || from.imports.contains_key(word);
                    (has && glob != at).then_some(glob)
                });
                return match found {
                    Some(glob) => self.home(&[&glob, &path[index..]].concat(), depth + 1),
                    None => Some(at),
                };
            }
        }
        Some(at)
    }

    /// Returns the paths of other crates that the crate's code begins with a word, such as `std`.
    pub fn foreign(&self, word: &str) -> Vec<&Path> {
        let begins = |module: &Module| {
            let mut named = module.named.iter();
            named.any(|path| {
                path.first()
                    .is_some_and(|first| first == &format!("::{word}"))
            })
        };
        let modules = self.modules.values().filter(|module| begins(module));
        modules.map(|module| module.file.as_path()).collect()
    }
}

/// Collects what one module names.
struct Reader {
    module: Module,
    name: Name,
    is_outside_functions: bool,
}

impl Reader {
    /// Returns a path from the crate's root; a first word `::name` stands for another crate.
    fn absolute(&self, path: &[String]) -> Name {
        let mut at = self.name.clone();
        let mut rest = path;
        match rest.first().map(String::as_str) {
            Some("crate") => {
                at.clear();
                rest = &rest[1..];
            }
            Some("self") => rest = &rest[1..],
            Some("super") => {}
            Some(word) if self.module.children.contains(word) => {}
            Some(word) => {
                let known = self.module.imports.get(word).cloned();
                at = known.unwrap_or_else(|| vec![format!("::{word}")]);
                rest = &rest[1..];
            }
            None => {}
        }
        while rest.first().is_some_and(|word| word == "super") {
            at.pop();
            rest = &rest[1..];
        }
        at.extend_from_slice(rest);
        at
    }

    fn name(&mut self, path: &[String]) {
        let path = self.absolute(path);
        self.module.named.push(path);
    }

    fn import(&mut self, tree: &UseTree, before: &[String], is_public: bool) {
        let with = |word: &Ident| [before, &[word.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident), is_public),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, is_public);
                }
            }
            UseTree::Glob(_) => {
                let path = self.absolute(before);
                if self.is_outside_functions {
                    self.module.globs.push(path.clone());
                }
                self.imported(path, is_public);
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last() {
                    self.bind(last.clone(), before, is_public);
                }
            }
            UseTree::Name(name) => {
                self.bind(name.ident.to_string(), &with(&name.ident), is_public);
            }
            UseTree::Rename(rename) => {
                let path = match rename.ident == "self" {
                    true => before.to_vec(),
                    false => with(&rename.ident),
                };
                self.bind(rename.rename.to_string(), &path, is_public);
            }
        }
    }

    fn bind(&mut self, word: String, path: &[String], is_public: bool) {
        let path = self.absolute(path);
        if self.is_outside_functions {
            self.module.imports.insert(word, path.clone());
        }
        self.imported(path, is_public);
    }

    /// A module may offer what its children have: that is no use of them.
    fn imported(&mut self, path: Name, is_public: bool) {
        let is_own = path.len() > self.name.len() && path.starts_with(&self.name);
        if !(is_public && is_own) {
            self.module.named.push(path);
        }
    }

    /// Finds paths in the words of a macro, which nobody has parsed.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.scanned(&path);
                        path.clear();
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.scanned(&path);
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.scanned(&path);
    }

    fn scanned(&mut self, path: &[String]) {
        if path.len() > 1 {
            self.name(path);
        }
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let is_public = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &[], is_public);
    }

    fn visit_block(&mut self, block: &'a syn::Block) {
        let before = std::mem::replace(&mut self.is_outside_functions, false);
        visit::visit_block(self, block);
        self.is_outside_functions = before;
    }

    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if words.len() > 1 {
            self.name(&words);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        visit::visit_macro(self, call);
        self.scan(call.tokens.clone());
    }
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) if pair.path.is_ident("path") => Some(text.value()),
        _ => None,
    }
}

/// Whether only tests compile an item.
fn is_for_tests(item: &Item) -> bool {
    attributes(item).iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("cfg") && asks_for_tests(list.tokens.clone())
    })
}

/// Whether a condition is `test`, or `all(…)` with one such in it.
fn asks_for_tests(condition: TokenStream) -> bool {
    let mut is_all = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(word) => {
            is_all = word == "all";
            word == "test"
        }
        TokenTree::Group(group) => is_all && asks_for_tests(group.stream()),
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The names that an item defines in its module.
fn defined(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(syn::ItemMacro {
            ident: Some(ident), ..
        }) => ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::ForeignMod(item) => {
            let names = item.items.iter().filter_map(|item| match item {
                syn::ForeignItem::Fn(item) => Some(item.sig.ident.to_string()),
                syn::ForeignItem::Static(item) => Some(item.ident.to_string()),
                _ => None,
            });
            return names.collect();
        }
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}
